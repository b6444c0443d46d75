// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment of the return link (ETSI EN 301 545-2): a terminal asks, the NCC plans, the
//! terminal sends.
//!
//! | kind | meaning |
//! |---|---|
//! | CRA | constant rate agreed at logon, granted without a request |
//! | RBDC | rate requested now, granted up to a maximum; expires unless renewed |
//! | VBDC | volume requested, accumulates; served after RBDC |
//! | FCA | capacity that is left, granted without a request |
//!
//! [`Terminal`] and [`Planner`] own no clock: the caller carries [`Request`] and [`Plan`] between
//! them with the delay of the link, calls [`Planner::plan`] once per superframe of the gateway and
//! [`Terminal::superframe`] once per superframe of the terminal. Times are ns, rates kbit/s,
//! capacity whole bursts per superframe.

mod planner;
mod signalling;
mod slots;
mod terminal;

pub use planner::{Plan, Planner, Share};
pub use signalling::{SAC_BYTES, TBTP2_HEADER, put_tbtp2, tbtp2_bytes};
pub use slots::{Slot, slots};
pub use terminal::{Agreement, Level, Terminal, Timers, serve};

use crate::opensand;
use crate::rcs2::Waveform;

/// The kind of capacity that serves a FIFO of the terminal, besides capacity that other FIFOs
/// leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Constant rate: no requests.
    Cra,
    /// Rate-based requests.
    Rbdc,
    /// Volume-based requests.
    Vbdc,
}

/// How rates and volumes become bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Payload of EN 301 545-2 annex A; bursts that fit the superframe.
    #[default]
    Standard,
    /// Payload of the nominal code rate, and one more burst than fits, as `OpenSAND` 8.2 has it.
    OpenSand,
}

/// The carrier that terminals share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Carrier {
    /// Symbols per second.
    pub symbol_rate: u64,
    /// Superframe duration, ns.
    pub superframe: u64,
    /// Waveform of the bursts.
    pub waveform: Waveform,
    /// Arithmetic of the bursts.
    pub arithmetic: Arithmetic,
}

impl Carrier {
    /// Bursts in a superframe: `floor(Rs * T / symbols)`; `OpenSAND` rounds up.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        let symbols_e9 = u128::from(self.symbol_rate) * u128::from(self.superframe);
        let bursts = symbols_e9 / (u128::from(self.waveform.symbols) * 1_000_000_000);
        match self.arithmetic {
            Arithmetic::Standard => bursts.try_into().unwrap_or(u32::MAX),
            Arithmetic::OpenSand => {
                opensand::slot_limit(self.symbol_rate, self.superframe, self.waveform)
                    .try_into()
                    .unwrap_or(u32::MAX)
            }
        }
    }

    /// Bytes of a burst.
    #[must_use]
    pub fn burst_bytes(&self) -> u64 {
        match self.arithmetic {
            Arithmetic::Standard => self.waveform.payload_bytes as u64,
            Arithmetic::OpenSand => opensand::burst_payload(self.waveform) as u64,
        }
    }

    /// Bursts per superframe that carry a rate: whole ones, rounded up.
    #[must_use]
    pub fn bursts_of_rate(&self, kbps: u32) -> u32 {
        let kbps = u64::from(kbps);
        let bursts = match self.arithmetic {
            // kbit/s * ns = 1e-6 bit.
            Arithmetic::Standard => (u128::from(kbps) * u128::from(self.superframe))
                .div_ceil(u128::from(self.burst_bytes()) * 8_000_000),
            Arithmetic::OpenSand => {
                opensand::cra_slots(kbps, self.superframe, self.waveform).into()
            }
        };
        bursts.try_into().unwrap_or(u32::MAX)
    }

    /// Bursts that a terminal with `granted` bursts sends. `OpenSAND` grants their volume in whole
    /// kbit, rounded up, and the terminal fills as many bursts as this volume needs.
    #[must_use]
    pub fn sent(&self, granted: u32) -> u32 {
        match self.arithmetic {
            Arithmetic::Standard => granted,
            Arithmetic::OpenSand => {
                let burst_bits = self.burst_bytes() * 8;
                let kbit = (u64::from(granted) * burst_bits).div_ceil(1000);
                let bursts = (kbit * 1000).div_ceil(burst_bits) as u32;
                bursts.min(self.capacity())
            }
        }
    }

    /// Bursts that carry a volume.
    #[must_use]
    pub fn bursts_of_volume(&self, bytes: u64) -> u32 {
        let bursts = bytes.div_ceil(self.burst_bytes());
        bursts.try_into().unwrap_or(u32::MAX)
    }
}

/// A capacity request (SAC): what the terminal wants from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Rate, kbit/s; replaces the last one, 0 releases it.
    pub rbdc_kbps: u32,
    /// Volume in bursts, on top of what was asked for before.
    pub vbdc_bursts: u32,
    /// AVBDC: the volume replaces all earlier requests.
    pub is_absolute: bool,
}

/// Bursts of one terminal in one superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// For the constant rate.
    pub cra: u32,
    /// For the requested rate.
    pub rbdc: u32,
    /// For the requested volume.
    pub vbdc: u32,
    /// Free capacity.
    pub fca: u32,
}

impl Grant {
    /// All bursts.
    #[must_use]
    pub const fn bursts(&self) -> u32 {
        self.cra + self.rbdc + self.vbdc + self.fca
    }
}
