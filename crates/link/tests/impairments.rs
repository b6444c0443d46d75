// SPDX-License-Identifier: GPL-3.0-or-later
//! Reordering, duplication and corruption: what comes out, how often, and what is counted.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use std::collections::BTreeMap;

use common::{Release, config, drain, forward, packet};
use link::{
    Accepted, Carrier, Change, Impairment, Impairments, Link, LinkConfig, Nanos, Reorder, Stage,
};
use proptest::prelude::*;

const MS: Nanos = 1_000_000;

fn impaired(carrier: Carrier, impairments: Impairments, seed: u64) -> LinkConfig {
    LinkConfig {
        impairments,
        seed,
        ..config(carrier)
    }
}

fn reorder(ratio: f64, packets: Option<u64>, hold: Nanos) -> Impairments {
    let reorder = Some(Reorder {
        ratio,
        packets,
        hold,
    });
    Impairments {
        reorder,
        ..Impairments::default()
    }
}

/// Numbers of the packets that come out, one each `gap` going in.
fn numbers(config: &LinkConfig, count: u64, gap: Nanos) -> (Vec<u64>, Link) {
    let arrivals: Vec<_> = (0..count).map(|number| (number * gap, 100)).collect();
    let (released, link) = common::run(config, &arrivals);
    let known: BTreeMap<_, _> = (0..count).map(|it| (packet(it, 100), it)).collect();
    let numbers = released.iter().map(|it| known[&it.packet]).collect();
    (numbers, link)
}

/// How many later packets came before each packet, of those that were overtaken.
fn extents(order: &[u64]) -> Vec<u64> {
    let extent = |(at, number): (usize, &u64)| {
        let before = order[..at].iter().filter(|&other| other > number).count();
        before as u64
    };
    order
        .iter()
        .enumerate()
        .map(extent)
        .filter(|&it| it > 0)
        .collect()
}

/// A UDP datagram over IP of version 4 or 6, with its checksum.
fn datagram(version: u8, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    let mut packet = if version == 4 {
        let mut head = vec![0x45, 0];
        head.extend((20 + length).to_be_bytes());
        head.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 198, 18, 1, 2, 198, 18, 4, 2]);
        head
    } else {
        let mut head = vec![0x60, 0, 0, 0];
        head.extend(length.to_be_bytes());
        head.extend([17, 64]);
        head.extend(1..=32);
        head
    };
    let transport = packet.len();
    packet.extend([0x11, 0x51, 0x01, 0xbb]);
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    let checksum = !folded(&packet, transport);
    packet[transport + 6..transport + 8].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Sum of datagram and pseudo-header; 0xffff if its checksum is right (RFC 1071).
fn folded(packet: &[u8], transport: usize) -> u16 {
    let addresses = if packet[0] >> 4 == 4 { 12..20 } else { 8..40 };
    let words = packet[addresses]
        .chunks(2)
        .chain(packet[transport..].chunks(2));
    let word = |it: &[u8]| u32::from(it[0]) << 8 | u32::from(*it.get(1).unwrap_or(&0));
    let mut sum: u32 = words.map(word).sum::<u32>() + 17 + (packet.len() - transport) as u32;
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// What becomes of packets, all of which are sent.
fn passed(config: &LinkConfig, packets: &[Vec<u8>]) -> (Vec<Vec<u8>>, Link) {
    let mut link = Link::new(config.clone()).unwrap();
    for (now, packet) in (0..).zip(packets) {
        assert_eq!(link.push(now * MS, packet), Accepted::Queued);
    }
    let out = drain(&mut link, Nanos::MAX);
    (out.into_iter().map(|it| it.packet).collect(), link)
}

#[test]
fn a_packet_is_overtaken_by_no_more_packets_than_asked_for() {
    for carrier in [
        forward(40_000_000, 4),
        Carrier::Wire,
        Carrier::line(10_000_000),
    ] {
        for depth in [1, 2, 5] {
            let config = impaired(carrier, reorder(0.3, Some(depth), 1000 * MS), 3);
            let (order, link) = numbers(&config, 600, MS);
            let found = extents(&order);
            assert!(found.iter().all(|&it| it <= depth), "{carrier:?} {depth}");
            assert!(found.contains(&depth), "{carrier:?} {depth}");
            assert_eq!(link.counters().packets_reordered, found.len() as u64);
        }
    }
}

#[test]
// promise: P5
fn shares_are_those_asked_for_and_equal_seeds_choose_equal_packets() {
    const PACKETS: u64 = 5000;
    for share in [0.01, 0.2, 1.0] {
        let all = Impairments {
            duplicate: share,
            corrupt: share,
            ..reorder(share, None, 100)
        };
        let counted = |seed| {
            let config = impaired(Carrier::Wire, all, seed);
            let payload = datagram(4, &[7; 50]);
            let (out, link) = passed(&config, &vec![payload; PACKETS as usize]);
            (out, link.counters())
        };
        let of_seeds: Vec<_> = (1..=10).map(|seed| counted(seed).1).collect();
        let sigma = (10.0 * PACKETS as f64 * share * (1.0 - share)).sqrt();
        for count in [
            of_seeds.iter().map(|it| it.packets_duplicated).sum::<u64>(),
            of_seeds.iter().map(|it| it.packets_corrupted).sum::<u64>(),
        ] {
            let off = (count as f64 - 10.0 * PACKETS as f64 * share).abs();
            assert!(off <= 3.0 * sigma, "{count} at {share}");
        }
        assert_eq!(counted(1), counted(1));
        assert_ne!(counted(1).0, counted(2).0);
    }
}

#[test]
fn one_impairment_does_not_change_the_choices_of_another() {
    let both = Impairments {
        duplicate: 0.1,
        ..reorder(0.1, Some(1), MS)
    };
    let (order, _) = numbers(
        &impaired(Carrier::Wire, reorder(0.1, Some(1), MS), 5),
        500,
        1000,
    );
    let (mut twice, link) = numbers(&impaired(Carrier::Wire, both, 5), 500, 1000);
    assert!(link.counters().packets_duplicated > 20);
    twice.dedup();
    assert_eq!(twice, order);
}

#[test]
fn a_packet_without_successors_is_held_for_its_longest_time() {
    for carrier in [forward(40_000_000, 4), Carrier::Wire] {
        let plain = common::run(&config(carrier), &[(0, 100)]).0[0].due;
        let held = impaired(carrier, reorder(1.0, Some(3), 20 * MS), 1);
        let mut link = Link::new(held).unwrap();
        let _: Accepted = link.push(0, &packet(0, 100));
        let mut due = 0;
        while let Some(at) = link.next_event().filter(|_| due == 0) {
            due = link.pop(at, &mut Vec::new()).unwrap_or(0);
            assert!(due == 0 || due == at);
            link.advance(at + 1);
        }
        assert_eq!(due, plain + 20 * MS);
        assert_eq!(link.counters().packets_reordered, 0);
    }
}

#[test]
fn a_time_alone_holds_a_packet_behind_all_that_comes_meanwhile() {
    let mut link = Link::new(config(Carrier::Wire)).unwrap();
    let all = Change::Impairment(Impairment::Reorder(reorder(1.0, None, 5 * MS).reorder));
    let none = Change::Impairment(Impairment::Reorder(None));
    link.set(0, &all).unwrap();
    let _: Accepted = link.push(0, &packet(0, 100));
    // Another setting would let the held packet go.
    let mut out = Vec::new();
    assert_eq!(link.pop(common::GEO + 5 * MS - 1, &mut out), None);
    assert_eq!(
        link.pop(common::GEO + 5 * MS, &mut out),
        Some(common::GEO + 5 * MS)
    );
    link.set(300 * MS, &all).unwrap();
    let _: Accepted = link.push(300 * MS, &packet(1, 100));
    link.set(301 * MS, &none).unwrap();
    let _: Accepted = link.push(302 * MS, &packet(2, 100));
    let dues: Vec<_> = drain(&mut link, Nanos::MAX)
        .iter()
        .map(|it| it.due)
        .collect();
    assert_eq!(dues, [300 * MS + common::GEO, 302 * MS + common::GEO]);
}

#[test]
fn copies_come_directly_behind_their_packets() {
    let twice = Impairments {
        duplicate: 1.0,
        ..Impairments::default()
    };
    let (order, link) = numbers(&impaired(forward(40_000_000, 4), twice, 1), 50, MS);
    let expected: Vec<_> = (0..50).flat_map(|number| [number, number]).collect();
    assert_eq!(order, expected);
    let seen = link.counters();
    assert_eq!((seen.packets_in, seen.packets_out), (50, 100));
    assert_eq!((seen.packets_duplicated, seen.bytes_duplicated), (50, 5000));
}

#[test]
fn corruption_flips_one_bit_of_the_payload_and_keeps_the_checksum_right() {
    let all = Impairments {
        corrupt: 1.0,
        ..Impairments::default()
    };
    for (version, transport) in [(4, 20), (6, 40)] {
        for length in [1, 2, 33] {
            let payload: Vec<u8> = (0..length).map(|it: u8| it.wrapping_mul(37)).collect();
            let sent = datagram(version, &payload);
            let (out, link) = passed(&impaired(Carrier::Wire, all, 9), &vec![sent.clone(); 500]);
            let mut places = std::collections::BTreeSet::new();
            for got in &out {
                assert_eq!(folded(got, transport), 0xffff);
                let head = transport + 8;
                let differs = |at: &usize| got[*at] != sent[*at];
                let flipped: Vec<_> = (0..got.len()).filter(differs).collect();
                let places_of_payload: Vec<_> =
                    flipped.iter().copied().filter(|&it| it >= head).collect();
                let [place] = places_of_payload[..] else {
                    panic!("{flipped:?}")
                };
                assert_eq!((got[place] ^ sent[place]).count_ones(), 1);
                assert!(
                    flipped
                        .iter()
                        .all(|&it| it >= head || it / 2 == usize::midpoint(transport, 6))
                );
                places.insert((place, got[place] ^ sent[place]));
            }
            // 500 draws of up to 264 bits.
            assert!(places.len() > usize::from(length) * 5, "{places:?}");
            assert_eq!(link.counters().packets_corrupted, 500);
        }
    }
}

#[test]
fn what_is_no_whole_datagram_is_left_alone() {
    let all = Impairments {
        corrupt: 1.0,
        ..Impairments::default()
    };
    let plain = datagram(4, &[1, 2, 3]);
    let edited = |at: usize, value: u8| {
        let mut packet = plain.clone();
        packet[at] = value;
        packet
    };
    let tcp = edited(9, 6);
    let (first, later) = (edited(6, 0x20), edited(7, 1));
    let (too_long, no_payload) = (edited(25, 200), datagram(4, &[]));
    let sent = [
        tcp,
        first,
        later,
        too_long,
        no_payload,
        vec![0x45],
        vec![0x60; 41],
        vec![0x45; 60],
    ];
    let (out, link) = passed(&impaired(Carrier::Wire, all, 1), &sent);
    assert_eq!(out, sent);
    assert_eq!(link.counters().packets_corrupted, 0);
    let mut without = plain.clone();
    without[26..28].fill(0);
    let (out, _) = passed(&impaired(Carrier::Wire, all, 1), &[without]);
    assert_eq!(out[0][26..28], [0, 0], "no checksum stays none");
    assert_ne!(out[0][28..], plain[28..]);
}

#[test]
fn impossible_impairments_are_refused() {
    let share = |duplicate, corrupt| Impairments {
        duplicate,
        corrupt,
        ..Impairments::default()
    };
    for impairments in [
        share(1.1, 0.0),
        share(0.0, -0.1),
        share(f64::NAN, 0.0),
        reorder(2.0, None, MS),
        reorder(0.1, Some(0), MS),
        reorder(0.1, None, 0),
        reorder(0.1, None, u64::MAX),
    ] {
        let config = impaired(Carrier::Wire, impairments, 1);
        assert!(Link::new(config).is_err(), "{impairments:?}");
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_is_held_for_too_long(
        share in (0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64),
        depth in proptest::option::of(1..20_u64),
        hold in 1..200_000_000_u64,
        seed in any::<u64>(),
        gaps in proptest::collection::vec(0..30_000_000_u64, 1..60),
        wire in any::<bool>(),
    ) {
        let impairments = Impairments {
            duplicate: share.1,
            corrupt: share.2,
            ..reorder(share.0, depth, hold)
        };
        let carrier = if wire { Carrier::Wire } else { forward(10_000_000, 4) };
        let mut now = 0;
        let arrivals: Vec<_> = gaps.iter().map(|gap| { now += gap; (now, 200) }).collect();
        let (plain, _) = common::run(&config(carrier), &arrivals);
        let (out, link) = common::run(&impaired(carrier, impairments, seed), &arrivals);
        let seen = link.counters();
        prop_assert_eq!(seen.packets_in + seen.packets_duplicated, seen.packets_out);
        prop_assert_eq!(seen.bytes_in + seen.bytes_duplicated, seen.bytes_out);
        prop_assert!(out.is_sorted_by_key(|it| it.due));
        let mut left: Vec<&Release> = out.iter().collect();
        for one in &plain {
            let at = left.iter().position(|it| it.packet == one.packet);
            let got = left.remove(at.ok_or_else(|| TestCaseError::fail("a packet is missing"))?);
            prop_assert!((one.due..=one.due + hold).contains(&got.due));
        }
        prop_assert_eq!(left.len() as u64, seen.packets_duplicated);
        prop_assert_eq!(link.next_event(), None);
    }
}
