// SPDX-License-Identifier: GPL-3.0-or-later
//! What a loop that drives directions needs of one, whole or in part.

use crate::change::Change;
use crate::config::{LinkConfig, LinkError, Reception};
use crate::direction_state::DirectionState;
use crate::ledger::Counters;
use crate::queue::FifoState;
use crate::{Nanos, Volume};

/// Result of offering a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Waits for the carrier.
    Queued,
    /// The queue was full or chose to drop it early, or the carrier cannot carry the packet: not
    /// IP, empty, or too long for GSE or RLE. Also a malformed datagram.
    Dropped,
}

/// A direction, or one process's part of it: [`crate::Link`], [`crate::Sender`], [`crate::Relay`],
/// [`crate::Receiver`].
pub trait Stage: Send {
    /// The state shared by all roles.
    fn core(&self) -> &DirectionState;

    /// Returns the same state for changes.
    fn core_mut(&mut self) -> &mut DirectionState;

    /// Processes all events before `now`. Every method with a time does this itself, so it is only
    /// needed before reading counters.
    fn advance(&mut self, now: Nanos);

    /// Advances to `now` and offers one packet, or a datagram where the stage takes those. What is
    /// neither is ignored.
    fn offer(&mut self, now: Nanos, bytes: &[u8]);

    /// Advances to `now`, moves the oldest packet or datagram due at or before `now` to `out`
    /// (cleared first) and returns its due time.
    fn pop(&mut self, now: Nanos, out: &mut Vec<u8>) -> Option<Nanos> {
        self.advance(now);
        let core = self.core_mut();
        core.channel.pop(core.now, out)
    }

    /// Advances to `now` and changes the link.
    ///
    /// # Errors
    /// The change is not possible; the link stays as it was.
    fn set(&mut self, now: Nanos, change: &Change) -> Result<(), LinkError> {
        self.advance(now);
        self.core_mut().reconfigure(change)?;
        self.core_mut().apply(change);
        Ok(())
    }

    /// Next moment at which `pop` may have something, `None` while idle.
    ///
    /// It never passes over a release; a `pop` at that moment may still be in vain, for a frame can
    /// be lost or hold only part of a packet, and jitter comes on top.
    fn next_event(&self) -> Option<Nanos> {
        self.core().channel.next_due()
    }

    /// Moves the oldest plan for the terminal in another process to `out` (cleared first), as a
    /// datagram; false: none.
    fn take_plan(&mut self, out: &mut Vec<u8>) -> bool {
        out.clear();
        false
    }

    /// Longest time that input may wait to be read without leaving late, ns.
    fn patience(&self) -> Nanos {
        0
    }

    /// What waits, the rest of a packet in fragmentation included.
    fn queue(&self) -> Volume {
        Volume::default()
    }

    /// State of the FIFOs, highest priority first; the times of waiting are those since the last
    /// call. None without a queue.
    fn fifos(&mut self) -> Vec<FifoState> {
        Vec::new()
    }

    /// The configuration, changes included.
    fn config(&self) -> &LinkConfig {
        &self.core().config
    }

    /// Counters up to the last call that had a time.
    fn counters(&self) -> Counters {
        self.core().ledger.counters
    }

    /// `Es/N0` of the frames sent now, with attenuation, dB; `None`: reception is perfect.
    fn es_n0_db(&self) -> Option<f64> {
        let reception = self.config().reception.as_ref();
        reception.map(Reception::effective_es_n0_db)
    }
}
