// SPDX-License-Identifier: GPL-3.0-or-later
//! Packets per second through `push` and `pop` of a saturated link, in virtual time. Run with
//! `--release`.

use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use link::{Accepted, Carrier, Link, LinkConfig, Loss, LossUnit, Queue, Stage};
use std::error::Error;
use std::time::Instant;

const PACKETS: u64 = 2_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let modcod = ModCod::by_id(28).ok_or("no MODCOD 28")?;
    let (frame_size, pilots, label) = (FrameSize::Normal, false, [2, 0, 0, 0, 0, 1]);
    let forward = |symbol_rate| Carrier::Forward {
        symbol_rate,
        modcod,
        frame_size,
        pilots,
        label,
    };
    let waveform = |id| Waveform::by_id(id).ok_or("no such waveform");
    let back = |waveform, slots| Carrier::Return {
        symbol_rate: 20_000_000,
        waveform,
        superframe: 26_500_000,
        slots,
    };
    for (name, carrier) in [
        ("forward 178 Mbit/s", forward(40_000_000)),
        ("forward 1 Gbit/s", forward(225_000_000)),
        ("return waveform 3", back(waveform(3)?, 900)),
        ("return waveform 13", back(waveform(13)?, 300)),
        ("wire", Carrier::Wire),
    ] {
        for packet_bytes in [1500, 100] {
            probe(name, carrier, packet_bytes)?;
        }
    }
    Ok(())
}

/// Keeps the queue full and steps the clock by 100 us, as a busy real-time loop would.
fn probe(name: &str, carrier: Carrier, packet_bytes: usize) -> Result<(), Box<dyn Error>> {
    // A wire bounds nothing: a short one keeps what is in flight small.
    let delay = if carrier == Carrier::Wire {
        5_000_000
    } else {
        250_000_000
    };
    let mut link = Link::new(LinkConfig {
        losses: vec![Loss::random(0.001, LossUnit::Packet)],
        ..LinkConfig::new(carrier, delay, Queue::drop_tail(500_000), 1)
    })?;
    let mut packet = vec![0; packet_bytes];
    packet[0] = 0x45;
    let mut out = Vec::new();
    let mut now = 0;
    let start = Instant::now();
    while link.counters().packets_out < PACKETS {
        let until = link.counters().packets_in + 256;
        while link.counters().packets_in < until && link.push(now, &packet) == Accepted::Queued {}
        while link.pop(now, &mut out).is_some() {}
        now += 100_000;
    }
    let per_packet = start.elapsed().as_nanos() as f64 / PACKETS as f64;
    let gbit_s = packet_bytes as f64 * 8.0 / per_packet;
    println!(
        "{name:20} {packet_bytes:5} B: {per_packet:6.0} ns per packet, {:5.2} Mpps, {gbit_s:6.2} Gbit/s",
        1e3 / per_packet
    );
    Ok(())
}
