// SPDX-License-Identifier: GPL-3.0-or-later
//! Bytes of one stream back in order, without a limit on gaps.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes};

/// Bytes of one stream that may wait behind a gap, as a multiple of the stream's window.
const WINDOWS_HELD: u64 = 4;

/// Puts the chunks of one stream in order, to be fed from unordered reads (`read_chunk(_, false)`
/// of quinn, `read(false)` of quinn-proto). quinn returns flow-control credit with each read, so
/// `limit` bounds the memory instead.
#[derive(Debug)]
pub struct Reassembly {
    next: u64,
    held: usize,
    limit: usize,
    /// Chunks beyond `next`, by their offset. quinn returns no byte twice; overlaps are removed
    /// nevertheless.
    chunks: BTreeMap<u64, Bytes>,
}

/// A gap stayed open while more than the limit arrived behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{held} bytes wait behind a gap at offset {offset}, more than the limit of {limit}")]
pub struct ReassemblyLimit {
    /// Bytes held.
    pub held: usize,
    /// First byte that is missing.
    pub offset: u64,
    /// Most bytes that may be held.
    pub limit: usize,
}

impl Reassembly {
    /// An empty stream that holds at most `limit` bytes out of order.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            next: 0,
            held: 0,
            limit,
            chunks: BTreeMap::new(),
        }
    }

    /// An empty stream of a connection with this stream receive window, bytes. Several windows may
    /// wait: during a retransmission, perhaps a repeated one, quinn grants credit for what was read
    /// behind the gap.
    #[must_use]
    pub fn behind(window: u64) -> Self {
        Self::new(usize::try_from(window.saturating_mul(WINDOWS_HELD)).unwrap_or(usize::MAX))
    }

    /// Takes one chunk. A chunk that is already known is ignored.
    ///
    /// # Errors
    /// More bytes than the limit wait behind a gap.
    pub fn insert(&mut self, mut offset: u64, mut bytes: Bytes) -> Result<(), ReassemblyLimit> {
        let known = self.covered_until(offset).saturating_sub(offset);
        let cut = bytes
            .len()
            .min(usize::try_from(known).unwrap_or(usize::MAX));
        bytes.advance(cut);
        offset += cut as u64;
        while !bytes.is_empty() {
            let following = self
                .chunks
                .range(offset..)
                .next()
                .map(|(start, chunk)| (*start, chunk.len()));
            let (start, len) = following.unwrap_or((u64::MAX, 0));
            let free = bytes
                .len()
                .min(usize::try_from(start - offset).unwrap_or(usize::MAX));
            if free > 0 {
                self.held += free;
                self.chunks.insert(offset, bytes.split_to(free));
            }
            bytes.advance(bytes.len().min(len));
            offset = start.saturating_add(len as u64);
        }
        if self.held > self.limit && !self.ready() {
            return Err(ReassemblyLimit {
                held: self.held,
                offset: self.next,
                limit: self.limit,
            });
        }
        Ok(())
    }

    /// Returns the next bytes in order, if they have arrived.
    pub fn pop(&mut self) -> Option<Bytes> {
        let entry = self
            .chunks
            .first_entry()
            .filter(|entry| *entry.key() == self.next)?;
        let bytes = entry.remove();
        self.next += bytes.len() as u64;
        self.held -= bytes.len();
        Some(bytes)
    }

    /// Bytes returned in order so far.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.next
    }

    /// Nothing waits behind a gap or to be popped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that wait, behind a gap or to be popped.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    fn ready(&self) -> bool {
        self.chunks
            .first_key_value()
            .is_some_and(|(start, _)| *start == self.next)
    }

    /// End of what is known without a gap from `offset` on, at least the end of what was popped.
    fn covered_until(&self, offset: u64) -> u64 {
        let before = self.chunks.range(..=offset).next_back();
        before
            .map_or(0, |(start, chunk)| start + chunk.len() as u64)
            .max(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(stream: &mut Reassembly) -> Vec<u8> {
        std::iter::from_fn(|| stream.pop()).flatten().collect()
    }

    #[test]
    fn fifty_thousand_gaps_close() {
        let mut stream = Reassembly::new(1 << 20);
        for parity in [1, 0] {
            for index in (0..100_000u64).filter(|index| index % 2 == parity) {
                stream
                    .insert(index, Bytes::copy_from_slice(&[index as u8]))
                    .unwrap();
            }
        }
        let all = drain(&mut stream);
        assert!(
            all.iter()
                .enumerate()
                .all(|(index, byte)| *byte == index as u8)
        );
        assert_eq!(
            (all.len(), stream.offset(), stream.is_empty()),
            (100_000, 100_000, true)
        );
    }

    #[test]
    fn a_gap_may_hold_up_only_so_much() {
        let mut stream = Reassembly::new(10);
        stream.insert(5, Bytes::from_static(&[0; 10])).unwrap();
        let error = stream.insert(20, Bytes::from_static(&[0])).unwrap_err();
        assert_eq!(
            error,
            ReassemblyLimit {
                held: 11,
                offset: 0,
                limit: 10
            }
        );
    }

    proptest! {
        /// With any cuts, overlaps, repetitions and order, each byte comes out once and in order.
        #[test]
        fn any_chunks_yield_the_stream(
            data in prop::collection::vec(any::<u8>(), 1..300),
            cuts in prop::collection::vec((0usize..300, 1usize..40), 0..60),
        ) {
            let mut stream = Reassembly::new(1000);
            let source = Bytes::from(data.clone());
            let mut out = Vec::new();
            let tail = (0..data.len()).step_by(37).rev().map(|start| (start, 37));
            for (start, len) in cuts.into_iter().filter(|cut| cut.0 < data.len()).chain(tail) {
                let end = (start + len).min(data.len());
                stream.insert(start as u64, source.slice(start..end)).unwrap();
                out.extend(drain(&mut stream));
            }
            prop_assert_eq!(out, data);
            prop_assert!(stream.is_empty());
            prop_assert_eq!(stream.held, 0);
        }
    }
}
