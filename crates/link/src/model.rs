// SPDX-License-Identifier: GPL-3.0-or-later
//! The state machine of one direction.

use crate::{LinkConfig, LinkError, Nanos};

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Waits for the carrier.
    Queued,
    /// The queue was full, or the packet is no IP packet of 1 to 65 535 bytes.
    Dropped,
}

/// What a link did since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets offered.
    pub packets_in: u64,
    /// Bytes offered.
    pub bytes_in: u64,
    /// Packets handed out by `pop`.
    pub packets_out: u64,
    /// Bytes handed out by `pop`.
    pub bytes_out: u64,
    /// Packets dropped at the queue.
    pub packets_dropped: u64,
    /// Bytes dropped at the queue.
    pub bytes_dropped: u64,
    /// Packets lost on air, by either loss unit.
    pub packets_lost: u64,
    /// Bytes of these packets.
    pub bytes_lost: u64,
    /// BBFRAMEs or bursts sent.
    pub frames_sent: u64,
    /// Frames lost, contained in `frames_sent`.
    pub frames_lost: u64,
    /// Payload bytes offered by the frames sent.
    pub frame_bytes_available: u64,
    /// Bytes of these that are not padding.
    pub frame_bytes_used: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    counters: Counters,
}

impl Link {
    /// An idle link at time 0.
    ///
    /// # Errors
    /// The configuration cannot be a link.
    pub fn new(config: LinkConfig) -> Result<Self, LinkError> {
        config.check()?;
        Ok(Self {
            config,
            counters: Counters::default(),
        })
    }

    /// Advances to `now` and offers one IP packet.
    pub fn push(&mut self, now: Nanos, packet: &[u8]) -> Accepted {
        let _ = (now, packet, &self.config);
        Accepted::Dropped
    }

    /// Next moment at which `pop` may have something, `None` while idle.
    #[must_use]
    pub fn next_event(&self) -> Option<Nanos> {
        None
    }

    /// Advances to `now`, appends the oldest packet due at or before `now` to `out` (cleared first) and gives its due time.
    pub fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        let _ = (now, out);
        None
    }

    /// What the link did up to the last `push` or `pop`.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Bytes and packets that wait, the rest of a packet in fragmentation included.
    #[must_use]
    pub fn queue(&self) -> (u64, u64) {
        (0, 0)
    }
}
