// SPDX-License-Identifier: GPL-3.0-or-later
//! When packets arrived. The kernel notes the time at which each packet enters a TUN device's
//! queue, so that a thread may read it later, together with others, and the link still sees it come
//! when it came.
//!
//! The times are in a ring, in the order of the queue. A packet that is dropped after its time was
//! noted puts the two out of step, until the queue is found empty.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use self::sys::Notes;

mod sys;

/// Arrival times of one device, for the one who reads it.
#[derive(Debug, Clone)]
pub struct Stamps {
    notes: Arc<Notes>,
    pairing: Pairing,
}

impl Stamps {
    /// Has the arrivals at a TUN device noted from now on.
    ///
    /// # Errors
    /// The kernel takes no eBPF program of this process (`EPERM` without `CAP_BPF`), or has no such
    /// filter.
    pub fn new(tun: &impl AsRawFd) -> io::Result<Self> {
        Ok(Self {
            notes: Arc::new(Notes::attach(tun)?),
            pairing: Pairing::default(),
        })
    }

    /// Arrivals so far; call it before a read that may find the queue empty.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.notes.count()
    }

    /// Whether packets may be in the queue that were not read.
    #[must_use]
    pub fn may_have_more(&self) -> bool {
        self.pairing.may_have_more(self.notes.count())
    }

    /// Arrival of the packet that was read, ns of `CLOCK_MONOTONIC`; `None` where there is no note
    /// of it.
    pub fn take(&mut self) -> Option<u64> {
        let index = self.pairing.take(self.notes.count())?;
        Some(self.notes.get(index))
    }

    /// The queue was empty after `count` arrivals.
    pub fn empty(&mut self, count: u64) {
        self.pairing.empty(count);
    }
}

/// Which note belongs to the next packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pairing {
    /// Notes of packets that have been read.
    taken: u64,
    /// The queue was found empty once: what is in it came after the notes had begun.
    is_all_noted: bool,
}

impl Pairing {
    fn empty(&mut self, count: u64) {
        self.taken = count;
        self.is_all_noted = true;
    }

    /// Whether the queue may hold packets after `count` arrivals.
    fn may_have_more(self, count: u64) -> bool {
        !self.is_all_noted || self.taken != count
    }

    /// Index of the next packet's note, if it is still there.
    fn take(&mut self, count: u64) -> Option<u64> {
        let index = self.taken;
        let is_there = index < count && count - index <= sys::NOTES;
        self.taken = (index + 1).min(count);
        is_there.then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_notes_go_in_step() {
        let mut pairing = Pairing::default();
        let taken: Vec<_> = (0..3).map(|_| pairing.take(3)).collect();
        assert_eq!(taken, [Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn a_packet_from_before_the_notes_has_none_and_takes_none() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.take(0), None);
        assert_eq!(pairing.take(1), Some(0));
    }

    #[test]
    fn a_queue_that_was_empty_has_nothing_without_a_note() {
        let mut pairing = Pairing::default();
        assert!(pairing.may_have_more(0), "packets from before the notes");
        pairing.empty(2);
        assert!(!pairing.may_have_more(2));
        assert!(pairing.may_have_more(4));
        pairing.take(4);
        assert!(pairing.may_have_more(4));
        pairing.take(4);
        assert!(!pairing.may_have_more(4));
    }

    #[test]
    fn notes_that_were_overwritten_are_not_taken() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.take(sys::NOTES + 1), None);
        assert_eq!(pairing.take(sys::NOTES + 1), Some(1));
    }
}
