// SPDX-License-Identifier: GPL-3.0-or-later
//! What one end does on the streams of a connection: send requests and payload, count what arrives.

use std::collections::BTreeMap;

use bytes::Bytes;
use link::Nanos;
use quic::{Overfull, Reassembly};
use quinn_proto::{Connection, Dir, StreamId};
use serde::Serialize;

/// Content of the payload; its length is the piece handed to the stack at once.
static CONTENT: [u8; 65_536] = [0x5a; 65_536];
/// Bytes of a request: it tells nothing that the other end does not know, as both follow the same transfer.
pub const REQUEST_BYTES: u64 = 16;

/// Time between two helpings of a source with a rate.
const HELPING: Nanos = 10_000_000;

/// What the application has for the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Supply {
    /// The stack has all that there will be.
    Done,
    /// More than the stack takes now.
    Blocked,
    /// Nothing at the moment.
    Slow,
}

/// How an application is.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// How fast it makes what it sends, bytes per ns; `None`: it is there at once.
    pub rate: Option<f64>,
    /// Receive window of its streams, bytes.
    pub stream_window: u64,
}

/// Streams of one end.
#[derive(Debug)]
pub struct Flow {
    habits: Habits,
    /// When it began to, and what the stack has of it, bytes.
    made: Option<(Nanos, u64)>,
    /// Nothing that is made waits for the stack.
    is_slow: bool,
    /// Bytes still to be handed to the stack, by stream.
    unsent: BTreeMap<StreamId, u64>,
    /// What arrived, by stream.
    arriving: BTreeMap<StreamId, Reassembly>,
    /// Bytes that arrived in order, all streams together.
    pub received: u64,
    /// Streams that the peer opened, in order.
    pub accepted: Vec<StreamId>,
}

impl Flow {
    /// Nothing yet.
    #[must_use]
    pub fn new(habits: Habits) -> Self {
        Self {
            habits,
            made: None,
            is_slow: false,
            unsent: BTreeMap::new(),
            arriving: BTreeMap::new(),
            received: 0,
            accepted: Vec::new(),
        }
    }

    /// Opens a bidirectional stream for every part and sends it; `false` when the peer does not allow as many.
    pub fn open(&mut self, connection: &mut Connection, parts: &[u64]) -> bool {
        parts.iter().all(|part| {
            let stream = connection.streams().open(Dir::Bi);
            stream.map(|id| self.unsent.insert(id, *part)).is_some()
        })
    }

    /// Sends `part` bytes on a stream that the peer opened.
    pub fn answer(&mut self, stream: StreamId, part: u64) {
        self.unsent.insert(stream, part);
    }

    /// Hands over what the stack takes, and ends streams that are complete. A stream that the peer refuses is dropped:
    /// the transfer then runs into its timeout.
    pub fn pump(&mut self, connection: &mut Connection, now: Nanos) {
        if self.unsent.is_empty() {
            return;
        }
        let (began, handed) = self.made.get_or_insert((now, 0));
        let made = self.habits.rate.map_or(u64::MAX, |rate| {
            ((now - now % HELPING).saturating_sub(*began) as f64 * rate) as u64
        });
        self.unsent.retain(|id, left| {
            let mut stream = connection.send_stream(*id);
            while *left > 0 && *handed < made {
                let most = (made - *handed).min(*left);
                let size = usize::try_from(most).map_or(CONTENT.len(), |it| it.min(CONTENT.len()));
                match stream.write_chunks(&mut [Bytes::from_static(&CONTENT[..size])]) {
                    Ok(written) => {
                        *left -= written.bytes as u64;
                        *handed += written.bytes as u64;
                    }
                    Err(quinn_proto::WriteError::Blocked) => return true,
                    Err(_) => return false,
                }
            }
            if *left == 0 {
                let _ = stream.finish();
            }
            *left > 0
        });
        self.is_slow = *handed >= made;
    }

    /// What there is for the stack.
    #[must_use]
    pub fn supply(&self) -> Supply {
        match (self.unsent.is_empty(), self.is_slow) {
            (true, _) => Supply::Done,
            (false, true) => Supply::Slow,
            (false, false) => Supply::Blocked,
        }
    }

    /// When there is more to hand over.
    #[must_use]
    pub fn due(&self, now: Nanos) -> Option<Nanos> {
        (self.supply() == Supply::Slow).then(|| (now / HELPING + 1) * HELPING)
    }

    /// Accepts the streams that the peer opened.
    pub fn accept(&mut self, connection: &mut Connection) {
        while let Some(id) = connection.streams().accept(Dir::Bi) {
            self.accepted.push(id);
        }
    }

    /// Counts what can be read in order. quinn closes a connection with many gaps in an ordered stream, so the order is
    /// made here, as satperf does.
    ///
    /// # Errors
    /// More waits behind a gap than satperf would hold.
    pub fn read(&mut self, connection: &mut Connection, stream: StreamId) -> Result<(), Overfull> {
        let mut receive = connection.recv_stream(stream);
        let Ok(mut chunks) = receive.read(false) else {
            return Ok(());
        };
        let window = self.habits.stream_window;
        let order = self
            .arriving
            .entry(stream)
            .or_insert_with(|| Reassembly::behind(window));
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            order.insert(chunk.offset, chunk.bytes)?;
            while let Some(bytes) = order.pop() {
                self.received += bytes.len() as u64;
            }
        }
        let _ = chunks.finalize();
        Ok(())
    }
}
