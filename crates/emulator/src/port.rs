// SPDX-License-Identifier: GPL-3.0-or-later
//! Devices at the ends of a path.

use std::path::PathBuf;

use serde::Deserialize;

/// A TUN device in a network namespace.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Path of the namespace, e.g. `/run/netns/NAME`.
    pub netns: PathBuf,
    /// Name of the device, 1 to 15 characters.
    pub tun: String,
}
