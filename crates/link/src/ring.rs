// SPDX-License-Identifier: GPL-3.0-or-later
//! First-in-first-out store of packets with a time each, without an allocation per packet.
//!
//! Packets lie in segments, one after another and each in one piece. The segment that was read last
//! is written next. So the ring uses no more memory than its packets ever took, and a short queue
//! stays in the cache, whatever its limit. Memory is kept until the ring ends.

use crate::{Nanos, Volume};
use std::collections::VecDeque;

/// Bytes of a segment; a larger packet has one for itself.
const SEGMENT: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// The first is read from `read` on, the last is written.
    segments: VecDeque<Vec<u8>>,
    read: usize,
    spare: Vec<Vec<u8>>,
    packets: VecDeque<(Nanos, u32)>,
    bytes: u64,
}

impl Ring {
    /// `packet` is at most 4 GiB long.
    pub(crate) fn push(&mut self, time: Nanos, packet: &[u8]) {
        self.bytes += packet.len() as u64;
        self.packets.push_back((time, packet.len() as u32));
        let has_room = |it: &&mut Vec<u8>| it.capacity() - it.len() >= packet.len();
        if let Some(last) = self.segments.back_mut().filter(has_room) {
            last.extend_from_slice(packet);
            return;
        }
        let mut next = match self.spare.pop() {
            Some(spare) if packet.len() <= SEGMENT => spare,
            _ => Vec::with_capacity(SEGMENT.max(packet.len())),
        };
        next.extend_from_slice(packet);
        self.segments.push_back(next);
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
        if let Some(first) = self.segments.front() {
            out.extend_from_slice(&first[self.read..self.read + len]);
        }
        self.skip(len);
        Some(time)
    }

    /// Discards the oldest packet and returns its length.
    pub(crate) fn discard(&mut self) -> Option<usize> {
        let (_, len) = self.packets.pop_front()?;
        self.skip(len as usize);
        Some(len as usize)
    }

    /// Removes bytes from the first segment; one that is read to its end is spare.
    fn skip(&mut self, len: usize) {
        self.bytes -= len as u64;
        self.read += len;
        let is_read = |it: &Vec<u8>| it.len() == self.read;
        if self.segments.front().is_some_and(is_read) {
            if let Some(mut first) = self.segments.pop_front() {
                first.clear();
                self.spare.push(first);
                self.read = 0;
            }
        }
    }

    /// Packets in store.
    pub(crate) fn size(&self) -> Volume {
        Volume {
            packets: self.packets.len() as u64,
            bytes: self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64, len: usize) -> Vec<u8> {
        (0..len)
            .map(|at| (number as usize * 31 + at) as u8)
            .collect()
    }

    #[test]
    fn packets_of_any_length_come_out_as_they_went_in() {
        let lens = [1500, 0, 40, SEGMENT, SEGMENT + 1, 0, 9000, 1, SEGMENT - 1];
        let mut ring = Ring::default();
        let mut out = Vec::new();
        let (mut pushed, mut popped) = (0_u64, 0_u64);
        let len_of = |number: u64| lens[number as usize % lens.len()];
        for round in 0..400_u64 {
            for _ in 0..round % 7 {
                ring.push(pushed, &packet(pushed, len_of(pushed)));
                pushed += 1;
            }
            for _ in 0..round % 11 {
                if popped % 5 == 4 {
                    let found = ring.discard();
                    assert_eq!(found, (popped < pushed).then(|| len_of(popped)));
                    popped += u64::from(found.is_some());
                } else if let Some(time) = ring.pop(&mut out) {
                    assert_eq!((time, &out), (popped, &packet(popped, len_of(popped))));
                    popped += 1;
                }
            }
            let bytes: usize = (popped..pushed).map(len_of).sum();
            assert_eq!(ring.front(), (popped < pushed).then_some(popped));
            assert_eq!(
                (ring.size().packets, ring.size().bytes),
                (pushed - popped, bytes as u64)
            );
        }
        assert!(popped > 500, "{popped}");
    }

    #[test]
    fn memory_is_that_of_the_most_bytes_in_store() {
        let mut ring = Ring::default();
        let mut out = Vec::new();
        for number in 0..100_000 {
            ring.push(number, &packet(number, 1500));
            if number >= 1000 {
                ring.pop(&mut out);
            }
        }
        let segments = ring.segments.iter().chain(&ring.spare);
        let bytes: usize = segments.map(Vec::capacity).sum();
        assert!(bytes <= 1001 * 1500 + 3 * SEGMENT, "{bytes}");
        while ring.pop(&mut out).is_some() {}
        let kept = (ring.segments.len(), ring.spare.len());
        for number in 0..1000 {
            ring.push(number, &packet(number, 1500));
        }
        assert_eq!(
            ring.segments.len() + ring.spare.len(),
            kept.0 + kept.1,
            "nothing new"
        );
    }
}
