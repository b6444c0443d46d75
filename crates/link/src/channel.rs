// SPDX-License-Identifier: GPL-3.0-or-later
//! The path behind the carrier: losses, propagation, jitter, impairments of single packets.

use crate::impairments::Impairing;
use crate::jitter::Jittering;
use crate::ledger::Counters;
use crate::loss::Losses;
use crate::random::{Process, generator, hits};
use crate::ring::Ring;
use crate::{LinkConfig, LossUnit, Nanos};
use rand_pcg::Pcg64;

/// What frames and packets meet on their way.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) losses: Losses,
    pub(crate) jitter: Jittering,
    impairing: Impairing,
    pub(crate) delay: Nanos,
    /// Probability that a frame is not understood.
    pub(crate) frame_error_ratio: f64,
    /// Nothing gets through.
    pub(crate) is_down: bool,
    reception: Pcg64,
    in_flight: Ring,
    /// Latest due time so far: packets keep their order when the delay changes.
    last_due: Nanos,
}

impl Channel {
    pub(crate) fn new(config: &LinkConfig) -> Self {
        Self {
            losses: Losses::new(&config.losses, config.seed, 0),
            jitter: Jittering::new(config.jitter, config.seed, 0),
            impairing: Impairing::new(config.impairments, config.seed, 0),
            delay: config.delay,
            frame_error_ratio: frame_error_ratio(config),
            is_down: false,
            reception: generator(config.seed, Process::Quality, 0),
            in_flight: Ring::default(),
            last_due: 0,
        }
    }

    /// Continues the channel `before` of another carrier, with its packets in flight. Packets sent
    /// from now on are due after them.
    pub(crate) fn go_on(&mut self, before: Self) {
        *self = Self {
            delay: self.delay,
            frame_error_ratio: self.frame_error_ratio,
            last_due: before.last_due.saturating_add(1),
            ..before
        };
    }

    /// Due time of the last packet so far.
    pub(crate) const fn last_due(&self) -> Nanos {
        self.last_due
    }

    /// Whether a frame sent whole at `now` is lost.
    pub(crate) fn loses_frame(&mut self, now: Nanos) -> bool {
        let lost = self.losses.lose(LossUnit::Frame, now);
        let unclear =
            self.frame_error_ratio > 0.0 && hits(&mut self.reception, self.frame_error_ratio);
        lost || unclear || self.is_down
    }

    /// Whether a packet of a frame that came through is lost.
    pub(crate) fn loses_packet(&mut self, now: Nanos) -> bool {
        self.losses.lose(LossUnit::Packet, now)
    }

    /// A frame or datagram goes on at once.
    pub(crate) fn pass(&mut self, now: Nanos, datagram: &[u8]) {
        self.last_due = self.last_due.max(now);
        self.in_flight.push(self.last_due, datagram);
    }

    /// A packet sent at `now` gets through.
    pub(crate) fn deliver(&mut self, now: Nanos, packet: &[u8], counters: &mut Counters) {
        let due = now
            .saturating_add(self.delay)
            .saturating_add(self.jitter.next());
        self.last_due = self.last_due.max(due);
        if self.impairing.is_off() {
            self.in_flight.push(self.last_due, packet);
        } else {
            let in_flight = &mut self.in_flight;
            self.impairing
                .deliver(self.last_due, packet, in_flight, counters);
        }
    }

    /// Goes over to other impairments; what is held back goes on.
    pub(crate) fn impair(&mut self, impairing: Impairing) {
        let in_flight = &mut self.in_flight;
        self.impairing.change(impairing, self.last_due, in_flight);
    }

    /// When the next packet is due, of those in flight and those held back.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.next_in_flight().or_else(|| self.impairing.next_due())
    }

    /// When the oldest packet in flight is due: before all that is still to be sent.
    pub(crate) fn next_in_flight(&self) -> Option<Nanos> {
        self.in_flight.front()
    }

    /// Takes the oldest packet in flight, or a held one, if it is due.
    pub(crate) fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        match self.next_in_flight() {
            Some(due) if due <= now => self.in_flight.pop(out),
            Some(_) => None,
            None => self.impairing.pop(now, out),
        }
    }
}

/// Probability that a frame of this carrier is not understood.
pub(crate) fn frame_error_ratio(config: &LinkConfig) -> f64 {
    config
        .reception
        .zip(config.carrier.threshold_db())
        .map_or(0.0, |(reception, own_db)| {
            reception.frame_error_ratio(own_db)
        })
}
