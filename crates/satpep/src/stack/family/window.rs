// SPDX-License-Identifier: GPL-3.0-or-later
//! Flow control of a connection whose streams are read out of order.
//!
//! The library returns credit for data that was read, though it may wait here behind a gap, or for
//! the next hop. The connection's window is made smaller by what waits, so that the peer never has
//! more under way than it was granted: the memory of a connection is bounded whatever its peers do,
//! and a gap costs no more than with ordered reads.

use std::sync::{Mutex, PoisonError};

use quic::LegOptions;

use super::differences;
use super::library::{Connection, VarInt};

/// Receive window of one connection, without the bytes that were read and not yet passed on.
#[derive(Debug)]
pub struct Window {
    connection: Connection,
    full: u64,
    /// Bytes of a stream without gaps that wait for the next hop before its reading pauses. Behind
    /// them the peer's stream window fills, and then the peer is blocked.
    pub most_ready: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: u64,
    /// The value that the library's window takes into account.
    applied: u64,
}

impl Window {
    /// Opens the receive window of `connection` to that of `options`.
    #[must_use]
    pub fn new(connection: Connection, options: &LegOptions) -> Self {
        let full = options.receive_window;
        connection.set_receive_window(VarInt::from_u64(full).unwrap_or(VarInt::MAX));
        Self {
            connection,
            full,
            most_ready: differences::most_ready(options.stream_receive_window),
            waiting: Mutex::default(),
        }
    }

    /// `bytes` were read and wait.
    pub fn hold(&self, bytes: usize) {
        self.change(|waiting| waiting.saturating_add(bytes as u64));
    }

    /// `bytes` wait no longer.
    pub fn release(&self, bytes: usize) {
        self.change(|waiting| waiting.saturating_sub(bytes as u64));
    }

    fn change(&self, by: impl Fn(u64) -> u64) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.bytes = by(waiting.bytes);
        // In steps of a sixteenth: each change takes the connection's lock, and may send a frame.
        if waiting.bytes.abs_diff(waiting.applied) >= self.full / 16 {
            waiting.applied = waiting.bytes;
            let left = self.full.saturating_sub(waiting.bytes);
            self.connection
                .set_receive_window(VarInt::from_u64(left).unwrap_or(VarInt::MAX));
        }
    }
}
