// SPDX-License-Identifier: GPL-3.0-or-later
//! Many flows on one link: each with two stacks and a port of its own, all over the same path.

pub mod host;
mod kind;
pub mod measured;
pub mod outcome;
mod quic_flow;
mod real_clock_limits;
pub mod record;
mod shared_tunnel;
pub mod spec;
mod statistics;
mod udp_flow;
mod world;

use std::error::Error;

use profile::Profile;

use crate::path::{Config, Path};
use outcome::Outcome;
use spec::Spec;
use world::World;

/// Runs the flows of a file over its wire, or over a satellite link.
///
/// # Errors
/// Link or options are invalid.
pub fn run(spec: &Spec, satellite: Option<&(Config, Profile)>) -> Result<Outcome, Box<dyn Error>> {
    let path = match (satellite, &spec.wire) {
        (Some((config, profile)), _) => Path::planned(config, profile)?,
        (None, Some(wire)) => Path::of_wire(wire, spec.seed)?,
        (None, None) => return Err("neither link nor wire".into()),
    };
    let mut world = World::new(spec)?;
    let history = path.run(&mut world)?;
    if let Some(error) = world.error.take() {
        return Err(error.into());
    }
    let tunnel = world.tunnel();
    Ok(outcome::outcome(spec, &world.records(), &history, tunnel))
}
