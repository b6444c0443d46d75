// SPDX-License-Identifier: GPL-3.0-or-later
//! A folder of `OpenSAND` 8.2 XML becomes a checked [`Profile`], or the list of everything that is wrong with it.
//!
//! Strict: unknown, missing, repeated, misplaced or contradictory elements are faults, each with file, line, element path
//! and remedy. What `OpenSAND` knows but this release does not carry is refused by name. The parser knows neither DTD nor
//! entities, and size and depth are capped before it starts.

mod check;
mod document;
mod entities;
mod fault;
mod profile;
mod qos;
mod radio;
mod schema;

pub use document::{MAX_BYTES, MAX_DEPTH};
pub use entities::{Host, Platform, Station};
pub use fault::{Fault, Faults};
pub use profile::{FILES, Profile, load, sha256_hex};
pub use radio::{Forward, Return, combined_cn_db, cra_slots, slot_limit};
