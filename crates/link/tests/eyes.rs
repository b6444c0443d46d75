// SPDX-License-Identifier: GPL-3.0-or-later
//! What the forward link has on air, read by an independent receiver.

#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

#[path = "common/on_air.rs"]
mod on_air;

use bytes::Bytes;
use dvb::bbframe::{BbHeader, RollOff};
use dvb_gse::bbframe::BBFrameValidator;
use dvb_gse::gsepacket::GSEPacketDefrag;
use link::Frame;
use std::collections::{BTreeMap, BTreeSet};

fn decode(frames: &[Frame]) -> Vec<Vec<u8>> {
    let mut receiver = GSEPacketDefrag::new();
    let mut got = vec![];
    for frame in frames {
        let header = BbHeader::gse(frame.payload.len(), RollOff::R25).to_bytes();
        let bytes = Bytes::from([&header[..], &frame.payload].concat());
        assert!(BBFrameValidator::new().bbframe_is_valid(&bytes));
        let pdus = receiver.defragment(&bytes).unwrap();
        got.extend(pdus.map(|pdu| pdu.data().to_vec()));
    }
    got
}

#[test]
fn an_independent_receiver_reads_every_bbframe_of_the_forward_link() {
    for seed in 0..200 {
        let run = on_air::forward(seed, false);
        assert_eq!(run.sent.len(), 120, "seed {seed}");
        assert_eq!(run.received, run.sent, "seed {seed}");
        assert_eq!(
            decode(&run.frames),
            run.sent,
            "seed {seed}: {:?}",
            run.carrier
        );
    }
}

/// What plans say: the number of the terminal of each slot, by superframe. A plan can come in
/// several tables.
fn plans(tables: &[Vec<u8>]) -> BTreeMap<u64, Vec<u8>> {
    let mut plans = BTreeMap::new();
    for table in tables {
        let number = |at: usize| usize::from(table[at]) << 8 | usize::from(table[at + 1]);
        let (first, count) = (number(11), number(13) + 1);
        let named: &mut Vec<u8> = plans.entry(table[7].into()).or_default();
        named.resize(named.len().max(first + count), 0);
        named[first..first + count].copy_from_slice(&table[15..]);
    }
    plans
}

#[test]
fn p322_every_burst_is_in_a_slot_that_a_plan_on_air_names_for_its_terminal() {
    for seed in 0..3 {
        let (_, frames, bursts) = on_air::network(seed);
        let tables: Vec<_> = decode(&frames)
            .into_iter()
            .filter(|it| it[0] == 0xAD)
            .collect();
        let plans = plans(&tables);
        let first = *plans.keys().next().unwrap();
        // What was planned before the start was not on air.
        let mut several = 0;
        let mut seen = 0;
        for (terminal, superframe, slot) in bursts {
            let Some(named) = plans.get(&superframe) else {
                assert!(superframe < first, "seed {seed}: {superframe}");
                continue;
            };
            let number = usize::from(named[slot as usize]);
            assert_eq!(number, terminal, "seed {seed}: {superframe} {slot}");
            seen += 1;
        }
        for named in plans.values() {
            assert_eq!(named.len(), 791);
            let terminals: BTreeSet<_> = named.iter().filter(|it| **it > 0).collect();
            several += usize::from(terminals.len() > 1);
        }
        assert!(seen > 2000 && several > 30, "seed {seed}: {seen} {several}");
    }
}

#[test]
fn recorded_frames_say_which_ones_were_lost() {
    let mut lost = 0;
    for seed in 0..20 {
        let run = on_air::back(seed);
        let missed = run.frames.iter().filter(|frame| frame.is_lost).count();
        assert_eq!(missed == 0, run.received == run.sent, "seed {seed}");
        lost += missed;
    }
    assert!(lost > 0);
}
