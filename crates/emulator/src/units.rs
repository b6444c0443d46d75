// SPDX-License-Identifier: GPL-3.0-or-later
//! Quantities of files with their bounds, and the nanoseconds of the link.

use link::Nanos;
use schemars::JsonSchema;
use serde::Deserialize;

/// A share, 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Ratio(#[schemars(range(min = 0, max = 1))] pub f64);

/// A time in ms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Ms(#[schemars(range(min = 0, max = 3_600_000))] pub f64);

/// A delay in ms, one way.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct DelayMs(#[schemars(range(min = 0, max = 10_000))] pub f64);

/// A time in s.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Seconds(#[schemars(range(min = 0, max = 1_000_000_000))] pub f64);

/// A symbol rate in baud.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Baud(#[schemars(range(min = 1, max = 10_000_000_000_u64))] pub u64);

/// A rate in Mbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Mbps(#[schemars(range(min = 0.001, max = 100_000))] pub f64);

impl Ms {
    pub(crate) fn ns(self) -> Nanos {
        ns_of_ms(self.0)
    }
}

impl DelayMs {
    pub(crate) fn ns(self) -> Nanos {
        ns_of_ms(self.0)
    }
}

impl Seconds {
    pub(crate) fn ns(self) -> Nanos {
        ns_of_s(self.0)
    }
}

pub(crate) fn ns_of_ms(ms: f64) -> Nanos {
    (ms * 1e6).round() as Nanos
}

pub(crate) fn ns_of_s(s: f64) -> Nanos {
    (s * 1e9).round() as Nanos
}

pub(crate) fn ms(ns: Nanos) -> f64 {
    ns as f64 / 1e6
}
