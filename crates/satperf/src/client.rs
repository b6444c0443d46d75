// SPDX-License-Identifier: GPL-3.0-or-later
//! The client: sends its request, transfers, stops, fetches the server's lines.
//!
//! satperf/2: the client's first bidirectional stream carries its request, one line of JSON.
//! Payload is sent on unidirectional streams of the sender. The client ends its side of the first
//! stream when it has all payload (or its time is over); the server then sends its own lines there.
//! An upload by bytes ends by itself.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::app::Progress;
use crate::app::{App, code};
use crate::connection_log::{ConnectionLog, Context, Ending};
use crate::record::{Direction, Request, Resumed};
use crate::stack::{Conn, Event, Read, Stack};
use crate::streams::{Receiving, Sending, SourceState};

/// Most bytes of a server's lines: days of them.
const REPORT_LIMIT: usize = 256 << 20;

/// See the module.
pub struct Client {
    conn: Conn,
    request: Request,
    start: Instant,
    deadline: Instant,
    log: ConnectionLog,
    control: Option<u64>,
    unsent_request: Bytes,
    sending: Sending,
    /// The stack may take more payload at once.
    more: bool,
    receiving: Receiving,
    /// The measurement is over; what follows is the server's report.
    stopped: bool,
    report: Vec<u8>,
    outcome: Option<Result<(), String>>,
}

impl Client {
    /// A client on a connection that was started at `now` and may take until `now + timeout`.
    #[must_use]
    pub fn new(
        context: Rc<Context>,
        conn: Conn,
        peer: String,
        request: Request,
        now: Instant,
        timeout: Duration,
    ) -> Self {
        let mut log = ConnectionLog::new(context, now);
        log.start(now, peer, request);
        Self {
            conn,
            request,
            start: now,
            deadline: now + timeout,
            log,
            control: None,
            unsent_request: Bytes::new(),
            sending: Sending::new(&request),
            more: false,
            receiving: Receiving::default(),
            stopped: false,
            report: Vec::new(),
            outcome: None,
        }
    }

    /// How far the transfer has come at this end.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let measurement = &self.log.measurement;
        Progress::new(self.conn, measurement, &self.sending, &self.receiving)
    }

    fn stop_time(&self) -> Option<Instant> {
        let duration = self.request.duration_ms.filter(|_| !self.stopped)?;
        Some(self.start + Duration::from_millis(duration))
    }

    fn uploads(&self) -> bool {
        self.request.direction == Direction::Upload
    }

    /// Streams that were opened for early data are gone.
    fn start_again(&mut self) {
        self.control = None;
        self.unsent_request = Bytes::new();
        self.sending = Sending::new(&self.request);
    }

    /// Sends the request, and the payload of an upload.
    fn send_request(&mut self, now: Instant, stack: &mut dyn Stack) {
        self.more = false;
        if self.control.is_none() && stack.may_write(self.conn) {
            self.control = stack.open(self.conn, true);
            let mut line = serde_json::to_vec(&self.request).unwrap_or_default();
            line.push(b'\n');
            self.unsent_request = line.into();
        }
        if let Some(control) = self.control.filter(|_| !self.unsent_request.is_empty()) {
            stack.write(self.conn, control, &mut self.unsent_request);
        }
        if self.uploads()
            && self.control.is_some()
            && self.unsent_request.is_empty()
            && !self.stopped
        {
            self.more = self.sending.push(now, stack, self.conn);
            let measurement = &mut self.log.measurement;
            measurement.requested.get_or_insert(now);
            measurement.handed = self.sending.state() == SourceState::Done;
        }
    }

    /// Reads what is there; `Some` once the report is complete or cannot be.
    fn read(&mut self, now: Instant, stack: &mut dyn Stack) -> Option<Result<(), String>> {
        let mut end = None;
        while let Some(stream) = stack.readable(self.conn) {
            if Some(stream) == self.control {
                let report = &mut self.report;
                let read = stack.read(self.conn, stream, &mut |data| {
                    report.extend_from_slice(data);
                });
                end = match read {
                    Read::Open if self.report.len() > REPORT_LIMIT => {
                        Some(Err("the server's report never ends".into()))
                    }
                    Read::Open => end,
                    Read::Finished => Some(Ok(())),
                    Read::Reset => Some(Err("the server reset the stream of its report".into())),
                };
            } else {
                self.receiving.pull(stack, self.conn, stream);
            }
        }
        if !self.stopped && !self.uploads() {
            self.log.measurement.received(now, self.receiving.bytes);
        }
        end
    }

    /// Ends the measurement when its time is over or all payload arrived; the report may take
    /// longer.
    fn stop(&mut self, now: Instant, stack: &mut dyn Stack) {
        let late = self.stop_time().is_some_and(|stop| stop <= now);
        let whole = !self.uploads() && self.receiving.is_done(self.request.streams);
        if self.stopped || !(late || whole) {
            return;
        }
        self.stopped = true;
        self.log.interval(now, &stack.stats(self.conn));
        self.sending.stop(stack, self.conn);
        if let Some(control) = self.control {
            stack.finish(self.conn, control);
        }
    }

    /// Adds the server's lines; returns what is wrong with them.
    fn copy_report(&mut self) -> Option<String> {
        let report = std::mem::take(&mut self.report);
        let Ok(text) = String::from_utf8(report) else {
            return Some("the server's report is not UTF-8".into());
        };
        let mut status = None;
        for line in text.lines() {
            let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else {
                return Some("the server's report is not JSON".into());
            };
            if value["side"] != "server" {
                return Some("the server's report speaks for another".into());
            }
            if value["type"] == "summary" {
                status = Some((value["status"] == "ok", value["reason"].to_string()));
            }
            self.log.copy(line);
        }
        match status {
            Some((true, _)) => None,
            Some((false, reason)) => Some(format!("the server says {reason}")),
            None => Some("the server's report has no summary".into()),
        }
    }

    fn finish(&mut self, now: Instant, stack: &mut dyn Stack, mut failure: Option<String>) {
        let stats = stack.stats(self.conn);
        if !self.stopped {
            self.log.interval(now, &stats);
        }
        if failure.is_none() {
            failure = self.copy_report();
        }
        let fault = (!self.uploads()).then(|| self.receiving.fault(&self.request));
        let data_equal = fault.as_ref().map(Option::is_none);
        failure = failure.or(fault.flatten());
        let zero_rtt = stack.zero_rtt(self.conn);
        let since_s = |at: Instant| at.saturating_duration_since(self.start).as_secs_f64();
        let careful_resume = (stack.resumed(self.conn)).map(|it| Resumed::new(it, since_s));
        self.log.end(
            now,
            &stats,
            Ending {
                failure: failure.clone(),
                zero_rtt,
                data_equal,
                careful_resume,
            },
        );
        self.outcome = Some(failure.map_or(Ok(()), Err));
    }
}

impl App for Client {
    fn step(&mut self, now: Instant, stack: &mut dyn Stack) {
        let mut lost = None;
        while let Some((conn, event)) = stack.poll() {
            match event {
                // A late event of an earlier connection.
                _ if conn != self.conn => {}
                Event::Connected => {
                    self.log.measurement.connected.get_or_insert(now);
                }
                Event::EarlyDataRejected => self.start_again(),
                Event::Closed(close) => lost = Some(close.reason),
                Event::Accepted(_) => {}
            }
        }
        if self.outcome.is_some() {
            return;
        }
        self.send_request(now, stack);
        let report = self.read(now, stack);
        self.stop(now, stack);
        if !self.stopped {
            self.log.tick(now, || stack.stats(self.conn));
        }
        match (report, lost) {
            (Some(Ok(())), _) => {
                self.finish(now, stack, None);
                stack.close(now, self.conn, code::DONE, "done");
            }
            (Some(Err(why)), _) => self.interrupt(now, stack, &why),
            (None, Some(why)) => self.finish(now, stack, Some(why)),
            (None, None) if self.deadline <= now => {
                let seconds = (self.deadline - self.start).as_secs_f64();
                self.finish(now, stack, Some(format!("timeout after {seconds} s")));
                stack.close(now, self.conn, code::TIMEOUT, "timeout");
            }
            (None, None) => {}
        }
    }

    fn wake(&self) -> Option<Instant> {
        if self.outcome.is_some() {
            return None;
        }
        let tick = (!self.stopped).then(|| self.log.measurement.due());
        let more = self.more.then_some(self.start);
        let source = self.sending.due().filter(|_| !self.stopped);
        [more, tick, source, self.stop_time(), Some(self.deadline)]
            .into_iter()
            .flatten()
            .min()
    }

    fn interrupt(&mut self, now: Instant, stack: &mut dyn Stack, why: &str) {
        if self.outcome.is_none() {
            self.finish(now, stack, Some(why.into()));
            stack.close(now, self.conn, code::INTERRUPTED, why);
        }
    }

    fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.clone()
    }

    fn lines(&mut self) -> Vec<String> {
        self.log.take()
    }
}
