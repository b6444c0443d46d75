// SPDX-License-Identifier: GPL-3.0-or-later
//! Code shared by the QUIC tools: the options of one leg and quinn's configuration from them,
//! certificates, reassembly, qlog, what is known of paths.
//!
//! A leg is one QUIC connection of a chain client - Proxy-ST - Proxy-GW - server. Nothing here owns
//! a socket, a clock or a thread; only functions that take a path touch files.

mod known_paths;
#[cfg(feature = "noq")]
pub mod noq;
mod options;
mod qlog;
mod reassembly;
mod slow_start_search;
mod state_file;
mod tls;
mod transport;
mod watch;

pub use known_paths::{KnownPaths, Resumed};
pub use options::{
    CarefulResume, CongestionControl, Fault, Faults, INITIAL_DATAGRAM, LegOptions, SlowStart,
};
pub use qlog::{QlogFile, QlogHealth};
pub use reassembly::{Reassembly, ReassemblyLimit};
pub use state_file::StateFile;
pub use tls::{TlsError, client_crypto, client_tls, server_crypto, server_tls, server_verifier};
pub use transport::{observed, transport};
pub use watch::{Acknowledged, SenderState, sender_state};
