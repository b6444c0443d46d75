// SPDX-License-Identifier: GPL-3.0-or-later
//! Payload in unidirectional streams: sending it and checking it.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::payload;
use crate::stack::{Conn, Read, Stack};

/// Payload made at once.
const CHUNK: usize = 64 << 10;

/// Chunks given to the stack before it gets to send: quinn would take a whole window at once.
const CHUNKS: usize = 16;

/// Share of stream `index` of `streams` in `bytes`: they differ by one byte at most.
fn share(bytes: u64, streams: u64, index: u64) -> u64 {
    bytes / streams + u64::from(index < bytes % streams)
}

struct Outgoing {
    id: u64,
    offset: u64,
    /// Payload that is not made yet; `None`: without end.
    left: Option<u64>,
    pending: Bytes,
    finished: bool,
}

/// The sender's side.
pub struct Sending {
    /// Streams that are not opened yet, with their payload.
    waiting: Vec<Option<u64>>,
    open: Vec<Outgoing>,
    turn: usize,
}

impl Sending {
    /// `bytes` (without end if `None`) on `streams` streams.
    pub fn new(bytes: Option<u64>, streams: u32) -> Self {
        let streams = u64::from(streams);
        let shares = (0..streams)
            .rev()
            .map(|index| bytes.map(|bytes| share(bytes, streams, index)));
        Self {
            waiting: shares.collect(),
            open: Vec::new(),
            turn: 0,
        }
    }

    /// Gives the stack what it takes, some chunks at a time; tells whether it may take more at once.
    pub fn push(&mut self, stack: &mut dyn Stack, conn: Conn) -> bool {
        while let Some(&left) = self.waiting.last() {
            let Some(id) = stack.open(conn, false) else {
                break;
            };
            self.waiting.pop();
            self.open.push(Outgoing {
                id,
                offset: 0,
                left,
                pending: Bytes::new(),
                finished: false,
            });
        }
        // In turns, and going on where it was blocked, so that streams grow at the same pace.
        let mut blocked = 0;
        for _ in 0..CHUNKS {
            if blocked == self.open.len() {
                return false;
            }
            self.turn = (self.turn + 1) % self.open.len();
            let index = self.turn;
            let more = self.open[index].step(index as u64, stack, conn);
            blocked = if more { 0 } else { blocked + 1 };
        }
        true
    }

    /// The stack has taken all; also when there was nothing.
    pub fn is_handed(&self) -> bool {
        self.waiting.is_empty() && self.open.iter().all(|stream| stream.finished)
    }

    /// Gives up what is unsent.
    pub fn stop(&mut self, stack: &mut dyn Stack, conn: Conn) {
        for stream in self.open.iter().filter(|stream| !stream.finished) {
            stack.reset(conn, stream.id);
        }
        self.waiting.clear();
        self.open.clear();
    }
}

impl Outgoing {
    /// Writes one chunk; tells whether there may be room for another.
    fn step(&mut self, index: u64, stack: &mut dyn Stack, conn: Conn) -> bool {
        if self.finished {
            return false;
        }
        if self.pending.is_empty() {
            let len = self.left.map_or(CHUNK, |left| {
                CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))
            });
            let mut chunk = vec![0; len];
            payload::fill(index, self.offset, &mut chunk);
            self.offset += len as u64;
            self.left = self.left.map(|left| left - len as u64);
            self.pending = chunk.into();
        }
        stack.write(conn, self.id, &mut self.pending);
        if self.pending.is_empty() && self.left == Some(0) {
            stack.finish(conn, self.id);
            self.finished = true;
        }
        self.pending.is_empty()
    }
}

/// The receiver's side.
#[derive(Default)]
pub struct Receiving {
    streams: BTreeMap<u64, u64>,
    finished: u32,
    /// Payload in order, bytes.
    pub bytes: u64,
    /// Bytes that were not those due.
    pub differing: u64,
}

impl Receiving {
    /// Reads and checks what is there of one stream.
    pub fn pull(&mut self, stack: &mut dyn Stack, conn: Conn, stream: u64) {
        let offset = self.streams.entry(stream).or_default();
        let (begin, differing) = (*offset, &mut self.differing);
        // Stream numbers count in steps of four (RFC 9000 section 2.1).
        let index = stream >> 2;
        let end = stack.read(conn, stream, &mut |data| {
            *differing += payload::differing(index, *offset, data);
            *offset += data.len() as u64;
        });
        self.bytes += *offset - begin;
        self.finished += u32::from(end == Read::Finished);
    }

    /// All streams ended.
    pub fn is_done(&self, streams: u32) -> bool {
        self.finished == streams
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        for (bytes, streams) in [(0, 1), (10, 3), (100_000_000, 7), (2, 5)] {
            assert_eq!(
                (0..streams)
                    .map(|index| share(bytes, streams, index))
                    .sum::<u64>(),
                bytes
            );
        }
    }
}
