// SPDX-License-Identifier: GPL-3.0-or-later
//! The lines of one connection, as they come about.

use std::rc::Rc;
use std::time::Instant;

use quic::LegOptions;

use crate::meter::Meter;
use crate::record::{Direction, Line, Request, Side, Socket, Start};
use crate::stack::{Stats, ZeroRtt};

/// What holds for all connections of a process.
#[derive(Debug)]
pub struct Setting {
    /// Which end this is.
    pub side: Side,
    /// Name and version of the QUIC library.
    pub stack: &'static str,
    /// Options in force.
    pub options: LegOptions,
    /// Socket in use.
    pub socket: Socket,
    /// One moment on both clocks: monotonic, and Unix time in s.
    pub epoch: (Instant, f64),
    /// Gives user and system time of this process, s.
    pub cpu_s: fn() -> f64,
}

/// How a connection ended.
#[derive(Debug)]
pub struct End {
    /// Why it did not end well.
    pub failure: Option<String>,
    /// What became of early data.
    pub zero_rtt: ZeroRtt,
    /// Whether the payload was the one due; `None` at the sender.
    pub data_equal: Option<bool>,
}

/// Lines of one connection.
#[derive(Debug)]
pub struct Book {
    setting: Rc<Setting>,
    /// What is measured.
    pub meter: Meter,
    lines: Vec<String>,
}

impl Book {
    /// Opens at time 0.
    pub fn new(setting: Rc<Setting>, now: Instant) -> Self {
        let meter = Meter::new(setting.side, now);
        Self {
            setting,
            meter,
            lines: Vec::new(),
        }
    }

    /// Writes the first line. `start` is time 0.
    pub fn start(&mut self, start: Instant, peer: String, request: Request) {
        let (instant, unix) = self.setting.epoch;
        let sends = (request.direction == Direction::Upload) == (self.setting.side == Side::Client);
        self.push(&Line::Start(Start {
            schema: "satlab/satperf/1",
            side: self.setting.side,
            role: if sends { "sender" } else { "receiver" },
            version: env!("CARGO_PKG_VERSION"),
            stack: self.setting.stack,
            t_unix_s: unix + start.saturating_duration_since(instant).as_secs_f64(),
            peer,
            request,
            options: self.setting.options.clone(),
            socket: self.setting.socket,
        }));
    }

    /// Writes the line of an interval if it is due.
    pub fn tick(&mut self, now: Instant, stats: &Stats) {
        if self.meter.due() <= now {
            self.interval(now, stats);
        }
    }

    /// Writes the line of an interval at once.
    pub fn interval(&mut self, now: Instant, stats: &Stats) {
        if let Some(line) = self.meter.interval(now, stats) {
            self.push(&Line::Interval(line));
        }
    }

    /// Writes the last line.
    pub fn end(&mut self, now: Instant, stats: &Stats, end: End) {
        let mut summary = self.meter.summary(now, stats, end.failure, end.zero_rtt);
        summary.data_equal = end.data_equal;
        summary.cpu_s = (self.setting.cpu_s)();
        self.push(&Line::Summary(Box::new(summary)));
    }

    /// Takes over a line of the peer.
    pub fn copy(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    /// Gives the lines since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn push(&mut self, line: &Line) {
        // Plain structures of numbers and text always have a JSON form.
        self.lines.extend(serde_json::to_string(line));
    }
}
