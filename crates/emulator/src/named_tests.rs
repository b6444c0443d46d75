// SPDX-License-Identifier: GPL-3.0-or-later
//! TBTP2s in the frames of the shipped profile with two terminals.

use std::collections::BTreeSet;

use super::*;
use crate::config::parse_alone as parse;
use crate::testing::example;
use link::SharedCarrier as _;

/// Bytes of GSE in front of a TBTP2, and of the table in front of its slots.
const GSE: usize = 4;
const HEADER: usize = 15;

#[test]
fn p322_frames_of_a_lab_name_the_terminals_that_asked_for_slots() {
    let config = parse(&example("geo-dama").to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap();
    let (mut forward, mut back) = carriers(&terminals(&config, &profile), 3).unwrap();
    forward.record_frames();
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    let mut out = Vec::new();
    for now in (0..4_000_000_000).step_by(1_000_000) {
        // As a thread works: the forward link before the return link.
        while forward.pop(now, &mut out).is_some() {}
        for terminal in 0..2 {
            while back.queue(terminal).bytes < 50_000 {
                back.push(now, terminal, &packet);
            }
        }
        while back.pop(now, &mut out).is_some() {}
    }
    forward.advance(4_000_000_000);
    let mut named = Vec::new();
    for frame in forward.take_frames() {
        let table = &frame.payload[GSE..];
        assert_eq!((table[0], table[HEADER - 1]), (0xAD, (791 - 1_u32) as u8));
        named.push(
            table[HEADER..HEADER + 791]
                .iter()
                .copied()
                .collect::<BTreeSet<_>>(),
        );
    }
    // 151 superframes; both have a constant rate from the start, and some slots nobody.
    assert!((150..=151).contains(&named.len()), "{}", named.len());
    let (both, all) = (BTreeSet::from([1, 2]), BTreeSet::from([0, 1, 2]));
    assert!(
        named
            .iter()
            .all(|it| it.is_superset(&both) && it.is_subset(&all))
    );
    assert!(named.contains(&all));
}
