// SPDX-License-Identifier: GPL-3.0-or-later
//! When frames open.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When frames open, and what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Timing {
    /// frames as the standards open them
    Standard,
    /// batches on the ticks of `OpenSAND` 8.2
    OpenSand,
}

impl Timing {
    /// Release error beyond which a packet counts as late, µs: as much as the round-trip time may
    /// be off; on the ticks of `OpenSAND` a whole batch is due at one moment and is written packet
    /// by packet.
    #[must_use]
    pub fn late_limit_us(self) -> u64 {
        match self {
            Self::Standard => 1000,
            Self::OpenSand => 3000,
        }
    }
}
