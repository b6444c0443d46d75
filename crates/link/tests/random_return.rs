// SPDX-License-Identifier: GPL-3.0-or-later
//! Random access: throughput of the receivers, and a carrier that terminals share without
//! assignment.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use std::collections::BTreeSet;

use dvb::aloha::{Algorithm, Receiver, decode};
use dvb::rcs2::Waveform;
use link::{
    Accepted, Carrier, Change, Link, LinkConfig, LinkError, Nanos, Queue, RandomAccess,
    RandomReturn, Reception, ReturnCarrier as _, SharedCarrier as _, idle_delay,
    steady_goodput_bps,
};
use proptest::prelude::*;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

const MS: Nanos = 1_000_000;
const SUPERFRAME: Nanos = 26_500_000;
/// 100 slots of 536 symbols in a superframe.
const SYMBOL_RATE: u64 = 2_023_000;
const SLOTS: u32 = 100;

/// Slotted Aloha without a second try.
const ONCE: RandomAccess = RandomAccess {
    superframes: 1,
    replicas: 1,
    max_packets: 1,
    max_retries: 0,
    timeout: 0,
    algorithm: Algorithm::Beb,
    most_window: 1,
    multiple: 2,
    receiver: Receiver::Diversity,
};

fn config(access: RandomAccess, index: usize) -> LinkConfig {
    let carrier = Carrier::Return {
        symbol_rate: SYMBOL_RATE,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: SUPERFRAME,
        slots: SLOTS,
    };
    LinkConfig {
        random_access: Some(access),
        ..LinkConfig::new(carrier, 16 * MS, Queue::drop_tail(1_000_000), index as u64)
    }
}

fn shared(access: RandomAccess, count: usize) -> RandomReturn {
    let configs: Vec<_> = (0..count).map(|index| config(access, index)).collect();
    RandomReturn::new(&configs).unwrap()
}

/// A packet with a number of its own.
fn packet(number: u32, length: usize) -> Vec<u8> {
    let mut packet = vec![0; length.max(24)];
    packet[0] = 0x45;
    packet[20..24].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[20..24].try_into().unwrap())
}

/// Decoded bursts per slot, of `load` bursts per slot with so many replicas in random slots.
fn throughput(load: f64, replicas: usize, receiver: Receiver) -> f64 {
    const FRAMES: u32 = 400;
    let mut random = Pcg64::seed_from_u64(7);
    let mut decoded = 0;
    for _ in 0..FRAMES {
        let burst = |_| {
            let mut slots = BTreeSet::new();
            while slots.len() < replicas {
                slots.insert(random.next_u32() % SLOTS);
            }
            slots.into_iter().collect()
        };
        let bursts: Vec<Vec<u32>> = (0..(load * f64::from(SLOTS)) as u32).map(burst).collect();
        let found = decode(SLOTS, &bursts, receiver);
        decoded += found.iter().flatten().count();
    }
    decoded as f64 / f64::from(FRAMES * SLOTS)
}

#[test]
// promise: P12
fn p323_slotted_aloha_has_the_throughput_of_its_formula() {
    for load in [0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0] {
        let expected = load * f64::exp(-load);
        for receiver in [Receiver::Diversity, Receiver::Cancelling] {
            let found = throughput(load, 1, receiver);
            assert!(
                (found - expected).abs() < 0.02,
                "{load}: {found}, not {expected}"
            );
        }
    }
}

#[test]
// promise: P12
fn p324_two_replicas_with_cancelling_carry_more_than_slotted_aloha() {
    for load in [0.2, 0.3, 0.4, 0.5, 0.6] {
        let aloha = throughput(load, 1, Receiver::Diversity);
        let diversity = throughput(load, 2, Receiver::Diversity);
        let cancelling = throughput(load, 2, Receiver::Cancelling);
        assert!(cancelling > aloha + 0.03, "{load}: {cancelling}, {aloha}");
        assert!(cancelling > diversity, "{load}: {cancelling}, {diversity}");
    }
    // Casini et al.: almost all of a load of 0.3, and a peak of about 0.55; frames of 100 slots
    // have a little less.
    assert!(throughput(0.3, 2, Receiver::Cancelling) > 0.29);
    let peak = (40..80)
        .step_by(5)
        .map(|percent| throughput(f64::from(percent) / 100.0, 2, Receiver::Cancelling));
    let peak = peak.fold(0.0, f64::max);
    assert!((0.45..0.6).contains(&peak), "{peak}");
}

#[test]
fn p326_saturated_terminals_get_what_the_formula_says() {
    for count in [20, 64, 150] {
        let mut shared = shared(ONCE, count);
        let (mut out, mut came) = (Vec::new(), 0);
        let superframes = 300;
        for now in (0..superframes * SUPERFRAME).step_by(SUPERFRAME as usize) {
            for terminal in 0..count {
                while shared.queue(terminal).packets < 10 {
                    shared.push(now, terminal, &packet(0, 100));
                }
            }
            while shared.pop(now, &mut out).is_some() {
                came += 1;
            }
        }
        let load = count as f64 / f64::from(SLOTS);
        let expected = load * f64::exp(-load);
        let found = f64::from(came) / (superframes as f64 * f64::from(SLOTS));
        assert!(
            (found - expected).abs() < 0.02,
            "{count}: {found}, not {expected}"
        );
        let seen = shared.counters(superframes * SUPERFRAME, 0);
        assert!(seen.frames_lost > 0 && seen.packets_lost > 0 && seen.packets_out > 0);
    }
}

#[test]
fn p326_a_terminal_alone_loses_nothing_and_waits_for_its_frame() {
    for (receiver, replicas) in [(Receiver::Diversity, 1), (Receiver::Cancelling, 3)] {
        let access = RandomAccess {
            max_packets: 8,
            superframes: 3,
            replicas,
            receiver,
            ..ONCE
        };
        let mut shared = shared(access, 1);
        let (mut now, mut out, mut dues) = (0, Vec::new(), Vec::new());
        for number in 0..40 {
            assert_eq!(
                shared.push(5 * MS, 0, &packet(number, 600)),
                Accepted::Queued
            );
        }
        while let Some(at) = shared.next_event() {
            now = at.max(now);
            while let Some((due, terminal)) = shared.pop(now, &mut out) {
                assert_eq!((due, terminal, out.len()), (now, 0, 600));
                dues.push(due);
            }
        }
        assert_eq!(dues.len(), 40);
        // 4 bursts a packet, 8 an SA frame, the first one of which starts after 79.5 ms.
        let frame = 3 * SUPERFRAME;
        assert!(dues[0] > frame + 16 * MS, "{}", dues[0]);
        if receiver == Receiver::Cancelling {
            let ends: Vec<_> = dues.iter().map(|due| (due - 16 * MS) % frame).collect();
            assert_eq!(ends, [0; 40]);
            assert_eq!(dues[39], 21 * frame + 16 * MS);
        }
        let seen = shared.counters(now, 0);
        assert_eq!(
            (seen.packets_out, seen.packets_lost, seen.frames_lost),
            (40, 0, 0)
        );
        assert_eq!(seen.frames_sent, 40 * 4 * u64::from(replicas));
    }
}

#[test]
fn p327_delay_and_goodput_of_a_terminal_alone_are_predicted() {
    for (receiver, replicas, length) in [
        (Receiver::Diversity, 1, 100),
        (Receiver::Diversity, 2, 900),
        (Receiver::Cancelling, 2, 100),
        (Receiver::Cancelling, 1, 1400),
    ] {
        let access = RandomAccess {
            max_packets: 5,
            replicas,
            receiver,
            ..ONCE
        };
        let config = config(access, 1);
        let expected = idle_delay(&config, length).unwrap();
        let mut shared = RandomReturn::new(std::slice::from_ref(&config)).unwrap();
        let (mut out, mut sum) = (Vec::new(), 0);
        for index in 0..2000_u64 {
            // Any phase of the SA frame, long after the last packet.
            let now = index * 20 * SUPERFRAME + index * 7919 * 1000 % SUPERFRAME;
            shared.push(now, 0, &packet(0, length));
            let (due, _) = shared.pop(now + 19 * SUPERFRAME, &mut out).unwrap();
            assert!((expected.min..=expected.max).contains(&(due - now)));
            sum += due - now;
        }
        let ratio = (sum / 2000) as f64 / expected.mean as f64;
        assert!(
            (ratio - 1.0).abs() < 0.02,
            "{receiver:?} {replicas} {length}: {ratio}"
        );
        // 5 bursts an SA frame, of 8 for a packet of 1500 bytes.
        let goodput = steady_goodput_bps(&config, 1500, 1472);
        let ratio = goodput / (5.0 / 8.0 * 1472.0 * 8.0 / (SUPERFRAME as f64 / 1e9));
        assert!((ratio - 1.0).abs() < 0.02, "{goodput} {ratio}");
    }
}

#[test]
fn p326_retransmissions_bring_what_collided() {
    let access = RandomAccess {
        max_packets: 4,
        max_retries: 30,
        most_window: 16,
        ..ONCE
    };
    for algorithm in [Algorithm::Beb, Algorithm::Eied, Algorithm::Mimd] {
        let mut shared = shared(
            RandomAccess {
                algorithm,
                ..access
            },
            30,
        );
        let mut random = Pcg64::seed_from_u64(3);
        let (mut out, mut seen) = (Vec::new(), BTreeSet::new());
        for sent in 0..600 {
            let terminal = random.next_u32() as usize % 30;
            shared.push(u64::from(sent) * 4 * MS, terminal, &packet(sent, 400));
        }
        while shared.pop(60_000 * MS, &mut out).is_some() {
            assert!(seen.insert(number(&out)), "twice");
        }
        assert_eq!(seen.len(), 600, "{algorithm:?}");
        let lost: u64 = (0..30)
            .map(|it| shared.counters(60_000 * MS, it).frames_lost)
            .sum();
        assert!(lost > 20, "{algorithm:?}: {lost}");
    }
}

#[test]
fn p326_an_outage_of_one_terminal_is_not_that_of_another() {
    let mut config = [config(ONCE, 0), config(ONCE, 1)];
    for it in &mut config {
        it.reception = Some(Reception::gate(15.0));
    }
    let mut shared = RandomReturn::new(&config).unwrap();
    shared.set(0, 0, &Change::Outage(true)).unwrap();
    let changes = [Change::Attenuation(9.0), Change::Attenuation(0.0)];
    let mut counts = Vec::new();
    for change in changes {
        let start = counts.len() as u64 * 1000 * MS;
        shared.set(start, 1, &change).unwrap();
        (0..2).for_each(|it| assert_eq!(shared.push(start, it, &packet(0, 60)), Accepted::Queued));
        let mut out = Vec::new();
        counts.push(std::iter::from_fn(|| shared.pop(start + 900 * MS, &mut out)).count());
    }
    assert_eq!(counts, [0, 1]);
    assert_eq!(shared.counters(2000 * MS, 0).packets_lost, 2);
    let refused = shared.set(2000 * MS, 0, &Change::SymbolRate(5));
    assert_eq!(refused, Err(LinkError::RandomChange));
    shared.set(2000 * MS, 1, &Change::Delay(300 * MS)).unwrap();
    shared.push(2001 * MS, 1, &packet(0, 60));
    let (due, _) = shared.pop(4000 * MS, &mut Vec::new()).unwrap();
    assert!(due > 2300 * MS, "{due}");
}

#[test]
fn p326_links_that_cannot_have_random_access_are_refused() {
    let own = config(ONCE, 0);
    assert_eq!(Link::new(own.clone()).err(), Some(LinkError::RandomAccess));
    let plain = LinkConfig {
        random_access: None,
        ..own.clone()
    };
    let refused = |configs: &[LinkConfig]| RandomReturn::new(configs).err();
    assert_eq!(refused(&[plain]), Some(LinkError::RandomAccess));
    let far = LinkConfig {
        delay: 17 * MS,
        ..own.clone()
    };
    assert_eq!(refused(&[own, far]), Some(LinkError::Shared));
    assert_eq!(refused(&[]), Some(LinkError::Shared));
    let mut short = shared(ONCE, 1);
    for odd in [&[][..], &[0x12; 60], &[0x45; 4089]] {
        assert_eq!(short.push(0, 0, odd), Accepted::Dropped);
    }
}

prop_compose! {
    fn settings()(
        superframes in 1..4_u32, replicas in 1..4_u32, max_packets in 1..12_u32, max_retries in 0..5_u32,
        timeout in 0..6_u32, algorithm in 0..3_usize, most_window in 0..20_u16, multiple in 0..5_u16, cancels in any::<bool>(),
    ) -> RandomAccess {
        RandomAccess {
            superframes, replicas, max_packets, max_retries, timeout, most_window, multiple,
            algorithm: [Algorithm::Beb, Algorithm::Eied, Algorithm::Mimd][algorithm],
            receiver: if cancels { Receiver::Cancelling } else { Receiver::Diversity },
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every packet comes once, is dropped or lost, and none waits in the end; the same seeds have
    /// the same events.
    #[test]
    fn p326_every_packet_is_accounted_for_and_none_comes_twice(
        access in settings(),
        count in 1..20_usize,
        arrivals in proptest::collection::vec((0..30_000_000_u64, 0..20_usize, 24..1500_usize, 1..20_usize), 1..80),
    ) {
        let run = || {
            let mut shared = shared(access, count);
            let (mut now, mut sent, mut out, mut seen) = (0, 0, Vec::new(), Vec::new());
            for &(gap, terminal, length, packets) in &arrivals {
                now += gap;
                for _ in 0..packets {
                    shared.push(now, terminal % count, &packet(sent, length));
                    sent += 1;
                }
                while let Some((due, terminal)) = shared.pop(now, &mut out) {
                    seen.push((due, terminal, number(&out)));
                }
            }
            while let Some((due, terminal)) = shared.pop(now + 100_000_000 * MS, &mut out) {
                seen.push((due, terminal, number(&out)));
            }
            let counters: Vec<_> = (0..count).map(|it| shared.counters(now, it)).collect();
            let waiting: u64 = (0..count).map(|it| shared.queue(it).packets).sum();
            (sent, seen, counters, waiting)
        };
        let (sent, seen, counters, waiting) = run();
        let numbers: BTreeSet<_> = seen.iter().map(|it| it.2).collect();
        prop_assert_eq!(numbers.len(), seen.len());
        let sum = |of: fn(&link::Counters) -> u64| counters.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|it| it.packets_in), u64::from(sent));
        prop_assert_eq!(sum(|it| it.packets_out), seen.len() as u64);
        prop_assert_eq!(
            u64::from(sent),
            seen.len() as u64 + sum(|it| it.packets_dropped) + sum(|it| it.packets_lost)
        );
        prop_assert_eq!(waiting, 0);
        prop_assert!(counters.iter().all(|it| it.frames_lost <= it.frames_sent));
        prop_assert_eq!(run(), (sent, seen, counters, waiting));
    }
}
