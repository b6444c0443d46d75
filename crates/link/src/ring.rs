// SPDX-License-Identifier: GPL-3.0-or-later
//! First-in-first-out store of packets with a time each, without an allocation per packet.

use crate::{Nanos, Volume};
use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    packets: VecDeque<(Nanos, u32)>,
}

/// Most that is reserved beforehand; a larger ring grows when it has to.
const LARGEST_RESERVE: u64 = 128 << 20;

impl Ring {
    /// Room for `bytes` in full-size packets, so that a real-time caller never waits for the ring
    /// to grow.
    pub(crate) fn for_bytes(bytes: u64) -> Self {
        let bytes = bytes.min(LARGEST_RESERVE) as usize;
        Self {
            bytes: VecDeque::with_capacity(bytes),
            packets: VecDeque::with_capacity(bytes / 1024),
        }
    }

    /// `packet` is at most 4 GiB long.
    pub(crate) fn push(&mut self, time: Nanos, packet: &[u8]) {
        self.bytes.extend(packet);
        self.packets.push_back((time, packet.len() as u32));
    }

    /// Time of the oldest packet.
    pub(crate) fn front(&self) -> Option<Nanos> {
        self.packets.front().map(|&(time, _)| time)
    }

    /// Moves the oldest packet to `out`, which is cleared first, and returns its time.
    pub(crate) fn pop(&mut self, out: &mut Vec<u8>) -> Option<Nanos> {
        let (time, len) = self.packets.pop_front()?;
        let len = len as usize;
        out.clear();
        let (head, tail) = self.bytes.as_slices();
        let from_head = len.min(head.len());
        out.extend_from_slice(&head[..from_head]);
        out.extend_from_slice(&tail[..len - from_head]);
        self.remove(len);
        Some(time)
    }

    /// Removes bytes. An empty ring starts at its beginning again, so a short queue uses the same
    /// little memory, whatever its capacity.
    fn remove(&mut self, len: usize) {
        if self.packets.is_empty() {
            self.bytes.clear();
            self.packets.clear();
        } else {
            self.bytes.drain(..len);
        }
    }

    /// Discards the oldest packet and returns its length.
    pub(crate) fn discard(&mut self) -> Option<usize> {
        let (_, len) = self.packets.pop_front()?;
        self.remove(len as usize);
        Some(len as usize)
    }

    /// Packets in store.
    pub(crate) fn size(&self) -> Volume {
        Volume {
            packets: self.packets.len() as u64,
            bytes: self.bytes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_ring_keeps_to_the_same_memory() {
        let mut ring = Ring::for_bytes(1 << 20);
        let mut out = Vec::new();
        let mut starts = (0..5000_u32).map(|number| {
            ring.push(number.into(), &[number as u8; 1000]);
            let start = ring.bytes.as_slices().0.as_ptr();
            if number % 2 == 0 {
                assert_eq!(ring.pop(&mut out), Some(number.into()));
                assert_eq!(out, [number as u8; 1000]);
            } else {
                assert_eq!(ring.discard(), Some(1000));
            }
            start
        });
        let first = starts.next();
        assert!(starts.all(|start| Some(start) == first));
    }
}
