// SPDX-License-Identifier: GPL-3.0-or-later
//! Dual queue with coupled PI2 (RFC 9332, appendix A): packets of L4S wait in a queue of their own
//! and are marked at a low delay; the others are marked or dropped with the square of the
//! probability that couples both.
//!
//! Delays are sojourn times. The controller updates at multiples of its period in model time, with
//! the delay that the first packets have at that moment, so that nothing depends on when packets
//! come or who polls. Nothing is random: `recur` spreads signals evenly.

use super::{DualPi2, ecn};
use crate::ledger::Ledger;
use crate::ring::Ring;
use crate::{Nanos, Volume};

/// Coupling factor k (section 2.1).
const COUPLING: f64 = 2.0;
/// Gains per update and second of delay, for an update of 16 ms and round trips up to 100 ms.
const ALPHA: f64 = 0.16;
const BETA: f64 = 3.2;
/// From this probability on, overload: marks no longer suffice, and ECN-capable packets are dropped
/// too (`p_Cmax` of appendix A.1; the coupled probability is 1 then).
const CLASSIC_MOST: f64 = 1.0 / (COUPLING * COUPLING);
/// The native threshold marks only while more packets than this wait behind (`Th_len`): a slow link
/// takes longer than the threshold for two packets.
const UNMARKED_PACKETS: u64 = 1;
/// Shares of both queues, in bytes, while both have packets.
const L4S_WEIGHT: i64 = 15;
const CLASSIC_WEIGHT: i64 = 1;
/// Full-size packets of L4S of its whole weight go first after both queues were empty.
const CREDIT_AT_FIRST: i64 = 1500 * (CLASSIC_WEIGHT - L4S_WEIGHT);

/// One of the two queues, and what it owes in signals.
#[derive(Debug, Default)]
struct Side {
    ring: Ring,
    count: f64,
}

impl Side {
    /// How long the first packet has waited at `now`.
    fn delay(&self, now: Nanos) -> Nanos {
        let front = self.ring.front();
        front.map_or(0, |since| now.saturating_sub(since))
    }

    /// True for this share of the calls.
    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        let is_due = self.count > 1.0;
        if is_due {
            self.count -= 1.0;
        }
        is_due
    }
}

/// The two queues, their scheduler and their controller.
#[derive(Debug)]
pub(super) struct DualQueue {
    config: DualPi2,
    l4s: Side,
    classic: Side,
    /// Bytes that the classic queue may send before L4S, weighted.
    credit: i64,
    /// Base probability p'.
    base: f64,
    old_delay: Nanos,
    updates: u64,
}

impl DualQueue {
    pub(super) fn new(config: DualPi2) -> Self {
        Self {
            config,
            l4s: Side::default(),
            classic: Side::default(),
            credit: CREDIT_AT_FIRST,
            base: 0.0,
            old_delay: 0,
            updates: 0,
        }
    }

    pub(super) fn size(&self) -> Volume {
        self.l4s.ring.size() + self.classic.ring.size()
    }

    /// Queues a packet that fits by its ECN field: ECT(1) and CE are L4S (`dualpi2_enqueue`).
    pub(super) fn push(&mut self, now: Nanos, packet: &[u8]) {
        self.update(now);
        let side = if ecn::field(packet) % 2 == 1 {
            &mut self.l4s
        } else {
            &mut self.classic
        };
        side.ring.push(now, packet);
    }

    /// Takes the next packet that is not dropped: when it came (`dualpi2_dequeue` of appendix A.2).
    pub(super) fn pop(
        &mut self,
        now: Nanos,
        out: &mut Vec<u8>,
        ledger: &mut Ledger,
    ) -> Option<Nanos> {
        self.update(now);
        let coupled = COUPLING * self.base;
        let squared = self.base * self.base;
        loop {
            let is_l4s = self.is_l4s_next()?;
            let side = if is_l4s {
                &mut self.l4s
            } else {
                &mut self.classic
            };
            let since = side.ring.pop(out)?;
            self.charge(is_l4s, out.len());
            let (is_dropped, is_marked) = if is_l4s {
                let is_native = self.l4s.ring.size().packets > UNMARKED_PACKETS
                    && now.saturating_sub(since) > self.config.step;
                if coupled < 1.0 {
                    let likelihood = if is_native { 1.0 } else { coupled };
                    (false, self.l4s.recur(likelihood))
                } else if self.l4s.recur(squared) {
                    (true, false)
                } else {
                    (false, self.l4s.recur(1.0))
                }
            } else {
                let is_chosen = self.classic.recur(squared);
                let is_marked = ecn::field(out) != 0 && squared < CLASSIC_MOST;
                (is_chosen && !is_marked, is_chosen && is_marked)
            };
            if is_dropped {
                ledger.drop(now, out.len());
                continue;
            }
            if is_marked && ecn::mark(out) {
                ledger.mark(now, out.len());
            }
            return Some(since);
        }
    }

    /// Takes everything out, oldest first.
    pub(super) fn drain(&mut self, mut sink: impl FnMut(Nanos, &[u8])) {
        let mut packet = Vec::new();
        loop {
            let fronts = [&self.l4s, &self.classic].map(|side| side.ring.front());
            let ring = match fronts {
                [Some(l4s), classic] if classic.is_none_or(|classic| l4s <= classic) => {
                    &mut self.l4s.ring
                }
                _ => &mut self.classic.ring,
            };
            let Some(since) = ring.pop(&mut packet) else {
                return;
            };
            sink(since, &packet);
        }
    }

    /// Weighted round robin: L4S goes first, but leaves the classic queue its share. None: both
    /// are empty.
    fn is_l4s_next(&mut self) -> Option<bool> {
        let has_l4s = self.l4s.ring.front().is_some();
        let has_classic = self.classic.ring.front().is_some();
        if !has_l4s && !has_classic {
            self.credit = CREDIT_AT_FIRST;
            return None;
        }
        Some(has_l4s && (!has_classic || self.credit <= 0))
    }

    /// Books a packet that left while the other queue has one.
    fn charge(&mut self, is_l4s: bool, bytes: usize) {
        let bytes = i64::try_from(bytes).unwrap_or(0);
        let (other, change) = if is_l4s {
            (&self.classic, bytes * CLASSIC_WEIGHT)
        } else {
            (&self.l4s, -bytes * L4S_WEIGHT)
        };
        if other.ring.front().is_some() {
            self.credit += change;
        }
    }

    /// Makes the updates that are due up to `now`. The queues are as they were after the last
    /// packet came or left.
    fn update(&mut self, now: Nanos) {
        let due = now / self.config.update;
        while self.updates < due {
            self.updates += 1;
            let at = self.updates * self.config.update;
            let delay = self.l4s.delay(at).max(self.classic.delay(at));
            self.update_once(delay);
            let is_idle = self.base <= 0.0 && self.size().packets == 0;
            let is_saturated = self.base >= 1.0 && delay > self.config.target;
            if is_idle || is_saturated {
                self.updates = due;
                let at = due * self.config.update;
                self.old_delay = self.l4s.delay(at).max(self.classic.delay(at));
            }
        }
    }

    /// `dualpi2_update` of appendix A.2; the base probability is bounded.
    fn update_once(&mut self, delay: Nanos) {
        let seconds = |from: Nanos, to: Nanos| (to as f64 - from as f64) / 1e9;
        self.base +=
            ALPHA * seconds(self.config.target, delay) + BETA * seconds(self.old_delay, delay);
        self.base = self.base.clamp(0.0, 1.0);
        self.old_delay = delay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const MS: Nanos = 1_000_000;
    const NOT_ECT: u8 = 0;
    const ECT_1: u8 = 1;
    const ECT_0: u8 = 2;
    const CE: u8 = 3;

    /// An IPv4 packet with this ECN field, its number in bytes 20 to 23.
    fn packet(number: u32, ecn: u8, len: usize) -> Vec<u8> {
        let mut packet = vec![0; len];
        (packet[0], packet[1]) = (0x45, ecn);
        packet[20..24].copy_from_slice(&number.to_be_bytes());
        packet
    }

    fn queue() -> DualQueue {
        DualQueue::new(DualPi2::default())
    }

    /// Number and ECN field of the next packet.
    fn pop(queue: &mut DualQueue, now: Nanos, ledger: &mut Ledger) -> Option<(u32, u8)> {
        let mut out = Vec::new();
        queue.pop(now, &mut out, ledger)?;
        let number = out[20..24].try_into().map(u32::from_be_bytes).unwrap();
        Some((number, ecn::field(&out)))
    }

    #[test]
    fn base_probability_moves_as_the_law_says_and_couples_by_its_square() {
        let mut moved = queue();
        (moved.base, moved.old_delay) = (0.1, 20 * MS);
        moved.update_once(30 * MS);
        let base = 0.1 + 0.16 * (0.030 - 0.015) + 3.2 * (0.030 - 0.020);
        assert!((moved.base - base).abs() < 1e-12, "{}", moved.base);
        moved.update_once(0);
        assert!((moved.base - (base - 0.16 * 0.015 - 3.2 * 0.030)).abs() < 1e-12);
        moved.update_once(10_000 * MS);
        assert!(moved.base >= 1.0 && moved.old_delay == 10_000 * MS);

        // Of 4000 packets p_CL = 2 p' are marked, of the others p_C = p'^2.
        let marked = |ecn: u8| {
            let mut queue = queue();
            (queue.config.update, queue.config.step) = (Nanos::MAX, Nanos::MAX);
            queue.base = 0.1;
            for number in 0..4000 {
                queue.push(0, &packet(number, ecn, 100));
            }
            let mut ledger = Ledger::default();
            while pop(&mut queue, 0, &mut ledger).is_some() {}
            assert_eq!(ledger.counters.packets_dropped, 0);
            ledger.counters.packets_marked
        };
        // The sum has to pass 1, so that rounding decides about the last one.
        assert!((799..=800).contains(&marked(ECT_1)) && (39..=40).contains(&marked(ECT_0)));
    }

    #[test]
    fn fields_decide_the_queue() {
        let mut queue = queue();
        for (number, ecn) in (0..).zip([NOT_ECT, ECT_1, ECT_0, CE]) {
            queue.push(0, &packet(number, ecn, 100));
        }
        let sizes = [&queue.l4s, &queue.classic].map(|side| side.ring.size().packets);
        assert_eq!(sizes, [2, 2]);
        let mut order = vec![];
        queue.drain(|_, packet| order.push(packet[1]));
        order.sort_unstable();
        assert_eq!((order, queue.size()), (vec![0, 1, 2, 3], Volume::default()));
    }

    #[test]
    fn classic_keeps_a_sixteenth_of_a_carrier_that_l4s_would_fill() {
        let (mut queue, mut ledger) = (queue(), Ledger::default());
        assert_eq!(pop(&mut queue, 0, &mut ledger), None);
        for number in 0..1600 {
            queue.push(0, &packet(number, ECT_1, 1500));
            queue.push(0, &packet(number, NOT_ECT, 1500));
        }
        let order: Vec<_> = (0..1600)
            .map(|_| pop(&mut queue, 0, &mut ledger).unwrap().1)
            .collect();
        let classic: u32 = order.iter().map(|&ecn| u32::from(ecn == NOT_ECT)).sum();
        assert_eq!(classic, 100);
        assert!(order[..15].iter().all(|&ecn| ecn == ECT_1), "L4S first");
    }

    #[test]
    fn native_threshold_marks_what_waited_longer_unless_the_queue_is_two_packets() {
        let (mut queue, mut ledger) = (queue(), Ledger::default());
        for number in 0..4 {
            queue.push(0, &packet(number, ECT_1, 1500));
        }
        assert_eq!(pop(&mut queue, MS, &mut ledger), Some((0, ECT_1)));
        // Signals are due above 1, so that the first of a row of certain ones is missing.
        queue.l4s.count = 0.5;
        assert_eq!(pop(&mut queue, MS + 1, &mut ledger), Some((1, CE)));
        let rest: Vec<_> = std::iter::from_fn(|| pop(&mut queue, 9 * MS, &mut ledger)).collect();
        assert_eq!(rest, [(2, ECT_1), (3, ECT_1)]);
        assert_eq!(ledger.counters.packets_marked, 1);
    }

    #[test]
    fn overload_drops_also_what_could_be_marked() {
        let (mut queue, mut ledger) = (queue(), Ledger::default());
        for number in 0..200 {
            queue.push(0, &packet(number, ECT_1, 1500));
            queue.push(0, &packet(number, ECT_0, 1500));
        }
        queue.config.update = Nanos::MAX;
        queue.base = 0.6;
        let left: Vec<_> =
            std::iter::from_fn(|| pop(&mut queue, MS, &mut ledger).map(|it| it.1)).collect();
        let of = |ecn: u8| left.iter().map(|&it| u32::from(it == ecn)).sum::<u32>();
        // p'^2 = 0.36 of each queue are lost, 72 of 200 or, rounded, 71; the rest of L4S is marked,
        // that of the classic queue passes.
        assert!((128..=129).contains(&of(ECT_0)) && (128..=129).contains(&of(CE)));
        assert_eq!(of(ECT_1), 0);
    }

    #[test]
    fn long_silence_and_a_stalled_carrier_cost_nothing() {
        let (mut queue, mut ledger) = (queue(), Ledger::default());
        queue.base = 0.9;
        queue.update(Nanos::MAX);
        assert!(queue.base <= 0.0);
        let mut queue = self::queue();
        for number in 0..2 {
            queue.push(0, &packet(number, NOT_ECT, 100));
        }
        // What is due has to pass 1.
        assert_eq!(pop(&mut queue, Nanos::MAX, &mut ledger), Some((0, NOT_ECT)));
        assert_eq!(pop(&mut queue, Nanos::MAX, &mut ledger), None);
        assert!(queue.base >= 1.0 && ledger.counters.packets_dropped == 1);
    }

    /// The pseudo-code of appendix A, line by line, with a step for the ramp of `laqm` and the
    /// scheduler of this module. `update` is called by a clock, every period.
    struct Reference {
        lq: VecDeque<(Nanos, u32, u8, i64)>,
        cq: VecDeque<(Nanos, u32, u8, i64)>,
        lq_count: f64,
        cq_count: f64,
        p: f64,
        prevq: f64,
        credit: i64,
    }

    fn recur(count: &mut f64, likelihood: f64) -> bool {
        *count += likelihood;
        if *count > 1.0 {
            *count -= 1.0;
            return true;
        }
        false
    }

    impl Reference {
        fn new() -> Self {
            Self {
                lq: VecDeque::new(),
                cq: VecDeque::new(),
                lq_count: 0.0,
                cq_count: 0.0,
                p: 0.0,
                prevq: 0.0,
                credit: -14 * 1500,
            }
        }

        fn enqueue(&mut self, now: Nanos, number: u32, ecn: u8, len: i64) {
            if ecn % 2 == 1 {
                self.lq.push_back((now, number, ecn, len));
            } else {
                self.cq.push_back((now, number, ecn, len));
            }
        }

        fn update(&mut self, now: Nanos) {
            let time = |q: &VecDeque<(Nanos, u32, u8, i64)>| {
                q.front().map_or(0.0, |pkt| (now - pkt.0) as f64)
            };
            let curq = time(&self.cq).max(time(&self.lq));
            self.p += 0.16 * ((curq - 15e6) / 1e9) + 3.2 * ((curq - self.prevq) / 1e9);
            self.p = self.p.clamp(0.0, 1.0);
            self.prevq = curq;
        }

        fn dequeue(&mut self, now: Nanos) -> Option<(u32, u8)> {
            // p_Cmax is 0.25, p_Lmax 1.
            let (coupled, squared) = (2.0 * self.p, self.p * self.p);
            while self.lq.len() + self.cq.len() > 0 {
                let both = !self.lq.is_empty() && !self.cq.is_empty();
                if self.cq.is_empty() || (both && self.credit <= 0) {
                    let (since, number, mut ecn, len) = self.lq.pop_front().unwrap();
                    self.credit += if both { len } else { 0 };
                    if coupled < 1.0 {
                        let mut native = 0.0;
                        if self.lq.len() > 1 && now - since > MS {
                            native = 1.0;
                        }
                        let p_l = f64::max(native, coupled);
                        if recur(&mut self.lq_count, p_l) {
                            ecn = CE;
                        }
                    } else {
                        if recur(&mut self.lq_count, squared) {
                            continue;
                        }
                        if recur(&mut self.lq_count, coupled.min(1.0)) {
                            ecn = CE;
                        }
                    }
                    return Some((number, ecn));
                }
                let (_, number, mut ecn, len) = self.cq.pop_front().unwrap();
                self.credit -= if both { 15 * len } else { 0 };
                if recur(&mut self.cq_count, squared) {
                    if ecn == NOT_ECT || squared >= 0.25 {
                        continue;
                    }
                    ecn = CE;
                }
                return Some((number, ecn));
            }
            self.credit = -14 * 1500;
            None
        }
    }

    proptest! {
        // promise: P5
        /// Arrivals in phases of calm, load and overload; the same packets leave with the same
        /// marks at the same calls, and the probability is the same.
        #[test]
        fn decisions_are_those_of_the_pseudo_code_step_by_step(
            steps in proptest::collection::vec(
                (0..2 * MS, 0..4_u8, 60..1500_usize, 0..3_u8), 1..1500,
            ),
        ) {
            let (mut queue, mut reference) = (queue(), Reference::new());
            let (mut ledger, mut now, mut ticks) = (Ledger::default(), 0, 0);
            for (number, (gap, ecn, len, pops)) in (0..).zip(steps) {
                now += gap;
                while (ticks + 1) * 16 * MS <= now {
                    ticks += 1;
                    reference.update(ticks * 16 * MS);
                }
                queue.push(now, &packet(number, ecn, len));
                reference.enqueue(now, number, ecn, i64::try_from(len).unwrap());
                for _ in 0..pops {
                    let expected = reference.dequeue(now);
                    prop_assert_eq!(pop(&mut queue, now, &mut ledger), expected);
                    prop_assert!((queue.base - reference.p).abs() < 1e-9);
                }
            }
        }
    }
}
