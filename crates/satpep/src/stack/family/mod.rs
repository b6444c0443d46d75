// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy on quinn, or on a library that has its interface (`library`). What differs between them
//! is in `differences`.
//!
//! `connector` accepts a client and dials the next hop, `splice` joins both connections, `relay`
//! each direction of each stream. `validation` has the tokens that save a client a Retry.

use super::{differences, library};

mod connector;
mod pair;
mod proxy;
mod relay;
mod splice;
mod validation;
mod window;

pub use proxy::Proxy;
