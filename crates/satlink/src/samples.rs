// SPDX-License-Identifier: GPL-3.0-or-later
//! From snapshots of the directions to samples of an interval.

use std::collections::{BTreeMap, VecDeque};

use emulator::bearer::OfTerminal;
use emulator::drive::Snapshot;
use emulator::fifos::FifoNames;
use emulator::plan::rounded_db;
use link::Counters;
use schemars::JsonSchema;
use serde::Serialize;

use crate::fifos::{self, FifoLine, QueueTimes};

/// One value per direction.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PerDirection<T> {
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

/// One interval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sample {
    /// Unix time of the end of the interval, s
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

/// Figures of a direction in an interval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Direction {
    pub queue_bytes: u64,
    pub queue_packets: u64,
    /// Left out where the direction has no queue.
    #[serde(flatten)]
    pub times: Option<QueueTimes>,
    pub in_packets: u64,
    pub in_bytes: u64,
    pub out_packets: u64,
    pub out_bytes: u64,
    /// rate of the IP packets that were released in the interval, bit/s
    pub rate_bps: f64,
    pub dropped_packets: u64,
    /// For probes alone.
    #[serde(skip)]
    pub dropped_bytes: u64,
    /// packets marked with congestion experienced (RFC 3168)
    pub marked_packets: u64,
    pub lost_packets: u64,
    /// that a later packet overtook
    pub reordered_packets: u64,
    /// copies that the link made, contained in `out_packets`
    pub duplicated_packets: u64,
    /// UDP datagrams with a flipped bit
    pub corrupted_packets: u64,
    pub frames: u64,
    pub lost_frames: u64,
    /// number of frames sent, by the name of their MODCOD or waveform
    pub frames_by_modcod: BTreeMap<String, u64>,
    pub frame_fill_ratio: Option<f64>,
    /// superframes that began; null without demand assignment, like the next seven fields
    pub superframes: Option<u64>,
    /// bursts granted to the terminal in these superframes; it used as many of them as frames says
    pub slots_assigned: Option<u64>,
    /// bursts granted to no terminal
    pub slots_free: Option<u64>,
    /// bursts kept for requests
    pub slots_signalling: Option<u64>,
    /// capacity requests of the terminal for more than nothing
    pub requests: Option<u64>,
    /// how many of these requests were lost
    pub requests_lost: Option<u64>,
    /// bursts requested as volume (VBDC)
    pub slots_requested: Option<u64>,
    /// For probes alone.
    #[serde(skip)]
    pub asked: Asked,
    /// slot plans (TBTP2) that the terminal did not receive
    pub plans_lost: Option<u64>,
    /// bytes of frame payload that slot plans took
    pub signalling_bytes: u64,
    /// MODCOD or waveform used at the end of the interval; null: the direction has no frames
    pub modcod_id: Option<u8>,
    /// Es/N0 that this MODCOD or waveform needs
    pub threshold_db: Option<f64>,
    /// Es/N0 of frames sent at the end of the interval
    pub es_n0_db: Option<f64>,
    pub late_p50_us: Option<f64>,
    pub late_p99_us: Option<f64>,
    pub late_max_us: Option<f64>,
    /// packets released more than `late_limit_us` after their due time
    pub late_packets: u64,
    /// datagrams that arrived from the entity before; null if there is none
    pub heard: Option<HeardLine>,
    /// FIFOs in which a packet waited, from which it left or in which it was dropped, if there are
    /// several FIFOs; highest priority first
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub fifos: Vec<FifoLine>,
    /// figures of each terminal if several share the direction, otherwise left out. The figures
    /// above are then totals of the terminals; superframes, free and signalling slots, frames and
    /// their payload are totals of the carrier; MODCOD and Es/N0 are those of the first terminal
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub terminals: Vec<TerminalLine>,
}

/// What capacity requests asked for in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// Rates, summed over the requests.
    pub rbdc_kbps: u64,
    /// Volumes, summed over the requests.
    pub vbdc_bursts: u64,
}

/// Figures of one terminal of a shared direction in an interval.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TerminalLine {
    /// number of the terminal, 1 is the ST
    pub terminal: usize,
    pub queue_bytes: u64,
    pub queue_packets: u64,
    #[serde(flatten)]
    pub times: QueueTimes,
    pub in_packets: u64,
    pub in_bytes: u64,
    pub out_packets: u64,
    pub out_bytes: u64,
    /// rate of the IP packets that were released in the interval, bit/s
    pub rate_bps: f64,
    /// rate of the IP packets that left the terminal's queue for the air in the interval, bit/s
    pub sent_bps: f64,
    pub dropped_packets: u64,
    /// For probes alone.
    #[serde(skip)]
    pub dropped_bytes: u64,
    pub lost_packets: u64,
    /// frames with data for the terminal, or bursts that it sent
    pub frames: u64,
    pub lost_frames: u64,
    /// MODCOD or waveform used at the end of the interval
    pub modcod_id: Option<u8>,
    /// `Es/N0` that it needs; for probes alone.
    #[serde(skip)]
    pub threshold_db: Option<f64>,
    pub es_n0_db: Option<f64>,
    /// bursts granted to the terminal; null on the forward link, like the next three fields
    pub slots_assigned: Option<u64>,
    /// capacity requests for more than nothing
    pub requests: Option<u64>,
    /// bursts that these requests asked for as volume (VBDC)
    pub slots_requested: Option<u64>,
    /// For probes alone.
    #[serde(skip)]
    pub asked: Asked,
    pub plans_lost: Option<u64>,
    /// FIFOs in which a packet waited, from which it left or in which it was dropped, if there are
    /// several FIFOs; highest priority first
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub fifos: Vec<FifoLine>,
}

impl TerminalLine {
    /// The sample of the terminal with this index between two states.
    fn between(
        index: usize,
        last: Option<&OfTerminal>,
        now: &OfTerminal,
        seconds: f64,
        names: &[String],
    ) -> Self {
        let before = last.map_or(&[][..], |it| &it.fifos);
        let (times, fifos) = fifos::of_fifos(before, &now.fifos, names);
        let delta = |value: fn(&Counters) -> u64| {
            value(&now.counters) - last.map_or(0, |it| value(&it.counters))
        };
        let on_demand = |value| (now.counters.superframes > 0).then(|| delta(value));
        let out_bytes = delta(|it| it.bytes_out);
        let came = delta(|it| it.bytes_in) + last.map_or(0, |it| it.queue.bytes);
        let left = delta(|it| it.bytes_dropped) + now.queue.bytes;
        let sent_bytes = came.saturating_sub(left);
        Self {
            terminal: index + 1,
            queue_bytes: now.queue.bytes,
            queue_packets: now.queue.packets,
            times,
            in_packets: delta(|it| it.packets_in),
            in_bytes: delta(|it| it.bytes_in),
            out_packets: delta(|it| it.packets_out),
            out_bytes,
            rate_bps: out_bytes as f64 * 8.0 / seconds,
            sent_bps: sent_bytes as f64 * 8.0 / seconds,
            dropped_packets: delta(|it| it.packets_dropped),
            dropped_bytes: delta(|it| it.bytes_dropped),
            lost_packets: delta(|it| it.packets_lost),
            frames: delta(|it| it.frames_sent),
            lost_frames: delta(|it| it.frames_lost),
            modcod_id: Some(now.carrier.waveform_id()).filter(|id| *id > 0),
            threshold_db: now.carrier.threshold_db(),
            es_n0_db: now.es_n0_db.map(rounded_db),
            slots_assigned: on_demand(|it| it.slots_assigned),
            requests: on_demand(|it| it.requests),
            slots_requested: on_demand(|it| it.vbdc_bursts),
            asked: Asked {
                rbdc_kbps: delta(|it| it.rbdc_kbps),
                vbdc_bursts: delta(|it| it.vbdc_bursts),
            },
            plans_lost: on_demand(|it| it.plans_lost),
            fifos,
        }
    }
}

/// Datagrams that arrived from the entity before.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HeardLine {
    pub datagrams: u64,
    /// datagrams from other senders; they are dropped
    pub strangers: u64,
    /// datagrams that are neither a frame nor a sign of life; they are dropped
    pub malformed: u64,
    /// time since the last datagram of that entity; null: none arrived so far
    pub silent_ms: Option<f64>,
}

impl HeardLine {
    fn between(last: Option<&Snapshot>, now: &Snapshot) -> Option<Self> {
        let heard = now.heard?;
        let before = last.and_then(|last| last.heard).unwrap_or_default();
        Some(Self {
            datagrams: heard.datagrams.saturating_sub(before.datagrams),
            strangers: heard.strangers.saturating_sub(before.strangers),
            malformed: heard.malformed.saturating_sub(before.malformed),
            silent_ms: heard.silent.map(|ns| ns as f64 / 1e6),
        })
    }
}

impl Direction {
    /// The sample of the time between two snapshots. A packet that the receiving device refused
    /// counts as dropped, not as out.
    fn between(
        last: Option<&Snapshot>,
        now: &Snapshot,
        seconds: f64,
        names: &[Vec<String>],
    ) -> Self {
        let delta = |value: fn(&Snapshot) -> u64| value(now).saturating_sub(last.map_or(0, value));
        let out_bytes = delta(|s| s.counters.bytes_out - s.refused.bytes);
        let available = delta(|s| s.counters.frame_bytes_available);
        let used = delta(|s| s.counters.frame_bytes_used);
        let is_on_demand = now.counters.superframes > 0;
        let on_demand = |value| is_on_demand.then(|| delta(value));
        let before = last.map_or(&[][..], |it| &it.fifos);
        let names_of = |index: usize| names.get(index).map_or(&[][..], Vec::as_slice);
        let (own, fifos) = fifos::of_fifos(before, &now.fifos, names_of(0));
        Self {
            queue_bytes: now.queue.bytes,
            queue_packets: now.queue.packets,
            times: QueueTimes::of_direction(own, now),
            in_packets: delta(|s| s.counters.packets_in),
            in_bytes: delta(|s| s.counters.bytes_in),
            out_packets: delta(|s| s.counters.packets_out - s.refused.packets),
            out_bytes,
            rate_bps: out_bytes as f64 * 8.0 / seconds,
            dropped_packets: delta(|s| s.counters.packets_dropped + s.refused.packets),
            dropped_bytes: delta(|s| s.counters.bytes_dropped),
            marked_packets: delta(|s| s.counters.packets_marked),
            lost_packets: delta(|s| s.counters.packets_lost),
            reordered_packets: delta(|s| s.counters.packets_reordered),
            duplicated_packets: delta(|s| s.counters.packets_duplicated),
            corrupted_packets: delta(|s| s.counters.packets_corrupted),
            frames: delta(|s| s.counters.frames_sent),
            lost_frames: delta(|s| s.counters.frames_lost),
            frames_by_modcod: frames_by_modcod(last, now),
            modcod_id: Some(now.carrier.waveform_id()).filter(|id| *id > 0),
            threshold_db: now.carrier.threshold_db(),
            es_n0_db: now.es_n0_db.map(rounded_db),
            frame_fill_ratio: (available > 0).then(|| used as f64 / available as f64),
            superframes: on_demand(|s| s.counters.superframes),
            slots_assigned: on_demand(|s| s.counters.slots_assigned),
            slots_free: on_demand(|s| s.counters.slots_free),
            slots_signalling: on_demand(|s| s.counters.slots_signalling),
            requests: on_demand(|s| s.counters.requests),
            requests_lost: on_demand(|s| s.counters.requests_lost),
            slots_requested: on_demand(|s| s.counters.vbdc_bursts),
            asked: Asked {
                rbdc_kbps: delta(|s| s.counters.rbdc_kbps),
                vbdc_bursts: delta(|s| s.counters.vbdc_bursts),
            },
            plans_lost: on_demand(|s| s.counters.plans_lost),
            signalling_bytes: delta(|s| s.counters.signalling_bytes),
            late_p50_us: now.late.map(|late| late.p50),
            late_p99_us: now.late.map(|late| late.p99),
            late_max_us: now.late.map(|late| late.max),
            late_packets: delta(|s| s.late_packets),
            heard: HeardLine::between(last, now),
            fifos,
            terminals: (0..)
                .zip(&now.terminals)
                .map(|(index, terminal)| {
                    let before = last.and_then(|last| last.terminals.get(index));
                    TerminalLine::between(index, before, terminal, seconds, names_of(index))
                })
                .collect(),
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
pub(crate) struct Joiner {
    start_unix_s: f64,
    interval_s: f64,
    names: FifoNames,
    /// `None` for directions that are not served.
    waiting: [Option<VecDeque<Box<Snapshot>>>; 4],
    last_tick: u64,
    last: [Option<Box<Snapshot>>; 4],
}

impl Joiner {
    pub(crate) fn new(
        start_unix_s: f64,
        interval_ms: u64,
        served: [bool; 4],
        names: FifoNames,
    ) -> Self {
        Self {
            start_unix_s,
            interval_s: interval_ms as f64 / 1e3,
            names,
            waiting: served.map(|served| served.then(VecDeque::new)),
            last_tick: 0,
            last: [const { None }; 4],
        }
    }

    /// Adds a snapshot; returns a sample when it completes a tick. A tick that a direction missed
    /// is left out: counters run on, so the next sample covers both.
    pub(crate) fn add(&mut self, direction: usize, snapshot: Box<Snapshot>) -> Option<Sample> {
        self.waiting[direction].as_mut()?.push_back(snapshot);
        let mut newest = 0;
        for queue in self.waiting.iter().flatten() {
            newest = newest.max(queue.front()?.tick);
        }
        for queue in self.waiting.iter_mut().flatten() {
            while queue.front()?.tick < newest {
                if let (Some(skipped), Some(next)) = (queue.pop_front(), queue.front_mut()) {
                    fifos::carry_over(*skipped, next);
                }
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

    pub(crate) fn sample(&mut self, tick: u64, now: [Option<Box<Snapshot>>; 4]) -> Sample {
        let seconds = (tick - self.last_tick) as f64 * self.interval_s;
        let mut before = self.last.iter().zip(&self.names);
        let directions = now.each_ref().map(|snapshot| {
            let (last, names) = before.next()?;
            Some(Direction::between(
                last.as_deref(),
                snapshot.as_deref()?,
                seconds,
                names,
            ))
        });
        (self.last_tick, self.last) = (tick, now);
        Sample {
            t_unix_s: self.start_unix_s + tick as f64 * self.interval_s,
            seconds,
            directions: directions.into(),
        }
    }
}

#[cfg(test)]
/// The first sample that these snapshots of the first interval become.
pub(crate) fn sampled(snapshots: &[Option<Snapshot>; 4]) -> Sample {
    sampled_with(snapshots, FifoNames::default())
}

#[cfg(test)]
/// The same with names of FIFOs.
pub(crate) fn sampled_with(snapshots: &[Option<Snapshot>; 4], names: FifoNames) -> Sample {
    let mut joiner = Joiner::new(1000.0, 100, [true; 4], names);
    joiner.sample(1, snapshots.each_ref().map(|one| one.clone().map(Box::new)))
}
