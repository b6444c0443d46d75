// SPDX-License-Identifier: GPL-3.0-or-later
//! The emulator as a process: TUN devices, real-time threads, control socket, metrics.

mod awake;
mod bounded;
mod control;
pub mod describe;
mod devices;
mod ends;
pub mod entity;
mod fifos;
mod mailbox;
mod metrics;
mod probes;
mod relay;
pub mod run;
mod samples;
mod stamp;
mod sys;
mod terminals;
mod tun;

#[cfg(test)]
#[path = "../../emulator/src/testing.rs"]
mod testing;

pub use control::answer;
