// SPDX-License-Identifier: GPL-3.0-or-later
//! What drives a stack: client or server, stepped by time, without socket, clock or thread.

use std::time::Instant;

use crate::stack::Stack;

/// Codes of `CONNECTION_CLOSE`.
pub mod code {
    /// All went well.
    pub const DONE: u32 = 0;
    /// The user stopped it.
    pub const INTERRUPTED: u32 = 1;
    /// It took too long.
    pub const TIMEOUT: u32 = 2;
    /// The peer broke the rules of satperf/1.
    pub const PROTOCOL: u32 = 3;
    /// Too many connections.
    pub const BUSY: u32 = 4;
}

/// A client or a server.
pub trait App {
    /// Looks at what is new and does what is due.
    fn step(&mut self, now: Instant, stack: &mut dyn Stack);
    /// When the next step is due at the latest.
    fn wake(&self) -> Option<Instant>;
    /// Ends everything, as failed, for the reason given.
    fn interrupt(&mut self, now: Instant, stack: &mut dyn Stack, why: &str);
    /// The end: `Ok`, or what failed.
    fn outcome(&self) -> Option<Result<(), String>>;
    /// Takes the lines since the last call.
    fn lines(&mut self) -> Vec<String>;
}
