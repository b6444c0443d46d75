// SPDX-License-Identifier: GPL-3.0-or-later
//! Rates: all MODCODs, all waveforms, and a golden table of goodput over loss and queue.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{back, config, forward, lossy};
use dvb::modcod::{FrameSize, MODCODS, ModCod};
use link::{Carrier, LinkConfig, LossUnit, Queue, steady_goodput_bps};
use std::fmt::Write as _;

/// Packets that an endless row of them brings through `frames` data fields, by header arithmetic
/// alone: 10 bytes if complete; else 13 on the first fragment, 3 on a middle one, 7 on the last
/// one; no GSE packet above 2 + 4095 bytes.
fn gse_packets(field: usize, packet: usize, frames: usize) -> usize {
    let (mut done, mut rest) = (0, 0);
    for _ in 0..frames {
        let mut room = field;
        loop {
            let space = room.min(2 + 4095);
            let (header, data) = match rest {
                0 if packet + 10 <= space => (10, packet),
                0 => (13, space.saturating_sub(13).min(packet - 1)),
                _ if rest + 7 <= space => (7, rest),
                _ => (3, space.saturating_sub(3).min(rest - 1)),
            };
            if data == 0 {
                break;
            }
            room -= header + data;
            rest = if rest == 0 {
                packet - data
            } else {
                rest - data
            };
            done += usize::from(rest == 0);
        }
    }
    done
}

/// Goodput of the model over symbol rate times efficiency less the headers.
fn forward_ratio(
    modcod: ModCod,
    (frame_size, pilots): (FrameSize, bool),
    packet: impl Fn(usize) -> usize,
) -> f64 {
    const FRAMES: usize = 20_000;
    let carrier = Carrier::Forward {
        symbol_rate: 10_000_000,
        modcod,
        frame_size,
        pilots,
        label: [2; 6],
    };
    let rate = 10_000_000.0 * modcod.efficiency(frame_size, pilots);
    assert!((carrier.rate_bps().unwrap() / rate - 1.0).abs() < 1e-12);
    let field = carrier.frame_payload();
    let packet = packet(field);
    let share = (gse_packets(field, packet, FRAMES) * packet) as f64 / (field * FRAMES) as f64;
    assert!(share > 0.75 && share < 1.0);
    steady_goodput_bps(&config(carrier), packet, packet) / (rate * share)
}

#[test]
// promise: P1
fn capacity_at_all_28_modcods_is_symbol_rate_times_efficiency_less_encapsulation() {
    use FrameSize::{Normal, Short};
    let framings = [
        (Normal, false),
        (Normal, true),
        (Short, false),
        (Short, true),
    ];
    for (modcod, framing) in MODCODS
        .into_iter()
        .flat_map(|it| framings.map(|to| (it, to)))
    {
        if modcod.kbch(framing.0).is_none() {
            // 9/10 alone: EN 302 307-1 table 5b.
            assert_eq!((framing.0, modcod.rate.den), (Short, 10));
            continue;
        }
        // A GSE packet holds at most 4095 bytes after its first two.
        let whole = forward_ratio(modcod, framing, |field| field.min(4097) - 10);
        assert!((whole - 1.0).abs() < 0.001, "{modcod} {framing:?}: {whole}");
        let cut = forward_ratio(modcod, framing, |_| 1500);
        assert!((cut - 1.0).abs() < 0.001, "{modcod} {framing:?}: {cut}");
    }
}

#[test]
fn capacity_holds_for_other_packet_lengths() {
    for len in [40, 576, 4000, 9000] {
        let ratio = forward_ratio(
            ModCod::by_id(1).unwrap(),
            (FrameSize::Normal, false),
            |_| len,
        );
        assert!((ratio - 1.0).abs() < 0.001, "{len} bytes: {ratio}");
    }
}

#[test]
fn capacity_of_all_waveforms_is_slots_times_payload_less_encapsulation() {
    for waveform in dvb::rcs2::WAVEFORMS {
        let carrier = back(4_000_000, waveform.id, 60);
        let rate = (waveform.payload_bytes * 8 * 60) as f64 / 0.0265;
        assert!((carrier.rate_bps().unwrap() / rate - 1.0).abs() < 1e-12);
        // One packet fills a burst with its 3 bytes of header.
        let fits = waveform.payload_bytes - 3;
        let expected = rate * fits as f64 / waveform.payload_bytes as f64;
        let got = steady_goodput_bps(&config(carrier), fits, fits);
        assert!(
            (got / expected - 1.0).abs() < 0.001,
            "{waveform}: {got} of {expected}"
        );
    }
}

#[test]
fn goodput_of_a_wire_is_unlimited_and_of_an_impossible_link_0() {
    assert!(steady_goodput_bps(&config(Carrier::Wire), 1500, 1460).is_infinite());
    assert!(steady_goodput_bps(&config(forward(0, 1)), 1500, 1460) == 0.0);
    assert!(steady_goodput_bps(&config(forward(1, 1)), 0, 0) == 0.0);
    let tiny = LinkConfig {
        queue: Queue::drop_tail(1499),
        ..config(forward(1_000_000, 1))
    };
    assert!(steady_goodput_bps(&tiny, 1500, 1460) == 0.0);
}

/// UDP payload rate in kbit/s of 1500-byte packets with 1472 bytes of payload, over loss and queue.
/// Made by this test: `GOLDEN=1 cargo test -p satlab-link capacity` rewrites the file.
#[test]
fn golden_goodput_over_loss_and_queue() {
    let mut table = String::from("carrier            queue  unit    loss      kbit/s\n");
    let carriers = [
        ("40 Mbaud QPSK 1/4", forward(40_000_000, 1)),
        ("40 Mbaud QPSK 1/2", forward(40_000_000, 4)),
        ("10 Mbaud 8PSK 3/4", forward(10_000_000, 14)),
        ("RCS2 3, 85 slots", back(2_000_000, 3, 85)),
        ("RCS2 13, 30 slots", back(2_000_000, 13, 30)),
    ];
    for (name, carrier) in carriers {
        for queue_bytes in [1500, 3000, 100_000] {
            for unit in [LossUnit::Packet, LossUnit::Frame] {
                for ratio in [0.0, 0.01, 0.1] {
                    let config = LinkConfig {
                        queue: Queue::drop_tail(queue_bytes),
                        ..lossy(carrier, ratio, unit)
                    };
                    let kbit_s = steady_goodput_bps(&config, 1500, 1472) / 1e3;
                    let unit = format!("{unit:?}").to_lowercase();
                    writeln!(
                        table,
                        "{name:17} {queue_bytes:6}  {unit:6}  {ratio:4.2}  {kbit_s:10.1}"
                    )
                    .unwrap();
                }
            }
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/goodput.txt");
    if std::env::var_os("GOLDEN").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (line, (got, expected)) in table.lines().zip(golden.lines()).enumerate() {
        assert_eq!(got, expected, "line {}", line + 1);
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
