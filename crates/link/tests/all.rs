// SPDX-License-Identifier: GPL-3.0-or-later
//! All tests of the crate's interface as one program: linking one for each file takes more time
//! than they run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/demand.rs"]
mod on_demand;

mod acm;
mod background;
mod capacity;
mod changes;
mod demand;
mod demand_losses;
mod eyes;
mod fifos;
mod golden_events;
mod impairments;
mod opensand;
mod properties;
mod queues;
mod random_return;
mod shared_forward;
mod shared_return;
mod split;
mod terminals_golden;
mod timing;
