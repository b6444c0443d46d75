// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy that splits QUIC connections, after Kosek et al., "Exploring Proxying QUIC and HTTP/3 for Satellite
//! Communication", IFIP Networking 2022, section II-D.
//!
//! `inspected_socket` and `client_hello` read a client's server name and protocols, `connector` accepts it and dials the next hop,
//! `domains` has which names certificates need, `splice` joins both connections, `relay` each direction of each stream. `memory` has what Careful Resume knows of paths.

use std::io;

use tokio::runtime::{Builder, Runtime};

pub mod client_hello;
pub mod connector;
pub mod domains;
pub mod inspected_socket;
pub mod memory;
pub mod options;
pub mod pair;
pub mod proxy;
pub mod relay;
pub mod report;
pub mod splice;
pub mod sys;
pub mod tickets;
pub mod window;

/// The event loop of a proxy: one thread for all tasks. A stream is then read before quinn has received more than a few
/// dozen further datagrams, however long the host did not schedule the process: with more threads, one could pile up
/// more separate spans than quinn allows while the reader's thread is held up (`tests/chain/gaps.rs`).
///
/// # Errors
/// The host has no descriptor left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
