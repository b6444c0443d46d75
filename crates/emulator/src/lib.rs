// SPDX-License-Identifier: GPL-3.0-or-later
//! One emulated satellite path without clock, socket, thread or file: configuration, plan,
//! scheduled changes, and the loop over the four directions.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod adapt;
pub mod bearer;
pub mod bundle;
pub mod carriers;
pub mod config;
pub mod config_checks;
pub mod demand;
pub mod direction;
pub mod directions;
pub mod drive;
pub mod fifos;
pub mod gateway_changes;
pub mod gateways;
pub mod links;
pub mod network;
pub mod offload;
pub mod plain_wire;
pub mod plan;
pub mod port;
pub mod request;
pub mod scheduled;
pub mod set_request;
pub mod terminals;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod timing;
mod traces;
mod units;
