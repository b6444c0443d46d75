// SPDX-License-Identifier: GPL-3.0-or-later
//! What the code costs: `cost` prints one JSON line for each code and loss ratio.
//!
//! Packets of 1,400 bytes cross a sender and a receiver on one thread. `us_per_packet` is wall time
//! of either half for one packet with its share of repair frames; `mbit_per_s` is the rate of
//! packets that would fill one core.

use std::time::{Duration, Instant};

use fec::{Code, Delivery, Receiver, Sender, TinyMt32};

const PACKETS: u64 = 50_000;
const LENGTH: usize = 1400;
/// Lost in runs of this many frames.
const RUN: u64 = 8;

fn main() {
    for code in ["none", "10,100", "5,100", "2,100"] {
        for percent in [0, 3] {
            let [sender, receiver] = halves(code.parse::<Code>().ok(), percent);
            let us = |spent: Duration| spent.as_secs_f64() * 1e6 / PACKETS as f64;
            let rate = |spent: Duration| (LENGTH * 8) as f64 / us(spent);
            println!(
                "{{\"code\": \"{code}\", \"loss_percent\": {percent}, \"sender_us_per_packet\": {:.2}, \
                 \"receiver_us_per_packet\": {:.2}, \"sender_mbit_per_s\": {:.0}, \"receiver_mbit_per_s\": {:.0}}}",
                us(sender),
                us(receiver),
                rate(sender),
                rate(receiver)
            );
        }
    }
}

/// Time that sender and receiver take for all packets.
fn halves(code: Option<Code>, percent: u64) -> [Duration; 2] {
    let mut sender = Sender::new(code);
    let window = code.map_or(1, Code::window);
    let mut receiver = Receiver::new(2 * usize::from(window), Delivery::Immediate);
    let mut random = TinyMt32::new(1);
    let packet: Vec<u8> = (0..LENGTH).map(|_| random.next_256()).collect();
    let (mut spent, mut frames, mut number) = ([Duration::ZERO; 2], Vec::new(), 0);
    for now in 0..PACKETS {
        let start = Instant::now();
        sender.push(now, &packet, |frame| frames.push(frame.to_vec()));
        spent[0] += start.elapsed();
        let start = Instant::now();
        for frame in frames.drain(..) {
            number += 1;
            if number % (100 * RUN) >= percent * RUN {
                // Its frames are frames.
                let _ = receiver.receive(now, &frame, |packet| assert!(packet.len() == LENGTH));
            }
        }
        spent[1] += start.elapsed();
    }
    spent
}
