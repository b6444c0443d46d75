// SPDX-License-Identifier: GPL-3.0-or-later
//! One direction of an emulated satellite link as a pure state machine.
//!
//! No clock, socket or thread: the caller says what time it is. Packets enter with [`Link::push`]
//! and leave with [`Stage::pop`] at the moment the air interface would deliver them. [`Sender`],
//! [`Relay`] and [`Receiver`] are the same direction as three processes.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod acm;
mod carrier;
mod change;
mod channel;
mod config;
pub mod datagram;
mod demand;
mod departing_terminal;
mod direction_state;
mod event_queue;
mod frame_format;
mod frame_grid;
mod frame_output;
mod framed;
mod gateway;
mod impairments;
mod jitter;
mod ledger;
mod line;
mod loss;
mod predict;
mod queue;
mod random;
mod random_access;
mod random_return;
mod ring;
mod shared_carrier;
mod shared_forward;
mod shared_return;
mod signalling;
mod slot_assignment;
mod split;
mod stage;
mod terminal_queues;
mod trace;
mod transmitter;
mod volume;

pub use acm::Acm;
pub use carrier::{Carrier, Coding};
pub use change::{Change, Handover, Impairment, Transfer, Waiting};
pub use config::{LinkConfig, LinkError, Reception};
pub use demand::{Demand, Fifo, Load, Other, Plans};
pub use departing_terminal::Leaving;
pub use impairments::{Impairments, Reorder};
pub use jitter::Jitter;
pub use ledger::{Counters, Event, Frame, What};
pub use loss::{GilbertElliott, Loss, LossModel, LossUnit};
pub use predict::{Rtt, echo_rtt, idle_delay, steady_goodput_bps};
pub use queue::{Aqm, Classes, CoDel, DualPi2, FifoState, FqCoDel, Pie, Queue, Waited};
pub use random_access::RandomAccess;
pub use random_return::RandomReturn;
pub use shared_carrier::{ReturnCarrier, SharedCarrier};
pub use shared_forward::{MOST_TERMINALS, SharedForward};
pub use shared_return::SharedReturn;
pub use signalling::{Assignments, Signalling};
pub use split::{Receiver, Relay, Sender};
pub use stage::{Accepted, Stage};
pub use trace::{TraceError, parse_trace};
pub use transmitter::Link;
pub use volume::Volume;

/// Nanoseconds since the start of the link.
pub type Nanos = u64;
