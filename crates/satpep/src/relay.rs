// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of one stream: bytes, FIN, `RESET_STREAM` and `STOP_SENDING` from one connection to the other.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use quic::Reassembly;
use quinn::{ReadError, RecvStream, SendStream, VarInt, WriteError};

use crate::window::Window;

/// Bytes of a stream without gaps that wait for the next hop before reading pauses. Behind them the peer's stream window
/// fills, and then the peer is blocked.
const MOST_READY_BYTES: usize = 256 * 1024;
/// Chunks handed to quinn at once.
const BATCH: usize = 64;
/// Chunks shorter than this are copied: each keeps the datagram it came in alive.
const SHORT_CHUNK_BYTES: usize = 512;

/// How a direction ended.
#[derive(Debug)]
pub enum End {
    /// FIN was passed on, and the peer has acknowledged everything.
    Finished,
    /// Reset by the sender, or stopped by the receiver; the other side was told the same code.
    Aborted,
    /// A connection is gone. What was read is written. The ends must live until the other connection is closed:
    /// dropping them would finish and stop the stream as if its peers had.
    Torn(TornEnds),
}

/// Both ends of a torn direction.
pub type TornEnds = Box<(RecvStream, SendStream)>;

/// Passes on what comes from `from` until the end of the stream or of a connection.
///
/// `window` is that of the connection of `from`; `passed` counts the bytes written to `to`.
pub async fn relay(
    mut from: RecvStream,
    mut to: SendStream,
    window: &Window,
    passed: &AtomicU64,
) -> End {
    let mut flow = Flow::new(window);
    // Its own future, as it must go on while `to` is written to.
    let mut stopped = pin!(to.stopped());
    let abort = |from: &mut RecvStream, to: &mut SendStream, code| {
        // Either may have ended in the meantime, which is as good.
        let _ = from.stop(code);
        let _ = to.reset(code);
        End::Aborted
    };
    loop {
        if flow.is_done() {
            // Fails only after a reset, of which `stopped` tells.
            let _ = to.finish();
        }
        tokio::select! {
            biased;
            stop = &mut stopped => return match stop {
                Ok(Some(code)) => abort(&mut from, &mut to, code),
                Ok(None) => End::Finished,
                Err(_) => torn(from, to),
            },
            input = input(&mut from, flow.wants()) => match input {
                Input::Chunk(offset, bytes) => flow.take_in(offset, bytes),
                Input::Fin => flow.ended = Some(Source::Fin),
                Input::Reset(code) => return abort(&mut from, &mut to, code),
                Input::Lost => flow.ended = Some(Source::Lost),
            },
            written = to.write_chunks(flow.batch()), if !flow.ready.is_empty() => match written {
                Ok(written) => {
                    passed.fetch_add(written.bytes as u64, Relaxed);
                    flow.passed_on(written.chunks, written.bytes);
                }
                Err(WriteError::Stopped(code)) => return abort(&mut from, &mut to, code),
                Err(_) => return torn(from, to),
            },
        }
        if flow.is_torn() {
            return torn(from, to);
        }
    }
}

fn torn(from: RecvStream, to: SendStream) -> End {
    End::Torn(Box::new((from, to)))
}

/// What the sending peer did.
enum Input {
    Chunk(u64, Bytes),
    Fin,
    Reset(VarInt),
    Lost,
}

/// What is wanted of the sending peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// The next bytes, in whatever order: quinn closes a connection when it has to keep more than 1,024 separate spans.
    Data,
    /// Only to know of a reset.
    Pause,
    Nothing,
}

async fn input(from: &mut RecvStream, wants: Wants) -> Input {
    match wants {
        Wants::Data => match from.read_chunk(usize::MAX, false).await {
            Ok(Some(chunk)) => Input::Chunk(chunk.offset, chunk.bytes),
            Ok(None) => Input::Fin,
            Err(ReadError::Reset(code)) => Input::Reset(code),
            Err(_) => Input::Lost,
        },
        Wants::Pause => match from.received_reset().await {
            Ok(Some(code)) => Input::Reset(code),
            // Data that came before the end is still there to be read.
            Ok(None) | Err(_) => pending().await,
        },
        Wants::Nothing => pending().await,
    }
}

/// No more comes from the sending peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Fin,
    Lost,
}

/// Bytes between reading and writing.
struct Flow<'a> {
    window: &'a Window,
    gaps: Reassembly,
    ready: VecDeque<Bytes>,
    ready_bytes: usize,
    ended: Option<Source>,
}

impl<'a> Flow<'a> {
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

    fn wants(&self) -> Wants {
        match self.ended {
            Some(_) => Wants::Nothing,
            // While there are gaps, every datagram that closes one would be a separate span in quinn's buffer.
            None if self.ready_bytes < MOST_READY_BYTES || !self.gaps.is_empty() => Wants::Data,
            None => Wants::Pause,
        }
    }

    fn take_in(&mut self, offset: u64, bytes: Bytes) {
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

    /// quinn took `bytes`, and with them `chunks` whole chunks.
    fn passed_on(&mut self, chunks: usize, bytes: usize) {
        self.ready.drain(..chunks);
        self.ready_bytes -= bytes;
        self.window.release(bytes);
    }

    fn is_done(&self) -> bool {
        self.ended == Some(Source::Fin) && self.ready.is_empty()
    }

    fn is_torn(&self) -> bool {
        self.ended == Some(Source::Lost) && self.ready.is_empty()
    }
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        self.window.release(self.ready_bytes + self.gaps.held());
    }
}
