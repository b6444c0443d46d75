// SPDX-License-Identifier: GPL-3.0-or-later
//! Proportional integral controller enhanced (RFC 8033): packets are dropped or marked at random as
//! they arrive.
//!
//! The queuing delay is the measured sojourn time of the last packet that left (section 5.2). The
//! update period of the probability runs in model time from 0, so that it does not depend on when
//! packets come.

use super::{Pie, ecn};
use crate::Nanos;
use crate::ledger::Ledger;
use crate::random::{Process, generator, hits};
use crate::ring::Ring;
use rand_pcg::Pcg64;

/// Coefficients per second of delay (RFC 8033 section 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Two full-size packets may always wait (section 4.1).
const ALWAYS_ROOM: u64 = 2 * super::FULL_SIZE;
/// Above this probability also ECN-capable packets are dropped (section 5.1).
const MARK_THRESHOLD: f64 = 0.1;
/// A probability that has decayed below this counts as 0.
const NEGLIGIBLE: f64 = 1e-9;

/// State of the controller.
#[derive(Debug)]
pub(super) struct Controller {
    config: Pie,
    random: Pcg64,
    probability: f64,
    burst_allowance: Nanos,
    /// Sojourn time of the last packet that left, and the delay at the last update.
    delay: Nanos,
    old_delay: Nanos,
    updates: u64,
    scratch: Vec<u8>,
}

impl Controller {
    pub(super) fn new(config: Pie, seed: u64, generation: u64) -> Self {
        Self {
            config,
            random: generator(seed, Process::Queue, generation),
            probability: 0.0,
            burst_allowance: config.burst,
            delay: 0,
            old_delay: 0,
            updates: 0,
            scratch: Vec::new(),
        }
    }

    /// Queues a packet that fits; false if it was dropped early, which the caller has to count.
    pub(super) fn push(
        &mut self,
        use_ecn: bool,
        now: Nanos,
        ring: &mut Ring,
        packet: &[u8],
        ledger: &mut Ledger,
    ) -> bool {
        self.update(now, ring);
        if self.burst_allowance > 0 || !self.is_chosen(ring) {
            ring.push(now, packet);
            return true;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(packet);
        let marked = use_ecn && self.probability <= MARK_THRESHOLD && ecn::mark(&mut self.scratch);
        if marked {
            ledger.mark(now, packet.len());
            ring.push(now, &self.scratch);
        }
        marked
    }

    /// Takes the next packet; when it came.
    pub(super) fn pop(&mut self, now: Nanos, ring: &mut Ring, out: &mut Vec<u8>) -> Option<Nanos> {
        self.update(now, ring);
        let since = ring.pop(out);
        self.delay = since.map_or(0, |since| now.saturating_sub(since));
        since
    }

    /// `drop_early` of RFC 8033 section 4.1.
    fn is_chosen(&mut self, ring: &Ring) -> bool {
        let calm = self.old_delay < self.config.target / 2 && self.probability < 0.2;
        !calm && ring.size().bytes > ALWAYS_ROOM && hits(&mut self.random, self.probability)
    }

    /// Makes the updates that are due up to `now`. Without load there is nothing to update.
    fn update(&mut self, now: Nanos, ring: &Ring) {
        let due = now / self.config.update;
        while self.updates < due {
            let delay = if ring.size().packets == 0 {
                0
            } else {
                self.delay
            };
            self.update_once(delay);
            self.updates += 1;
            let settled = delay == self.old_delay && self.burst_allowance == self.config.burst;
            if settled && delay == 0 {
                self.updates = due;
            }
        }
    }

    /// Sections 4.2, 4.4 and, for the cap of 2 %, 5.5.
    fn update_once(&mut self, delay: Nanos) {
        let seconds = |from: Nanos, to: Nanos| (to as f64 - from as f64) / 1e9;
        let change =
            ALPHA * seconds(self.config.target, delay) + BETA * seconds(self.old_delay, delay);
        let change = change * scale(self.probability);
        let change = if self.probability >= 0.1 {
            change.min(0.02)
        } else {
            change
        };
        self.probability += change;
        if delay == 0 && self.old_delay == 0 {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        if self.probability < NEGLIGIBLE {
            self.probability = 0.0;
        }
        let calm = |delay: Nanos| delay < self.config.target / 2;
        self.burst_allowance = self.burst_allowance.saturating_sub(self.config.update);
        if self.probability <= 0.0 && calm(delay) && calm(self.old_delay) {
            self.burst_allowance = self.config.burst;
        }
        self.old_delay = delay;
    }
}

/// Small probabilities move in small steps (section 4.2).
fn scale(probability: f64) -> f64 {
    let steps = [
        (1e-6, 2048.0),
        (1e-5, 512.0),
        (1e-4, 128.0),
        (1e-3, 32.0),
        (1e-2, 8.0),
        (1e-1, 2.0),
    ];
    let divisor = steps.iter().find(|(below, _)| probability < *below);
    1.0 / divisor.map_or(1.0, |&(_, divisor)| divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn controller() -> Controller {
        Controller::new(Pie::default(), 1, 0)
    }

    #[test]
    fn probability_moves_as_the_law_says() {
        let mut pie = controller();
        pie.probability = 0.05;
        pie.old_delay = 20 * MS;
        // 0.125 * 15 ms + 1.25 * 10 ms, halved below 10 %.
        pie.update_once(30 * MS);
        assert!((pie.probability - (0.05 + 0.5 * (0.125 * 0.015 + 1.25 * 0.010))).abs() < 1e-12);
        pie.probability = 0.3;
        pie.update_once(1000 * MS);
        assert!((pie.probability - 0.32).abs() < 1e-12, "capped at 2 %");
        pie.old_delay = 0;
        pie.probability = 0.3;
        pie.update_once(0);
        assert!((pie.probability - (0.3 - 0.125 * 0.015) * 0.98).abs() < 1e-12);
        let divisors = [1e-7, 5e-4, 0.05, 0.5].map(|probability| (1.0 / scale(probability)) as u64);
        assert_eq!(divisors, [2048, 32, 2, 1]);
    }

    #[test]
    fn first_burst_passes_and_a_standing_queue_is_brought_to_the_target() {
        let (mut pie, mut ring, mut ledger) = (controller(), Ring::default(), Ledger::default());
        let (mut out, mut first, mut late) = (vec![], None, vec![]);
        // 12 Mbit/s of service, 15 Mbit/s offered, and a sender that slows down by a thousandth per
        // drop.
        let (mut gap, mut next) = (0.8e6, 0.0);
        for now in (0..60_000 * MS).step_by(1_000_000) {
            while next <= now as f64 {
                if !pie.push(false, next as Nanos, &mut ring, &[0; 1500], &mut ledger) {
                    first.get_or_insert(now);
                    gap *= 1.02;
                }
                gap -= gap * 1e-4;
                next += gap;
            }
            pie.pop(now, &mut ring, &mut out);
            if now > 20_000 * MS {
                late.push(pie.delay as f64);
            }
        }
        assert!(first.unwrap() >= 150 * MS, "{first:?}");
        let mean = late.iter().sum::<f64>() / late.len() as f64 / 1e6;
        assert!((8.0..22.0).contains(&mean), "{mean} ms");
    }

    #[test]
    fn idle_controller_forgets_and_long_gaps_cost_nothing() {
        let (mut pie, ring) = (controller(), Ring::default());
        (pie.probability, pie.old_delay, pie.burst_allowance) = (0.9, 100 * MS, 0);
        pie.update(Nanos::MAX, &ring);
        assert!(pie.probability <= 0.0 && pie.burst_allowance == 150 * MS);
    }
}
