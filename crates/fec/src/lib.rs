// SPDX-License-Identifier: GPL-3.0-or-later
//! Sliding-window forward erasure correction: RLC over GF(2^8) (RFC 8681, FEC Encoding ID 10).
//!
//! No clock, socket or thread: the caller passes the time. [`Sender`] makes frames of packets,
//! [`Receiver`] packets of frames; [`Encoder`] and [`Decoder`] are the code without framing and
//! timers.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod adaptation;
mod code;
mod coefficients;
mod decoder;
mod encoder;
pub mod gf256;
mod losses;
mod protection;
mod receiver;
mod sender;
mod sys;
mod tinymt;
mod wire;

pub use adaptation::LADDER;
pub use code::{Code, CodeError};
pub use coefficients::coefficients;
pub use decoder::{Arrival, Decoder, Recovered};
pub use encoder::Encoder;
pub use losses::{LONGEST_BURST, Report};
pub use protection::Protection;
pub use receiver::{Counters, Delivery, Receiver};
pub use sender::{Sender, Sent};
pub use tinymt::TinyMt32;
pub use wire::{Frame, RepairId, WireError, parse};

/// Nanoseconds since a start that all calls of one object share.
pub type Nanos = u64;

/// Longest packet, bytes: its source frame fits in a UDP datagram.
pub const MAX_PACKET: usize = 65_000;
