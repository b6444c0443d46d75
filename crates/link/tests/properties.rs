// SPDX-License-Identifier: GPL-3.0-or-later
//! What holds for any traffic and any caller.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{
    Release, back, config, drain, forward, link, lossy, opensand_forward, opensand_return, packet,
    run,
};
use link::{
    Accepted, Carrier, GilbertElliott, Impairments, Jitter, Link, LinkConfig, Loss, LossModel,
    LossUnit, Nanos, Queue, Reorder, Stage, Volume,
};
use proptest::prelude::*;

fn carriers() -> impl Strategy<Value = Carrier> {
    prop_oneof![
        (1..=28_u8, 500_000..50_000_000_u64).prop_map(|(id, rate)| forward(rate, id)),
        (3..=22_u8, 1..=20_u32).prop_map(|(id, slots)| back(2_000_000, id, slots)),
        Just(opensand_forward()),
        Just(opensand_return()),
        Just(Carrier::Wire),
    ]
}

fn losses() -> impl Strategy<Value = Vec<Loss>> {
    let chain = (
        0.0..1.0_f64,
        0.0..1.0_f64,
        proptest::option::of(1..50_000_000_u64),
    )
        .prop_map(|(p, r, step)| {
            let (good, bad) = (0.01, 0.9);
            LossModel::GilbertElliott(GilbertElliott {
                p,
                r,
                good,
                bad,
                step,
                shortest: 0,
            })
        });
    let model = prop_oneof![
        Just(LossModel::Bernoulli { ratio: 0.0 }),
        (0.0..0.3).prop_map(|ratio| LossModel::Bernoulli { ratio }),
        Just(LossModel::Bernoulli { ratio: 1.0 }),
        chain,
        (1..1_000_000_000_u64, 0.0..1.0).prop_map(|(period, share)| LossModel::Bursts {
            period,
            duration: (period as f64 * share) as Nanos,
            first: 0,
        }),
    ];
    let unit = prop_oneof![Just(LossUnit::Packet), Just(LossUnit::Frame)];
    let loss = (model, unit).prop_map(|(model, unit)| Loss { model, unit });
    proptest::collection::vec(loss, 0..3)
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        (0..20_000_000_u64).prop_map(|most| Jitter::Uniform { most }),
        (0..20_000_000_u64, 0..20_000_000_u64)
            .prop_map(|(mean, sigma)| Jitter::Normal { mean, sigma }),
    ]
}

fn configs() -> impl Strategy<Value = LinkConfig> {
    let queue = 1..20_000_u64;
    (
        carriers(),
        0..300_000_000_u64,
        queue,
        losses(),
        jitters(),
        any::<u64>(),
    )
        .prop_map(|(carrier, delay, bytes, losses, jitter, seed)| LinkConfig {
            losses,
            jitter,
            ..LinkConfig::new(carrier, delay, Queue::drop_tail(bytes), seed)
        })
}

fn impairments() -> impl Strategy<Value = Impairments> {
    let held = (
        0.0..1.0_f64,
        proptest::option::of(1..10_u64),
        1..100_000_000_u64,
    );
    let reorder = held.prop_map(|(ratio, packets, hold)| Reorder {
        ratio,
        packets,
        hold,
    });
    (proptest::option::of(reorder), 0.0..1.0_f64, 0.0..1.0_f64).prop_map(
        |(reorder, duplicate, corrupt)| Impairments {
            reorder,
            duplicate,
            corrupt,
        },
    )
}

/// Arrival times in order and packet lengths.
fn arrivals() -> impl Strategy<Value = Vec<(Nanos, usize)>> {
    let gap = prop_oneof![
        Just(0_u64),
        0..1000_u64,
        0..5_000_000_u64,
        0..100_000_000_u64
    ];
    let length = prop_oneof![1..100_usize, 1400..=1500_usize, 1..4000_usize];
    proptest::collection::vec((gap, length), 1..80).prop_map(|steps| {
        let mut now = 0;
        let mut step = |(gap, len)| {
            now += gap;
            (now, len)
        };
        steps.into_iter().map(&mut step).collect()
    })
}

/// As `run`, but the caller also looks in at `polls`, and takes out what is due.
fn run_polled(
    config: &LinkConfig,
    arrivals: &[(Nanos, usize)],
    polls: &[Nanos],
) -> (Vec<Release>, Link) {
    let mut link = Link::new(config.clone()).unwrap();
    let mut released = vec![];
    let mut polls = polls.iter().copied().peekable();
    for (number, &(at, len)) in arrivals.iter().enumerate() {
        while let Some(poll) = polls.next_if(|&poll| poll <= at) {
            released.extend(drain(&mut link, poll));
        }
        let _: Accepted = link.push(at, &packet(number as u64, len));
    }
    for poll in polls {
        released.extend(drain(&mut link, poll));
    }
    released.extend(drain(&mut link, Nanos::MAX));
    (released, link)
}

proptest! {
    #[test]
    fn polling_times_change_nothing(
        plain in configs(),
        impairments in impairments(),
        arrivals in arrivals(),
        mut polls in proptest::collection::vec(0..3_000_000_000_u64, 0..60),
        on_arrival in any::<bool>(),
    ) {
        if on_arrival {
            polls.extend(arrivals.iter().map(|&(at, _)| at));
        }
        polls.sort_unstable();
        let config = LinkConfig { impairments, ..plain };
        let (plain, plain_link) = run(&config, &arrivals);
        let (polled, polled_link) = run_polled(&config, &arrivals, &polls);
        prop_assert_eq!(plain, polled);
        prop_assert_eq!(plain_link.counters(), polled_link.counters());
    }

    #[test]
    fn same_seed_same_events(config in configs(), arrivals in arrivals()) {
        prop_assert_eq!(run(&config, &arrivals).0, run(&config, &arrivals).0);
    }

    #[test]
    fn packets_come_out_in_order_unchanged_and_not_too_early(config in configs(), arrivals in arrivals()) {
        let (released, link) = run(&config, &arrivals);
        let mut offered = arrivals.iter().enumerate();
        let mut last = 0;
        let air_time = match config.carrier {
            Carrier::OpenSandForward { .. } | Carrier::OpenSandReturn { .. } => 2_000_000,
            carrier => carrier.frame_duration(),
        };
        for Release { due, packet: got } in &released {
            let sent = offered.find(|&(number, &(_, len))| packet(number as u64, len) == *got);
            let (_, &(at, _)) = sent.ok_or_else(|| TestCaseError::fail("packet not sent or out of order"))?;
            prop_assert!(*due >= last && *due >= at + config.delay + air_time);
            last = *due;
        }
        let counters = link.counters();
        prop_assert_eq!(counters.packets_in, arrivals.len() as u64);
        prop_assert_eq!(counters.packets_in, counters.packets_dropped + counters.packets_lost + counters.packets_out);
        prop_assert_eq!(counters.bytes_in, counters.bytes_dropped + counters.bytes_lost + counters.bytes_out);
        prop_assert!(counters.frame_bytes_used <= counters.frame_bytes_available);
        prop_assert_eq!(link.next_event(), None);
    }

    #[test]
    fn queue_keeps_its_limit(config in configs(), arrivals in arrivals()) {
        let mut link = Link::new(config.clone()).unwrap();
        for (number, &(at, len)) in arrivals.iter().enumerate() {
            let before = link.counters().packets_dropped;
            link.advance(at);
            let waiting = link.queue().bytes;
            let accepted = link.push(at, &packet(number as u64, len));
            prop_assert_eq!(accepted == Accepted::Dropped, link.counters().packets_dropped > before);
            let Volume { packets, bytes } = link.queue();
            prop_assert!(bytes <= config.queue.bytes);
            prop_assert_eq!(bytes == 0, packets == 0);
            // Drop-tail: dropped only for want of room.
            if config.carrier != Carrier::Wire {
                let full = waiting + len as u64 > config.queue.bytes;
                prop_assert_eq!(accepted == Accepted::Dropped, full);
            }
        }
    }

    #[test]
    fn random_operations_do_not_panic(
        config in configs(),
        steps in proptest::collection::vec((0..4_u8, any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200)), 0..60),
    ) {
        let mut link = Link::new(config).unwrap();
        let mut out = vec![];
        for (kind, now, bytes) in steps {
            // Half of the times near, half anywhere up to the end of time.
            let now = if kind % 2 == 0 { now % 1_000_000_000 } else { now };
            if kind < 2 {
                let _: Accepted = link.push(now, &bytes);
            } else {
                link.pop(now, &mut out);
            }
            let _ = (link.next_event(), link.queue(), link.counters());
        }
    }
}

#[test]
// promise: P5
fn packet_losses_hold_the_ratio_within_three_sigma() {
    const PACKETS: u64 = 100_000;
    for carrier in [
        forward(100_000_000, 28),
        back(20_000_000, 22, 200),
        Carrier::Wire,
    ] {
        let mut link = Link::new(lossy(carrier, 0.01, LossUnit::Packet)).unwrap();
        let packet = packet(0, 200);
        for now in 0..PACKETS {
            assert_eq!(link.push(now * 100_000, &packet), Accepted::Queued);
        }
        link.advance(Nanos::MAX);
        let gone = link.counters().packets_lost as f64;
        let sigma = (PACKETS as f64 * 0.01 * 0.99).sqrt();
        assert!(
            (gone - PACKETS as f64 * 0.01).abs() < 3.0 * sigma,
            "{gone} lost"
        );
    }
}

#[test]
fn frame_losses_hold_the_ratio_and_take_every_packet_they_touch() {
    let mut link = Link::new(lossy(forward(10_000_000, 4), 0.1, LossUnit::Frame)).unwrap();
    let packet = packet(0, 1500);
    // More than fits, so that nearly every frame ends inside a packet.
    for now in 0..50_000 {
        let _: Accepted = link.push(now * 1_200_000, &packet);
    }
    link.advance(Nanos::MAX);
    let counters = link.counters();
    let frames = counters.frames_sent as f64;
    assert!((counters.frames_lost as f64 - frames * 0.1).abs() < 3.0 * (frames * 0.09).sqrt());
    // 4016 bytes are 2.64 packets with their headers, so a frame touches 3.64; a tenth shares one
    // with a lost neighbour.
    let per_frame = counters.packets_lost as f64 / counters.frames_lost as f64;
    assert!(
        (per_frame - 3.54).abs() < 0.1,
        "{per_frame} packets per lost frame"
    );
}

#[test]
fn different_seeds_lose_different_packets() {
    let arrivals: Vec<_> = (0..200).map(|number| (number * 1_000_000, 100)).collect();
    let released = |seed| {
        let config = LinkConfig {
            seed,
            ..lossy(forward(40_000_000, 4), 0.5, LossUnit::Packet)
        };
        run(&config, &arrivals).0
    };
    assert_ne!(released(1), released(2));
}

#[test]
fn what_the_carrier_cannot_carry_is_dropped() {
    for (carrier, longest) in [
        (forward(1_000_000, 1), 65_527),
        (back(2_000_000, 3, 10), 4088),
        (Carrier::Wire, 65_535),
    ] {
        let mut link = link(carrier);
        assert_eq!(link.push(0, &packet(0, longest)), Accepted::Queued);
        assert_eq!(link.push(0, &packet(0, longest + 1)), Accepted::Dropped);
        assert_eq!(link.push(0, &[]), Accepted::Dropped);
        let no_ip = link.push(0, &[0x10; 20]);
        assert_eq!(no_ip == Accepted::Dropped, carrier != Carrier::Wire);
    }
    let mut full = Link::new(LinkConfig {
        queue: Queue::drop_tail(100),
        ..config(forward(1, 1))
    })
    .unwrap();
    assert_eq!(full.push(0, &packet(0, 100)), Accepted::Queued);
    assert_eq!(full.push(0, &packet(1, 1)), Accepted::Dropped);
    assert_eq!(full.queue(), Volume::of_packet(100));
}
