// SPDX-License-Identifier: GPL-3.0-or-later
//! Goodput and delay by number of terminals, class and load, as a golden table.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;
use crate::on_demand as demand;

use std::collections::VecDeque;
use std::fmt::Write as _;

use demand::{MS, NOTHING};
use dvb::dama::{Access, Agreement};
use link::{Classes, LinkConfig, Nanos, Queue, SharedCarrier, SharedForward, SharedReturn};

const S: Nanos = 1000 * MS;
const EF: u8 = 46;

/// A carrier in one direction.
struct Shared {
    carrier: Box<dyn SharedCarrier>,
    /// Layer-2 rate.
    rate_bps: f64,
}

impl Shared {
    fn forward(count: usize) -> Self {
        let mut of_dscp = [1; 64];
        of_dscp[usize::from(EF)] = 0;
        let terminal = |index: usize| LinkConfig {
            queue: Queue::drop_tail(100_000),
            classes: Some(Classes {
                packets: vec![1000; 2],
                of_dscp,
            }),
            seed: index as u64,
            ..common::config(common::forward(6_000_000, 4))
        };
        let terminals: Vec<_> = (0..count).map(|index| (terminal(index), 1)).collect();
        Self {
            carrier: Box::new(SharedForward::new(&terminals).unwrap()),
            rate_bps: common::forward(6_000_000, 4).rate_bps().unwrap(),
        }
    }

    fn back(count: usize) -> Self {
        let agreement = Agreement {
            // A tenth and more of the carrier is there for EF without a request.
            cra_kbps: 8000 / count as u32,
            rbdc_max_kbps: Some(100_000),
            duration: 60,
            ..NOTHING
        };
        let terminal = |index: usize| LinkConfig {
            // Requests are for what waits: a second of the carrier.
            queue: Queue::drop_tail(12_000_000 / count as u64),
            seed: index as u64,
            ..demand::config(&[Access::Cra, Access::Rbdc], agreement, 250)
        };
        let terminals: Vec<_> = (0..count).map(terminal).collect();
        Self {
            carrier: Box::new(SharedReturn::new(&terminals).unwrap()),
            rate_bps: 791.0 * 194.0 * 8.0 / 26.5e-3,
        }
    }
}

/// Bits that came out in 5 s, and delays beyond propagation, of a class.
#[derive(Default)]
struct Seen {
    bits: u64,
    delays: Vec<Nanos>,
}

/// A tenth of the load is in EF, the rest in best effort; every terminal has the same.
fn run(shared: &mut Shared, count: usize, load: f64) -> [Seen; 2] {
    let per_terminal = shared.rate_bps * load / count as f64;
    let streams = [(EF, 200_usize, 0.1), (0, 1400, 0.9)].map(|(dscp, length, part)| {
        let spacing = (length * 8) as f64 * 1e9 / (per_terminal * part);
        (dscp, length, spacing as Nanos)
    });
    let mut next: Vec<[Nanos; 2]> = (0..count as u64)
        .map(|index| streams.map(|(_, _, spacing)| spacing * index / count as u64))
        .collect();
    // Sending times of what may still come out, by number.
    let mut sent = vec![[const { VecDeque::<(u32, Nanos)>::new() }; 2]; count];
    let mut seen = [Seen::default(), Seen::default()];
    let (mut number, mut out) = (0_u32, Vec::new());
    for now in (0..8 * S).step_by(MS as usize) {
        for terminal in 0..count {
            for (class, &(dscp, length, spacing)) in streams.iter().enumerate() {
                while next[terminal][class] <= now {
                    let mut bytes = demand::packet(length, dscp);
                    bytes[12..16].copy_from_slice(&number.to_be_bytes());
                    let _ = shared.carrier.push(now, terminal, &bytes);
                    sent[terminal][class].push_back((number, now));
                    number += 1;
                    next[terminal][class] += spacing;
                }
            }
        }
        while let Some((due, terminal)) = shared.carrier.pop(now, &mut out) {
            let class = usize::from(out[1] >> 2 != EF);
            let own = u32::from_be_bytes([out[12], out[13], out[14], out[15]]);
            let queue = &mut sent[terminal][class];
            while queue.front().is_some_and(|&(number, _)| number < own) {
                queue.pop_front();
            }
            let (_, at) = queue.pop_front().unwrap();
            if due >= 3 * S {
                seen[class].bits += out.len() as u64 * 8;
                seen[class].delays.push(due - at - common::GEO);
            }
        }
    }
    seen
}

#[test]
fn p186_goodput_and_delay_by_terminals_class_and_load_are_golden() {
    let mut table = String::from("direction  terminals  load  class   kbit/s  p50 ms  p99 ms\n");
    for (direction, make) in [
        ("forward", Shared::forward as fn(usize) -> Shared),
        ("return", Shared::back),
    ] {
        for count in [1, 4, 16, 64] {
            for load in [0.5, 0.9, 1.3] {
                let mut shared = make(count);
                let mut seen = run(&mut shared, count, load);
                for (class, name) in [(0, "EF"), (1, "BE")] {
                    let Seen { bits, delays } = &mut seen[class];
                    delays.sort_unstable();
                    let of =
                        |share: f64| delays[(delays.len() as f64 * share) as usize] as f64 / 1e6;
                    let kbps = *bits as f64 / 5e3;
                    let (median, late) = (of(0.5), of(0.99));
                    let _ = writeln!(
                        table,
                        "{direction:10} {count:9} {load:5.1}  {name:5} {kbps:8.1} {median:7.1} {late:7.1}"
                    );
                }
            }
        }
    }
    let golden = include_str!("golden/terminals.txt");
    assert_eq!(table, golden, "\n{table}");
}
