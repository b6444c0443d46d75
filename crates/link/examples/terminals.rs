// SPDX-License-Identifier: GPL-3.0-or-later
//! Cost of a packet by number of terminals, as JSON: ns of this thread's CPU time, of the model
//! alone.
//!
//! `cargo run --profile ci -p satlab-link --example terminals`. Packets of 1500 bytes wait for
//! every terminal. Of several rounds the least time counts, for other load on the host adds to it.
#![allow(clippy::unwrap_used)] // A measurement that cannot be made ends with a panic.

use dvb::dama::{Access, Agreement};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use link::{
    Carrier, Demand, Fifo, LinkConfig, Nanos, Plans, Queue, SharedCarrier, SharedForward,
    SharedReturn,
};

const TERMINALS: [usize; 5] = [1, 4, 16, 64, 256];
const ROUNDS: usize = 7;
const PACKETS: u64 = 100_000;
const WARM_UP_MS: u64 = 3000;
const SUPERFRAME: Nanos = 26_500_000;

/// CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// Its part of `bytes`: all queues together hold the same, however many there are.
fn queue(bytes: u64, terminals: usize) -> Queue {
    Queue::drop_tail(bytes / terminals as u64)
}

fn forward(terminals: usize) -> LinkConfig {
    let carrier = Carrier::Forward {
        symbol_rate: 40_000_000,
        modcod: ModCod::by_id(20).unwrap(),
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, 1],
    };
    LinkConfig::new(carrier, 16_000_000, queue(1_000_000, terminals), 1)
}

fn back(terminals: usize) -> LinkConfig {
    let carrier = Carrier::Return {
        symbol_rate: 16_000_000,
        waveform: Waveform::by_id(12).unwrap(),
        superframe: SUPERFRAME,
        slots: 791,
    };
    let demand = Demand {
        fifos: vec![Fifo {
            access: Access::Rbdc,
            packets: 1000,
        }],
        fifo_of_dscp: [0; 64],
        agreement: Agreement {
            cra_kbps: 0,
            rbdc_max_kbps: Some(100_000),
            vbdc_max_kbit: None,
            duration: 60,
        },
        fca_kbps: 0,
        synchro: 1_000_000_000,
        others: Vec::new(),
        plans: Plans::default(),
    };
    LinkConfig {
        demand: Some(demand),
        ..LinkConfig::new(carrier, 16_000_000, queue(20_000_000, terminals), 1)
    }
}

/// ns per packet that comes out, with so many packets offered every ms to the terminals in turn:
/// more than the carrier takes.
fn cost(shared: &mut impl SharedCarrier, terminals: usize, per_ms: f64) -> f64 {
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    let (mut out, mut next, mut owed) = (Vec::new(), 0, 0.0);
    let mut step = |ms: u64| {
        owed += per_ms;
        while owed >= 1.0 {
            let _ = shared.push(ms * 1_000_000, next % terminals, &packet);
            (next, owed) = (next + 1, owed - 1.0);
        }
        std::iter::from_fn(|| shared.pop(ms * 1_000_000, &mut out)).count() as u64
    };
    // Until every terminal has its slots and a queue.
    (0..WARM_UP_MS).for_each(|ms| {
        step(ms);
    });
    let (before, mut packets) = (cpu_ns(), 0);
    for ms in WARM_UP_MS.. {
        packets += step(ms);
        if packets >= PACKETS {
            break;
        }
    }
    (cpu_ns() - before) as f64 / packets as f64
}

/// A carrier of 126.6 Mbit/s takes 10.4 packets a ms.
fn forward_cost(terminals: usize) -> f64 {
    let mut shared = SharedForward::new(&vec![(forward(terminals), 1); terminals]).unwrap();
    cost(&mut shared, terminals, 11.5)
}

/// A carrier of 46.3 Mbit/s takes 3.7 packets a ms.
fn return_cost(terminals: usize) -> f64 {
    let mut shared = SharedReturn::new(&vec![back(terminals); terminals]).unwrap();
    cost(&mut shared, terminals, 4.2)
}

fn main() {
    let mut cases = Vec::new();
    for (direction, cost) in [
        ("forward", forward_cost as fn(usize) -> f64),
        ("return", return_cost),
    ] {
        let mut least = [f64::MAX; TERMINALS.len()];
        for _ in 0..ROUNDS {
            for (least, &terminals) in least.iter_mut().zip(&TERMINALS) {
                *least = least.min(cost(terminals));
            }
        }
        for (ns, terminals) in least.iter().zip(TERMINALS) {
            let ratio = ns / least[0];
            cases.push(format!(
                r#"{{"direction":"{direction}","terminals":{terminals},"ns_per_packet":{ns:.0},"ratio":{ratio:.2}}}"#
            ));
        }
    }
    println!(
        r#"{{"schema":"satlab/bench-terminals/1","cases":[{}]}}"#,
        cases.join(",")
    );
}
