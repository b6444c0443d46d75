// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of an emulated satellite link as a pure state machine.
//!
//! No clock, socket or thread: the caller says what time it is. Packets enter with [`Link::push`] and leave with
//! [`Link::pop`] at the moment the air interface would deliver them.

mod air;
mod config;
mod grid;
mod loss;
mod model;
mod predict;
mod ring;

pub use config::{Carrier, LinkConfig, LinkError, Loss, LossUnit};
pub use model::{Accepted, Counters, Link};
pub use predict::{Rtt, echo_rtt, steady_goodput_bps};

/// Nanoseconds since the start of the link.
pub type Nanos = u64;
