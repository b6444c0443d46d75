// SPDX-License-Identifier: GPL-3.0-or-later
//! satperf's client and server over the emulated link under a virtual clock: the state machines of
//! `satlink` and of quinn-proto, stepped by one loop. No socket, no thread, no real time: equal
//! input produces equal output, as fast as the CPU allows.

use std::error::Error;

use profile::Profile;
use satperf::record::Request;

pub mod endpoint;
pub mod endpoint_world;
pub mod flows;
pub mod lockstep;
pub mod outcome;
pub mod path;
pub mod stacks;
pub mod tls;
pub mod transfer;
pub mod tunnel;
pub mod udp_ipv4;

use endpoint_world::World;
use outcome::Outcome;
use path::{Config, LinkHistory, Path};
use transfer::Transfer;

/// Runs transfers over a link. A timeline starts at virtual time 0.
///
/// # Errors
/// The configuration is invalid, or a library refuses its input.
pub fn run(
    config: &Config,
    profile: &Profile,
    transfer: &Transfer,
) -> Result<Outcome, Box<dyn Error>> {
    let path = Path::planned(config, profile)?;
    let (mut world, history) = simulate(path, transfer, transfer.request(), false)?;
    for sample in &mut world.samples {
        history.fill(sample);
    }
    Ok(Outcome {
        schema: "satlab/virtual-outcome/1",
        version: env!("CARGO_PKG_VERSION"),
        stack: transfer.stack.name().to_owned(),
        clock: "virtual",
        config_sha256: config.sha256.clone(),
        profile_sha256: profile.sha256.clone(),
        request: transfer.clone(),
        transfers: world.done,
        samples: world.samples,
        link: history.directions(),
    })
}

/// Runs transfers over a path. `request` is what each client asks for, and may differ from that of
/// `transfer`; with `wants_lines` satperf's lines of output are kept, reports included.
///
/// # Errors
/// A library refuses what it was given.
pub fn simulate(
    path: Path,
    transfer: &Transfer,
    request: Request,
    wants_lines: bool,
) -> Result<(World, LinkHistory), Box<dyn Error>> {
    let mut world = World::new(transfer.clone(), request, wants_lines)?;
    let history = path.run(&mut world)?;
    match world.error.take() {
        Some(error) => Err(error.into()),
        None => Ok((world, history)),
    }
}
