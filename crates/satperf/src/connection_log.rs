// SPDX-License-Identifier: GPL-3.0-or-later
//! The lines of output of one connection.

use std::rc::Rc;
use std::time::Instant;

use quic::LegOptions;

use crate::measurement::Measurement;
use crate::record::{Direction, Line, Request, Resumed, Side, Socket, Start};
use crate::stack::{Stats, ZeroRtt};

/// What all connections of an endpoint have in common.
#[derive(Debug)]
pub struct Context {
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
    /// Returns user and system time of this process, s.
    pub cpu_s: fn() -> f64,
    /// Lines of intervals are not made: nobody reads them, and they cost more than the packets of a
    /// slow flow.
    pub omits_intervals: bool,
}

/// How a connection ended.
#[derive(Debug)]
pub struct Ending {
    /// Reason of a failure.
    pub failure: Option<String>,
    /// Result of early data.
    pub zero_rtt: ZeroRtt,
    /// Whether the payload was complete and unchanged; `None` at the sender.
    pub data_equal: Option<bool>,
    /// Careful Resume of what this end sends; `None`: off.
    pub careful_resume: Option<Resumed>,
}

/// Measures one connection and writes its lines.
#[derive(Debug)]
pub struct ConnectionLog {
    context: Rc<Context>,
    /// The measurement so far.
    pub(crate) measurement: Measurement,
    lines: Vec<String>,
}

impl ConnectionLog {
    /// An empty log; `now` is time 0 of the connection.
    #[must_use]
    pub fn new(context: Rc<Context>, now: Instant) -> Self {
        let measurement = Measurement::new(context.side, now);
        Self {
            context,
            measurement,
            lines: Vec::new(),
        }
    }

    /// Writes the first line. `start` is time 0.
    pub fn start(&mut self, start: Instant, peer: String, request: Request) {
        let (instant, unix) = self.context.epoch;
        let sends = (request.direction == Direction::Upload) == (self.context.side == Side::Client);
        self.push(&Line::Start(Start {
            schema: "satlab/satperf/1",
            side: self.context.side,
            role: if sends { "sender" } else { "receiver" },
            version: env!("CARGO_PKG_VERSION"),
            stack: self.context.stack,
            t_unix_s: unix + start.saturating_duration_since(instant).as_secs_f64(),
            peer,
            request,
            options: self.context.options.clone(),
            socket: self.context.socket,
        }));
    }

    /// Writes the line of an interval if it is due.
    pub fn tick(&mut self, now: Instant, stats: impl FnOnce() -> Stats) {
        if self.measurement.due() <= now {
            self.interval(now, &stats());
        }
    }

    /// Writes the line of an interval, also before its end.
    pub fn interval(&mut self, now: Instant, stats: &Stats) {
        let line = self.measurement.interval(now, stats);
        if let Some(line) = line.filter(|_| !self.context.omits_intervals) {
            self.push(&Line::Interval(line));
        }
    }

    /// Writes the last line.
    pub fn end(&mut self, now: Instant, stats: &Stats, ending: Ending) {
        let mut summary = (self.measurement).summary(now, stats, ending.failure, ending.zero_rtt);
        summary.data_equal = ending.data_equal;
        summary.careful_resume = ending.careful_resume;
        summary.cpu_s = (self.context.cpu_s)();
        self.push(&Line::Summary(Box::new(summary)));
    }

    /// Adds a line of the peer.
    pub fn copy(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    /// Returns the lines since the last call.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn push(&mut self, line: &Line) {
        // Plain structures of numbers and text always have a JSON form.
        self.lines.extend(serde_json::to_string(line));
    }
}
