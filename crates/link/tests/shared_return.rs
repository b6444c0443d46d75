// SPDX-License-Identifier: GPL-3.0-or-later
//! A return carrier of several terminals: one is a link, no slot twice, shares, isolation.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;
use crate::on_demand as demand;

use common::{received, spread};
use demand::{BURST, CRA, MS, NOTHING, RBDC, SUPERFRAME, VBDC, config};
use dvb::dama::{Access, Agreement};
use link::{
    Carrier, Change, Link, LinkConfig, LinkError, Loss, LossUnit, Nanos, Queue, Reception,
    ReturnCarrier as _, SharedCarrier as _, SharedReturn, Stage, steady_goodput_bps,
};
use proptest::prelude::*;

const S: Nanos = 1000 * MS;
const SLOTS: u64 = 791;

/// Asks for more than the carrier has, and its requests outlive the request period.
const GREEDY: Agreement = Agreement {
    rbdc_max_kbps: Some(100_000),
    duration: 60,
    ..NOTHING
};

fn terminal(index: usize, access: Access, agreement: Agreement) -> LinkConfig {
    LinkConfig {
        queue: Queue::drop_tail(20_000_000),
        seed: index as u64,
        ..config(&[Access::Cra, access], agreement, 250)
    }
}

fn greedy(count: usize) -> SharedReturn {
    let terminals: Vec<_> = (0..count)
        .map(|index| terminal(index, Access::Rbdc, GREEDY))
        .collect();
    SharedReturn::new(&terminals).unwrap()
}

fn from(terminal: usize, length: usize, dscp: u8) -> Vec<u8> {
    let mut bytes = demand::packet(length, dscp);
    bytes[9] = terminal as u8;
    bytes
}

/// Keeps every queue so full that requests exceed the carrier: they are for what waits.
fn saturate(shared: &mut SharedReturn, terminals: std::ops::Range<usize>, now: Nanos) {
    for terminal in terminals {
        while shared.queue(terminal).bytes < 12_000_000 {
            shared.push(now, terminal, &from(terminal, 1500, 0));
        }
    }
}

#[test]
fn one_terminal_of_a_carrier_is_a_link() {
    for (access, agreement) in [
        (Access::Rbdc, RBDC),
        (Access::Vbdc, VBDC),
        (Access::Cra, CRA),
    ] {
        let mut config = LinkConfig {
            losses: vec![Loss::random(0.02, LossUnit::Frame)],
            reception: Some(Reception::gate(15.0)),
            ..terminal(3, access, agreement)
        };
        config.demand.as_mut().unwrap().plans.losses = config.losses.clone();
        let mut link = Link::new(config.clone()).unwrap();
        let mut shared = SharedReturn::new(&[config]).unwrap();
        let (mut out, mut same) = (Vec::new(), Vec::new());
        for index in 0..10_000_u64 {
            let now = index * MS;
            if (now / S) % 3 != 0 {
                let dscp = if index % 7 == 0 { 46 } else { 0 };
                let bytes = from(0, 60 + (index * 37 % 1441) as usize, dscp);
                assert_eq!(link.push(now, &bytes), shared.push(now, 0, &bytes));
            }
            if now == 5 * S {
                link.set(now, &Change::Attenuation(10.0)).unwrap();
                shared.set(now, 0, &Change::Attenuation(10.0)).unwrap();
            }
            if now == 6 * S {
                link.set(now, &Change::Attenuation(0.0)).unwrap();
                shared.set(now, 0, &Change::Attenuation(0.0)).unwrap();
            }
            loop {
                let released = link.pop(now, &mut out);
                let expected = released.map(|due| (due, 0));
                assert_eq!(shared.pop(now, &mut same), expected, "{access:?}");
                if released.is_none() {
                    break;
                }
                assert_eq!(out, same);
            }
        }
        link.advance(11 * S);
        let seen = link.counters();
        assert_eq!(seen, shared.counters(11 * S, 0), "{access:?}");
        assert!(seen.packets_out > 50 && seen.plans_lost > 0);
    }
}

#[test]
fn p185_equal_terminals_get_equal_parts_of_all_that_the_carrier_holds() {
    let whole = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: dvb::rcs2::Waveform::by_id(12).unwrap(),
        superframe: SUPERFRAME,
        slots: SLOTS as u32,
    };
    let alone = steady_goodput_bps(&common::config(whole), 1500, 1500);
    for count in [2, 3, 16] {
        let mut shared = greedy(count);
        let all = |shared: &mut SharedReturn, now| saturate(shared, 0..count, now);
        received(&mut shared, count, (0, 4 * S), all);
        let bytes = received(&mut shared, count, (4 * S, 14 * S), all);
        assert!(spread(&bytes) < 0.02, "{bytes:?}");
        let sum = bytes.iter().sum::<u64>() as f64 * 8.0 / 10.0;
        assert!(
            (sum / alone - 1.0).abs() < 0.005,
            "{count}: {sum} of {alone}"
        );
    }
}

#[test]
fn p185_the_capacity_of_an_idle_terminal_goes_to_the_others() {
    let mut shared = greedy(4);
    received(&mut shared, 4, (0, 4 * S), |shared, now| {
        saturate(shared, 0..4, now);
    });
    let before = received(&mut shared, 4, (4 * S, 8 * S), |shared, now| {
        saturate(shared, 0..4, now);
    });
    // Terminal 0 ends. Its queue, a request period, the way there and back, and two superframes
    // later it has nothing.
    let silence = 8 * S;
    let mut now = silence;
    while shared.queue(0).packets > 0 {
        now += MS;
        received(&mut shared, 4, (now, now + MS), |shared, now| {
            saturate(shared, 1..4, now);
        });
    }
    assert!(now < silence + 60 * S, "{now}");
    let taken = now + S + 500 * MS + 2 * SUPERFRAME + 250 * MS;
    received(&mut shared, 4, (now, taken), |shared, now| {
        saturate(shared, 1..4, now);
    });
    let after = received(&mut shared, 4, (taken, taken + 4 * S), |shared, now| {
        saturate(shared, 1..4, now);
    });
    assert_eq!(after[0], 0);
    for terminal in 1..4 {
        let more = after[terminal] as f64 / before[terminal] as f64;
        assert!(
            (more / (4.0 / 3.0) - 1.0).abs() < 0.01,
            "{terminal}: {more}"
        );
    }
}

#[test]
fn test_t33_a_flood_or_a_fade_of_one_terminal_costs_no_other_its_part() {
    // Terminals 1 to 3 ask for a tenth each of what the carrier holds; terminal 0 asks for all.
    let run = |flood: bool, fade: bool| {
        let modest = |index| LinkConfig {
            reception: Some(Reception::gate(15.0)),
            ..terminal(index, Access::Rbdc, GREEDY)
        };
        let terminals: Vec<_> = (0..4).map(modest).collect();
        let mut shared = SharedReturn::new(&terminals).unwrap();
        if fade {
            shared.set(0, 0, &Change::Attenuation(30.0)).unwrap();
        }
        received(&mut shared, 4, (0, 14 * S), |shared, now| {
            if flood {
                (0..20).for_each(|_| {
                    shared.push(now, 0, &from(0, 1500, 0));
                });
            }
            for terminal in 1..4 {
                shared.push(now, terminal, &from(terminal, 500, 0));
            }
        })
    };
    let calm = run(false, false);
    for (flood, fade) in [(true, false), (true, true)] {
        let bytes = run(flood, fade);
        assert_eq!(bytes[0] > 0, !fade);
        for terminal in 1..4 {
            let kept = bytes[terminal] as f64 / calm[terminal] as f64;
            assert!(
                (kept - 1.0).abs() < 0.01,
                "{terminal}: {kept}, {bytes:?} of {calm:?}"
            );
        }
    }
}

#[test]
fn terminals_that_cannot_share_a_carrier_are_refused() {
    let good = || terminal(0, Access::Rbdc, RBDC);
    let refused = |terminals: &[LinkConfig]| {
        assert_eq!(SharedReturn::new(terminals).err(), Some(LinkError::Shared));
    };
    refused(&[]);
    refused(&[common::config(Carrier::Wire)]);
    refused(&[good(), config(&[Access::Rbdc], RBDC, 16)]);
    refused(&vec![good(); 257]);
    assert!(SharedReturn::new(&vec![good(); 256]).is_ok());
    let mut shared = SharedReturn::new(&[good(), good()]).unwrap();
    let change = Change::Delay(1);
    assert_eq!(shared.set(0, 1, &change), Err(LinkError::SharedChange));
}

fn agreements() -> impl Strategy<Value = (Access, Agreement)> {
    (
        0..3_usize,
        0..4000_u32,
        0..60_000_u32,
        0..20_000_u32,
        5..80_u16,
    )
        .prop_map(|(kind, cra_kbps, rate, volume, duration)| {
            let access = [Access::Cra, Access::Rbdc, Access::Vbdc][kind];
            let agreement = Agreement {
                cra_kbps,
                rbdc_max_kbps: (access == Access::Rbdc).then_some(rate),
                vbdc_max_kbit: (access == Access::Vbdc).then_some(volume),
                duration,
            };
            (access, agreement)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No two bursts at the same time, no more than the carrier holds, every byte accounted for.
    #[test]
    // promise: P15
    fn p185_no_slot_is_granted_twice(
        plans in proptest::collection::vec(agreements(), 1..24),
        fca_kbps in 0..3000_u32,
        arrivals in proptest::collection::vec((0..20_000_000_u64, 0..24_usize, 40..1500_usize, 1..40_usize), 1..200),
    ) {
        let count = plans.len();
        let terminals: Vec<_> = plans.into_iter().enumerate().map(|(index, (access, agreement))| {
            let mut config = terminal(index, access, agreement);
            config.demand.as_mut().unwrap().fca_kbps = fca_kbps;
            config
        }).collect();
        let mut shared = SharedReturn::new(&terminals).unwrap();
        (0..count).for_each(|index| shared.terminal(index).record_frames());
        let (mut now, mut out) = (0, Vec::new());
        for (gap, terminal, length, packets) in arrivals {
            now += gap;
            for _ in 0..packets {
                shared.push(now, terminal % count, &from(terminal % count, length, 0));
            }
            while shared.pop(now, &mut out).is_some() {}
        }
        let end = now + 4 * S;
        while shared.pop(end, &mut out).is_some() {}
        let seen: Vec<_> = (0..count)
            .map(|index| (shared.counters(end, index), shared.queue(index).packets))
            .collect();
        // What left before the end and is still on its way.
        let mut in_flight = vec![0; count];
        while let Some((due, index)) = shared.pop(end + 300 * MS, &mut out) {
            in_flight[index] += u64::from(due < end + 250 * MS + BURST);
        }
        let mut bursts = Vec::new();
        let (mut assigned, mut superframes) = (0, 0);
        let mut rest = (0, 0);
        for (index, (seen, waiting)) in seen.into_iter().enumerate() {
            prop_assert_eq!(
                seen.packets_in,
                seen.packets_out + seen.packets_dropped + waiting + in_flight[index]
            );
            prop_assert!(seen.frames_sent <= seen.slots_assigned);
            assigned += seen.slots_assigned;
            superframes = seen.superframes;
            rest = (seen.slots_free, seen.slots_signalling);
            bursts.extend(shared.terminal(index).take_frames().iter().map(|frame| frame.at));
        }
        prop_assert_eq!(assigned + rest.0 + rest.1, superframes * SLOTS);
        bursts.sort_unstable();
        prop_assert!(bursts.windows(2).all(|pair| pair[0] + BURST <= pair[1]));
        for chunk in bursts.chunk_by(|left, right| left / SUPERFRAME == right / SUPERFRAME) {
            let last = chunk.last().unwrap();
            prop_assert!(last + BURST <= (last / SUPERFRAME + 1) * SUPERFRAME);
        }
    }
}

#[test]
fn packets_come_out_at_the_moments_that_are_announced() {
    let mut shared = greedy(3);
    let mut out = Vec::new();
    for index in 0..300_u64 {
        let terminal = (index % 3) as usize;
        shared.push(index * MS / 3, terminal, &from(terminal, 700, 0));
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
