// SPDX-License-Identifier: GPL-3.0-or-later
//! The emulated path between both sides: satlink's loop over its directions, with [`Ends`] as clock
//! and devices. Only this module uses the emulator.

use std::collections::VecDeque;
use std::io;

use emulator::bearer::Bearer;
pub use emulator::config::Config;
pub use emulator::plain_wire;
pub use emulator::plain_wire::Wire;
use link::{Assignments, Counters, LinkConfig, LinkError, Nanos, Volume};
use profile::Profile;
use serde::Deserialize;

use emulator::bundle::Bundle;
use emulator::directions::{DIRECTIONS, TRAVEL};
use emulator::drive::{self, Drive, Gone, Io, Report, Snapshot};
use emulator::links;
use emulator::scheduled::Scheduled;

use crate::outcome::{Direction, Sample};

/// Time between two samples.
pub const SAMPLE: Nanos = 50_000_000;

const FORWARD: usize = 0;
const RETURN: usize = 1;

/// A side of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Behind the terminal.
    Client,
    /// Behind the gateway.
    Server,
}

/// Clock and endpoints of both sides.
pub trait Ends {
    /// Virtual time.
    fn now(&self) -> Nanos;
    /// Advances the time until an endpoint has packets or `deadline` has come; not at all if the
    /// path is busy. Returns false when all is over.
    fn advance(&mut self, deadline: Nanos, is_busy: bool) -> bool;
    /// Takes the next packet that a side has sent.
    fn take(&mut self, side: Side) -> Option<Vec<u8>>;
    /// A packet arrives at a side.
    fn receive(&mut self, side: Side, packet: &[u8]);
}

/// The four directions in the order in which packets travel: terrestrial down, forward, return,
/// terrestrial up.
pub struct Path(Vec<Drive>);

impl Path {
    /// The path of a configuration; its timeline starts at virtual time 0.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub fn planned(config: &Config, profile: &Profile) -> Result<Self, LinkError> {
        let mut path = Self::new(&links::links(config, profile))?;
        if let Some(timeline) = &config.timeline {
            for (direction, order) in timeline.scheduled(&links::targets(config, profile), 0) {
                let slot = TRAVEL.iter().position(|&index| index == direction);
                path.0[slot.unwrap_or(0)].schedule(order);
            }
        }
        Ok(path)
    }

    /// The path of a plain wire; its timeline starts at virtual time 0.
    ///
    /// # Errors
    /// The wire is invalid.
    pub fn of_wire(wire: &Wire, seed: u64) -> Result<Self, String> {
        let links = wire.links(seed).map_err(|error| error.to_string())?;
        let mut path = Self::new(&links).map_err(|error| error.to_string())?;
        for (direction, order) in wire.scheduled().map_err(|error| error.to_string())? {
            let slot = TRAVEL.iter().position(|&index| index == direction);
            path.0[slot.unwrap_or(0)].schedule(order);
        }
        Ok(path)
    }

    /// A path of these links: forward, return, terrestrial down, terrestrial up.
    ///
    /// # Errors
    /// A configuration is invalid.
    pub fn new(links: &[LinkConfig; 4]) -> Result<Self, LinkError> {
        let plans = Assignments::default();
        let drive = |index: &usize| {
            let served = Bearer::of_one(links[*index].clone(), &plans)?;
            Ok(Drive::of(served, SAMPLE, 1))
        };
        TRAVEL.iter().map(drive).collect::<Result<_, _>>().map(Self)
    }

    /// Carries packets until `ends` are over.
    ///
    /// # Errors
    /// None in practice: the devices are queues.
    pub fn run(mut self, ends: &mut impl Ends) -> io::Result<LinkHistory> {
        let mut history = LinkHistory::default();
        let between = Default::default();
        drive::run(
            &mut self.0,
            &mut Devices { ends, between },
            |slot, report| {
                if let Report::Snapshot(snapshot) = report {
                    history.0[TRAVEL[slot]].push(&snapshot);
                }
            },
        )
        .map_err(|gone| gone.1)?;
        Ok(history)
    }
}

/// State of a direction at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueSample {
    /// Time that the carrier needs for what waits, ms.
    pub delay_ms: f64,
    /// Layer-2 rate, bit/s.
    pub rate_bps: f64,
}

/// State of the directions every [`SAMPLE`].
#[derive(Default)]
pub struct LinkHistory([DirectionHistory; 4]);

/// State of a direction every [`SAMPLE`], and its counters at the end.
#[derive(Default)]
struct DirectionHistory {
    moments: Vec<Moment>,
    counters: Option<Counters>,
}

/// What outcomes show of a [`Snapshot`].
struct Moment {
    tick: u64,
    queue: Volume,
    rate_bps: f64,
    header_bytes: u8,
    out_bytes: u64,
    dropped_packets: u64,
    lost_packets: u64,
}

impl DirectionHistory {
    fn push(&mut self, snapshot: &Snapshot) {
        let (carrier, counters) = (&snapshot.carrier, &snapshot.counters);
        self.moments.push(Moment {
            tick: snapshot.tick,
            queue: snapshot.queue,
            rate_bps: carrier.rate_bps().unwrap_or(f64::INFINITY),
            header_bytes: carrier.header_bytes(),
            out_bytes: counters.bytes_out,
            dropped_packets: counters.packets_dropped,
            lost_packets: counters.packets_lost,
        });
        self.counters = Some(*counters);
    }

    /// State at the end of the interval of the moment `t_s`.
    fn at(&self, t_s: f64) -> Option<&Moment> {
        let tick = (t_s * 1e9) as u64 / SAMPLE;
        let later = self.moments.partition_point(|it| it.tick < tick.max(1));
        self.moments.get(later)
    }
}

impl Moment {
    /// Time that the carrier needs for what waits, ms.
    fn queue_ms(&self) -> f64 {
        let Volume { packets, bytes } = self.queue;
        let waiting = bytes + packets * u64::from(self.header_bytes);
        (waiting as f64 * 8e6 / self.rate_bps).round() / 1e3
    }
}

impl LinkHistory {
    /// Adds the link's queues, and what it released, dropped and lost, to a sample.
    pub fn fill(&self, sample: &mut Sample) {
        let [forward, back] = [FORWARD, RETURN].map(|index| self.0[index].at(sample.t_s));
        if let Some(moment) = forward {
            sample.forward_queue_ms = moment.queue_ms();
            sample.forward_out_bytes = moment.out_bytes;
            sample.forward_dropped_packets = moment.dropped_packets;
            sample.forward_lost_packets = moment.lost_packets;
        }
        if let Some(moment) = back {
            sample.return_queue_ms = moment.queue_ms();
            sample.return_out_bytes = moment.out_bytes;
            sample.return_dropped_packets = moment.dropped_packets;
            sample.return_lost_packets = moment.lost_packets;
        }
    }

    /// Queue and rate of forward and return direction, every [`SAMPLE`] from its first end on:
    /// waiting time, ms, and layer-2 rate, bit/s.
    #[must_use]
    pub fn queues(&self) -> [Vec<QueueSample>; 2] {
        [FORWARD, RETURN].map(|index| {
            let samples = self.0[index].moments.iter().map(|moment| QueueSample {
                delay_ms: moment.queue.bytes as f64 * 8e3 / moment.rate_bps,
                rate_bps: moment.rate_bps,
            });
            samples.collect()
        })
    }

    /// Totals of each direction.
    #[must_use]
    pub fn directions(&self) -> Vec<Direction> {
        let all = DIRECTIONS.iter().zip(&self.0);
        all.filter_map(|(name, it)| Some(Direction::new(name, it.counters?)))
            .collect()
    }
}

/// Queues in place of network devices.
struct Devices<'a, E> {
    ends: &'a mut E,
    /// From terrestrial down to forward, and from return to terrestrial up.
    between: [VecDeque<Vec<u8>>; 2],
}

impl<E: Ends> Io for Devices<'_, E> {
    fn now(&self) -> Nanos {
        self.ends.now()
    }

    fn wait(&mut self, deadline: Nanos, _: Nanos) -> Result<bool, Gone> {
        let is_busy = self.between.iter().any(|queue| !queue.is_empty());
        Ok(self.ends.advance(deadline, is_busy))
    }

    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<(Nanos, usize)>> {
        let [down, up] = &mut self.between;
        let packet = match direction {
            0 => self.ends.take(Side::Server),
            1 => down.pop_front(),
            2 => self.ends.take(Side::Client),
            _ => up.pop_front(),
        };
        Ok(packet.map(|packet| {
            buffer[..packet.len()].copy_from_slice(&packet);
            (self.ends.now(), packet.len())
        }))
    }

    fn write(&mut self, direction: usize, bundle: &mut Bundle) -> io::Result<bool> {
        let (_, packet) = bundle.finish();
        match direction {
            0 => self.between[0].push_back(packet.to_vec()),
            1 => self.ends.receive(Side::Client, packet),
            2 => self.between[1].push_back(packet.to_vec()),
            _ => self.ends.receive(Side::Server, packet),
        }
        Ok(true)
    }

    fn take_change(&mut self, _: usize) -> Option<Scheduled> {
        None
    }
}
