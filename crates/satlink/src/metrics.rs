// SPDX-License-Identifier: GPL-3.0-or-later
//! `raw/link.jsonl` (schemas/link-metrics.schema.json): the lines of the file.

use std::io::{self, Write};

use emulator::directions::DIRECTIONS;
use emulator::drive::{Late, Snapshot};
use emulator::fifos::FifoNames;
use emulator::scheduled::Applied;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::probes::Collector;
use crate::samples::{Joiner, PerDirection, Sample};

/// First line.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Header {
    /// Name and version of the schema.
    #[schemars(extend("const" = "satlab/link-metrics/1"))]
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
    /// Clock of the release times.
    pub clock: &'static str,
    /// Unix time of the start of all directions, s.
    pub start_unix_s: f64,
    /// Time between two samples, ms.
    pub interval_ms: u64,
    /// Release error beyond which a packet counts as late, µs.
    pub late_limit_us: u64,
    /// Whether all threads run under `SCHED_FIFO`.
    pub sched_fifo: bool,
    /// Whether the memory is locked.
    pub memory_locked: bool,
    /// Part of the path that this process emulates.
    #[schemars(extend("enum" = ["all", "st", "sat", "gw"]))]
    pub entity: &'static str,
}

/// Last line.
#[derive(Debug, Serialize, JsonSchema)]
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

/// Release errors of the whole run, as [`DIRECTIONS`]; `None`: no packet left there.
pub type ReleaseErrors = [Option<Late>; 4];

impl End {
    /// The last line.
    #[must_use]
    pub fn new(t_unix_s: f64, reason: String, errors: ReleaseErrors, cpu_s: f64) -> Self {
        let per_direction = |figure: fn(Late) -> f64| errors.map(|error| error.map(figure)).into();
        Self {
            t_unix_s,
            reason,
            late_p50_us: per_direction(|error| error.p50),
            late_p99_us: per_direction(|error| error.p99),
            late_max_us: per_direction(|error| error.max),
            cpu_s,
        }
    }
}

/// A change of a direction while it ran.
#[derive(Debug, Serialize, JsonSchema)]
struct ChangeLine<'a> {
    t_unix_s: f64,
    /// time of the change since the start of the emulator, s
    t_s: f64,
    #[schemars(extend("enum" = DIRECTIONS))]
    direction: &'static str,
    #[schemars(extend("enum" = ["control", "timeline", "profile"]))]
    origin: &'static str,
    /// number of the terminal whose link changed; left out: all terminals that share the direction
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize")]
    terminal: Option<usize>,
    /// the field that changed, as requested
    set: &'a Map<String, Value>,
    /// why the link was not changed
    error: Option<String>,
}

impl<'a> ChangeLine<'a> {
    fn of(start_unix_s: f64, direction: usize, applied: &'a Applied) -> Self {
        let t_s = applied.at as f64 / 1e9;
        Self {
            t_unix_s: start_unix_s + t_s,
            t_s,
            direction: DIRECTIONS[direction],
            origin: applied.change.origin.word(),
            terminal: applied.change.terminal.map(|index| index + 1),
            set: &applied.change.requested,
            error: applied.error.as_ref().map(ToString::to_string),
        }
    }
}

/// A line of the file.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line<'a> {
    Header(&'a Header),
    Sample(&'a Sample),
    End(&'a End),
    /// A change of a direction while the link runs.
    Change(ChangeLine<'a>),
}

/// What reaches the writer.
pub enum Message {
    /// State of a direction (index into [`DIRECTIONS`]).
    Snapshot(usize, Box<Snapshot>),
    /// A change of a direction.
    Change(usize, Box<Applied>),
    /// The last line; the writer ends.
    End(Box<End>),
}

/// Where samples go.
pub struct Output<W> {
    /// Lines.
    pub file: W,
    /// Directions that have samples.
    pub served: [bool; 4],
    /// Names of the FIFOs.
    pub fifos: FifoNames,
    /// Who gets them as probes, too.
    pub collector: Option<Collector>,
}

/// Writes header, samples and end line. A write error ends the writing, not the link: it is logged
/// once, later samples are discarded, and the result is `false`.
pub fn write_all(
    mut output: Output<impl Write>,
    header: &Header,
    mut messages: impl Iterator<Item = Message>,
    log: impl FnOnce(io::Error),
) -> bool {
    let result = write_lines(&mut output, header, &mut messages);
    let Err(error) = result else { return true };
    log(error);
    let _ = messages.find(|message| matches!(message, Message::End(_)));
    false
}

fn write_lines(
    output: &mut Output<impl Write>,
    header: &Header,
    messages: &mut impl Iterator<Item = Message>,
) -> io::Result<()> {
    let names = std::mem::take(&mut output.fifos);
    let mut joiner = Joiner::new(
        header.start_unix_s,
        header.interval_ms,
        output.served,
        names,
    );
    let out = &mut output.file;
    write_line(out, &Line::Header(header))?;
    for message in messages {
        match message {
            Message::Snapshot(direction, snapshot) => {
                if let Some(sample) = joiner.add(direction, snapshot) {
                    write_line(out, &Line::Sample(&sample))?;
                    if let Some(collector) = &output.collector {
                        collector.send(&sample);
                    }
                }
            }
            Message::Change(direction, applied) => {
                let line = ChangeLine::of(header.start_unix_s, direction, &applied);
                write_line(out, &Line::Change(line))?;
            }
            Message::End(end) => return write_line(out, &Line::End(&end)),
        }
    }
    Ok(())
}

/// One line in one write, so that a reader never meets half a line of a living file.
fn write_line(out: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    out.write_all(&bytes)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
