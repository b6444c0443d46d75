// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy that splits QUIC connections, after Kosek et al., "Exploring Proxying QUIC and HTTP/3 for Satellite
//! Communication", IFIP Networking 2022, section II-D.
//!
//! `doorway` and `hello` see what a client wants, `ends` accepts it and dials the next hop, `splice` joins both
//! connections, `relay` each direction of each stream.

pub mod doorway;
pub mod ends;
pub mod hello;
pub mod options;
pub mod pair;
pub mod proxy;
pub mod relay;
pub mod report;
pub mod splice;
pub mod sys;
pub mod tickets;
pub mod window;
