// SPDX-License-Identifier: GPL-3.0-or-later
//! Another terminal on the carrier: it sends what its load brings, and is idle again when that has
//! left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use dvb::dama::{Access, Agreement};
use dvb::rcs2::Waveform;
use link::{
    Carrier, Counters, Demand, Fifo, Link, LinkConfig, Load, Nanos, Other, Plans, Queue, Stage,
};

const MS: Nanos = 1_000_000;
const SLOTS: u32 = 791;
const VOLUME: Agreement = Agreement {
    cra_kbps: 0,
    rbdc_max_kbps: None,
    vbdc_max_kbit: Some(10_000),
    duration: 23,
};

/// A carrier whose own terminal is silent, and another one with this load, kbit/s, from 1 s to 11
/// s.
fn shared(kbps: u32) -> Link {
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: 26_500_000,
        slots: SLOTS,
    };
    let other = Other {
        agreement: VOLUME,
        access: Access::Vbdc,
        load: vec![Load {
            from: 1000 * MS,
            until: 11_000 * MS,
            kbps,
        }],
    };
    let demand = Demand {
        fifos: vec![Fifo {
            access: Access::Vbdc,
            packets: 10,
        }],
        fifo_of_dscp: [0; 64],
        agreement: VOLUME,
        fca_kbps: 0,
        synchro: 1000 * MS,
        others: vec![other],
        plans: Plans::default(),
    };
    let queue = Queue::drop_tail(1 << 20);
    Link::new(LinkConfig {
        demand: Some(demand),
        ..LinkConfig::new(carrier, 250 * MS, queue, 1)
    })
    .unwrap()
}

/// Slots that the other terminal had in each of the seconds 0 to 29.
fn taken(kbps: u32) -> Vec<u64> {
    let mut link = shared(kbps);
    let mut before = Counters::default();
    (1..=30)
        .map(|second| {
            link.advance(second * 1000 * MS);
            let now = link.counters();
            let all = (now.superframes - before.superframes) * u64::from(SLOTS);
            let idle = now.slots_free - before.slots_free;
            let signalling = now.slots_signalling - before.slots_signalling;
            before = now;
            all - idle - signalling
        })
        .collect()
}

#[test]
fn it_has_the_slots_of_its_load_and_none_when_that_has_left() {
    // 2000 kbit/s for 10 s, in bursts of 194 bytes.
    let (taken, bursts) = (taken(2000), 2_000_000 * 10 / 8 / 194);
    let sum: u64 = taken.iter().sum();
    assert!(sum.abs_diff(bursts) < 40, "{sum} slots for {bursts} bursts");
    assert!(taken[..2].iter().all(|&slots| slots == 0), "{taken:?}");
    assert!(taken[14..].iter().all(|&slots| slots == 0), "{taken:?}");
}
