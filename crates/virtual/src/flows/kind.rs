// SPDX-License-Identifier: GPL-3.0-or-later
//! What a flow runs over, and on what clock.

use clap::ValueEnum;
use quic::CongestionControl;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stacks::Library;

/// What a flow runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// quinn-proto.
    Quinn,
    /// noq-proto.
    Noq,
    /// Datagrams at a constant rate.
    Udp,
    /// quiche; on the real clock alone, as all below.
    Quiche,
    /// The programs of ngtcp2.
    Ngtcp2,
    /// The program of picoquic, which sends from a server to a client alone.
    Picoquic,
    /// TCP of the kernel.
    Tcp,
}

/// What time is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// Simulated
    Virtual,
    /// Of the host
    Real,
}

impl Kind {
    /// The QUIC library, if it is one that takes the time as an argument.
    #[must_use]
    pub fn library(self) -> Option<Library> {
        match self {
            Self::Quinn => Some(Library::Quinn),
            Self::Noq => Some(Library::Noq),
            Self::Udp | Self::Quiche | Self::Ngtcp2 | Self::Picoquic | Self::Tcp => None,
        }
    }

    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quinn => "quinn",
            Self::Noq => "noq",
            Self::Udp => "udp",
            Self::Quiche => "quiche",
            Self::Ngtcp2 => "ngtcp2",
            Self::Picoquic => "picoquic",
            Self::Tcp => "tcp",
        }
    }

    /// What a program that is not a library here offers.
    pub(super) fn controls(self) -> &'static [Control] {
        match self {
            Self::Ngtcp2 => &[Control::Reno, Control::Cubic, Control::Bbr, Control::Bbr2],
            Self::Picoquic => &[Control::Reno, Control::Cubic, Control::Bbr, Control::Bbr3],
            _ => &[Control::Reno, Control::Cubic, Control::Bbr],
        }
    }
}

/// A congestion control, by the name that the stack has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// `NewReno`.
    Reno,
    /// CUBIC.
    Cubic,
    /// BBR: version 1 of ngtcp2 0.12.1, of picoquic and of the kernel, version 2 of quiche.
    Bbr,
    /// `BBRv2` of ngtcp2 0.12.1.
    Bbr2,
    /// `BBRv3`; of the programs picoquic's alone.
    Bbr3,
}

impl Control {
    /// As the libraries know it; `None`: none of them has it.
    #[must_use]
    pub fn of_library(self) -> Option<CongestionControl> {
        match self {
            Self::Reno => Some(CongestionControl::Reno),
            Self::Cubic => Some(CongestionControl::Cubic),
            Self::Bbr => Some(CongestionControl::Bbr),
            Self::Bbr3 => Some(CongestionControl::Bbr3),
            Self::Bbr2 => None,
        }
    }

    /// The name in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.of_library().map_or("bbr2", CongestionControl::name)
    }
}
