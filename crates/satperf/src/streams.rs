// SPDX-License-Identifier: GPL-3.0-or-later
//! Payload in unidirectional streams: sending it and checking it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use crate::payload;
use crate::record::Request;
use crate::stack::{Conn, Read, Stack};

/// Largest rate of a source, Mbit/s.
pub const MAX_SOURCE_MBPS: f64 = 100_000.0;

/// A source with a rate generates payload this often.
const SOURCE_TICK: Duration = Duration::from_millis(10);

/// Chunks written before the stack sends: quinn would accept a whole window at once.
const CHUNKS: usize = 16;

/// Share of stream `index` of `streams` in `bytes`: they differ by one byte at most.
fn share(bytes: u64, streams: u64, index: u64) -> u64 {
    bytes / streams + u64::from(index < bytes % streams)
}

/// Whether a source may have this rate, Mbit/s.
#[must_use]
pub fn is_source_rate(mbps: f64) -> bool {
    mbps > 0.0 && mbps <= MAX_SOURCE_MBPS
}

/// What the sending application has for the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// The stack has taken all payload; also when there was none.
    Done,
    /// There is more than the stack takes now.
    Blocked,
    /// The source has not generated more yet.
    Slow,
}

/// A source that generates payload at a constant rate from its first use on.
#[derive(Debug)]
struct Source {
    bytes_per_s: f64,
    started: Option<Instant>,
    /// Ticks since the start.
    ticks: u32,
    /// Payload given to streams so far, bytes.
    used: u64,
}

impl Source {
    /// Returns how much it has generated that no stream has yet, bytes.
    fn available(&mut self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(*self.started.get_or_insert(now));
        self.ticks = (age.as_nanos() / SOURCE_TICK.as_nanos()) as u32;
        let generated = (SOURCE_TICK * self.ticks).as_secs_f64() * self.bytes_per_s;
        (generated as u64).saturating_sub(self.used)
    }
}

#[derive(Debug)]
struct OutgoingStream {
    id: u64,
    offset: u64,
    /// Payload that is not generated yet; `None`: without end.
    left: Option<u64>,
    pending: Bytes,
    finished: bool,
}

/// The sender's side.
#[derive(Debug)]
pub struct Sending {
    /// Streams that are not opened yet, with their payload.
    waiting: Vec<Option<u64>>,
    open: Vec<OutgoingStream>,
    turn: usize,
    /// `None`: all payload is there at once.
    source: Option<Source>,
    is_source_empty: bool,
}

impl Sending {
    /// The payload of a request.
    #[must_use]
    pub fn new(request: &Request) -> Self {
        let streams = u64::from(request.streams);
        let shares = (0..streams)
            .rev()
            .map(|index| request.bytes.map(|bytes| share(bytes, streams, index)));
        Self {
            waiting: shares.collect(),
            source: request.source_mbps.map(|rate| Source {
                bytes_per_s: rate * 1e6 / 8.0,
                started: None,
                ticks: 0,
                used: 0,
            }),
            ..Self::nothing()
        }
    }

    /// No payload: the receiver's.
    #[must_use]
    pub fn nothing() -> Self {
        Self {
            waiting: Vec::new(),
            open: Vec::new(),
            turn: 0,
            source: None,
            is_source_empty: false,
        }
    }

    /// Writes what the stack accepts, some chunks at a time; returns whether it may accept more at
    /// once.
    pub fn push(&mut self, now: Instant, stack: &mut dyn Stack, conn: Conn) -> bool {
        while let Some(&left) = self.waiting.last() {
            let Some(id) = stack.open(conn, false) else {
                break;
            };
            self.waiting.pop();
            self.open.push(OutgoingStream {
                id,
                offset: 0,
                left,
                pending: Bytes::new(),
                finished: false,
            });
        }
        let mut available = (self.source.as_mut()).map_or(u64::MAX, |it| it.available(now));
        let before = available;
        let may_continue = self.write(&mut available, stack, conn);
        if let Some(source) = &mut self.source {
            source.used += before - available;
        }
        self.is_source_empty =
            available == 0 && self.open.iter().all(|stream| stream.pending.is_empty());
        may_continue
    }

    /// Writes to the streams in turns, continuing where it was blocked, so that they grow at the
    /// same pace.
    fn write(&mut self, available: &mut u64, stack: &mut dyn Stack, conn: Conn) -> bool {
        let mut blocked = 0;
        for _ in 0..CHUNKS {
            if blocked == self.open.len() {
                return false;
            }
            self.turn = (self.turn + 1) % self.open.len();
            let index = self.turn;
            let more = self.open[index].write(index as u64, available, stack, conn);
            blocked = if more { 0 } else { blocked + 1 };
        }
        true
    }

    /// What there is for the stack.
    #[must_use]
    pub fn state(&self) -> SourceState {
        if self.waiting.is_empty() && self.open.iter().all(|stream| stream.finished) {
            SourceState::Done
        } else if self.is_source_empty {
            SourceState::Slow
        } else {
            SourceState::Blocked
        }
    }

    /// When a source with a rate has more, if the stack has taken all that it generated so far.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let source = self.source.as_ref()?;
        (source.started)
            .filter(|_| self.state() == SourceState::Slow)
            .map(|started| started + SOURCE_TICK * (source.ticks + 1))
    }

    /// Resets unfinished streams.
    pub fn stop(&mut self, stack: &mut dyn Stack, conn: Conn) {
        for stream in self.open.iter().filter(|stream| !stream.finished) {
            stack.reset(conn, stream.id);
        }
        self.waiting.clear();
        self.open.clear();
    }
}

impl OutgoingStream {
    /// Writes one chunk; returns whether there may be room for another.
    fn write(
        &mut self,
        index: u64,
        available: &mut u64,
        stack: &mut dyn Stack,
        conn: Conn,
    ) -> bool {
        if self.finished {
            return false;
        }
        if self.pending.is_empty() {
            let most = self.left.unwrap_or(u64::MAX).min(*available);
            let len = usize::try_from(most).map_or(payload::MOST, |most| most.min(payload::MOST));
            if len == 0 && self.left != Some(0) {
                return false;
            }
            self.pending = payload::slice(index, self.offset, len);
            self.offset += len as u64;
            *available -= len as u64;
            self.left = self.left.map(|left| left - len as u64);
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
#[derive(Debug, Default)]
pub struct Receiving {
    /// What came of each stream that has not ended, bytes.
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
        if end != Read::Open {
            self.streams.remove(&stream);
        }
    }

    /// What is wrong with the payload of a request, if anything.
    #[must_use]
    pub fn fault(&self, request: &Request) -> Option<String> {
        let (bytes, differing) = (self.bytes, self.differing);
        let is_whole = request.bytes.is_none_or(|due| due == bytes);
        (!is_whole || differing > 0).then(|| {
            format!("payload is not the one due: {bytes} bytes came, {differing} of them wrong")
        })
    }

    /// All streams ended.
    #[must_use]
    pub fn is_done(&self, streams: u32) -> bool {
        self.finished == streams
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        let shares: Vec<_> = (0..3).map(|index| share(100_000, 3, index)).collect();
        assert_eq!(shares, [33_334, 33_333, 33_333]);
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
