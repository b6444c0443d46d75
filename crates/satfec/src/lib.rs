// SPDX-License-Identifier: GPL-3.0-or-later
//! A tunnel that repairs losses: packets of a TUN device in UDP datagrams, with a sliding-window code (`satlab-fec`).
//!
//! `session` is the tunnel without I/O: both ends greet each other and exchange frames. `run` joins it with device, socket
//! and clock.

pub mod hello;
pub mod icmp;
pub mod options;
pub mod report;
pub mod run;
pub mod session;
pub mod sys;
