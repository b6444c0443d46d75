// SPDX-License-Identifier: GPL-3.0-or-later
//! The QUIC libraries. What carries connections (`family/`) is compiled once for each.

#[cfg(feature = "noq")]
pub mod noq;
pub mod quinn;
