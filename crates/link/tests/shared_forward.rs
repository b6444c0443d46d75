// SPDX-License-Identifier: GPL-3.0-or-later
//! A forward carrier of several terminals: one is a link, shares, isolation, conservation.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{config, forward, packet, received, spread};
use dvb::modcod::MODCODS;
use link::{
    Acm, Carrier, Change, Classes, Coding, Link, LinkConfig, LinkError, Nanos, Queue, Reception,
    SharedCarrier as _, SharedForward, Signalling, Stage, Volume, steady_goodput_bps,
};
use proptest::prelude::*;

const MS: Nanos = 1_000_000;
const S: Nanos = 1000 * MS;
const SUPERFRAME: Nanos = 26_500_000;
const EF: u8 = 46;

/// Terminal `index` of a carrier of 10 Mbaud, in the MODCOD of this id.
fn terminal(index: u8, modcod: u8) -> LinkConfig {
    let mut carrier = forward(10_000_000, modcod);
    if let Carrier::Forward { label, .. } = &mut carrier {
        label[5] = index;
    }
    let mut of_dscp = [1; 64];
    of_dscp[usize::from(EF)] = 0;
    LinkConfig {
        queue: Queue::drop_tail(100_000),
        classes: Some(Classes {
            packets: vec![1000, 1000],
            of_dscp,
        }),
        seed: u64::from(index),
        ..config(carrier)
    }
}

fn adaptive(index: u8, es_n0_db: f64) -> LinkConfig {
    LinkConfig {
        reception: Some(Reception::gate(es_n0_db)),
        acm: Some(Acm {
            allowed: MODCODS.map(Coding::ModCod).to_vec(),
            margin_db: 0.0,
            hysteresis_db: 0.3,
            period: S,
            superframe: SUPERFRAME,
            phase: 0,
            reports_thresholds: false,
        }),
        ..terminal(index, 28)
    }
}

fn equal(terminals: Vec<LinkConfig>) -> SharedForward {
    let weighted: Vec<_> = terminals.into_iter().map(|it| (it, 1)).collect();
    SharedForward::new(&weighted).unwrap()
}

/// A packet of a class whose bytes name its terminal.
fn to(terminal: usize, length: usize, dscp: u8) -> Vec<u8> {
    let mut bytes = packet(0, length);
    (bytes[1], bytes[9]) = (dscp << 2, terminal as u8);
    bytes
}

/// Keeps every queue full.
fn saturate(shared: &mut SharedForward, count: usize, now: Nanos) {
    for terminal in 0..count {
        while shared.queue(terminal).bytes < 60_000 {
            shared.push(now, terminal, &to(terminal, 1500, 0));
        }
    }
}

#[test]
fn one_terminal_of_a_carrier_is_a_link() {
    let config = LinkConfig {
        signalling: Some(Signalling {
            period: SUPERFRAME,
            slots: 791,
            first: 0,
        }),
        ..adaptive(1, 9.0)
    };
    let (mut link, mut shared) = (Link::new(config.clone()).unwrap(), equal(vec![config]));
    let (mut out, mut same) = (Vec::new(), Vec::new());
    for index in 0..20_000 {
        let now = index * MS / 2;
        let bytes = to(
            0,
            60 + (index * 37 % 1441) as usize,
            if index % 7 == 0 { EF } else { 0 },
        );
        if (now / S) % 3 != 0 {
            assert_eq!(link.push(now, &bytes), shared.push(now, 0, &bytes));
        }
        if let Some(db) = [(4000, 6.0), (7000, 0.0)]
            .iter()
            .find_map(|&(at, db)| (now == at * MS).then_some(db))
        {
            link.set(now, &Change::Attenuation(db)).unwrap();
            shared.set(now, 0, &Change::Attenuation(db)).unwrap();
        }
        loop {
            let released = link.pop(now, &mut out);
            assert_eq!(shared.pop(now, &mut same), released.map(|due| (due, 0)));
            if released.is_none() {
                break;
            }
            assert_eq!(out, same);
        }
        assert_eq!(link.queue(), shared.queue(0));
    }
    let (link, shared) = (link.counters(), shared.counters(0));
    assert!(link.packets_lost > 0 && link.packets_out > 1000);
    assert_eq!(
        (
            link.packets_in,
            link.packets_out,
            link.packets_lost,
            link.packets_dropped
        ),
        (
            shared.packets_in,
            shared.packets_out,
            shared.packets_lost,
            shared.packets_dropped
        )
    );
}

#[test]
// promise: P15
fn p182_equal_terminals_get_equal_parts_of_all_that_the_carrier_holds() {
    for count in [2, 3, 16] {
        let config = terminal(0, 20);
        let alone = steady_goodput_bps(&config, 1500, 1500);
        let mut shared = equal((0..count).map(|index| terminal(index, 20)).collect());
        let count = usize::from(count);
        received(&mut shared, count, (0, S), |shared, now| {
            saturate(shared, count, now);
        });
        let bytes = received(&mut shared, count, (S, 11 * S), |shared, now| {
            saturate(shared, count, now);
        });
        assert!(spread(&bytes) < 0.02, "{bytes:?}");
        let sum = bytes.iter().sum::<u64>() as f64 * 8.0 / 10.0;
        assert!(
            (sum / alone - 1.0).abs() < 0.005,
            "{count}: {sum} of {alone}"
        );
    }
}

#[test]
// promise: P16
fn p183_weights_divide_a_class() {
    let weighted: Vec<_> = (0..3)
        .map(|index| (terminal(index, 20), u32::from(index) + 1))
        .collect();
    let mut shared = SharedForward::new(&weighted).unwrap();
    let bytes = received(&mut shared, 3, (0, 10 * S), |shared, now| {
        saturate(shared, 3, now);
    });
    let unit = bytes[0] as f64;
    assert!((bytes[1] as f64 / unit - 2.0).abs() < 0.04, "{bytes:?}");
    assert!((bytes[2] as f64 / unit - 3.0).abs() < 0.06, "{bytes:?}");
}

#[test]
fn p183_a_class_is_served_before_the_next_over_all_terminals() {
    // 4 Mbit/s of EF to terminal 1 with a flood in best effort to both: none waits longer than two
    // frames.
    let mut shared = equal((0..2).map(|index| terminal(index, 4)).collect());
    let frame = frame_of(4);
    let mut sent = Vec::new();
    let (mut out, mut worst, mut count) = (Vec::new(), 0, 0_u64);
    for now in (0..5 * S).step_by(MS as usize) {
        saturate(&mut shared, 2, now);
        shared.push(now, 1, &to(1, 500, EF));
        sent.push(now);
        while let Some((due, terminal)) = shared.pop(now, &mut out) {
            if out[1] >> 2 == EF {
                assert_eq!(terminal, 1);
                worst = worst.max(due - common::GEO - sent[count as usize]);
                count += 1;
            }
        }
    }
    assert!(count > 4500, "{count}");
    assert!(worst <= 3 * frame, "{worst} ns, frames take {frame} ns");
    assert_eq!(
        shared.counters(0).packets_lost + shared.counters(1).packets_lost,
        0
    );
}

fn frame_of(modcod: u8) -> Nanos {
    forward(10_000_000, modcod).frame_duration()
}

#[test]
fn test_t33_a_flood_costs_only_the_terminal_that_it_is_for() {
    // Terminal 1 takes a fifth of its part, terminal 0 is flooded.
    let run = |flood: u64| {
        let mut shared = equal((0..2).map(|index| terminal(index, 20)).collect());
        let bytes = received(&mut shared, 2, (0, 10 * S), |shared, now| {
            for _ in 0..flood {
                shared.push(now, 0, &to(0, 1500, 0));
            }
            shared.push(now, 1, &to(1, 300, 0));
        });
        (bytes, shared.counters(0), shared.counters(1))
    };
    let (calm, ..) = run(0);
    let (bytes, flooded, other) = run(20);
    assert!(flooded.packets_dropped > 100_000);
    assert_eq!(other.packets_dropped, 0);
    assert!(bytes[1].abs_diff(calm[1]) <= 2 * 300, "{bytes:?} {calm:?}");
}

#[test]
fn test_t33_a_deep_fade_costs_only_the_terminal_that_is_in_it() {
    let share = |db: f64| {
        let mut shared = equal((0..4).map(|index| adaptive(index, 17.0)).collect());
        shared.set(0, 0, &Change::Attenuation(db)).unwrap();
        received(&mut shared, 4, (0, 3 * S), |shared, now| {
            saturate(shared, 4, now);
        });
        let bytes = received(&mut shared, 4, (3 * S, 13 * S), |shared, now| {
            saturate(shared, 4, now);
        });
        (bytes, shared)
    };
    let (clear, _) = share(0.0);
    // 17 - 18.5 = -1.5 dB: QPSK 1/4 is left; at -3 dB nothing.
    for db in [18.5, 20.0] {
        let (bytes, shared) = share(db);
        assert_eq!(shared.modcod(0).map(|it| it.id), Some(1));
        assert_eq!(bytes[0] > 0, db < 19.0);
        for terminal in 1..4 {
            let kept = bytes[terminal] as f64 / clear[terminal] as f64;
            assert!(
                (kept - 1.0).abs() < 0.02,
                "{terminal}: {kept} at {db} dB, {bytes:?} of {clear:?}"
            );
        }
    }
}

#[test]
fn p184_terminals_keep_their_modcods_and_frames_hold_one_each() {
    let mut shared = equal(vec![terminal(0, 1), terminal(1, 12), terminal(2, 28)]);
    let bytes = received(&mut shared, 3, (0, 10 * S), |shared, now| {
        saturate(shared, 3, now);
    });
    let seen = shared.carrier_counters();
    // Equal airtime: rates are as the efficiencies.
    let rate = |id| forward(10_000_000, id).rate_bps().unwrap();
    for (terminal, id) in [(1, 12), (2, 28)] {
        let ratio = bytes[terminal] as f64 / bytes[0] as f64;
        assert!(
            (ratio / (rate(id) / rate(1)) - 1.0).abs() < 0.02,
            "{bytes:?}"
        );
    }
    let airtime: Nanos = [1, 12, 28]
        .map(|id| seen.frames_by_id[id] * frame_of(id as u8))
        .iter()
        .sum();
    assert!(airtime.abs_diff(10 * S) < 50 * MS, "{airtime}");
    assert_eq!(
        seen.frames_sent,
        [1, 12, 28]
            .map(|id| seen.frames_by_id[id])
            .iter()
            .sum::<u64>()
    );
}

#[test]
fn p184_an_independent_receiver_finds_every_packet_under_its_label() {
    let mut shared = equal((0..3).map(|index| terminal(index, 4)).collect());
    shared.record_frames();
    let (mut sent, mut out) = (vec![Vec::new(); 3], Vec::new());
    for index in 0..600_u64 {
        let terminal = (index % 3) as usize;
        let mut bytes = to(terminal, 40 + (index * 97 % 1460) as usize, 0);
        bytes[4..6].copy_from_slice(&(index as u16).to_be_bytes());
        shared.push(index * MS, terminal, &bytes);
        sent[terminal].push(bytes);
        while shared.pop(index * MS, &mut out).is_some() {}
    }
    while shared.pop(10 * S, &mut out).is_some() {}
    let mut receiver = dvb::gse::Decapsulator::new();
    let mut found = vec![Vec::new(); 3];
    for frame in shared.take_frames() {
        receiver.frame(&frame.payload, |pdu| {
            let dvb::gse::Label::Six(label) = pdu.label else {
                panic!("a label of 6 bytes is expected")
            };
            found[usize::from(label[5])].push(pdu.data.to_vec());
        });
    }
    assert_eq!((receiver.lost(), receiver.malformed()), (0, 0));
    assert_eq!(found, sent);
}

#[test]
fn terminals_that_cannot_share_a_carrier_are_refused() {
    let good = || terminal(0, 4);
    let refused = |terminals: &[(LinkConfig, u32)]| {
        assert_eq!(SharedForward::new(terminals).err(), Some(LinkError::Shared));
    };
    refused(&[]);
    refused(&[(good(), 0)]);
    refused(&[(config(Carrier::Wire), 1)]);
    refused(&[(config(common::opensand_forward()), 1)]);
    refused(&[(good(), 1), (config(forward(20_000_000, 4)), 1)]);
    refused(&vec![(good(), 1); 257]);
    assert!(SharedForward::new(&vec![(good(), 1); 256]).is_ok());
    let mut shared = equal(vec![good(), terminal(1, 4)]);
    assert_eq!(
        shared.set(0, 1, &Change::SymbolRate(1)),
        Err(LinkError::SharedChange)
    );
    assert_eq!(
        shared.set(0, 1, &Change::EsN0(1.0)),
        Err(LinkError::NoReception)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is offered comes out once, in the order of its terminal, or is counted as dropped
    /// or lost.
    #[test]
    fn p182_every_packet_is_accounted_for(
        levels in proptest::collection::vec((-5.0..20.0_f64, 1..=10_u32), 1..20),
        arrivals in proptest::collection::vec((0..3_000_000_u64, 0..20_usize, 40..1500_usize, any::<bool>()), 1..400),
        fade in proptest::option::of((0..400_u64, 0..20_usize, 0.0..30.0_f64)),
    ) {
        let terminals: Vec<_> = levels.iter().zip(0..).map(|(&(db, weight), index)| (adaptive(index, db), weight)).collect();
        let count = terminals.len();
        let mut shared = SharedForward::new(&terminals).unwrap();
        let (mut now, mut out) = (0, Vec::new());
        let mut numbers = vec![[0_u16; 2]; count];
        let mut check = |shared: &mut SharedForward, now: Nanos, expected: &mut Vec<[u16; 2]>| {
            let mut last = 0;
            while let Some((due, terminal)) = shared.pop(now, &mut out) {
                assert!(due >= last && due <= now);
                last = due;
                assert_eq!(usize::from(out[9]), terminal);
                let number = u16::from_be_bytes([out[4], out[5]]);
                let class = usize::from(out[1] >> 2 != EF);
                assert!(number >= expected[terminal][class]);
                expected[terminal][class] = number + 1;
            }
        };
        let mut expected = vec![[0_u16; 2]; count];
        for (index, (gap, terminal, length, is_ef)) in arrivals.into_iter().enumerate() {
            now += gap;
            let terminal = terminal % count;
            if let Some((_, faded, db)) = fade.filter(|fade| fade.0 == index as u64) {
                shared.set(now, faded % count, &Change::Attenuation(db)).unwrap();
            }
            let mut bytes = to(terminal, length, if is_ef { EF } else { 0 });
            let number = &mut numbers[terminal][usize::from(!is_ef)];
            bytes[4..6].copy_from_slice(&number.to_be_bytes());
            *number += 1;
            shared.push(now, terminal, &bytes);
            check(&mut shared, now, &mut expected);
        }
        check(&mut shared, now + 100 * S, &mut expected);
        let mut sum = 0;
        for terminal in 0..count {
            let seen = shared.counters(terminal);
            prop_assert_eq!(shared.queue(terminal), Volume::default());
            prop_assert_eq!(seen.packets_in, seen.packets_out + seen.packets_lost + seen.packets_dropped);
            prop_assert_eq!(seen.bytes_in, seen.bytes_out + seen.bytes_lost + seen.bytes_dropped);
            sum += seen.frame_bytes_used;
        }
        prop_assert_eq!(shared.carrier_counters().frame_bytes_used, sum);
        prop_assert!(shared.next_event().is_none());
    }
}

#[test]
fn packets_come_out_at_the_moments_that_are_announced() {
    let mut shared = equal(vec![terminal(0, 1), terminal(1, 28), adaptive(2, 17.0)]);
    let mut out = Vec::new();
    for index in 0..300_u64 {
        shared.push(
            index * MS / 3,
            (index % 3) as usize,
            &to((index % 3) as usize, 700, 0),
        );
    }
    let (mut now, mut count) = (0, 0);
    while let Some(at) = shared.next_event() {
        now = at.max(now);
        while let Some((due, _)) = shared.pop(now, &mut out) {
            assert_eq!(due, now);
            count += 1;
        }
    }
    assert_eq!(count, 300);
}
