// SPDX-License-Identifier: GPL-3.0-or-later
//! A line at work: packets one after another at a constant rate, as Linux `tbf` without a burst
//! behind `netem`.

use crate::direction_state::DirectionState;
use crate::frame_output::FrameOutput;
use crate::queue::Fifos;
use crate::{Carrier, Nanos};

/// A line, and when it is free.
#[derive(Debug)]
pub(crate) struct Line {
    rate_bps: u64,
    header_bytes: u64,
    /// End of the last packet sent.
    free: Nanos,
    /// The packet in hand, kept to save the allocation.
    packet: Vec<u8>,
}

impl Line {
    /// The line of a carrier, free from `now` on; `None` for other carriers.
    pub(crate) fn new(carrier: &Carrier, now: Nanos) -> Option<Self> {
        let Carrier::Line {
            rate_bps,
            header_bytes,
        } = *carrier
        else {
            return None;
        };
        Some(Self {
            rate_bps,
            header_bytes: header_bytes.into(),
            free: now,
            packet: Vec::new(),
        })
    }

    /// Changes to the rate of `carrier`. The packet on the line keeps its rate.
    pub(crate) fn change(&mut self, carrier: &Carrier) {
        if let Carrier::Line {
            rate_bps,
            header_bytes,
        } = *carrier
        {
            (self.rate_bps, self.header_bytes) = (rate_bps, header_bytes.into());
        }
    }

    /// The queue was empty until `now`.
    pub(crate) fn skip_to(&mut self, now: Nanos) {
        self.free = self.free.max(now);
    }

    /// Time at which the next waiting packet starts.
    pub(crate) fn free(&self) -> Nanos {
        self.free
    }

    /// Sends the packets that start up to now.
    pub(crate) fn send(
        &mut self,
        queue: &mut Fifos,
        exit: &mut impl FrameOutput,
        core: &mut DirectionState,
    ) {
        while self.free <= core.now && queue.pop(self.free, &mut self.packet, &mut core.ledger) {
            let bits = (self.packet.len() as u64 + self.header_bytes) * 8;
            self.free += (bits * 1_000_000_000).div_ceil(self.rate_bps);
            exit.send_unframed(self.free, &self.packet, core);
        }
    }
}
