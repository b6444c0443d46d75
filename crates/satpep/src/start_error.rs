// SPDX-License-Identifier: GPL-3.0-or-later
//! Why a proxy does not start, with either library.

use std::io;
use std::net::SocketAddr;

use quic::TlsError;

use crate::memory::MemoryError;

/// Reason why the proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Certificates or keys.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The state file of Careful Resume.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// An address cannot be listened on.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The host's error.
        error: io::Error,
    },
    /// The folder for qlog files cannot be made.
    #[error("{folder}: {error}")]
    Qlog {
        /// The folder.
        folder: String,
        /// The host's error.
        error: io::Error,
    },
}
