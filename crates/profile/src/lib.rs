// SPDX-License-Identifier: GPL-3.0-or-later
//! A folder of `OpenSAND` 8.2 XML becomes a checked [`Profile`], or the list of everything that is
//! wrong with it.
//!
//! [`read`] takes what `OpenSAND` means, as plain data: delay, attenuation and `Es/N0` are
//! functions of time. [`load`] takes what satlink carries: what is well written beyond that is
//! refused by name, see [`supported`].
//!
//! Strict: unknown, missing, repeated, misplaced or contradictory elements are faults, each with
//! file, line, element path and remedy. [`Mode::Lenient`] accepts what the loader of `OpenSAND`
//! 8.2.0 accepts, with a warning. The parser knows neither DTD nor entities, and size and depth are
//! capped before it starts.
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::disallowed_types))]

mod advanced_settings;
mod advice;
mod air_interface;
mod demand_assignment;
mod element_check;
mod encapsulation;
mod entities;
mod fault;
mod gateway;
mod layout;
mod load;
mod physical;
mod platform;
mod profile;
mod qos;
mod random_access;
mod schema;
mod scpc;
mod series;
mod spots;
mod terminal;
mod topology;
mod xml_file;

pub use advanced_settings::Settings;
pub use air_interface::{Forward, Return, combined_es_n0_db, cra_slots, slot_limit};
pub use demand_assignment::Dama;
pub use encapsulation::{AlpduProtection, Encapsulation};
pub use entities::Host;
pub use fault::{Fault, Faults};
pub use gateway::{Gateway, GwProfile};
pub use layout::FILES;
pub use load::{Mode, check_single, load, load_as, read, sha256_hex};
pub use physical::{Attenuation, Delay, Leg, Physical};
pub use platform::{Platform, Station, platform};
pub use profile::{Profile, supported};
pub use qos::{AccessType, Class, Fifo, Qos, pcp_of_dscp};
pub use random_access::RandomAccess;
pub use series::{BadLine, Series};
pub use spots::{ForwardCarrier, ForwardKind, ReturnCarrier, ReturnKind, Spot};
pub use terminal::{StProfile, Terminal};
pub use xml_file::{MAX_BYTES, MAX_DEPTH};
