// SPDX-License-Identifier: GPL-3.0-or-later
//! Figures of the FIFOs in front of a carrier: what waits, left and was dropped, and how long
//! packets waited.
#![allow(clippy::unwrap_used)] // A test that cannot go on ends with a panic.

use crate::common;

use common::{back, config, forward};
use dvb::dama::{Access, Agreement};
use link::{
    Aqm, Carrier, Change, Classes, CoDel, Demand, DualPi2, Fifo, FifoState, FqCoDel, Link,
    LinkConfig, Nanos, Pie, Plans, Queue, ReturnCarrier as _, SharedCarrier as _, SharedForward,
    SharedReturn, Stage, Volume,
};
use proptest::prelude::*;

const MS: Nanos = 1_000_000;
const EF: u8 = 46;

/// A packet of this DSCP.
fn packet(dscp: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    (bytes[0], bytes[1]) = (0x45, dscp << 2);
    bytes
}

/// The time below which this share of the packets waited, µs.
fn quantile_us(fifo: &FifoState, share: f64) -> f64 {
    let all: u32 = fifo.waits.iter().map(|it| it.packets).sum();
    let rank = (share * f64::from(all)).ceil() as u32;
    let mut seen = 0;
    let found = fifo.waits.iter().find(|it| {
        seen += it.packets;
        seen >= rank
    });
    found.unwrap().us.into()
}

fn within(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 0.032 * expected + 1.1
}

fn two_classes() -> Classes {
    let mut of_dscp = [1; 64];
    of_dscp[usize::from(EF)] = 0;
    Classes {
        packets: vec![1000, 1000],
        of_dscp,
    }
}

/// 12 Mbit/s: a packet of 1500 bytes takes 1 ms.
fn line() -> LinkConfig {
    config(Carrier::line(12_000_000))
}

#[test]
fn p296_a_known_queue_has_the_known_times_of_waiting() {
    let mut link = Link::new(line()).unwrap();
    for _ in 0..200 {
        link.push(0, &packet(0, 1500));
    }
    // Packet k starts at k ms: 101 of them have left, after 0 to 100 ms.
    link.advance(100 * MS);
    let [fifo] = &link.fifos()[..] else { panic!() };
    assert_eq!((fifo.sent.packets, fifo.dropped.packets), (101, 0));
    assert_eq!(fifo.queue, Volume::new(99, 99 * 1500));
    for (share, expected_ms) in [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0)] {
        let found = quantile_us(fifo, share);
        assert!(within(found, expected_ms * 1e3), "{share}: {found} us");
    }
    // Times are those since the last call, counters those since the start.
    let again = link.fifos();
    assert!(again[0].waits.is_empty() && again[0].sent.packets == 101);
    link.advance(120 * MS);
    let later = link.fifos();
    assert_eq!(later[0].sent.packets, 121);
    assert!(within(quantile_us(&later[0], 1.0), 120e3));
}

#[test]
fn p296_classes_have_figures_of_their_own() {
    let mut link = Link::new(LinkConfig {
        classes: Some(two_classes()),
        queue: Queue::drop_tail(60_000),
        ..line()
    })
    .unwrap();
    // The first leaves at once, forty wait in each FIFO, nine do not fit; the urgent ones leave
    // next, 1 to 40 ms after they came.
    for _ in 0..50 {
        link.push(0, &packet(0, 1500));
    }
    for _ in 0..40 {
        link.push(0, &packet(EF, 1500));
    }
    link.advance(1000 * MS);
    let [urgent, rest] = &link.fifos()[..] else {
        panic!()
    };
    let sent = [urgent, rest].map(|it| (it.sent.packets, it.dropped.packets, it.queue.packets));
    assert_eq!(sent, [(40, 0, 0), (41, 9, 0)]);
    assert!(within(quantile_us(urgent, 1.0), 40e3), "{urgent:?}");
    assert!(within(quantile_us(rest, 0.5), 60e3), "{rest:?}");
    assert!(within(quantile_us(rest, 1.0), 80e3), "{rest:?}");
}

#[test]
fn p296_each_terminal_of_a_shared_carrier_has_its_fifos() {
    let terminal = |modcod| LinkConfig {
        classes: Some(two_classes()),
        ..config(forward(10_000_000, modcod))
    };
    let mut down = SharedForward::new(&[(terminal(4), 1), (terminal(4), 1)]).unwrap();
    for _ in 0..100 {
        down.push(0, 1, &packet(0, 1500));
    }
    down.push(0, 0, &packet(EF, 100));
    down.advance(5 * MS);
    let sent = [0, 1].map(|it| down.fifos(it).iter().map(|it| it.sent.packets).sum::<u64>());
    assert_eq!((sent[0], down.fifos(0)[1].queue.packets), (1, 0));
    assert!((1..100).contains(&sent[1]), "{sent:?}");
    assert_eq!(down.fifos(1)[1].queue, down.queue(1));

    let demand = Demand {
        fifos: vec![Fifo {
            access: Access::Cra,
            packets: 1000,
        }],
        fifo_of_dscp: [0; 64],
        agreement: Agreement {
            cra_kbps: 1000,
            rbdc_max_kbps: None,
            vbdc_max_kbit: None,
            duration: 23,
        },
        fca_kbps: 0,
        synchro: 1000 * MS,
        others: Vec::new(),
        plans: Plans::default(),
    };
    let own = LinkConfig {
        demand: Some(demand),
        ..config(back(16_000_000, 12, 791))
    };
    let mut up = SharedReturn::new(&[own.clone(), own]).unwrap();
    for _ in 0..10 {
        up.push(3000 * MS, 1, &packet(0, 1000));
    }
    let counters = up.counters(6000 * MS, 1);
    let [fifo] = &up.fifos(1)[..] else { panic!() };
    // 80 kbit at 1 Mbit/s.
    assert_eq!((counters.packets_in, fifo.sent.packets), (10, 10));
    assert!(quantile_us(fifo, 1.0) > 50e3, "{fifo:?}");
    assert_eq!(up.fifos(0)[0], FifoState::default());
}

#[test]
fn a_wire_has_no_fifos() {
    let mut link = Link::new(config(Carrier::Wire)).unwrap();
    link.push(0, &packet(0, 1500));
    assert!(link.fifos().is_empty());
}

fn disciplines() -> impl Strategy<Value = Aqm> {
    prop_oneof![
        Just(Aqm::DropTail),
        Just(Aqm::CoDel(CoDel::default())),
        Just(Aqm::FqCoDel(FqCoDel {
            flows: 8,
            ..FqCoDel::default()
        })),
        Just(Aqm::Pie(Pie::default())),
        Just(Aqm::DualPi2(DualPi2::default())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes: each packet left, was dropped or waits, in a queue that was replaced, too;
    /// and each that left has a time, no longer than the link has run.
    #[test]
    fn p296_no_packet_is_without_a_figure(
        aqm in disciplines(),
        packets in 2..40_u64,
        gaps in prop::collection::vec((0..3_000_000_u64, any::<bool>(), 40..1500_usize), 1..200),
        replaced_after in 0..200_usize,
    ) {
        let queue = Queue { packets, aqm, ..Queue::drop_tail(1 << 20) };
        let mut link = Link::new(LinkConfig { classes: Some(two_classes()), queue, ..line() }).unwrap();
        let mut now = 0;
        for (index, &(gap, is_urgent, length)) in gaps.iter().enumerate() {
            now += gap;
            if index == replaced_after {
                let fewer = Queue { packets: packets / 2, ..queue };
                link.set(now, &Change::Queue(fewer)).unwrap();
            }
            link.push(now, &packet(if is_urgent { EF } else { 0 }, length));
        }
        let fifos = link.fifos();
        let sum = |of: fn(&FifoState) -> u64| fifos.iter().map(of).sum::<u64>();
        let counters = link.counters();
        prop_assert_eq!(sum(|it| it.dropped.packets), counters.packets_dropped);
        prop_assert_eq!(sum(|it| it.queue.packets), link.queue().packets);
        let all = sum(|it| it.sent.packets + it.dropped.packets + it.queue.packets);
        prop_assert_eq!(all, counters.packets_in);
        let timed = sum(|it| it.waits.iter().map(|it| u64::from(it.packets)).sum());
        prop_assert_eq!(timed, sum(|it| it.sent.packets));
        let longest = fifos.iter().flat_map(|it| &it.waits).map(|it| it.us).max();
        prop_assert!(longest.is_none_or(|us| f64::from(us) <= now as f64 / 1e3 * 1.04 + 2.0));
    }
}
