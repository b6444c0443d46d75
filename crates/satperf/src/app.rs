// SPDX-License-Identifier: GPL-3.0-or-later
//! The interface of client and server: stepped by time, without socket, clock or thread.

use std::time::Instant;

use crate::measurement::Measurement;
use crate::stack::{Conn, Stack};
use crate::streams::{Receiving, Sending, SourceState};

/// Codes of `CONNECTION_CLOSE`.
pub mod code {
    /// All went well.
    pub const DONE: u32 = 0;
    /// The user stopped it.
    pub const INTERRUPTED: u32 = 1;
    /// It took too long.
    pub const TIMEOUT: u32 = 2;
    /// The peer broke the rules of satperf/2.
    pub const PROTOCOL: u32 = 3;
    /// Too many connections.
    pub const BUSY: u32 = 4;
}

/// How far a transfer has come at one end.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The connection.
    pub conn: Conn,
    /// When the handshake was complete.
    pub connected: Option<Instant>,
    /// When this end knew what to send, if it is the sender.
    pub requested: Option<Instant>,
    /// When the first payload byte arrived.
    pub first_byte: Option<Instant>,
    /// Payload received in order, bytes.
    pub bytes: u64,
    /// Of them, bytes that were wrong.
    pub differing: u64,
    /// What there is for the stack.
    pub source: SourceState,
}

impl Progress {
    pub(crate) fn new(
        conn: Conn,
        measurement: &Measurement,
        sending: &Sending,
        receiving: &Receiving,
    ) -> Self {
        let requested = measurement.requested;
        Self {
            conn,
            connected: measurement.connected,
            requested,
            first_byte: measurement.first_byte,
            bytes: measurement.bytes,
            differing: receiving.differing,
            source: requested.map_or(SourceState::Done, |_| sending.state()),
        }
    }
}

/// A client or a server.
pub trait App {
    /// Handles events and does what is due.
    fn step(&mut self, now: Instant, stack: &mut dyn Stack);
    /// When the next step is due at the latest.
    fn wake(&self) -> Option<Instant>;
    /// Ends all connections as failed, with this reason.
    fn interrupt(&mut self, now: Instant, stack: &mut dyn Stack, why: &str);
    /// The result, once there is one: `Ok`, or what failed.
    fn outcome(&self) -> Option<Result<(), String>>;
    /// Returns the lines of output since the last call.
    fn lines(&mut self) -> Vec<String>;
}
