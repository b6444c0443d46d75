// SPDX-License-Identifier: GPL-3.0-or-later
//! `raw/link.jsonl` (schemas/link-metrics.schema.json): from snapshots of the directions to lines of a file.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::drive::{Late, Snapshot};
use crate::order::Applied;
use crate::plan::DIRECTIONS;
use crate::probes::Collector;

/// First line.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "header")]
pub struct Header {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Name of the run.
    pub run_id: String,
    /// Version of this program.
    pub version: &'static str,
    /// Hash of the profile folder.
    pub profile_sha256: String,
    /// Hash of the configuration file.
    pub config_sha256: String,
    /// Seed of the run.
    pub seed: u64,
    /// Clock behind release times.
    pub clock: &'static str,
    /// Unix time of the start of all directions, s.
    pub start_unix_s: f64,
    /// Time between two samples, ms.
    pub interval_ms: u64,
    /// Release error beyond which a packet counts as late, µs.
    pub late_limit_us: u64,
    /// All threads are `SCHED_FIFO`.
    pub sched_fifo: bool,
    /// Memory is locked.
    pub memory_locked: bool,
    /// What of the path this process is.
    pub entity: &'static str,
}

/// Last line.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "end")]
pub struct End {
    /// Unix time of the end, s.
    pub t_unix_s: f64,
    /// Why the emulator ended.
    pub reason: String,
    late_p50_us: PerDirection<Option<f64>>,
    late_p99_us: PerDirection<Option<f64>>,
    late_max_us: PerDirection<Option<f64>>,
    /// User and system time of the process, s.
    pub cpu_s: f64,
}

impl End {
    /// The last line, with the release errors of the whole run per direction.
    #[must_use]
    pub fn new(t_unix_s: f64, reason: String, late: [Option<Late>; 4], cpu_s: f64) -> Self {
        Self {
            t_unix_s,
            reason,
            late_p50_us: late.map(|late| late.map(|late| late.p50)).into(),
            late_p99_us: late.map(|late| late.map(|late| late.p99)).into(),
            late_max_us: late.map(|late| late.map(|late| late.max)).into(),
            cpu_s,
        }
    }
}

/// One interval.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "sample")]
pub(crate) struct Sample {
    /// Its end.
    pub t_unix_s: f64,
    /// Its length.
    #[serde(skip)]
    pub seconds: f64,
    /// `None` where another emulator carries the direction.
    #[serde(flatten)]
    directions: PerDirection<Option<Direction>>,
}

impl Sample {
    /// GW to ST; `None` where another emulator carries it.
    pub fn forward(&self) -> Option<&Direction> {
        self.directions.forward.as_ref()
    }

    /// ST to GW; `None` where another emulator carries it.
    pub fn back(&self) -> Option<&Direction> {
        self.directions.return_link.as_ref()
    }
}

/// A change of a direction while it ran.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "change")]
struct ChangeLine<'a> {
    t_unix_s: f64,
    /// Time since the start of all directions, s.
    t_s: f64,
    direction: &'static str,
    origin: &'static str,
    set: &'a Map<String, Value>,
    /// Why the link stayed as it was.
    error: Option<String>,
}

impl<'a> ChangeLine<'a> {
    fn of(start_unix_s: f64, direction: usize, applied: &'a Applied) -> Self {
        let t_s = applied.at as f64 / 1e9;
        Self {
            t_unix_s: start_unix_s + t_s,
            t_s,
            direction: DIRECTIONS[direction],
            origin: applied.order.origin.word(),
            set: &applied.order.asked,
            error: applied.error.as_ref().map(ToString::to_string),
        }
    }
}

/// One value per direction, named as in [`crate::plan::DIRECTIONS`].
#[derive(Debug, Serialize)]
struct PerDirection<T> {
    forward: T,
    #[serde(rename = "return")]
    return_link: T,
    terrestrial_down: T,
    terrestrial_up: T,
}

impl<T> From<[T; 4]> for PerDirection<T> {
    fn from([forward, return_link, terrestrial_down, terrestrial_up]: [T; 4]) -> Self {
        Self {
            forward,
            return_link,
            terrestrial_down,
            terrestrial_up,
        }
    }
}

/// What a direction did in an interval.
#[derive(Debug, Serialize)]
pub(crate) struct Direction {
    pub queue_bytes: u64,
    pub queue_packets: u64,
    pub in_packets: u64,
    pub in_bytes: u64,
    pub out_packets: u64,
    pub out_bytes: u64,
    pub rate_bps: f64,
    pub dropped_packets: u64,
    pub marked_packets: u64,
    pub lost_packets: u64,
    pub frames: u64,
    pub lost_frames: u64,
    /// Frames sent by the name of their MODCOD or waveform.
    pub frames_by_modcod: BTreeMap<String, u64>,
    pub frame_fill_ratio: Option<f64>,
    pub superframes: Option<u64>,
    pub slots_assigned: Option<u64>,
    pub slots_free: Option<u64>,
    pub slots_signalling: Option<u64>,
    pub requests: Option<u64>,
    pub requests_lost: Option<u64>,
    pub plans_lost: Option<u64>,
    /// Payload of frames that plans took.
    pub signalling_bytes: u64,
    /// MODCOD or waveform in force at the end of the interval; `None`: the direction has no frames.
    pub modcod_id: Option<u8>,
    /// `Es/N0` that it needs.
    pub threshold_db: Option<f64>,
    /// `Es/N0` at the receiver.
    pub es_n0_db: Option<f64>,
    pub late_p50_us: Option<f64>,
    pub late_p99_us: Option<f64>,
    pub late_max_us: Option<f64>,
    pub late_packets: u64,
    /// `None` where no other entity sends.
    pub heard: Option<HeardLine>,
}

/// What came in from the entity before.
#[derive(Debug, Serialize)]
pub(crate) struct HeardLine {
    pub datagrams: u64,
    pub strangers: u64,
    pub malformed: u64,
    /// `None`: never heard.
    pub silent_ms: Option<f64>,
}

impl Direction {
    /// What happened between two snapshots. A packet that the receiving device refused counts as dropped, not as out.
    fn between(last: Option<&Snapshot>, now: &Snapshot, seconds: f64) -> Self {
        let delta = |value: fn(&Snapshot) -> u64| value(now).saturating_sub(last.map_or(0, value));
        let out_bytes = delta(|s| s.counters.bytes_out - s.refused.1);
        let available = delta(|s| s.counters.frame_bytes_available);
        let used = delta(|s| s.counters.frame_bytes_used);
        let is_on_demand = now.counters.superframes > 0;
        let on_demand = |value| is_on_demand.then(|| delta(value));
        Self {
            queue_bytes: now.queue.0,
            queue_packets: now.queue.1,
            in_packets: delta(|s| s.counters.packets_in),
            in_bytes: delta(|s| s.counters.bytes_in),
            out_packets: delta(|s| s.counters.packets_out - s.refused.0),
            out_bytes,
            rate_bps: out_bytes as f64 * 8.0 / seconds,
            dropped_packets: delta(|s| s.counters.packets_dropped + s.refused.0),
            marked_packets: delta(|s| s.counters.packets_marked),
            lost_packets: delta(|s| s.counters.packets_lost),
            frames: delta(|s| s.counters.frames_sent),
            lost_frames: delta(|s| s.counters.frames_lost),
            frames_by_modcod: frames_by_modcod(last, now),
            modcod_id: Some(now.carrier.waveform_id()).filter(|id| *id > 0),
            threshold_db: now.carrier.threshold_db(),
            es_n0_db: now.cn_db.map(|db| (db * 1e3).round() / 1e3),
            frame_fill_ratio: (available > 0).then(|| used as f64 / available as f64),
            superframes: on_demand(|s| s.counters.superframes),
            slots_assigned: on_demand(|s| s.counters.slots_assigned),
            slots_free: on_demand(|s| s.counters.slots_free),
            slots_signalling: on_demand(|s| s.counters.slots_signalling),
            requests: on_demand(|s| s.counters.requests),
            requests_lost: on_demand(|s| s.counters.requests_lost),
            plans_lost: on_demand(|s| s.counters.plans_lost),
            signalling_bytes: delta(|s| s.counters.signalling_bytes),
            late_p50_us: now.late.map(|late| late.p50),
            late_p99_us: now.late.map(|late| late.p99),
            late_max_us: now.late.map(|late| late.max),
            late_packets: delta(|s| s.late_packets),
            heard: now.heard.map(|heard| {
                let before = last.and_then(|last| last.heard).unwrap_or_default();
                HeardLine {
                    datagrams: heard.datagrams.saturating_sub(before.datagrams),
                    strangers: heard.strangers.saturating_sub(before.strangers),
                    malformed: heard.malformed.saturating_sub(before.malformed),
                    silent_ms: heard.silent.map(|ns| ns as f64 / 1e6),
                }
            }),
        }
    }
}

/// Frames sent between two snapshots, of those MODCODs and waveforms that were used.
fn frames_by_modcod(last: Option<&Snapshot>, now: &Snapshot) -> BTreeMap<String, u64> {
    let frames = |snapshot: &Snapshot, id: usize| snapshot.counters.frames_by_id[id];
    (0..now.counters.frames_by_id.len())
        .filter_map(|id| {
            let count = frames(now, id) - last.map_or(0, |last| frames(last, id));
            let name = now.carrier.waveform_name(id as u8)?;
            (count > 0).then_some((name, count))
        })
        .collect()
}

/// Joins the snapshots of the directions by tick.
struct Joiner {
    start_unix_s: f64,
    interval_s: f64,
    /// `None` for directions that are not served.
    waiting: [Option<VecDeque<Box<Snapshot>>>; 4],
    last_tick: u64,
    last: [Option<Box<Snapshot>>; 4],
}

impl Joiner {
    fn new(start_unix_s: f64, interval_ms: u64, served: [bool; 4]) -> Self {
        Self {
            start_unix_s,
            interval_s: interval_ms as f64 / 1e3,
            waiting: served.map(|served| served.then(VecDeque::new)),
            last_tick: 0,
            last: [const { None }; 4],
        }
    }

    /// Takes a snapshot; gives a sample when it completes a tick. A tick that some direction could not hand over is left
    /// out: counters run on, so the next sample covers both.
    fn add(&mut self, direction: usize, snapshot: Box<Snapshot>) -> Option<Sample> {
        self.waiting[direction].as_mut()?.push_back(snapshot);
        let mut newest = 0;
        for queue in self.waiting.iter().flatten() {
            newest = newest.max(queue.front()?.tick);
        }
        for queue in self.waiting.iter_mut().flatten() {
            while queue.front()?.tick < newest {
                queue.pop_front();
            }
            newest = newest.max(queue.front()?.tick);
        }
        if self
            .waiting
            .iter()
            .flatten()
            .any(|queue| queue.front().is_none_or(|front| front.tick != newest))
        {
            return None;
        }
        let now = self
            .waiting
            .each_mut()
            .map(|queue| queue.as_mut()?.pop_front());
        Some(self.sample(newest, now))
    }

    fn sample(&mut self, tick: u64, now: [Option<Box<Snapshot>>; 4]) -> Sample {
        let seconds = (tick - self.last_tick) as f64 * self.interval_s;
        let mut last = self.last.iter();
        let directions = now.each_ref().map(|snapshot| {
            let last = last.next().and_then(Option::as_deref);
            Some(Direction::between(last, snapshot.as_deref()?, seconds))
        });
        (self.last_tick, self.last) = (tick, now);
        Sample {
            t_unix_s: self.start_unix_s + tick as f64 * self.interval_s,
            seconds,
            directions: directions.into(),
        }
    }
}

/// What reaches the writer.
pub enum Message {
    /// State of a direction (index into [`crate::plan::DIRECTIONS`]).
    Snapshot(usize, Box<Snapshot>),
    /// A change of a direction.
    Change(usize, Box<Applied>),
    /// The last line; the writer ends.
    End(Box<End>),
}

/// Opens the metrics file for appending.
///
/// # Errors
/// The file cannot be created or opened.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Where samples go.
pub struct Outlet<W> {
    /// Lines.
    pub file: W,
    /// Directions that have samples.
    pub served: [bool; 4],
    /// Who gets them as probes, too.
    pub collector: Option<Collector>,
}

/// Writes header, samples and end line. A write error ends the writing, not the link: it is told once by `note`, and what is
/// still received is thrown away. Gives `false` after a write error.
pub fn write_all(
    mut outlet: Outlet<impl Write>,
    header: &Header,
    mut messages: impl Iterator<Item = Message>,
    note: impl FnOnce(io::Error),
) -> bool {
    let result = write_lines(&mut outlet, header, &mut messages);
    let Err(error) = result else { return true };
    note(error);
    let _ = messages.find(|message| matches!(message, Message::End(_)));
    false
}

fn write_lines(
    outlet: &mut Outlet<impl Write>,
    header: &Header,
    messages: &mut impl Iterator<Item = Message>,
) -> io::Result<()> {
    let mut joiner = Joiner::new(header.start_unix_s, header.interval_ms, outlet.served);
    let out = &mut outlet.file;
    write_line(out, header)?;
    for message in messages {
        match message {
            Message::Snapshot(direction, snapshot) => {
                if let Some(sample) = joiner.add(direction, snapshot) {
                    write_line(out, &sample)?;
                    if let Some(collector) = &outlet.collector {
                        collector.send(&sample);
                    }
                }
            }
            Message::Change(direction, applied) => {
                let line = ChangeLine::of(header.start_unix_s, direction, &applied);
                write_line(out, &line)?;
            }
            Message::End(end) => return write_line(out, &end),
        }
    }
    Ok(())
}

/// One line in one write, so that a reader never meets half a line of a living file.
fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
pub(crate) mod tests;
