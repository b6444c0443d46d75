// SPDX-License-Identifier: GPL-3.0-or-later
//! Devices at the ends of a path.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// A TUN device in a network namespace.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Path of the namespace, e.g. `/run/netns/NAME`.
    #[schemars(length(min = 1))]
    pub netns: PathBuf,
    /// Name of the device.
    #[schemars(length(min = 1, max = 15))]
    pub tun: String,
}
