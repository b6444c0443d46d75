// SPDX-License-Identifier: GPL-3.0-or-later
//! The receiving half of a tunnel: packets of frames, at once or in their order.

use crate::losses::{INTERVAL, Losses};
use crate::wire::{Frame, RepairId, WireError, parse, put_report};
use crate::{Arrival, Decoder, Nanos};

/// When a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As soon as it is known: a recovered packet comes after later ones.
    Immediate,
    /// In the order of the sender. A missing packet holds the later ones back until it is
    /// recovered, at most this long.
    InOrder {
        /// Longest time from the first packet behind a gap.
        hold: Nanos,
    },
}

/// Packets in order that leave at once. A socket of Linux's default size, 212,992 bytes, holds
/// about 90 of full length.
const BURST: usize = 16;
/// Packets that a frame lets go: what was held leaves at twice the rate of what arrives, whatever
/// that is.
const OF_FRAME: usize = 2;
/// Time until a further burst may leave.
const PAUSE: Nanos = 1_000_000;

/// Packets between two frames, at most: a frame further away is of this stream only if the next one
/// follows it (as RFC 3550, appendix A.1). A single forged one then moves no window.
const JUMP: u64 = 1 << 16;

/// What a receiver has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Source frames of packets that were missing.
    pub sources: u64,
    /// Repair frames.
    pub repairs: u64,
    /// Repair frames that said something new.
    pub repairs_used: u64,
    /// Packets recovered.
    pub recovered: u64,
    /// Packets that left the window unknown.
    pub lost: u64,
    /// Packets of which a frame came again, or after they were recovered.
    pub duplicates: u64,
    /// Source frames of packets that had left the window, or are far from it.
    pub late: u64,
    /// Packets recovered, or late frames, of which the order had already passed.
    pub out_of_time: u64,
    /// Frames that are none, and recovered symbols without a packet.
    pub malformed: u64,
    /// Sum of the times from the first sign that a packet was missing to its recovery.
    pub recovery_delay_sum: Nanos,
    /// The longest of them.
    pub recovery_delay_max: Nanos,
    /// Reports made.
    pub reports: u64,
}

/// Makes packets of frames. Memory: that of its [`Decoder`], and 8 bytes for each of its slots.
#[derive(Debug)]
pub struct Receiver {
    decoder: Decoder,
    delivery: Delivery,
    /// When each position of the window was first known to exist.
    noticed: Vec<Nanos>,
    /// First position that was not delivered or given up, in order.
    next: u64,
    /// Packets that may leave in order now, and when it is a whole burst again.
    allowance: usize,
    resume: Nanos,
    counters: Counters,
    recovered: Vec<u64>,
    losses: Losses,
    /// The number that would follow the last source frame far from the window.
    elsewhere: Option<u32>,
    /// When the next report is due, if the sender wants some.
    next_report: Option<Nanos>,
}

impl Receiver {
    /// A receiver of a new stream, whose decoder covers the last `window` packets: twice the code's
    /// `z`.
    #[must_use]
    pub fn new(window: usize, delivery: Delivery) -> Self {
        let decoder = Decoder::new(window, 0);
        let start = decoder.window().start;
        Self {
            next: start,
            allowance: BURST,
            resume: 0,
            noticed: vec![0; window.max(1)],
            decoder,
            delivery,
            counters: Counters::default(),
            recovered: Vec::new(),
            losses: Losses::new(start),
            elsewhere: None,
            next_report: None,
        }
    }

    /// The same with reports from now on.
    #[must_use]
    pub fn with_reports(mut self, now: Nanos) -> Self {
        self.next_report = Some(now.saturating_add(INTERVAL));
        self
    }

    /// What was seen so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let malformed = self.counters.malformed + self.decoder.malformed();
        let lost = self.counters.lost + self.decoder.lost();
        Counters {
            lost,
            malformed,
            ..self.counters
        }
    }

    /// Packets that are missing now.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.decoder.missing()
    }

    /// Takes a frame; what it makes deliverable goes to `deliver`.
    ///
    /// # Errors
    /// The bytes are not a frame. They are counted.
    pub fn receive<'a>(
        &mut self,
        now: Nanos,
        bytes: &'a [u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<Frame<'a>, WireError> {
        let frame = parse(bytes).inspect_err(|_| self.counters.malformed += 1)?;
        self.allowance = BURST.min(self.allowance + OF_FRAME);
        match frame {
            Frame::Source { esi, packet } => self.source(now, esi, packet, &mut deliver),
            Frame::Repair { id, symbol } => self.repair(now, id, symbol, &mut deliver),
            Frame::Report(_) | Frame::Foreign(..) => {}
        }
        Ok(frame)
    }

    /// When [`Self::timeout`] or [`Self::report`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Nanos> {
        let held = self.held_until().into_iter();
        held.chain(self.next_report).min()
    }

    /// Makes the frame of a report, if one is due.
    pub fn report(&mut self, now: Nanos) -> Option<Vec<u8>> {
        let due = self.next_report.filter(|due| *due <= now)?;
        // After a standstill there is one report, not all that were due.
        self.next_report = Some(due.max(now.saturating_sub(INTERVAL)) + INTERVAL);
        self.counters.reports += 1;
        let mut frame = Vec::new();
        put_report(self.losses.report(now), &mut frame);
        Some(frame)
    }

    /// When the next packet may leave, or those behind a gap have waited long enough.
    fn held_until(&self) -> Option<Nanos> {
        let Delivery::InOrder { hold } = self.delivery else {
            return None;
        };
        if self.next >= self.decoder.window().end {
            return None;
        }
        if self.decoder.packet(self.next).is_some() {
            return Some(self.resume);
        }
        Some(self.noticed[self.index(self.next)].saturating_add(hold))
    }

    /// Lets packets go whose turn has come, and abandons those whose deadline has passed.
    pub fn timeout(&mut self, now: Nanos, mut deliver: impl FnMut(&[u8])) {
        while self.held_until().is_some_and(|due| due <= now) {
            if self.decoder.packet(self.next).is_some() {
                self.allowance = BURST;
                self.resume = now.saturating_add(PAUSE);
            } else {
                self.pass(self.next + 1, &mut deliver);
            }
            self.deliver_in_order(now, &mut deliver);
        }
    }

    fn source(&mut self, now: Nanos, esi: u32, packet: &[u8], deliver: &mut impl FnMut(&[u8])) {
        if self.is_far(esi) {
            let follows = self.elsewhere == Some(esi);
            self.elsewhere = Some(esi.wrapping_add(1));
            if !follows {
                self.counters.late += 1;
                return;
            }
            self.begin_at(esi, deliver);
        }
        let position = self.decoder.position(esi);
        self.losses.source(now, position);
        self.make_room(now, position + 1, deliver);
        let arrival = self.decoder.source(esi, packet, &mut self.recovered);
        match arrival {
            Arrival::New => {
                self.counters.sources += 1;
                self.hand_over(position, deliver);
            }
            Arrival::Duplicate => self.counters.duplicates += 1,
            Arrival::Late => self.counters.late += 1,
        }
        self.after(now, deliver);
    }

    fn repair(&mut self, now: Nanos, id: RepairId, symbol: &[u8], deliver: &mut impl FnMut(&[u8])) {
        self.counters.repairs += 1;
        if id.count == 0 || usize::from(id.count) > self.noticed.len() || self.is_far(id.first) {
            self.counters.malformed += 1;
            return;
        }
        let end = self.decoder.position(id.first) + u64::from(id.count);
        self.make_room(now, end, deliver);
        let is_used = self.decoder.repair(id, symbol, &mut self.recovered);
        self.counters.repairs_used += u64::from(is_used);
        self.after(now, deliver);
    }

    fn is_far(&self, esi: u32) -> bool {
        let position = self.decoder.position(esi);
        position.abs_diff(self.decoder.window().end) > JUMP
    }

    /// Begins the stream anew at a packet, after those that are known.
    fn begin_at(&mut self, esi: u32, deliver: &mut impl FnMut(&[u8])) {
        if matches!(self.delivery, Delivery::InOrder { .. }) {
            self.pass(self.decoder.window().end, deliver);
        }
        self.counters.lost += self.decoder.lost();
        self.counters.malformed += self.decoder.malformed();
        self.decoder = Decoder::new(self.noticed.len(), esi);
        self.next = self.decoder.window().start;
        self.losses.begin_at(self.next);
        self.elsewhere = None;
    }

    /// Notes what is first known of now, and lets go what the window is about to lose.
    fn make_room(&mut self, now: Nanos, end: u64, deliver: &mut impl FnMut(&[u8])) {
        if matches!(self.delivery, Delivery::InOrder { .. }) {
            self.pass(self.decoder.base_at(end), deliver);
        }
        let known = self.decoder.window().end;
        let entering = known.max(end.saturating_sub(self.noticed.len() as u64))..end;
        for position in entering {
            let index = self.index(position);
            self.noticed[index] = now;
        }
    }

    fn after(&mut self, now: Nanos, deliver: &mut impl FnMut(&[u8])) {
        for position in std::mem::take(&mut self.recovered) {
            let delay = now.saturating_sub(self.noticed[self.index(position)]);
            self.counters.recovered += 1;
            self.counters.recovery_delay_sum += delay;
            self.counters.recovery_delay_max = self.counters.recovery_delay_max.max(delay);
            self.hand_over(position, deliver);
        }
        self.deliver_in_order(now, deliver);
    }

    /// Delivers a packet that has just become known, unless its turn is still to come or is over.
    fn hand_over(&mut self, position: u64, deliver: &mut impl FnMut(&[u8])) {
        match self.delivery {
            Delivery::Immediate => self.decoder.packet(position).into_iter().for_each(deliver),
            Delivery::InOrder { .. } => {
                self.counters.out_of_time += u64::from(position < self.next);
            }
        }
    }

    /// Delivers what is next, no more than may leave now: a program's socket would lose a window of
    /// packets at once.
    fn deliver_in_order(&mut self, now: Nanos, deliver: &mut impl FnMut(&[u8])) {
        if matches!(self.delivery, Delivery::Immediate) {
            return;
        }
        while let Some(packet) = self.decoder.packet(self.next) {
            if self.allowance == 0 {
                if self.resume <= now {
                    self.resume = now.saturating_add(PAUSE);
                }
                return;
            }
            deliver(packet);
            self.allowance -= 1;
            self.next += 1;
        }
    }

    /// Delivers what is known before `end`, and abandons the rest of it.
    fn pass(&mut self, end: u64, deliver: &mut impl FnMut(&[u8])) {
        for position in self.next..end.min(self.decoder.window().end) {
            self.decoder
                .packet(position)
                .into_iter()
                .for_each(&mut *deliver);
        }
        self.next = self.next.max(end);
    }

    fn index(&self, position: u64) -> usize {
        (position % self.noticed.len() as u64) as usize
    }
}
