// SPDX-License-Identifier: GPL-3.0-or-later
//! Any QUIC stack under the virtual clock: two programs that take the time and datagrams, and
//! return datagrams and their next timer (docs/virtual-interface.md).
//!
//! [`world`] and [`end`] are stepped with (now, input) and have neither process nor clock;
//! [`process`] is the pipe.

pub mod end;
pub mod lockstep_world;
pub mod message;
pub mod process;

use std::error::Error;

use profile::Profile;

use crate::outcome::Outcome;
use crate::path::{Config, Path};
use crate::transfer::Transfer;
use lockstep_world::World;
use message::Pipe;

/// Runs transfers between the programs behind two pipes: client's, server's.
///
/// # Errors
/// The configuration is invalid, or a library refuses its input. What a program does wrong is a
/// failed transfer.
pub fn run(
    config: &Config,
    profile: &Profile,
    transfer: &Transfer,
    pipes: [Box<dyn Pipe>; 2],
) -> Result<Outcome, Box<dyn Error>> {
    let path = Path::planned(config, profile)?;
    let mut world = World::new(transfer.clone(), pipes)?;
    let history = path.run(&mut world)?;
    for sample in &mut world.samples {
        history.fill(sample);
    }
    Ok(Outcome {
        schema: "satlab/virtual-outcome/1",
        version: env!("CARGO_PKG_VERSION"),
        stack: world.name(),
        clock: "virtual",
        config_sha256: config.sha256.clone(),
        profile_sha256: profile.sha256.clone(),
        request: transfer.clone(),
        transfers: world.done,
        samples: world.samples,
        link: history.directions(),
    })
}
