// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy that splits QUIC connections, after Kosek et al., "Exploring Proxying QUIC and HTTP/3
//! for Satellite Communication", IFIP Networking 2022, section II-D.
//!
//! `client_hello_inbox` and `client_hello` read a client's server name and protocols. `stack`
//! carries the connection on quinn or noq. `subdomain_verifier` knows the names that certificates
//! need, and `memory` what Careful Resume has learned about paths.
#![cfg_attr(
    feature = "noq",
    allow(clippy::duplicate_mod, reason = "one source for quinn and noq")
)]

use std::io;

use tokio::runtime::{Builder, Runtime};

pub mod client_hello;
pub mod client_hello_inbox;
pub mod memory;
pub mod options;
pub mod proxy;
pub mod report;
pub mod stack;
pub mod start_error;
pub mod subdomain_verifier;
pub mod sys;
pub mod tickets;

/// The event loop of a proxy: one thread for all tasks. A stream is then read before quinn has
/// received more than a few dozen further datagrams, however long the host did not schedule the
/// process: with more threads, one could pile up more separate spans than quinn allows while the
/// reader's thread is held up (`tests/chain/gaps.rs`).
///
/// # Errors
/// The host has no descriptor left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
