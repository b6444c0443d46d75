// SPDX-License-Identifier: GPL-3.0-or-later
//! Controlled delay (RFC 8289): packets are dropped or marked as they leave, once the least sojourn
//! time of an interval lies above the target.

use super::{CoDel, ecn};
use crate::Nanos;
use crate::ledger::Ledger;
use crate::ring::Ring;

/// State of one controller (RFC 8289 section 5.1).
#[derive(Debug, Default)]
pub(super) struct Controller {
    /// Time at which the sojourn time will have been above the target for an interval.
    first_above: Option<Nanos>,
    dropping: bool,
    drop_next: Nanos,
    count: u64,
    last_count: u64,
}

impl Controller {
    /// Takes the next packet that is not dropped from `ring` (RFC 8289 section 5.5), and returns
    /// its arrival time; `None` if there is none.
    pub(super) fn pop(
        &mut self,
        config: CoDel,
        ecn: bool,
        now: Nanos,
        ring: &mut Ring,
        out: &mut Vec<u8>,
        ledger: &mut Ledger,
    ) -> Option<Nanos> {
        let Some((mut since, above)) = self.take(config, now, ring, out) else {
            self.dropping = false;
            return None;
        };
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if signal(ecn, now, out, ledger) {
                    self.drop_next = control_law(config, self.drop_next, self.count);
                    break;
                }
                let Some((next, above)) = self.take(config, now, ring, out) else {
                    self.dropping = false;
                    return None;
                };
                since = next;
                self.dropping = above;
                if above {
                    self.drop_next = control_law(config, self.drop_next, self.count);
                }
            }
            return Some(since);
        }
        if !above {
            return Some(since);
        }
        self.dropping = true;
        self.start(config, now);
        if signal(ecn, now, out, ledger) {
            return Some(since);
        }
        self.take(config, now, ring, out).map(|(since, _)| since)
    }

    /// Enters the dropping state: close after the last one, at the rate that controlled the queue
    /// then.
    fn start(&mut self, config: CoDel, now: Nanos) {
        let delta = self.count - self.last_count;
        let recent = now.saturating_sub(self.drop_next) < config.interval.saturating_mul(16);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.drop_next = control_law(config, now, self.count);
        self.last_count = self.count;
    }

    /// Takes one packet: when it came, and whether it may be dropped (`dodequeue`).
    fn take(
        &mut self,
        config: CoDel,
        now: Nanos,
        ring: &mut Ring,
        out: &mut Vec<u8>,
    ) -> Option<(Nanos, bool)> {
        let Some(since) = ring.pop(out) else {
            self.first_above = None;
            return None;
        };
        if now.saturating_sub(since) < config.target || ring.size().bytes <= super::FULL_SIZE {
            self.first_above = None;
            return Some((since, false));
        }
        let first_above = *self
            .first_above
            .get_or_insert(now.saturating_add(config.interval));
        Some((since, now >= first_above))
    }
}

/// Signals congestion: marks the packet in `out` and returns true, or drops it and returns false.
fn signal(ecn: bool, now: Nanos, out: &mut [u8], ledger: &mut Ledger) -> bool {
    let marked = ecn && ecn::mark(out);
    if marked {
        ledger.mark(now, out.len());
    } else {
        ledger.drop(now, out.len());
    }
    marked
}

/// Time of the next drop: an interval over the root of their number later (RFC 8289 section 5.3).
fn control_law(config: CoDel, time: Nanos, count: u64) -> Nanos {
    time.saturating_add((config.interval as f64 / (count as f64).sqrt()) as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Offers a packet of 1500 bytes every `gap` and takes one out every `service`; returns the
    /// times of drops.
    fn drops(gap: Nanos, service: Nanos, until: Nanos) -> Vec<Nanos> {
        let (mut ring, mut ledger) = (Ring::default(), Ledger::default());
        let mut controller = Controller::default();
        let (mut out, mut dropped, mut offered) = (vec![], vec![], 0);
        for now in (0..until).step_by(service as usize) {
            while offered <= now {
                ring.push(offered, &[0; 1500]);
                offered += gap;
            }
            let before = ledger.counters.packets_dropped;
            controller.pop(
                CoDel::default(),
                false,
                now,
                &mut ring,
                &mut out,
                &mut ledger,
            );
            for _ in before..ledger.counters.packets_dropped {
                dropped.push(now);
            }
        }
        dropped
    }

    #[test]
    fn control_law_is_the_inverse_root() {
        let at = |count| control_law(CoDel::default(), 7, count) - 7;
        assert_eq!(
            [1, 4, 16, 100].map(at),
            [100 * MS, 50 * MS, 25 * MS, 10 * MS]
        );
        assert_eq!([2, 3].map(at), [70_710_678, 57_735_026]);
    }

    #[test]
    fn queue_below_target_is_left_alone() {
        assert!(drops(MS, MS, 10_000 * MS).is_empty());
    }

    #[test]
    fn standing_queue_is_dropped_an_interval_after_it_stood_and_then_by_the_root() {
        // A third more than the service takes: the target of 5 ms is passed at 20 ms.
        let got = drops(750_000, MS, 700 * MS);
        assert_eq!(got[0], 120 * MS, "{got:?}");
        let mut next = got[0];
        for (count, &at) in (1..).zip(&got[1..]) {
            next = control_law(CoDel::default(), next, count);
            // Packets leave on whole milliseconds.
            assert_eq!(at, next.next_multiple_of(MS), "drop {count}: {got:?}");
        }
        assert!(got.len() > 10, "{got:?}");
    }

    #[test]
    fn last_full_size_packet_is_never_dropped() {
        let (mut ring, mut ledger) = (Ring::default(), Ledger::default());
        let (mut controller, mut out) = (Controller::default(), vec![]);
        for round in 0..100 {
            let now = round * 1000 * MS;
            ring.push(now, &[0; 1500]);
            let late = now + 900 * MS;
            assert!(
                controller
                    .pop(
                        CoDel::default(),
                        false,
                        late,
                        &mut ring,
                        &mut out,
                        &mut ledger
                    )
                    .is_some()
            );
        }
        assert_eq!(ledger.counters.packets_dropped, 0);
    }

    #[test]
    fn second_cycle_starts_at_the_rate_of_the_first() {
        let config = CoDel::default();
        let mut controller = Controller {
            count: 20,
            last_count: 4,
            drop_next: 1000 * MS,
            ..Controller::default()
        };
        controller.start(config, 1000 * MS + 15 * config.interval);
        assert_eq!((controller.count, controller.last_count), (16, 16));
        controller.count = 20;
        controller.start(config, controller.drop_next + 16 * config.interval);
        assert_eq!(controller.count, 1);
    }
}
