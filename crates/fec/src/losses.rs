// SPDX-License-Identifier: GPL-3.0-or-later
//! What a receiver measures of the losses, and reports to the sender: loss ratio and lengths of
//! bursts in a sliding period.
//!
//! Source packets count, by their encoding symbol identifiers, not repair frames. A packet is lost
//! if it has not come when the 32nd packet behind it does; a burst is a run of lost packets. One of
//! more than [`LONGEST_BURST`] packets is an outage, which no code of the ladder repairs: it does
//! not count.

use crate::Nanos;

/// Longest burst that counts, packets: 72 frames are 48 source packets of S(2,100), which repairs
/// so many.
pub const LONGEST_BURST: u8 = 72;
/// Between two reports.
pub(crate) const INTERVAL: Nanos = 250_000_000;
/// The period of a report: so many parts of a second.
const PARTS: usize = 10;
const PART: Nanos = 1_000_000_000;
/// One of so many lost packets may lie in a burst longer than the reported length.
const BEYOND: u64 = 20;
/// Packets that wait for late ones before they are judged: bits of `Losses::seen`.
const JUDGED_BEHIND: u64 = u32::BITS as u64;

/// What a receiver reports to its sender of the last 10 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of the report, modulo 2^16.
    pub number: u16,
    /// Source packets that came.
    pub received: u32,
    /// Source packets that were lost in bursts of up to [`LONGEST_BURST`].
    pub lost: u32,
    /// Length of a burst: longer ones have at most 5 % of the lost packets. 0: nothing was lost.
    pub burst: u8,
}

impl Report {
    /// Lost of all, 0 to 1.
    #[must_use]
    pub fn loss_ratio(self) -> f64 {
        let all = f64::from(self.received) + f64::from(self.lost);
        f64::from(self.lost) / all.max(1.0)
    }
}

/// Counts of one part of the period.
#[derive(Clone, Copy, Debug)]
struct Part {
    received: u32,
    /// Bursts by length; none has length 0.
    bursts: [u32; LONGEST_BURST as usize + 1],
}

const EMPTY: Part = Part {
    received: 0,
    bursts: [0; LONGEST_BURST as usize + 1],
};

/// Memory: 10 parts of 73 counts.
#[derive(Debug)]
pub(crate) struct Losses {
    start: u64,
    /// One behind the newest position that came.
    end: u64,
    /// Whether the newest positions came, the newest in the lowest bit.
    seen: u32,
    /// Lost packets before the next one to be judged.
    run: u64,
    parts: [Part; PARTS],
    /// Number of the part that is counted now.
    part: u64,
    number: u16,
}

impl Losses {
    /// Of a stream whose first packet has this position.
    pub fn new(start: u64) -> Self {
        Self {
            start,
            end: start,
            seen: 0,
            run: 0,
            parts: [EMPTY; PARTS],
            part: 0,
            number: 0,
        }
    }

    /// The stream goes on elsewhere, with this position.
    pub fn begin_at(&mut self, start: u64) {
        (self.start, self.end, self.seen, self.run) = (start, start, 0, 0);
    }

    /// A source packet has come.
    pub fn source(&mut self, now: Nanos, position: u64) {
        self.turn(now);
        if position >= self.end {
            self.advance(position + 1 - self.end);
        }
        let behind = self.end - 1 - position;
        if behind < JUDGED_BEHIND {
            self.seen |= 1 << behind;
        }
    }

    /// The next report.
    pub fn report(&mut self, now: Nanos) -> Report {
        self.turn(now);
        let of_length = |length: u8| {
            let counts = self.parts.iter().map(|it| it.bursts[usize::from(length)]);
            u64::from(length) * counts.map(u64::from).sum::<u64>()
        };
        let lost: u64 = (1..=LONGEST_BURST).map(of_length).sum();
        let mut beyond = 0;
        let burst = (1..=LONGEST_BURST).rev().find(|&length| {
            beyond += of_length(length);
            beyond * BEYOND > lost
        });
        let received: u64 = self.parts.iter().map(|it| u64::from(it.received)).sum();
        let count = |packets: u64| u32::try_from(packets).unwrap_or(u32::MAX);
        self.number = self.number.wrapping_add(1);
        Report {
            number: self.number,
            received: count(received),
            lost: count(lost),
            burst: burst.unwrap_or(0),
        }
    }

    fn turn(&mut self, now: Nanos) {
        let part = now / PART;
        let first = (self.part + 1).max((part + 1).saturating_sub(PARTS as u64));
        for entered in first..=part {
            self.parts[(entered % PARTS as u64) as usize] = EMPTY;
        }
        self.part = self.part.max(part);
    }

    /// Judges what so many new packets leave behind them.
    fn advance(&mut self, packets: u64) {
        let judged = packets.min(JUDGED_BEHIND);
        for _ in 0..judged {
            let has_come = self.seen >> (u32::BITS - 1) == 1;
            self.seen <<= 1;
            if self.end >= self.start + JUDGED_BEHIND {
                self.judge(has_come);
            }
            self.end += 1;
        }
        // Of a longer gap these did not even come late. What lies before the start is a part of no
        // burst that counts.
        self.run += packets - judged;
        self.end += packets - judged;
    }

    fn judge(&mut self, has_come: bool) {
        if !has_come {
            self.run += 1;
            return;
        }
        let part = &mut self.parts[(self.part % PARTS as u64) as usize];
        part.received = part.received.saturating_add(1);
        let length = std::mem::take(&mut self.run);
        if (1..=u64::from(LONGEST_BURST)).contains(&length) {
            let count = &mut part.bursts[length as usize];
            *count = count.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Nanos = 1_000_000;
    const START: u64 = 1 << 32;

    /// Packets 1 ms apart, of which those come that are not lost.
    fn measured(packets: u64, is_lost: impl Fn(u64) -> bool) -> Losses {
        let mut losses = Losses::new(START);
        for number in (0..packets).filter(|it| !is_lost(*it)) {
            losses.source(number * MS, START + number);
        }
        losses
    }

    #[test]
    fn ratio_and_bursts_of_the_last_ten_seconds_are_reported() {
        let mut losses = measured(9000, |number| number % 100 < 8 && number >= 100);
        let report = losses.report(9000 * MS);
        assert_eq!((report.number, report.burst), (1, 8));
        assert!((report.loss_ratio() - 0.08).abs() < 0.002, "{report:?}");
        let later = losses.report(19_100 * MS);
        let expected = (2, 0, 0, 0);
        assert_eq!(
            (later.number, later.received, later.lost, later.burst),
            expected
        );
    }

    #[test]
    fn rare_bursts_are_beyond_the_length_and_outages_do_not_count() {
        // 90 single losses, and a burst of 4 packets or of 40; 4 of 94 are less than 5 %, 40 of 130
        // are not.
        let single = |number: u64| number % 100 == 50;
        for (length, burst) in [(4, 1), (40, 40), (73, 1), (1000, 1)] {
            let mut losses = measured(9500, |it| single(it) || (1201..1201 + length).contains(&it));
            assert_eq!(losses.report(9500 * MS).burst, burst, "{length}");
        }
    }

    #[test]
    fn a_jump_costs_no_time() {
        let mut losses = measured(1, |_| false);
        losses.source(0, START + (1 << 31));
        losses.source(0, START);
        assert_eq!(losses.end, START + (1 << 31) + 1);
        assert_eq!(losses.report(u64::MAX).received, 0);
    }

    proptest! {
        #[test]
        fn what_is_late_by_less_than_32_packets_is_not_lost(seed: u64) {
            let mut order: Vec<u64> = (0..2000).collect();
            for (at, chunk) in order.chunks_mut(16).enumerate() {
                chunk.rotate_left((seed >> (at % 60)) as usize % chunk.len());
            }
            let mut losses = Losses::new(START);
            for (at, number) in order.into_iter().enumerate() {
                losses.source(at as u64 * MS, START + number);
            }
            let report = losses.report(2000 * MS);
            prop_assert_eq!((report.lost, report.burst), (0, 0));
            prop_assert_eq!(report.received, 2000 - 32);
        }
    }
}
