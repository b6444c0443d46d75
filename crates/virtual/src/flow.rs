// SPDX-License-Identifier: GPL-3.0-or-later
//! What one end does on the streams of a connection: send requests and payload, count what arrives.

use std::collections::BTreeMap;

use bytes::Bytes;
use quinn_proto::{Connection, Dir, StreamId};

/// Content of the payload; its length is the piece handed to the stack at once.
static CONTENT: [u8; 65_536] = [0x5a; 65_536];
/// Bytes of a request: it tells nothing that the other end does not know, as both follow the same transfer.
pub const REQUEST_BYTES: u64 = 16;

/// Streams of one end.
#[derive(Debug, Default)]
pub struct Flow {
    /// Bytes still to be handed to the stack, by stream.
    unsent: BTreeMap<StreamId, u64>,
    /// Bytes that arrived, all streams together.
    pub received: u64,
    /// Streams that the peer opened, in order.
    pub accepted: Vec<StreamId>,
}

impl Flow {
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
    pub fn pump(&mut self, connection: &mut Connection) {
        self.unsent.retain(|id, left| {
            let mut stream = connection.send_stream(*id);
            while *left > 0 {
                let size =
                    usize::try_from(*left).map_or(CONTENT.len(), |left| left.min(CONTENT.len()));
                match stream.write_chunks(&mut [Bytes::from_static(&CONTENT[..size])]) {
                    Ok(written) => *left -= written.bytes as u64,
                    Err(quinn_proto::WriteError::Blocked) => return true,
                    Err(_) => return false,
                }
            }
            let _ = stream.finish();
            false
        });
    }

    /// Accepts the streams that the peer opened.
    pub fn accept(&mut self, connection: &mut Connection) {
        while let Some(id) = connection.streams().accept(Dir::Bi) {
            self.accepted.push(id);
        }
    }

    /// Counts what can be read. Unordered: quinn closes a connection with many gaps in an ordered stream.
    pub fn read(&mut self, connection: &mut Connection, stream: StreamId) {
        let mut receive = connection.recv_stream(stream);
        let Ok(mut chunks) = receive.read(false) else {
            return;
        };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            self.received += chunk.bytes.len() as u64;
        }
        let _ = chunks.finalize();
    }
}
