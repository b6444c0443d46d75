// SPDX-License-Identifier: GPL-3.0-or-later
//! Careful Resume (RFC 9959): a connection starts with what an earlier one learned about the same
//! path, and takes it back at the first sign of congestion. No socket, clock, file or thread:
//! packets, acknowledgements and times are arguments.
//!
//! [`Store`] has the saved parameters by path, [`Sender`] the phases over [`Cubic`], [`Resumption`]
//! is one connection's part for quinn: a controller, its phase updates, and what it learned.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod controller;
mod cubic;
mod observer;
mod phase;
mod sender;
mod store;

pub use controller::{Resumption, Started};
pub use cubic::{BETA, Cubic};
pub use phase::{Phase, PhaseUpdate, Trigger};
pub use sender::{Jump, MAX_JUMP, Mode, Sender};
pub use store::{LIFETIME_S, MAX_PATHS, Parameters, PathKey, SCHEMA, Saved, Store};
