// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop that drives directions: wait, read, push, pop, write. Generic over clock and devices.

use std::collections::VecDeque;
use std::io;

use hdrhistogram::Histogram;
use link::{Carrier, Change, Counters, FifoState, LinkError, Nanos, Stage, Volume};

use crate::bearer::{Bearer, OfTerminal};
use crate::bundle::{Bundle, Takes};
use crate::scheduled::{Applied, Scheduled};

/// Packets read at most before due packets are released again.
const BATCH: usize = 64;
/// Time after which a direction ends its turn, ns: due packets of others wait so long. What is left
/// has the next turn.
const TURN: Nanos = 100_000;
/// Largest packet of a TUN device.
const MAX_PACKET: usize = 65_535;
/// Largest release error that is recorded, ns. Larger errors count as this.
const MAX_LATE_NS: u64 = 60_000_000_000;

/// Clock and devices of the directions that share a thread, numbered from 0.
pub trait Io {
    /// Time since the start of all directions.
    fn now(&self) -> Nanos;

    /// Sleeps until there is input for a direction or the deadline has come; `false` at a stop.
    ///
    /// Where [`Io::read`] returns arrival times, input may wait for `patience` ns, as nothing has
    /// to leave earlier.
    ///
    /// # Errors
    /// The device of a direction is gone.
    fn wait(&mut self, deadline: Nanos, patience: Nanos) -> Result<bool, Gone>;

    /// Reads one packet: when it came, and its length; `None` when there is none.
    ///
    /// # Errors
    /// The device is gone.
    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<(Nanos, usize)>>;

    /// The same with the index of the terminal that it came from, where several share the
    /// direction.
    ///
    /// # Errors
    /// As [`Io::read`].
    fn read_from(
        &mut self,
        direction: usize,
        buffer: &mut [u8],
    ) -> io::Result<Option<(Nanos, usize, usize)>> {
        let read = self.read(direction, buffer)?;
        Ok(read.map(|(came, length)| (came, length, 0)))
    }

    /// The packets that [`Io::write`] accepts in bundles. All others are written one by one.
    fn takes(&self, _direction: usize) -> Takes {
        Takes::default()
    }

    /// Writes a packet or several; `false` when the device would not take them.
    ///
    /// # Errors
    /// The device is gone.
    fn write(&mut self, direction: usize, bundle: &mut Bundle) -> io::Result<bool>;

    /// The same for a terminal by its index, where several share the direction.
    ///
    /// # Errors
    /// As [`Io::write`].
    fn write_to(
        &mut self,
        direction: usize,
        _terminal: usize,
        bundle: &mut Bundle,
    ) -> io::Result<bool> {
        self.write(direction, bundle)
    }

    /// Sends a plan to the terminal in another process.
    fn send_plan(&mut self, _direction: usize, _datagram: &[u8]) {}

    /// Called once each metrics interval: sends a heartbeat to the entity behind the direction's
    /// output.
    fn heartbeat(&mut self, _direction: usize) {}

    /// What came in from another entity; `None` where a device is the input.
    fn heard(&self, _direction: usize) -> Option<Heard> {
        None
    }

    /// Takes one change from the direction's mailbox, without waiting.
    fn take_change(&mut self, direction: usize) -> Option<Scheduled>;
}

/// What came in at a socket since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// Datagrams of the neighbour, heartbeats included.
    pub datagrams: u64,
    /// Datagrams of others, dropped.
    pub strangers: u64,
    /// Datagrams of the neighbour that cannot be parsed.
    pub malformed: u64,
    /// Time since the last datagram of the neighbour, ns; `None`: none arrived so far.
    pub silent: Option<u64>,
}

/// A direction that cannot go on, and why.
#[derive(Debug)]
pub struct Gone(pub usize, pub io::Error);

/// Drives directions until a stop; every interval and every change of each goes to `report`.
///
/// A wake costs far more than a packet, so each serves them all, in the order given: where that is
/// the order in which packets and their answers travel, what one direction writes is read by the
/// next in the same turn.
///
/// # Errors
/// A device is gone.
pub fn run(
    drives: &mut [Drive],
    io: &mut impl Io,
    mut report: impl FnMut(usize, Report),
) -> Result<(), Gone> {
    loop {
        let deadline = drives.iter().map(Drive::deadline).min().unwrap_or(0);
        let patience = drives
            .iter_mut()
            .map(|it| it.link.patience())
            .min()
            .unwrap_or(0);
        if !io.wait(deadline, patience)? {
            return Ok(());
        }
        for (index, drive) in drives.iter_mut().enumerate() {
            let report = |message| report(index, message);
            drive
                .turn(index, io, report)
                .map_err(|error| Gone(index, error))?;
        }
    }
}

/// What a direction reports.
#[derive(Debug)]
pub enum Report {
    /// An interval has ended.
    Snapshot(Box<Snapshot>),
    /// The link has changed, or would not.
    Applied(Box<Applied>),
}

/// State of a direction at the end of a metrics interval. Counters run from the start.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Number of intervals since the start.
    pub tick: u64,
    /// What the link did.
    pub counters: Counters,
    /// What waits.
    pub queue: Volume,
    /// Present carrier.
    pub carrier: Carrier,
    /// `Es/N0` of frames sent now, dB; `None`: reception is perfect.
    pub es_n0_db: Option<f64>,
    /// What the receiving device would not take.
    pub refused: Volume,
    /// Release error of the interval's packets; `None` without packets.
    pub late: Option<Late>,
    /// Packets released later after their due time than the limit.
    pub late_packets: u64,
    /// What came in from another entity.
    pub heard: Option<Heard>,
    /// FIFOs of the direction (see [`OfTerminal::fifos`]); empty if several terminals share the
    /// direction.
    pub fifos: Vec<FifoState>,
    /// What each terminal did where several share the direction; counters, queue, carrier and
    /// `Es/N0` above are then those of all, of the carrier, or of the first.
    pub terminals: Vec<OfTerminal>,
}

/// Release error: time of the write less the due time, µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Late {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

impl Late {
    /// Figures of a histogram of ns; `None` when it is empty.
    fn of(histogram: &Histogram<u32>) -> Option<Self> {
        let us = |ns: u64| ns as f64 / 1e3;
        (!histogram.is_empty()).then(|| Self {
            p50: us(histogram.value_at_quantile(0.5)),
            p99: us(histogram.value_at_quantile(0.99)),
            max: us(histogram.max()),
        })
    }
}

/// One direction: its link, its measurements, and buffers that are allocated before it starts.
pub struct Drive {
    link: Bearer,
    interval: Nanos,
    next_tick: u64,
    refused: Volume,
    /// Changes to come, by time.
    changes: VecDeque<Scheduled>,
    /// Changes to report.
    applied: Vec<Applied>,
    /// Outages of single terminals that are newer than any of all.
    own_outages: Vec<Scheduled>,
    /// The last moment the link has seen.
    seen: Nanos,
    late: Histogram<u32>,
    late_total: Histogram<u32>,
    late_limit: Nanos,
    late_packets: u64,
    /// There may be more to read.
    has_more: bool,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The packets to write next, whom they are for, and their due times.
    bundle: Bundle,
    to: usize,
    dues: Vec<Nanos>,
}

impl Drive {
    /// A direction at time 0 that reports every `interval` ns and counts packets that leave more
    /// than `late_limit` ns late.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constant and valid.
    #[must_use]
    pub fn new(link: impl Stage + 'static, interval: Nanos, late_limit: Nanos) -> Self {
        Self::of(Bearer::Alone(Box::new(link)), interval, late_limit)
    }

    /// The same for what may be several terminals'.
    ///
    /// # Panics
    /// Never, as [`Drive::new`].
    #[must_use]
    pub fn of(link: Bearer, interval: Nanos, late_limit: Nanos) -> Self {
        // Two digits: a percentile is right within 1 %.
        #[expect(clippy::expect_used)]
        let late =
            Histogram::new_with_bounds(1, MAX_LATE_NS, 2).expect("constant bounds are valid");
        Self {
            link,
            interval,
            next_tick: 1,
            refused: Volume::default(),
            changes: VecDeque::new(),
            own_outages: Vec::new(),
            applied: Vec::new(),
            seen: 0,
            late_total: late.clone(),
            late,
            late_limit,
            late_packets: 0,
            has_more: false,
            input: vec![0; MAX_PACKET],
            output: Vec::with_capacity(MAX_PACKET),
            bundle: Bundle::new(),
            to: 0,
            dues: Vec::with_capacity(BATCH),
        }
    }

    /// Time at which the direction must act without further input.
    fn deadline(&self) -> Nanos {
        if self.has_more {
            return self.seen;
        }
        let tick = self.next_tick * self.interval;
        let change = self.changes.front().map_or(tick, |it| it.at.min(tick));
        self.link
            .next_event()
            .map_or(change, |event| event.min(change))
    }

    /// Schedules a change. Changes of the same time are made in the order in which they were
    /// scheduled.
    pub fn schedule(&mut self, change: Scheduled) {
        let place = self.changes.partition_point(|other| other.at <= change.at);
        self.changes.insert(place, change);
    }

    /// Makes the changes that are due. Called before every packet, so that a change acts at its
    /// time however late the thread is.
    fn apply_due(&mut self, now: Nanos) {
        while self.changes.front().is_some_and(|it| it.at <= now) {
            let Some(scheduled) = self.changes.pop_front() else {
                return;
            };
            let at = scheduled.at.max(self.seen);
            if scheduled.change.outage().is_some() && !scheduled.is_end {
                // The newest change of an outage holds: the end that an earlier one scheduled is
                // dropped. What is still scheduled when an outage ends is of newer ones.
                self.changes
                    .retain(|other| !(other.is_end && scheduled.replaces(other)));
            }
            if let Some(next) = scheduled.next(at) {
                self.schedule(next);
            }
            let set = self.link.set(at, scheduled.terminal, &scheduled.change);
            let error = set.and_then(|()| self.keep_outages(at, &scheduled)).err();
            self.seen = at;
            if scheduled.is_reported() {
                self.applied.push(Applied {
                    at,
                    change: scheduled,
                    error,
                });
            }
        }
        self.seen = self.seen.max(now);
    }

    /// Notes the outage of one terminal; where one of all ends by its length, newer ones of single
    /// terminals go on.
    fn keep_outages(&mut self, at: Nanos, made: &Scheduled) -> Result<(), LinkError> {
        let Some(is_down) = made.change.outage() else {
            return Ok(());
        };
        if made.terminal.is_none() && made.is_end {
            let mut own = self.own_outages.iter().filter(|it| made.replaces(it));
            return own.try_for_each(|it| self.link.set(at, it.terminal, &it.change));
        }
        self.own_outages.retain(|it| !made.replaces(it));
        if made.terminal.is_some() && is_down {
            self.own_outages.push(made.clone());
        }
        Ok(())
    }

    /// Reads the input, releases the packets that are due, and reports the intervals that have
    /// ended.
    fn turn(
        &mut self,
        direction: usize,
        io: &mut impl Io,
        mut report: impl FnMut(Report),
    ) -> io::Result<()> {
        while let Some(mut scheduled) = io.take_change(direction) {
            // Of another process: it counts from now, not from when the link was last looked at.
            if matches!(scheduled.change, Change::Plan { .. }) {
                scheduled.at = io.now();
            }
            self.schedule(scheduled);
        }
        self.take_input(direction, io)?;
        self.release(direction, io)?;
        self.send_plans(direction, io);
        for applied in self.applied.drain(..) {
            report(Report::Applied(Box::new(applied)));
        }
        // A late thread owes every interval it slept through: lines of the four directions are
        // joined by tick.
        while io.now() >= self.next_tick * self.interval {
            io.heartbeat(direction);
            let heard = io.heard(direction);
            report(Report::Snapshot(Box::new(self.snapshot(heard))));
            self.next_tick += 1;
        }
        Ok(())
    }

    /// Release error over the whole run; `None` without packets.
    #[must_use]
    pub fn late_total(&self) -> Option<Late> {
        Late::of(&self.late_total)
    }

    /// Offers the packets that can be read, up to a limit, so that due packets do not wait for a
    /// flood.
    fn take_input(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        let begun = io.now();
        self.has_more = true;
        for _ in 0..BATCH {
            let Some((came, length, from)) = io.read_from(direction, &mut self.input)? else {
                self.has_more = false;
                break;
            };
            self.apply_due(came);
            self.link.offer(came, from, &self.input[..length]);
            if io.now() > begun + TURN {
                break;
            }
        }
        Ok(())
    }

    /// Releases what is due, for the length of a turn; packets that come out together and belong
    /// together are written as one.
    fn release(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        let (takes, begun) = (io.takes(direction), io.now());
        loop {
            let now = io.now();
            self.apply_due(now);
            if now > begun + TURN {
                return self.write(direction, io);
            }
            let Some((due, to)) = self.link.pop(now, &mut self.output) else {
                return self.write(direction, io);
            };
            if to != self.to {
                self.write(direction, io)?;
                self.to = to;
            }
            if !self.bundle.add(&self.output, takes) {
                self.write(direction, io)?;
                self.bundle.add(&self.output, takes);
            }
            self.dues.push(due);
            if self.bundle.is_closed() {
                self.write(direction, io)?;
            }
        }
    }

    /// Writes the bundle.
    fn write(&mut self, direction: usize, io: &mut impl Io) -> io::Result<()> {
        let size = self.bundle.size();
        if size.packets == 0 {
            return Ok(());
        }
        if !io.write_to(direction, self.to, &mut self.bundle)? {
            self.refused += size;
        }
        self.bundle.clear();
        let now = io.now();
        for due in self.dues.drain(..) {
            let late = now.saturating_sub(due);
            self.late.saturating_record(late);
            self.late_total.saturating_record(late);
            self.late_packets += u64::from(late > self.late_limit);
        }
        Ok(())
    }

    /// Sends the plans for a terminal in another process.
    fn send_plans(&mut self, direction: usize, io: &mut impl Io) {
        while self.link.take_plan(&mut self.output) {
            io.send_plan(direction, &self.output);
        }
    }

    fn snapshot(&mut self, heard: Option<Heard>) -> Snapshot {
        let late = Late::of(&self.late);
        if late.is_some() {
            self.late.reset();
        }
        let state = self.link.state(self.seen);
        let all = state.all;
        Snapshot {
            tick: self.next_tick,
            counters: all.counters,
            queue: all.queue,
            carrier: all.carrier,
            es_n0_db: all.es_n0_db,
            fifos: all.fifos,
            terminals: state.terminals,
            refused: self.refused,
            late,
            late_packets: self.late_packets,
            heard,
        }
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
