// SPDX-License-Identifier: GPL-3.0-or-later
//! What a code repairs: single bursts, and the losses of Petrou et al., ASMS/SPSC 2022, section
//! III-B.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use crate::common;

use common::{Channel, FRAME, MS, Tunnel, code, dvb, optical};
use fec::{Code, Delivery, Sender};
use link::LossModel;

const CODES: [(u16, u16); 4] = [(10, 100), (5, 100), (2, 100), (3, 20)];

/// Packets that one burst takes for good: `length` consecutive source packets from `first` on, and
/// every repair frame from the first of them to the last; the repair frame right behind it comes
/// through if `is_next_kept`.
fn leaked(code: Code, first: u64, length: u64, is_next_kept: bool) -> u64 {
    let mut tunnel = Tunnel::new(code, Delivery::Immediate);
    let total = first + length + 4 * u64::from(code.window());
    for number in 0..total {
        let is_hit = |number: u64| (first..first + length).contains(&number);
        tunnel.push(number * MS, number, |_, is_repair| {
            is_hit(number) && (!is_repair || is_hit(number + 1) || !is_next_kept)
        });
    }
    assert_eq!(tunnel.counters().lost + tunnel.out.len() as u64, total);
    tunnel.counters().lost
}

/// A burst is a run of consecutive source packets that are lost with the repair frames among them
/// and the one behind them; before it and for `z` packets after it nothing is lost. One of up to
/// floor(z/k) - 2 packets leaves at least one repair frame to spare. At floor(z/k) - 1 as many
/// repair frames as packets may be left, in one of `k` positions; such a square system is singular
/// with a probability of 1 in about 256.
#[test]
fn bursts_shorter_than_the_repair_frames_of_a_window_never_leak() {
    for (step, window) in CODES {
        let code = code(step, window);
        let most = u64::from(window / step);
        let start = 2 * u64::from(window);
        let (mut square, mut singular) = (0, 0);
        for position in 0..60 {
            for length in [1, 2, most / 2, most - 3, most - 2] {
                let lost = leaked(code, start + position, length, false);
                assert_eq!(lost, 0, "S({code}), {length} from {position}");
            }
            square += 1;
            singular += u64::from(leaked(code, start + position, most - 1, false) > 0);
        }
        assert!(singular <= 1, "S({code}): {singular} of {square}");
    }
}

#[test]
fn bursts_longer_than_the_repair_frames_of_a_window_always_leak() {
    for (step, window) in CODES {
        let code = code(step, window);
        let most = u64::from(window.div_ceil(step));
        for position in 0..2 * u64::from(step) {
            for length in [most + 1, most + 5, 2 * most] {
                let lost = leaked(code, 200 + position, length, true);
                assert!(lost > 0, "S({code}), {length} from {position}");
            }
        }
    }
}

const PACKETS: u64 = 150_000;

/// Share of packets that are not there in the end, of packets of 1,400 bytes that fill 12 Mbit/s
/// with their repair frames.
fn unrepaired(code: Option<Code>, model: &LossModel, seed: u64) -> f64 {
    let mut channel = Channel::new(Some(model), seed);
    let mut tunnel = Tunnel::new(common::code(1, 100), Delivery::Immediate);
    tunnel.sender = Sender::new(code);
    for number in 0..PACKETS {
        let now = tunnel.frames * FRAME;
        tunnel.push(now, number, |frame, _| channel.loses(frame));
    }
    1.0 - tunnel.out.len() as f64 / PACKETS as f64
}

/// In percent, within 0.3 points of an ideal decoder: elimination over the whole stream with random
/// coefficients, another implementation, 100,000 packets.
#[test]
// promise: P70
fn unrepaired_share_is_that_of_an_ideal_decoder() {
    let steps = [0, 10, 5, 2];
    for (name, model, expected) in [
        ("optical", optical(), [2.80, 2.40, 0.79, 0.0]),
        ("dvb", dvb(), [5.69, 5.66, 0.01, 0.0]),
    ] {
        for (step, expected) in steps.into_iter().zip(expected) {
            let code = Code::new(step, 100).ok();
            let percent = 100.0 * unrepaired(code, &model, 1);
            println!("{name} step {step}: {percent:.3} %, ideal {expected} %");
            assert!(
                (percent - expected).abs() <= 0.3,
                "{name} step {step}: {percent:.3} %"
            );
        }
    }
}
