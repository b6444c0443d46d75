// SPDX-License-Identifier: GPL-3.0-or-later
//! QUIC with CUBIC through a FEC tunnel in virtual time, over the link of Petrou et al., ASMS/SPSC
//! 2022, section III-A: 12 and 3 Mbit/s, 250 ms, a queue of 1.2 bandwidth-delay products.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test"
)]

use dvb::modcod::{FrameSize, ModCod};
use fec::Counters;
use link::{Carrier, LinkConfig, Loss, LossModel, LossUnit, Queue};
use quic::LegOptions;
use satvirtual::path::Path;
use satvirtual::transfer::{Direction, SCHEMA, Transfer};
use satvirtual::tunnel::{Tunnel, TunnelOptions};

const DELAY: u64 = 250_000_000;
const MS: u64 = 1_000_000;

fn link(rate_bps: f64, losses: Vec<Loss>) -> LinkConfig {
    let carrier = |symbol_rate| Carrier::Forward {
        symbol_rate,
        modcod: ModCod::by_id(12).unwrap(),
        frame_size: FrameSize::Normal,
        pilots: false,
        label: [2, 0, 0, 0, 0, 1],
    };
    let per_symbol = carrier(100_000_000).rate_bps().unwrap() / 1e8;
    let queue = Queue::drop_tail((1.2 * rate_bps * 0.5 / 8.0) as u64);
    let carrier = carrier((rate_bps / per_symbol) as u64);
    LinkConfig {
        losses,
        ..LinkConfig::new(carrier, DELAY, queue, 1)
    }
}

/// One burst of 15.2 ms each 258 ms, on the forward link.
fn dvb_mobile() -> Vec<Loss> {
    let model = LossModel::Bursts {
        period: 258 * MS,
        duration: 15_200_000,
        first: 100 * MS,
    };
    let unit = LossUnit::Packet;
    vec![Loss { model, unit }]
}

/// Time of a download of 5 MB, s, and what the client's end of the tunnel has seen.
fn download(losses: Vec<Loss>, code: Option<&str>, hold_ms: u64) -> (f64, Option<Counters>) {
    let transfer = Transfer {
        schema: SCHEMA.into(),
        seed: 1,
        direction: Direction::Download,
        bytes: 5_000_000,
        marks_bytes: Vec::new(),
        streams: 1,
        source_mbps: None,
        start_s: 0.0,
        repeats: 1,
        pause_s: 0.0,
        zero_rtt: false,
        timeout_s: 1000.0,
        stack: satvirtual::stacks::Library::Quinn,
        client: LegOptions::default(),
        server: LegOptions::default(),
        programs: None,
        neighbour: false,
        fec: code.map(|code| TunnelOptions {
            code: code.into(),
            hold_ms,
        }),
    };
    let wire = || LinkConfig::new(Carrier::Wire, 0, Queue::drop_tail(1 << 20), 1);
    let links = [link(12e6, losses), link(3e6, Vec::new()), wire(), wire()];
    let path = Path::new(&links).unwrap();
    let (world, _) = satvirtual::simulate(path, &transfer, transfer.request(), false).unwrap();
    let done = &world.done[0];
    assert_eq!((done.status, done.bytes), ("ok", 5_000_000), "{done:?}");
    let counters = world.client.tunnel.as_ref().map(Tunnel::counters);
    println!(
        "{code:?}, {hold_ms} ms: {:.2} s, {counters:?}",
        done.duration_s
    );
    (done.duration_s, counters)
}

#[test]
fn a_tunnel_without_a_code_costs_less_than_three_percent() {
    let (plain, _) = download(Vec::new(), None, 0);
    let (tunnel, counters) = download(Vec::new(), Some("none"), 0);
    assert!((1.0..1.03).contains(&(tunnel / plain)), "{plain} {tunnel}");
    assert_eq!(counters.unwrap().malformed, 0);
}

#[test]
fn the_code_hides_the_losses_of_a_moving_train_from_cubic() {
    let (plain, _) = download(dvb_mobile(), None, 0);
    let (without, _) = download(dvb_mobile(), Some("none"), 200);
    let (in_order, counters) = download(dvb_mobile(), Some("2,100"), 200);
    assert!(counters.unwrap().recovered > 100);
    assert!(
        3.0 * in_order < plain.min(without),
        "{in_order} {plain} {without}"
    );
    // QUIC takes three later packets for a loss (RFC 9002 section 6.1.1), so recovery behind them
    // hides nothing.
    let (immediate, counters) = download(dvb_mobile(), Some("2,100"), 0);
    assert_eq!(counters.unwrap().lost, 0);
    assert!(3.0 * in_order < immediate, "{in_order} {immediate}");
}

#[test]
fn adaptive_redundancy_hides_the_losses_of_a_moving_train_from_cubic() {
    let (fixed, _) = download(dvb_mobile(), Some("2,100"), 200);
    let (adaptive, counters) = download(dvb_mobile(), Some("adaptive"), 200);
    let counters = counters.unwrap();
    // Without a tunnel it is 20 times.
    assert!(adaptive < 1.25 * fixed, "{adaptive} {fixed}");
    assert!(counters.reports > 20, "{counters:?}");
    assert!(counters.recovered > 100, "{counters:?}");
}

#[test]
fn a_tunnel_is_as_repeatable_as_the_clock() {
    let once = download(dvb_mobile(), Some("5,100"), 200);
    assert_eq!(once, download(dvb_mobile(), Some("5,100"), 200));
}
