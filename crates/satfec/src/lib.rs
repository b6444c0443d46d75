// SPDX-License-Identifier: GPL-3.0-or-later
//! A tunnel that repairs losses: packets of a TUN device in UDP datagrams or in those of a QUIC
//! connection, with a sliding-window code (`satlab-fec`).
//!
//! `session` is the tunnel without I/O: both ends greet each other and exchange frames. `quic`
//! carries them over a connection, without I/O, too. `run` joins it with device, socket and clock;
//! `ports` are device and socket.

pub mod control;
pub mod failure;
pub mod hello;
pub mod icmp;
pub mod options;
pub mod ports;
pub mod quic;
pub mod report;
pub mod run;
pub mod session;
pub mod sys;
