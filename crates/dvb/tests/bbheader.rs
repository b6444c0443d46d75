// SPDX-License-Identifier: GPL-3.0-or-later
//! BBHEADER codec.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use dvb::bbframe::{BBHEADER_LEN, BbFrame, BbFrameError, BbHeader, RollOff, StreamType};
use proptest::prelude::*;

#[test]
fn gse_header_has_the_bytes_of_the_standard() {
    let bytes = BbHeader::gse(94, RollOff::R20).to_bytes();
    // Generic continuous, single stream, CCM, roll-off 0.20; UPL 0, DFL 752 bits, SYNC 0, SYNCD 0.
    assert_eq!(bytes[..9], [0x72, 0, 0, 0, 0x02, 0xF0, 0, 0, 0]);
    assert_eq!(bytes[9], crc8_by_division(&bytes[..9]));
}

/// CRC-8 by the generator polynomial x^8 + x^7 + x^6 + x^4 + x^2 + 1, bit by bit.
fn crc8_by_division(bytes: &[u8]) -> u8 {
    let mut crc = 0_u8;
    for byte in bytes {
        crc ^= byte;
        for _ in 0..8 {
            crc = if crc & 0x80 == 0 {
                crc << 1
            } else {
                crc << 1 ^ 0xD5
            };
        }
    }
    crc
}

#[test]
fn faults_are_named() {
    let good = BbHeader::gse(4, RollOff::R35).to_bytes();
    assert_eq!(
        BbFrame::new(&good[..9]).unwrap_err(),
        BbFrameError::Short(9)
    );
    assert_eq!(
        BbFrame::new(&good).unwrap_err(),
        BbFrameError::DataField(32)
    );
    let mut flipped = good;
    flipped[5] ^= 1;
    assert!(matches!(
        BbFrame::new(&flipped).unwrap_err(),
        BbFrameError::Crc { .. }
    ));
    let mut reserved = good;
    reserved[0] |= 0b11;
    reserved[9] = crc8_by_division(&reserved[..9]);
    let frame = [&reserved[..], &[0; 4]].concat();
    assert_eq!(
        BbFrame::new(&frame).unwrap().header().unwrap_err(),
        BbFrameError::Reserved(0x73)
    );
}

fn any_header() -> impl Strategy<Value = BbHeader> {
    let stream_type = prop_oneof![
        Just(StreamType::GenericPacketized),
        Just(StreamType::GenericContinuous),
        Just(StreamType::Transport)
    ];
    let roll_off = prop_oneof![Just(RollOff::R35), Just(RollOff::R25), Just(RollOff::R20)];
    (
        stream_type,
        any::<Option<u8>>(),
        any::<[bool; 3]>(),
        roll_off,
        any::<(u16, u8, u16)>(),
        0..8000_u16,
    )
        .prop_map(
            |(stream_type, isi, [ccm, issyi, npd], roll_off, (upl, sync, syncd), bytes)| BbHeader {
                stream_type,
                isi,
                ccm,
                issyi,
                npd,
                roll_off,
                upl,
                dfl: bytes * 8,
                sync,
                syncd,
            },
        )
}

proptest! {
    #[test]
    fn header_round_trip(header in any_header()) {
        let mut frame = header.to_bytes().to_vec();
        frame.resize(BBHEADER_LEN + 8000, 0x55);
        let view = BbFrame::new(&frame).unwrap();
        prop_assert_eq!(view.header().unwrap(), header);
        prop_assert_eq!(view.data_field().len(), usize::from(header.dfl / 8));
    }

    #[test]
    fn any_bytes_no_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..64), fix in any::<bool>()) {
        if fix && bytes.len() >= BBHEADER_LEN {
            bytes[9] = crc8_by_division(&bytes[..9]);
        }
        if let Ok(frame) = BbFrame::new(&bytes) {
            let _ = frame.header();
            prop_assert!(frame.data_field().len() <= bytes.len() - BBHEADER_LEN);
        }
    }
}
