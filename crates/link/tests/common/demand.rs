// SPDX-License-Identifier: GPL-3.0-or-later
//! A return link with demand assignment, and a model of its delay.
#![allow(clippy::unwrap_used, dead_code)] // Helpers outside of #[test] functions; each test uses some.

use dvb::dama::{Access, Agreement};
use dvb::rcs2::Waveform;
use link::{Accepted, Carrier, Demand, Fifo, Link, LinkConfig, Nanos, Plans, Queue, Stage};

pub const MS: Nanos = 1_000_000;
pub const SUPERFRAME: Nanos = 26_500_000;
pub const SYNCHRO: Nanos = 1000 * MS;
/// One burst of 536 symbols at 16 Mbaud.
pub const BURST: Nanos = 33_500;

pub const NOTHING: Agreement = Agreement {
    cra_kbps: 0,
    rbdc_max_kbps: None,
    vbdc_max_kbit: None,
    duration: 23,
};
pub const CRA: Agreement = Agreement {
    cra_kbps: 50,
    ..NOTHING
};
pub const RBDC: Agreement = Agreement {
    rbdc_max_kbps: Some(40_000),
    ..NOTHING
};
pub const VBDC: Agreement = Agreement {
    vbdc_max_kbit: Some(10_000),
    ..NOTHING
};

pub fn config(accesses: &[Access], agreement: Agreement, one_way_ms: u64) -> LinkConfig {
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: SUPERFRAME,
        slots: 791,
    };
    let fifo = |&access: &Access| Fifo {
        access,
        packets: 10_000,
    };
    let mut fifo_of_dscp = [accesses.len() as u8 - 1; 64];
    // Expedited forwarding into the first FIFO.
    fifo_of_dscp[46] = 0;
    LinkConfig {
        demand: Some(Demand {
            fifos: accesses.iter().map(fifo).collect(),
            fifo_of_dscp,
            agreement,
            fca_kbps: 0,
            synchro: SYNCHRO,
            others: Vec::new(),
            plans: Plans::default(),
        }),
        ..LinkConfig::new(carrier, one_way_ms * MS, Queue::drop_tail(1 << 30), 1)
    }
}

pub fn packet(length: usize, dscp: u8) -> Vec<u8> {
    let mut packet = vec![0; length];
    (packet[0], packet[1]) = (0x45, dscp << 2);
    packet
}

/// Delay of one 84-byte packet that comes to an idle link at `at`.
pub fn first_packet(config: &LinkConfig, at: Nanos) -> Nanos {
    let mut link = Link::new(config.clone()).unwrap();
    assert_eq!(link.push(at, &packet(84, 0)), Accepted::Queued);
    let mut out = Vec::new();
    let mut now = at;
    loop {
        // Advances only to reported event times, as the real-time loop does.
        now = link.next_event().unwrap().max(now);
        if let Some(due) = link.pop(now, &mut out) {
            assert_eq!((due, out.len()), (now, 84));
            return due - at;
        }
        assert!(now < at + 10_000 * MS);
    }
}

/// The same from the clocks alone. The packet waits for the next request; request, plan and packet
/// each propagate; the request waits for the planner, the plan for the terminal's superframe.
pub fn model(at: Nanos, one_way: Nanos) -> Nanos {
    let next = |time: Nanos, period: Nanos, phase: Nanos| {
        (time.saturating_sub(phase)).div_ceil(period) * period + phase
    };
    let asked = next(at, SYNCHRO, 0) + BURST + one_way;
    let planned = next(asked, SUPERFRAME, one_way % SUPERFRAME);
    let granted = next(planned + one_way, SUPERFRAME, 0);
    granted + BURST + one_way - at
}
