// SPDX-License-Identifier: GPL-3.0-or-later
//! What a loop that drives directions needs of one, whole or in part.

use crate::Nanos;
use crate::change::Change;
use crate::config::{LinkConfig, LinkError};
use crate::ledger::Counters;

/// What became of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Waits for the carrier.
    Queued,
    /// The queue was full or chose to drop it early, or the carrier cannot carry the packet: no IP, empty, or too long for
    /// GSE or RLE. Or a datagram that is none.
    Dropped,
}

/// State of a direction.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// Configuration, changes included.
    pub config: &'a LinkConfig,
    /// What happened since the start.
    pub counters: Counters,
    /// Bytes and packets that wait, the rest of a packet in fragmentation included.
    pub queue: (u64, u64),
    /// `Es/N0` of the frames sent now, dB; `None`: reception is perfect.
    pub es_n0_db: Option<f64>,
}

/// A direction, or the part of it that a process has: [`crate::Link`], [`crate::Sender`], [`crate::Relay`],
/// [`crate::Receiver`].
pub trait Stage: Send {
    /// Advances to `now` and offers one packet, or a datagram where the stage takes those. What a host hands over that is no
    /// IP packet is ignored.
    fn offer(&mut self, now: Nanos, bytes: &[u8]);

    /// Advances to `now`, moves the oldest packet or datagram due by then to `out` (cleared first) and gives its due time.
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos>;

    /// Advances to `now` and changes the link.
    ///
    /// # Errors
    /// The change is not possible; the link stays as it was.
    fn set(&mut self, now: Nanos, change: &Change) -> Result<(), LinkError>;

    /// Next moment at which `pop` may have something; `None` while idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Moves the oldest plan for the terminal in another process to `out` (cleared first), as a datagram; false: none.
    fn take_plan(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        false
    }

    /// How long input may wait to be read without leaving late, ns.
    fn patience(&self) -> Nanos {
        0
    }

    /// The state after the last call.
    fn state(&self) -> State<'_>;
}

/// True for IPv4 and IPv6 by the version field.
pub(crate) fn is_ip(packet: &[u8]) -> bool {
    matches!(packet.first().map(|byte| byte >> 4), Some(4 | 6))
}
