// SPDX-License-Identifier: GPL-3.0-or-later
//! RLE: bytes, round trips and losses.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{is_subsequence, lengths, packet, send_all, source, survivors};
use dvb::rle::{
    AlpduType, Decapsulator, Encapsulator, Header, MAX_SDU, MIN_PAYLOAD, Ppdu, Protection, RleError,
};
use proptest::prelude::*;
use std::collections::VecDeque;

fn receive(bursts: &[Vec<u8>], lost: &[bool]) -> Vec<Vec<u8>> {
    let mut decapsulator = Decapsulator::new();
    let mut got = vec![];
    for (burst, lost) in bursts.iter().zip(lost.iter().cycle()) {
        if *lost {
            decapsulator.frame_lost();
        } else {
            decapsulator.frame(burst, |sdu| got.push(sdu.data.to_vec()));
        }
    }
    assert_eq!(decapsulator.malformed(), 0);
    got
}

fn send(packets: &[Vec<u8>], payload: usize, protection: Protection) -> common::Sent {
    let mut encapsulator = Encapsulator::new(protection);
    send_all(packets, payload, |burst, queue| {
        let filled = encapsulator.fill(burst, source(queue));
        assert!(burst[filled.used..].iter().all(|&b| b == 0));
        (filled.packets, encapsulator.pending())
    })
}

#[test]
fn complete_ppdu_bytes() {
    let mut payload = [0xFF; 38];
    let mut queue = VecDeque::from([vec![0x45; 20]]);
    let filled = Encapsulator::default().fill(&mut payload, source(&mut queue));
    assert_eq!((filled.used, filled.packets, filled.bytes), (23, 1, 20));
    // S 1, E 1, length 21, label type 0, protocol type present and compressed.
    assert_eq!(payload[..3], [0xC0, 21 << 3, 0x0D]);
    assert_eq!(payload[3..23], [0x45; 20]);
    assert_eq!(payload[23..], [0; 15]);
}

#[test]
fn fragment_bytes() {
    let sdu = packet(0, 80);
    let sent = send(std::slice::from_ref(&sdu), 38, Protection::SequenceNumber);
    let [start, continuation, end] = &sent.frames[..] else {
        panic!("{} bursts", sent.frames.len())
    };
    // Length 36 and fragment id 1; total length 1 + 80 + 1; IPv6.
    assert_eq!(start[..5], [0x81, 0x21, 0x02, 0x90, 0x11]);
    assert_eq!(start[5..], sdu[..33]);
    assert_eq!(continuation[..2], [0x01, 0x21]);
    assert_eq!(continuation[2..], sdu[33..69]);
    // Length 12: 11 bytes and sequence number 0.
    assert_eq!(end[..2], [0x40, 0x61]);
    assert_eq!(end[2..13], sdu[69..]);
    assert_eq!(end[13..], [0; 25]);

    let sent = send(std::slice::from_ref(&sdu), 38, Protection::Crc32);
    // CRC bit, total length 1 + 80 + 4.
    assert_eq!(sent.frames[0][2..4], [0x82, 0xA8]);
    assert_eq!(sent.frames[2][..2], [0x40, 0x79]);
}

#[test]
fn every_packet_length_passes_every_burst() {
    // With a bare trailer in the last burst some lengths would be refused by other receivers; here
    // none is lost.
    for payload in [38, 59, 123] {
        for len in 1..=200 {
            for protection in [Protection::SequenceNumber, Protection::Crc32] {
                let packets = vec![packet(len, len); 3];
                let sent = send(&packets, payload, protection);
                assert_eq!(
                    receive(&sent.frames, &[false]),
                    packets,
                    "{len} bytes in {payload}"
                );
                assert!(
                    sent.frames
                        .iter()
                        .all(|burst| !holds_bare_trailer(burst, protection))
                );
            }
        }
    }
}

fn holds_bare_trailer(burst: &[u8], protection: Protection) -> bool {
    let mut rest = burst;
    while let Ok(Some((ppdu, tail))) = Ppdu::parse(rest) {
        if matches!(ppdu.header, Header::End { .. }) && ppdu.data.len() <= protection.len() {
            return true;
        }
        rest = tail;
    }
    false
}

#[test]
fn bare_trailer_is_accepted() {
    let mut first = [0; 30];
    let mut second = [0; 8];
    let header = Header::Start {
        frag_id: 3,
        use_crc: false,
        total_length: 22,
        alpdu: AlpduType::PLAIN,
    };
    header.emit(&[&[0x0D], &[0x45; 20]], &mut first).unwrap();
    Header::End { frag_id: 3 }
        .emit(&[&[0]], &mut second)
        .unwrap();
    assert_eq!(
        receive(&[first.to_vec(), second.to_vec()], &[false]),
        [vec![0x45; 20]]
    );
}

#[test]
fn protocol_types_of_the_standard_are_read() {
    let read = |alpdu: &[u8]| {
        let mut payload = [0; 32];
        Header::Complete {
            alpdu: AlpduType::PLAIN,
        }
        .emit(&[alpdu], &mut payload)
        .unwrap();
        let mut got = None;
        Decapsulator::new().frame(&payload, |sdu| {
            got = Some((sdu.protocol_type, sdu.data.to_vec()));
        });
        got
    };
    assert_eq!(read(&[0x0D, 0x45, 1]), Some((0x0800, vec![0x45, 1])));
    assert_eq!(read(&[0x11, 0x60, 1]), Some((0x86DD, vec![0x60, 1])));
    assert_eq!(read(&[0x30, 0x60, 1]), Some((0x86DD, vec![0x60, 1])));
    assert_eq!(read(&[0xFF, 0x08, 0x00, 0x45]), Some((0x0800, vec![0x45])));
    assert_eq!(read(&[0x42, 1]), None);
}

#[test]
fn faults_are_named() {
    assert_eq!(Ppdu::parse(&[0xC0, 9 << 3, 0]), Err(RleError::Truncated));
    assert_eq!(Ppdu::parse(&[0x80, 1 << 3, 0]), Err(RleError::Length));
    let mut out = [0; 4000];
    assert_eq!(
        Header::Continuation { frag_id: 0 }.emit(&[], &mut out),
        Err(RleError::Length)
    );
    assert_eq!(
        Header::End { frag_id: 0 }.emit(&[&[0; 2048]], &mut out),
        Err(RleError::Length)
    );
    assert_eq!(
        Header::End { frag_id: 0 }.emit(&[&[0; 9]], &mut out[..10]),
        Err(RleError::Truncated)
    );
    // A total length shorter than its trailer.
    let frames = [[0x80, 2 << 3, 0x80, 0x08], [0x40, 2 << 3, 0, 0]];
    let mut decapsulator = Decapsulator::new();
    for frame in &frames {
        decapsulator.frame(frame, |_| panic!("no SDU expected"));
    }
    assert_eq!(decapsulator.lost(), 1);
}

#[test]
fn incomplete_alpdu_is_given_up_after_256_bursts() {
    let sent = send(&[packet(1, 60)], 50, Protection::Crc32);
    for (gap, arrives) in [(255, true), (256, false)] {
        let mut decapsulator = Decapsulator::new();
        let mut got = 0;
        decapsulator.frame(&sent.frames[0], |_| got += 1);
        (0..gap).for_each(|_| decapsulator.frame_lost());
        decapsulator.frame(&sent.frames[1], |_| got += 1);
        assert_eq!(got, i32::from(arrives), "gap {gap}");
    }
}

fn packets_of(lengths: &[usize]) -> Vec<Vec<u8>> {
    lengths
        .iter()
        .enumerate()
        .map(|(number, &len)| packet(number, len))
        .collect()
}

fn protections() -> impl Strategy<Value = Protection> {
    prop_oneof![Just(Protection::SequenceNumber), Just(Protection::Crc32)]
}

proptest! {
    #[test]
    fn round_trip(lengths in lengths(MAX_SDU, 40), payload in 38..=599_usize, protection in protections()) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, payload, protection);
        prop_assert_eq!(receive(&sent.frames, &[false]), packets);
    }

    #[test]
    fn round_trip_in_tiny_and_huge_payloads(
        lengths in lengths(1000, 20),
        payload in prop_oneof![MIN_PAYLOAD..38, 2000..5000_usize],
        protection in protections(),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, payload, protection);
        prop_assert_eq!(receive(&sent.frames, &[false]), packets);
    }

    #[test]
    fn with_crc_a_lost_burst_loses_just_what_was_in_it(
        lengths in lengths(1500, 60),
        payload in 38..=599_usize,
        lost in proptest::collection::vec(any::<bool>(), 1..40),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, payload, Protection::Crc32);
        prop_assert_eq!(receive(&sent.frames, &lost), survivors(&packets, &sent, &lost));
    }

    #[test]
    fn with_sequence_numbers_nothing_wrong_comes_out(
        lengths in lengths(1500, 60),
        payload in 38..=599_usize,
        lost in proptest::collection::vec(any::<bool>(), 1..40),
        noticed in any::<bool>(),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, payload, Protection::SequenceNumber);
        let got = if noticed {
            receive(&sent.frames, &lost)
        } else {
            let kept = sent.frames.iter().zip(lost.iter().cycle()).filter(|(_, lost)| !**lost);
            receive(&kept.map(|(burst, _)| burst.clone()).collect::<Vec<_>>(), &[false])
        };
        prop_assert!(is_subsequence(&got, &survivors(&packets, &sent, &lost)));
    }

    #[test]
    fn with_sequence_numbers_one_lost_burst_costs_no_packet_outside_it(
        lengths in lengths(1500, 60),
        payload in 38..=599_usize,
        at in any::<prop::sample::Index>(),
    ) {
        let packets = packets_of(&lengths);
        let sent = send(&packets, payload, Protection::SequenceNumber);
        let at = at.index(sent.frames.len());
        let lost: Vec<_> = (0..sent.frames.len()).map(|burst| burst == at).collect();
        prop_assert_eq!(receive(&sent.frames, &lost), survivors(&packets, &sent, &lost));
    }

    #[test]
    fn any_bytes_no_panic(payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..8)) {
        let mut decapsulator = Decapsulator::new();
        for payload in &payloads {
            decapsulator.frame(payload, |_| ());
        }
    }

    #[test]
    fn what_parses_emits_the_same_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 2..80)) {
        bytes[0] &= 0xC3;
        if let Ok(Some((ppdu, rest))) = Ppdu::parse(&bytes) {
            let mut out = vec![0; 100];
            let len = ppdu.header.emit(&[ppdu.data], &mut out).unwrap();
            prop_assert_eq!(&out[..len], &bytes[..bytes.len() - rest.len()]);
        }
    }
}

#[test]
fn ethernet_frames_travel_with_the_uncompressed_type_and_a_packet_in_hand_can_be_taken_back() {
    use dvb::sdu::{ETHERNET, Service};
    let mut sender = Encapsulator::new(Protection::SequenceNumber).with_service(Service::Ethernet);
    let mut receiver = Decapsulator::new();
    let sdu: Vec<u8> = (0..100).collect();
    let mut left = Some(sdu.clone());
    let mut got = vec![];
    let mut used = 0;
    let mut payload = [0; 60];
    for _ in 0..2 {
        used += sender
            .fill(&mut payload, |out| {
                left.take().is_some_and(|next| {
                    *out = next;
                    true
                })
            })
            .used;
        receiver.frame(&payload, |sdu| {
            got.push((sdu.protocol_type, sdu.data.to_vec()));
        });
    }
    assert_eq!(got, [(ETHERNET, sdu.clone())]);
    // Start 4 and type 3, end 2 and sequence number 1.
    assert_eq!(used, 100 + 7 + 3);
    sender.fill(&mut payload, |out| {
        *out = sdu.clone();
        true
    });
    assert_eq!(sender.take_back(), Some(sdu));
    assert_eq!((sender.pending(), sender.take_back()), (0, None));
}
