// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy that splits QUIC connections, after Kosek et al., "Exploring Proxying QUIC and HTTP/3 for Satellite
//! Communication", IFIP Networking 2022, section II-D.
//!
//! `doorway` and `hello` see what a client wants, `ends` accepts it and dials the next hop, `splice` joins both
//! connections, `relay` each direction of each stream.

use std::io;

use tokio::runtime::{Builder, Runtime};

pub mod doorway;
pub mod ends;
pub mod hello;
pub mod options;
pub mod pair;
pub mod proxy;
pub mod relay;
pub mod report;
pub mod splice;
pub mod sys;
pub mod tickets;
pub mod window;

/// The event loop of a proxy: one thread, whose tasks take turns. A stream is then read before quinn has taken in more than
/// a few dozen further datagrams, however long the host left the process waiting: with more threads, one could pile up
/// more separate spans than quinn allows while the reader's thread is held up (`tests/chain/gaps.rs`).
///
/// # Errors
/// The host has no descriptor left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
