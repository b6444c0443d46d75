// SPDX-License-Identifier: GPL-3.0-or-later
//! Adaptive redundancy over the losses of Petrou et al., ASMS/SPSC 2022, section III-B, next to
//! each code of the ladder.
#![allow(clippy::unwrap_used)] // Helpers outside of #[test] functions too.

use std::collections::VecDeque;

use crate::common::{Channel, FRAME, MS, Tunnel, code, dvb, optical};
use fec::{Delivery, Frame, LADDER, Nanos, Protection, Receiver, Report, Sender, parse};
use link::LossModel;
use proptest::prelude::*;

/// From the receiver's report to the sender: a round trip of a geostationary link, as frames arrive
/// here at once.
const FEEDBACK: Nanos = 500 * MS;
/// Two minutes.
const TOTAL: Nanos = 120_000 * MS;
const S: Nanos = 1000 * MS;

/// A tunnel whose reports come back, on a channel that its frames fill.
struct Loop {
    tunnel: Tunnel,
    reports: VecDeque<(Nanos, Report)>,
    number: u64,
}

impl Loop {
    fn new(protection: Protection) -> Self {
        let mut tunnel = Tunnel::new(code(1, 100), Delivery::Immediate);
        tunnel.sender = Sender::new(protection);
        tunnel.receiver = Receiver::new(200, Delivery::Immediate).with_reports(0);
        Self {
            tunnel,
            reports: VecDeque::new(),
            number: 0,
        }
    }

    fn now(&self) -> Nanos {
        self.tunnel.frames * FRAME
    }

    /// Sends the next packet; `loses` is asked for each frame.
    fn step(&mut self, loses: impl FnMut(u64, bool) -> bool) {
        let now = self.now();
        if let Some(frame) = self.tunnel.receiver.report(now) {
            let Ok(Frame::Report(report)) = parse(&frame) else {
                panic!("{frame:?}")
            };
            self.reports.push_back((now + FEEDBACK, report));
        }
        while self.reports.front().is_some_and(|(at, _)| *at <= now) {
            let (_, report) = self.reports.pop_front().unwrap();
            self.tunnel.sender.report(now, report);
        }
        self.tunnel.sender.timeout(now, |_| {});
        self.tunnel.push(now, self.number, loses);
        self.number += 1;
    }

    fn rung(&self) -> u16 {
        self.tunnel.sender.code().unwrap().step()
    }
}

/// Unrepaired and redundant share, %.
fn shares(protection: Protection, model: Option<&LossModel>) -> [f64; 2] {
    let mut channel = Channel::new(model, 1);
    let mut run = Loop::new(protection);
    while run.now() < TOTAL {
        run.step(|frame, _| channel.loses(frame));
    }
    let sent = run.tunnel.sender.sent();
    let unrepaired = 1.0 - run.tunnel.out.len() as f64 / run.number as f64;
    let redundant = sent.repairs as f64 / (sent.sources + sent.repairs) as f64;
    [unrepaired, redundant].map(|it| 100.0 * it)
}

/// The table of docs/decisions/0009-fec-tunnel.md. Next to nothing stays unrepaired, and a code
/// that repairs as much is not less redundant by more than the time before the first report and the
/// calm before each step down.
#[test]
// promise: P72
fn it_repairs_as_much_as_the_code_that_is_enough_and_costs_no_more() {
    for (name, model, enough) in [
        ("none", None, 50),
        ("optical", Some(optical()), 2),
        ("dvb", Some(dvb()), 5),
    ] {
        for code in LADDER {
            let [unrepaired, redundant] = shares(Protection::Fixed(code), model.as_ref());
            println!("{name} S({code}): {unrepaired:.3} % unrepaired, {redundant:.2} % redundant");
        }
        let [least, price] = shares(Protection::Fixed(code(enough, 100)), model.as_ref());
        let [unrepaired, redundant] = shares(Protection::Adaptive, model.as_ref());
        println!("{name} adaptive: {unrepaired:.3} % unrepaired, {redundant:.2} % redundant");
        assert!(unrepaired <= least + 0.05, "{name}: {unrepaired:.3} %");
        assert!(redundant <= price + 1.5, "{name}: {redundant:.2} %");
    }
}

#[test]
fn without_losses_it_comes_down_to_the_least_redundant_code() {
    let mut run = Loop::new(Protection::Adaptive);
    assert_eq!(run.rung(), 5);
    while run.now() < 12 * S {
        run.step(|_, _| false);
    }
    assert_eq!((run.rung(), run.tunnel.sender.code_changes()), (50, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A period of bursts that the ladder repairs is followed within four reports of the first
    /// burst; once they end, the sender is back at the least redundant code after the period of a
    /// report and the calm. The rung repairs the burst.
    #[test]
    // promise: P72
    fn it_follows_a_change_of_the_losses(burst in 1..40_u64, period in 300..600_u64, from in 12_000..14_000_u64) {
        let mut run = Loop::new(Protection::Adaptive);
        while run.number < from {
            run.step(|_, _| false);
        }
        prop_assert_eq!(run.rung(), 50);
        let start = run.now();
        // Judged when 32 later packets have come; then up to one interval, and the way back.
        let heard = start + (burst + period + 40) * FRAME * 3 / 2 + FEEDBACK + 4 * 250 * MS;
        let first = run.tunnel.frames;
        while run.now() < heard {
            run.step(|frame, _| (frame - first) % period < burst);
        }
        let code = run.tunnel.sender.code().unwrap();
        let sources = burst * u64::from(code.step()) / u64::from(code.step() + 1);
        prop_assert!(sources <= u64::from(code.window() / code.step()), "burst {}: S({})", burst, code);
        let lost = run.tunnel.counters().lost;
        while run.now() < heard + 5 * S {
            run.step(|frame, _| (frame - first) % period < burst);
        }
        prop_assert!(run.tunnel.counters().lost - lost <= burst + 1, "what leaves the window late");
        let end = run.now();
        while run.now() < end + 22 * S {
            run.step(|_, _| false);
        }
        prop_assert_eq!(run.rung(), 50);
    }
}
