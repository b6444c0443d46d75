// SPDX-License-Identifier: GPL-3.0-or-later
//! The four directions of a path.

/// Names of the directions as they stand in metrics.
pub const DIRECTIONS: [&str; 4] = ["forward", "return", "terrestrial_down", "terrestrial_up"];
/// The order in which packets travel, as indexes of [`DIRECTIONS`]: down from the server to the
/// client, then up.
pub const TRAVEL: [usize; 4] = [2, 0, 1, 3];
/// Both directions of the satellite link, in changes.
pub const BOTH: &str = "both";
