// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of one stream: bytes, FIN, `RESET_STREAM` and `STOP_SENDING` from one connection
//! to the other.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quic::Reassembly;

use super::differences::{self, Receive};
use super::library::{ReadError, RecvStream, SendStream, VarInt, WriteError};
use super::window::Window;

/// Chunks handed over at once.
const BATCH: usize = 64;
/// Chunks shorter than this are copied: each keeps its datagram in memory.
const SHORT_CHUNK_BYTES: usize = 512;

/// End of a direction.
#[derive(Debug)]
pub enum RelayEnd {
    /// FIN was passed on, and the peer has acknowledged everything.
    Finished,
    /// The sender reset the stream, or the receiver stopped it. The other side got the same code.
    Aborted,
    /// A connection is gone. What was read is written. The stream must live until the other
    /// connection is closed: dropping it would finish and stop it as if its peers had.
    Torn(TornStream),
}

/// Both halves of a torn direction.
pub type TornStream = Box<(Receive, SendStream)>;

/// Forwards data from `from` until the end of the stream or of a connection.
///
/// `window` is that of the connection of `from`; `passed` counts the bytes written to `to`.
pub async fn relay(
    from: RecvStream,
    mut to: SendStream,
    window: &Window,
    passed: &AtomicU64,
) -> RelayEnd {
    let mut from = differences::unordered(from);
    let mut buffer = Buffer::new(window);
    // Its own future, as it must go on while `to` is written to.
    let mut stopped = pin!(to.stopped());
    let abort = |from: &mut Receive, to: &mut SendStream, code| {
        // Either may have ended in the meantime, which is as good.
        let _ = from.stop(code);
        let _ = to.reset(code);
        RelayEnd::Aborted
    };
    loop {
        if buffer.is_done() {
            // Fails only after a reset, which `stopped` reports.
            let _ = to.finish();
        }
        tokio::select! {
            biased;
            stop = &mut stopped => return match stop {
                Ok(Some(code)) => abort(&mut from, &mut to, code),
                Ok(None) => RelayEnd::Finished,
                Err(_) => torn(from, to),
            },
            input = input(&mut from, buffer.read_mode()) => match input {
                Input::Chunk(offset, bytes) => buffer.insert(offset, bytes),
                Input::Fin => buffer.ended = Some(SourceEnd::Fin),
                Input::Reset(code) => return abort(&mut from, &mut to, code),
                Input::Lost => buffer.ended = Some(SourceEnd::Lost),
            },
            written = differences::write(&mut to, buffer.batch()), if !buffer.ready.is_empty() => match written {
                Ok((chunks, bytes)) => {
                    passed.fetch_add(bytes as u64, Relaxed);
                    buffer.written(chunks, bytes);
                }
                Err(WriteError::Stopped(code)) => return abort(&mut from, &mut to, code),
                Err(_) => return torn(from, to),
            },
        }
        if buffer.is_torn() {
            return torn(from, to);
        }
    }
}

fn torn(from: Receive, to: SendStream) -> RelayEnd {
    RelayEnd::Torn(Box::new((from, to)))
}

/// What the sending peer did.
enum Input {
    Chunk(u64, Bytes),
    Fin,
    Reset(VarInt),
    Lost,
}

/// What is read from the sending peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    /// The next bytes, in whatever order: the library closes a connection when it has to keep more
    /// than 1,024 separate spans.
    Data,
    /// Only a reset.
    ResetOnly,
    Off,
}

async fn input(from: &mut Receive, read_mode: ReadMode) -> Input {
    match read_mode {
        ReadMode::Data => match differences::read(from).await {
            Ok(Some(chunk)) => Input::Chunk(chunk.offset, chunk.bytes),
            Ok(None) => Input::Fin,
            Err(ReadError::Reset(code)) => Input::Reset(code),
            Err(_) => Input::Lost,
        },
        ReadMode::ResetOnly => match from.received_reset().await {
            Ok(Some(code)) => Input::Reset(code),
            // Data that arrived before the end can still be read.
            Ok(None) | Err(_) => pending().await,
        },
        ReadMode::Off => pending().await,
    }
}

/// How the sending peer ended the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceEnd {
    Fin,
    Lost,
}

/// Bytes between reading and writing.
struct Buffer<'a> {
    window: &'a Window,
    gaps: Reassembly,
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    ended: Option<SourceEnd>,
}

impl<'a> Buffer<'a> {
    fn new(window: &'a Window) -> Self {
        Self {
            window,
            // The connection's window is the limit.
            gaps: Reassembly::new(usize::MAX),
            ready: VecDeque::new(),
            ready_bytes: 0,
            ended: None,
        }
    }

    fn read_mode(&self) -> ReadMode {
        match self.ended {
            Some(_) => ReadMode::Off,
            // While there are gaps, every datagram that closes one would be a separate span in the
            // library's buffer.
            None if self.ready_bytes < self.window.most_ready || !self.gaps.is_empty() => {
                ReadMode::Data
            }
            None => ReadMode::ResetOnly,
        }
    }

    fn insert(&mut self, offset: u64, bytes: Bytes) {
        self.window.hold(bytes.len());
        let bytes = if bytes.len() < SHORT_CHUNK_BYTES {
            Bytes::copy_from_slice(&bytes)
        } else {
            bytes
        };
        // Cannot be overfull: there is no limit.
        let _ = self.gaps.insert(offset, bytes);
        while let Some(bytes) = self.gaps.pop() {
            self.ready_bytes += bytes.len();
            self.ready.push_back(bytes);
        }
    }

    fn batch(&mut self) -> &mut [Bytes] {
        let ready = self.ready.make_contiguous();
        let count = ready.len().min(BATCH);
        &mut ready[..count]
    }

    /// The library took `bytes`, and with them `chunks` whole chunks.
    fn written(&mut self, chunks: usize, bytes: usize) {
        self.ready.drain(..chunks);
        self.ready_bytes -= bytes;
        self.window.release(bytes);
    }

    fn is_done(&self) -> bool {
        self.ended == Some(SourceEnd::Fin) && self.ready.is_empty()
    }

    fn is_torn(&self) -> bool {
        self.ended == Some(SourceEnd::Lost) && self.ready.is_empty()
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        self.window.release(self.ready_bytes + self.gaps.held());
    }
}
