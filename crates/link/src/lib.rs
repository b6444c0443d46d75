// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of an emulated satellite link as a pure state machine.
//!
//! No clock, socket or thread: the caller says what time it is. Packets enter with [`Link::push`] and leave with
//! [`Link::pop`] at the moment the air interface would deliver them.

mod acm;
mod air;
mod assign;
mod carrier;
mod change;
mod channel;
mod config;
pub mod datagram;
mod demand;
mod framed;
mod grid;
mod jitter;
mod ledger;
mod loss;
mod model;
mod part;
mod predict;
mod queue;
mod random;
mod ring;
mod signalling;
mod trace;

pub use acm::Acm;
pub use carrier::{Carrier, Coding};
pub use change::{Change, Handover, Waiting};
pub use config::{LinkConfig, LinkError, Reception};
pub use demand::{Demand, Fifo, Load, Other, Plans};
pub use jitter::Jitter;
pub use ledger::{Counters, Event, Frame, What};
pub use loss::{GilbertElliott, Loss, LossModel, LossUnit};
pub use model::{Accepted, Link};
pub use part::Part;
pub use predict::{Rtt, echo_rtt, idle_delay, steady_goodput_bps};
pub use queue::{Aqm, CoDel, FqCoDel, Pie, Queue};
pub use signalling::Signalling;
pub use trace::{TraceError, parse_trace};

/// Nanoseconds since the start of the link.
pub type Nanos = u64;
