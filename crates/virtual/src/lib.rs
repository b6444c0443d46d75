// SPDX-License-Identifier: GPL-3.0-or-later
//! QUIC over the emulated link under a virtual clock: the state machines of `satlink` and of quinn-proto, stepped by one
//! loop. No socket, no thread, no real time: the same input gives the same output, as fast as the CPU allows.

use std::collections::VecDeque;
use std::error::Error;

use emulator::config::Config;
use emulator::directions::TRAVEL;
use emulator::drive::{self, Drive, Report, Snapshot};
use emulator::links;
use emulator::scheduled::Scheduled;
use link::Link;
use profile::Profile;

pub mod flow;
pub mod host;
pub mod outcome;
pub mod packet;
pub mod tls;
pub mod transfer;
pub mod world;

use outcome::{Direction, Outcome, Sample};
use transfer::Transfer;
use world::World;

const FORWARD: usize = 0;
const RETURN: usize = 1;

/// Runs transfers over a link. A time line acts from virtual time 0.
///
/// # Errors
/// The configuration is no link, or a library refuses what it was given.
pub fn run(
    config: &Config,
    profile: &Profile,
    transfer: &Transfer,
) -> Result<Outcome, Box<dyn Error>> {
    let mut drives = drives(config, profile)?;
    let mut world = World::new(transfer.clone(), orders(config, profile))?;
    let mut snapshots: [Vec<Snapshot>; 4] = Default::default();
    drive::run(&mut drives, &mut world, |slot, report| {
        if let Report::Snapshot(snapshot) = report {
            snapshots[TRAVEL[slot]].push(*snapshot);
        }
    })
    .map_err(|gone| gone.1)?;
    for sample in &mut world.samples {
        sample.forward_queue_ms = queue_ms(&snapshots[FORWARD], sample);
        sample.return_queue_ms = queue_ms(&snapshots[RETURN], sample);
    }
    let link = snapshots.iter().enumerate();
    Ok(Outcome {
        schema: "satlab/virtual-outcome/1",
        version: env!("CARGO_PKG_VERSION"),
        stack: "quinn-proto 0.11",
        clock: "virtual",
        config_sha256: config.sha256.clone(),
        profile_sha256: profile.sha256.clone(),
        request: transfer.clone(),
        transfers: world.done,
        samples: world.samples,
        link: link
            .filter_map(|(index, all)| Some(Direction::of(index, all.last()?)))
            .collect(),
    })
}

fn drives(config: &Config, profile: &Profile) -> Result<Vec<Drive>, link::LinkError> {
    let links = links::links(config, profile);
    let drive = |index: &usize| {
        let link = Link::new(links[*index].clone())?;
        Ok(Drive::new(link, world::SAMPLE, 1))
    };
    TRAVEL.iter().map(drive).collect()
}

fn orders(config: &Config, profile: &Profile) -> [VecDeque<Scheduled>; 4] {
    let mut orders: [VecDeque<Scheduled>; 4] = Default::default();
    if let Some(timeline) = &config.timeline {
        for (direction, order) in timeline.scheduled(&links::targets(config, profile), 0) {
            let slot = TRAVEL.iter().position(|&index| index == direction);
            orders[slot.unwrap_or(0)].push_back(order);
        }
    }
    orders
}

/// Time that the carrier needs for what waits at the end of the interval in which the sample was taken, ms.
fn queue_ms(snapshots: &[Snapshot], sample: &Sample) -> f64 {
    let tick = (sample.t_s * 1e9) as u64 / world::SAMPLE;
    let after = snapshots.partition_point(|snapshot| snapshot.tick < tick.max(1));
    let found = snapshots.get(after);
    found.map_or(0.0, |snapshot| {
        let rate_bps = snapshot.carrier.rate_bps().unwrap_or(f64::INFINITY);
        (snapshot.queue.0 as f64 * 8e6 / rate_bps).round() / 1e3
    })
}
