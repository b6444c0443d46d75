// SPDX-License-Identifier: GPL-3.0-or-later
//! GSE: bytes, round trips, losses, and an independent receiver.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use bytes::Bytes;
use common::{is_subsequence, lengths, packet, send_all, source, survivors};
use dvb::bbframe::{BbHeader, RollOff};
use dvb::gse::{Decapsulator, Encapsulator, GseError, Label, LabelField, MIN_DATA_FIELD, Packet};
use proptest::prelude::*;
use std::collections::VecDeque;

const LABEL: Label = Label::Six([2, 0, 0x48, 0x55, 0x4C, 0x4B]);

fn receive(frames: &[Vec<u8>], lost: &[bool]) -> Vec<Vec<u8>> {
    let mut decapsulator = Decapsulator::new();
    let mut got = vec![];
    for (frame, lost) in frames.iter().zip(lost.iter().cycle()) {
        if *lost {
            decapsulator.frame_lost();
        } else {
            decapsulator.frame(frame, |pdu| got.push(pdu.data.to_vec()));
        }
    }
    assert_eq!(decapsulator.malformed(), 0);
    got
}

fn send(packets: &[Vec<u8>], field: usize, mut encapsulator: Encapsulator) -> common::Sent {
    send_all(packets, field, |frame, queue| {
        let filled = encapsulator.fill(frame, source(queue));
        assert!(frame[filled.used..].iter().all(|&b| b == 0));
        (filled.packets, encapsulator.pending())
    })
}

#[test]
fn complete_packet_bytes() {
    let mut field = [0xFF; 40];
    let mut queue = VecDeque::from([vec![0x45; 20]]);
    let filled = Encapsulator::new(LABEL).fill(&mut field, source(&mut queue));
    assert_eq!((filled.used, filled.packets, filled.bytes), (30, 1, 20));
    assert_eq!(
        field[..10],
        [0xC0, 28, 0x08, 0x00, 2, 0, 0x48, 0x55, 0x4C, 0x4B]
    );
    assert_eq!(field[10..30], [0x45; 20]);
    assert_eq!(field[30..], [0; 10]);
}

#[test]
fn fragment_bytes() {
    let pdu = packet(0, 60);
    let sent = send(std::slice::from_ref(&pdu), 33, Encapsulator::new(LABEL));
    let [first, middle, last] = &sent.frames[..] else {
        panic!("{} frames", sent.frames.len())
    };
    // 33 - 13 bytes of PDU; total length 2 + 6 + 60.
    assert_eq!(
        first[..13],
        [0x80, 31, 1, 0, 68, 0x86, 0xDD, 2, 0, 0x48, 0x55, 0x4C, 0x4B]
    );
    assert_eq!(first[13..], pdu[..20]);
    assert_eq!(middle[..3], [0x30, 31, 1]);
    assert_eq!(middle[3..], pdu[20..50]);
    assert_eq!(last[..3], [0x70, 15, 1]);
    assert_eq!(last[3..13], pdu[50..]);
    assert_eq!(last[17..], [0; 16]);
}

#[test]
fn label_types() {
    let pdu = vec![0x45; 4];
    let emit = |label| {
        let mut out = [0; 16];
        let packet = Packet::Complete {
            protocol_type: 0x0800,
            label,
            data: &pdu,
        };
        let len = packet.emit(&mut out).unwrap();
        assert_eq!(Packet::parse(&out[..len]), Ok(Some((packet, &[][..]))));
        (out[0] >> 4, len)
    };
    assert_eq!(emit(LabelField::Label(LABEL)), (0b1100, 14));
    assert_eq!(
        emit(LabelField::Label(Label::Three([1, 2, 3]))),
        (0b1101, 11)
    );
    assert_eq!(emit(LabelField::Label(Label::Broadcast)), (0b1110, 8));
    assert_eq!(emit(LabelField::ReUse), (0b1111, 8));
}

#[test]
fn packet_is_kept_when_the_room_left_is_too_small() {
    // 10 + 80 bytes leave 12: below the 13 + 1 of a first fragment.
    let packets = [packet(1, 80), packet(2, 80)];
    let sent = send(&packets, 102, Encapsulator::new(LABEL));
    assert_eq!(sent.frames.len(), 2);
    assert_eq!(sent.frames[0][90..], [0; 12]);
    assert_eq!(receive(&sent.frames, &[false]), packets);
}

#[test]
fn packets_that_are_not_ip_are_discarded() {
    let mut queue = VecDeque::from([vec![0; 20], vec![], packet(1, 20), vec![0x45; 70_000]]);
    let mut field = [0; 100];
    let filled = Encapsulator::new(LABEL).fill(&mut field, source(&mut queue));
    assert_eq!((filled.packets, filled.bytes, queue.len()), (1, 20, 0));
}

#[test]
fn long_packets_are_cut_at_the_length_field() {
    let packets = [
        packet(1, 65_527),
        packet(2, 4087),
        packet(3, 4086),
        packet(4, 4085),
    ];
    for label in [LABEL, Label::Broadcast] {
        let sent = send(&packets, 7264, Encapsulator::new(label));
        assert_eq!(receive(&sent.frames, &[false]), packets);
    }
}

#[test]
fn incomplete_pdu_is_given_up_after_256_frames() {
    let pdu = packet(1, 60);
    let sent = send(std::slice::from_ref(&pdu), 50, Encapsulator::new(LABEL));
    for (gap, arrives) in [(255, true), (256, false)] {
        let mut decapsulator = Decapsulator::new();
        let mut got = 0;
        decapsulator.frame(&sent.frames[0], |_| got += 1);
        (0..gap).for_each(|_| decapsulator.frame_lost());
        decapsulator.frame(&sent.frames[1], |_| got += 1);
        assert_eq!(
            (got, decapsulator.lost()),
            (i32::from(arrives), u64::from(!arrives) * 2),
            "gap {gap}"
        );
    }
}

#[test]
fn faults_are_named() {
    assert_eq!(Packet::parse(&[0xC0, 9, 8, 0]), Err(GseError::Truncated));
    assert_eq!(Packet::parse(&[0xC0, 1, 8]), Err(GseError::Length));
    assert_eq!(Packet::parse(&[0x70, 3, 1, 0, 0]), Err(GseError::Length));
    let mut decapsulator = Decapsulator::new();
    // Label re-use with nothing to re-use.
    decapsulator.frame(&[0xF0, 4, 8, 0, 0x45, 0], |_| panic!("no PDU expected"));
    decapsulator.frame(&[0xC0, 9, 8, 0], |_| panic!("no PDU expected"));
    assert_eq!(decapsulator.malformed(), 2);
}

#[test]
fn flipped_bits_in_a_fragmented_pdu_are_noticed() {
    let pdu = packet(1, 60);
    let sent = send(std::slice::from_ref(&pdu), 50, Encapsulator::new(LABEL));
    for bit in 0..8 * 50 {
        let mut frames = sent.frames.clone();
        frames[0][bit / 8] ^= 0x80 >> (bit % 8);
        let mut decapsulator = Decapsulator::new();
        for frame in &frames {
            // Start or end bits may turn the fragment into a complete packet, which GSE does not
            // protect.
            if bit >= 8 {
                decapsulator.frame(frame, |got| assert_ne!(got.data, pdu));
            }
        }
    }
}

fn encapsulators() -> impl Strategy<Value = fn() -> Encapsulator> {
    prop_oneof![
        Just((|| Encapsulator::new(LABEL)) as fn() -> Encapsulator),
        Just((|| Encapsulator::new(LABEL).with_label_re_use()) as fn() -> Encapsulator),
        Just(
            (|| Encapsulator::new(Label::Three([1, 2, 3])).with_label_re_use())
                as fn() -> Encapsulator
        ),
        Just((|| Encapsulator::new(Label::Broadcast)) as fn() -> Encapsulator),
    ]
}

fn packets_of(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths
        .iter()
        .enumerate()
        .map(|(number, &len)| packet(number, len))
        .collect()
}

proptest! {
    #[test]
    fn round_trip(
        lengths in lengths(9000, 40),
        field in prop_oneof![374..=7264_usize, 60..374_usize],
        encapsulator in encapsulators(),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, field, encapsulator());
        prop_assert_eq!(receive(&sent.frames, &[false]), packets);
    }

    #[test]
    fn round_trip_in_tiny_fields(lengths in lengths(1500, 10), field in MIN_DATA_FIELD..60) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, field, Encapsulator::new(LABEL));
        prop_assert_eq!(receive(&sent.frames, &[false]), packets);
    }

    #[test]
    fn a_lost_frame_loses_just_what_was_in_it(
        lengths in lengths(9000, 60),
        field in 60..=7264_usize,
        lost in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, field, Encapsulator::new(LABEL));
        prop_assert_eq!(receive(&sent.frames, &lost), survivors(&packets, &sent, &lost));
    }

    #[test]
    fn frames_that_vanish_unnoticed_corrupt_nothing(
        lengths in lengths(3000, 60),
        field in 60..=2000_usize,
        lost in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, field, Encapsulator::new(LABEL));
        let kept = sent.frames.iter().zip(lost.iter().cycle()).filter(|(_, lost)| !**lost);
        let kept: Vec<_> = kept.map(|(frame, _)| frame.clone()).collect();
        prop_assert!(is_subsequence(&receive(&kept, &[false]), &packets));
    }

    #[test]
    fn an_independent_receiver_gets_the_same(
        lengths in lengths(9000, 40),
        field in 60..=7264_usize,
        encapsulator in encapsulators(),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, field, encapsulator());
        let mut receiver = dvb_gse::gsepacket::GSEPacketDefrag::new();
        let mut got = vec![];
        for field in &sent.frames {
            let header = BbHeader::gse(field.len(), RollOff::R25).to_bytes();
            let frame = Bytes::from([&header[..], field].concat());
            prop_assert!(dvb_gse::bbframe::BBFrameValidator::new().bbframe_is_valid(&frame));
            got.extend(receiver.defragment(&frame).unwrap().map(|pdu| pdu.data().to_vec()));
        }
        prop_assert_eq!(got, packets);
    }

    #[test]
    fn any_bytes_no_panic(fields in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8)) {
        let mut decapsulator = Decapsulator::new();
        for field in &fields {
            decapsulator.frame(field, |_| ());
        }
    }

    #[test]
    fn what_parses_emits_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 2..80)) {
        bytes[0] &= 0xF0;
        bytes[1] %= 80;
        if let Ok(Some((packet, rest))) = Packet::parse(&bytes) {
            let mut out = vec![0; packet.len()];
            packet.emit(&mut out).unwrap();
            let read = &bytes[..bytes.len() - rest.len()];
            // The label type of middle and last fragments is written as re-use, whatever it was.
            prop_assert_eq!(out[0] & 0xCF, read[0] & 0xCF);
            prop_assert_eq!(&out[1..], &read[1..]);
        }
    }
}

#[test]
fn ethernet_frames_travel_as_what_they_are_and_a_packet_in_hand_can_be_taken_back() {
    use dvb::sdu::{ETHERNET, Service};
    let mut sender = Encapsulator::new(Label::Broadcast).with_service(Service::Ethernet);
    let mut receiver = Decapsulator::new();
    let frame: Vec<u8> = (0..100).collect();
    let mut left = Some(frame.clone());
    let mut field = [0; 120];
    sender.fill(&mut field, |out| {
        left.take().is_some_and(|next| {
            *out = next;
            true
        })
    });
    let mut got = vec![];
    receiver.frame(&field, |pdu| {
        got.push((pdu.protocol_type, pdu.data.to_vec()));
    });
    assert_eq!(got, [(ETHERNET, frame.clone())]);
    sender.fill(&mut field, |out| {
        *out = frame.clone();
        true
    });
    assert_eq!(sender.take_back(), Some(frame));
    assert_eq!((sender.pending(), sender.take_back()), (0, None));
}
