// SPDX-License-Identifier: GPL-3.0-or-later
//! The QUIC application of `satperf`: a client and a server that transfer payload and measure, over
//! one of three QUIC libraries. Packets and time are inputs; the program (`main.rs`) or a
//! simulation (`crates/virtual`) has the sockets and the clock.
#![cfg_attr(
    feature = "noq",
    allow(clippy::duplicate_mod, reason = "one source for quinn and noq")
)]

pub mod app;
pub mod client;
pub mod connection_log;
mod measurement;
mod payload;
pub mod record;
pub mod server;
pub mod stack;
pub mod streams;
