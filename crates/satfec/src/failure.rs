// SPDX-License-Identifier: GPL-3.0-or-later
//! Failures of a tunnel.

use std::io;

use thiserror::Error;

use crate::hello;

/// Reason why a tunnel does not start, or ends.
#[derive(Debug, Error)]
pub enum RunError {
    /// The host refuses something.
    #[error("{what}: {error}")]
    Host {
        /// What it was.
        what: String,
        /// The host's error.
        error: io::Error,
    },
    /// The path takes shorter datagrams than the tunnel's.
    #[error("the path takes {path} bytes, and packets of {mtu} bytes need {need}")]
    PathMtu {
        /// Path MTU.
        path: u16,
        /// MTU of the tunnel.
        mtu: u16,
        /// What the path would have to take.
        need: u16,
    },
    /// The peer does not answer, or not any more.
    #[error("{peer} was silent for {seconds} s")]
    Silent {
        /// Address of the peer.
        peer: String,
        /// Duration of the silence, s.
        seconds: u64,
    },
    /// The ends speak different versions of the tunnel's frames.
    #[error("the other end speaks version {theirs} of the tunnel, this one version {own}", own = hello::VERSION)]
    OtherVersion {
        /// The peer's.
        theirs: u8,
    },
    /// Both ends cannot have a QUIC connection.
    #[error("no QUIC connection with {peer}: {why}")]
    Refused {
        /// Address of the peer.
        peer: String,
        /// Why the peer was refused.
        why: String,
    },
    /// The ends have different MTUs.
    #[error("the other end has an MTU of {theirs} bytes, this one of {own}")]
    OtherMtu {
        /// The peer's.
        theirs: u16,
        /// Our own.
        own: u16,
    },
}

pub(crate) fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    let what = what.into();
    move |error| RunError::Host { what, error }
}
