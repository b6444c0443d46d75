// SPDX-License-Identifier: GPL-3.0-or-later
//! The sending half of a tunnel: frames of packets, and repair frames for the end of a stream.

use crate::adaptation::Adaptation;
use crate::{Code, Encoder, Nanos, Protection, Report};

/// The tail of a stream is covered no earlier and no later than this after its last packet.
const TAIL: std::ops::RangeInclusive<Nanos> = 1_000_000..=100_000_000;
/// Weight of a new distance of two packets in the mean: 1 of 8.
const WEIGHT: u64 = 8;

/// What a sender has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Source frames.
    pub sources: u64,
    /// Repair frames.
    pub repairs: u64,
    /// Of them, those at the end of a stream.
    pub tail_repairs: u64,
    /// Bytes of source frames.
    pub source_bytes: u64,
    /// Bytes of repair frames.
    pub repair_bytes: u64,
}

/// Makes frames of packets. Memory: that of its [`Encoder`].
///
/// Tail: twice the time of `k` packets after the last packet, at least 1 ms and at most 100 ms, one
/// repair frame covers what no repair frame has covered.
#[derive(Debug)]
pub struct Sender {
    encoder: Encoder,
    adaptation: Option<Adaptation>,
    last: Option<Nanos>,
    /// Mean distance of two packets.
    distance: Nanos,
    sent: Sent,
    frame: Vec<u8>,
}

impl Sender {
    /// A sender of a new stream, whose first packet has number 0.
    #[must_use]
    pub fn new(protection: impl Into<Protection>) -> Self {
        let (code, adaptation) = match protection.into() {
            Protection::None => (None, None),
            Protection::Fixed(code) => (Some(code), None),
            Protection::Adaptive => {
                let adaptation = Adaptation::new();
                (Some(adaptation.code()), Some(adaptation))
            }
        };
        Self {
            encoder: Encoder::new(code, 0),
            adaptation,
            last: None,
            distance: 0,
            sent: Sent::default(),
            frame: Vec::new(),
        }
    }

    /// What was made so far.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// The code in force.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.encoder.code()
    }

    /// How often an adaptive sender has changed its code.
    #[must_use]
    pub fn code_changes(&self) -> u64 {
        self.adaptation.as_ref().map_or(0, Adaptation::changes)
    }

    /// Takes what the receiver reports. Only an adaptive sender heeds it.
    pub fn report(&mut self, now: Nanos, report: Report) {
        self.adapt(|it| it.report(now, report));
    }

    /// Makes the frames of a packet of 1 to [`crate::MAX_PACKET`] bytes: its source frame, and a
    /// repair frame if one is due.
    pub fn push(&mut self, now: Nanos, packet: &[u8], mut send: impl FnMut(&[u8])) {
        if let Some(last) = self.last {
            let new = now.saturating_sub(last).min(*TAIL.end());
            self.distance = (self.distance * (WEIGHT - 1) + new) / WEIGHT;
        }
        self.last = Some(now);
        self.frame.clear();
        let is_due = self.encoder.source(packet, &mut self.frame);
        self.sent.sources += 1;
        self.sent.source_bytes += self.frame.len() as u64;
        send(&self.frame);
        if is_due {
            self.repair(send);
        }
    }

    /// When [`Self::timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Nanos> {
        let silence = self.adaptation.as_ref().and_then(Adaptation::next_timeout);
        self.tail().into_iter().chain(silence).min()
    }

    /// Covers the tail of the stream, if it is time to, and notes missing reports.
    pub fn timeout(&mut self, now: Nanos, send: impl FnMut(&[u8])) {
        if self.tail().is_some_and(|due| due <= now) && self.repair(send) {
            self.sent.tail_repairs += 1;
        }
        self.adapt(|it| it.timeout(now));
    }

    /// When the tail is to be covered.
    fn tail(&self) -> Option<Nanos> {
        let step = u64::from(self.encoder.code()?.step());
        let last = self.last.filter(|_| self.encoder.uncovered() > 0)?;
        let wait = (2 * step * self.distance).clamp(*TAIL.start(), *TAIL.end());
        Some(last.saturating_add(wait))
    }

    /// The code that follows from something new is in force from the next packet on.
    fn adapt(&mut self, hears: impl FnOnce(&mut Adaptation)) {
        if let Some(adaptation) = &mut self.adaptation {
            hears(adaptation);
            self.encoder.set_code(Some(adaptation.code()));
        }
    }

    fn repair(&mut self, mut send: impl FnMut(&[u8])) -> bool {
        self.frame.clear();
        let made = self.encoder.repair(&mut self.frame);
        if made {
            self.sent.repairs += 1;
            self.sent.repair_bytes += self.frame.len() as u64;
            send(&self.frame);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn the_end_of_a_stream_is_covered_once_after_twice_the_time_of_a_step() {
        let mut sender = Sender::new(Some(Code::new(10, 100).unwrap()));
        let mut frames = 0;
        for number in 0..1003 {
            sender.push(number * MS, &[1; 50], |_| frames += 1);
        }
        assert_eq!(frames, 1003 + 100);
        let due = sender.next_timeout().unwrap();
        let wait = due - 1002 * MS;
        assert!((19 * MS..=20 * MS).contains(&wait), "{wait}");
        sender.timeout(due - 1, |_| frames += 1);
        assert_eq!(frames, 1103);
        sender.timeout(due, |_| frames += 1);
        assert_eq!(frames, 1104);
        assert_eq!(sender.next_timeout(), None);
        assert_eq!(sender.sent().tail_repairs, 1);
    }

    #[test]
    fn nothing_is_covered_twice_and_nothing_without_a_code() {
        let mut sender = Sender::new(Some(Code::new(1, 1).unwrap()));
        sender.push(0, &[1], |_| {});
        assert_eq!(sender.next_timeout(), None);
        let mut plain = Sender::new(None);
        plain.push(0, &[1], |_| {});
        assert_eq!(plain.next_timeout(), None);
    }
}
