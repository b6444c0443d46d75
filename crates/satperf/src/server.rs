// SPDX-License-Identifier: GPL-3.0-or-later
//! The server: one session per connection; `client` describes the protocol.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;

use crate::app::Progress;
use crate::app::{App, code};
use crate::connection_log::{ConnectionLog, Context, Ending};
use crate::record::{Direction, Request, Resumed};
use crate::stack::{Conn, Event, MAX_STREAMS, Read, Stack, Stats};
use crate::streams::{Receiving, Sending, SourceState, is_source_rate};

/// Connections at once; further ones are refused.
const MAX_SESSIONS: usize = 64;

/// Longest request.
const REQUEST_LIMIT: usize = 4096;

struct Session {
    conn: Conn,
    peer: SocketAddr,
    start: Instant,
    log: ConnectionLog,
    control: Option<u64>,
    inbox: Vec<u8>,
    /// The client has ended its side of the control stream.
    stopped: bool,
    request: Option<Request>,
    sending: Sending,
    /// The stack may take more payload at once.
    more: bool,
    receiving: Receiving,
    /// All lines so far, for the client.
    history: String,
    lines: Vec<String>,
    report: Option<Bytes>,
    outcome: Option<Result<(), String>>,
    /// Totals at the outcome: the stack forgets them.
    stats: Stats,
}

impl Session {
    fn new(context: Rc<Context>, conn: Conn, peer: SocketAddr, now: Instant) -> Self {
        Self {
            conn,
            peer,
            start: now,
            log: ConnectionLog::new(context, now),
            control: None,
            inbox: Vec::new(),
            stopped: false,
            request: None,
            sending: Sending::nothing(),
            more: false,
            receiving: Receiving::default(),
            history: String::new(),
            lines: Vec::new(),
            report: None,
            outcome: None,
            stats: Stats::default(),
        }
    }

    /// Does what is due; `Err`: the client violated the protocol.
    fn step(&mut self, now: Instant, stack: &mut dyn Stack) -> Result<(), &'static str> {
        if self.outcome.is_none() {
            self.read(now, stack)?;
            if self.request.is_some() {
                self.more = self.sending.push(now, stack, self.conn);
                self.log.measurement.handed = self.sending.state() == SourceState::Done;
                self.log.tick(now, || stack.stats(self.conn));
                self.collect();
                self.stop(now, stack);
            }
        }
        self.send_report(stack);
        Ok(())
    }

    fn read(&mut self, now: Instant, stack: &mut dyn Stack) -> Result<(), &'static str> {
        while let Some(stream) = stack.readable(self.conn) {
            // Client's bidirectional streams are 0, 4, 8, ... (RFC 9000 section 2.1).
            if stream % 4 == 0 {
                self.read_control(now, stream, stack)?;
            } else {
                self.receiving.pull(stack, self.conn, stream);
            }
        }
        self.log.measurement.received(now, self.receiving.bytes);
        Ok(())
    }

    fn read_control(
        &mut self,
        now: Instant,
        stream: u64,
        stack: &mut dyn Stack,
    ) -> Result<(), &'static str> {
        if *self.control.get_or_insert(stream) != stream {
            return Err("one request per connection");
        }
        let (inbox, is_request) = (&mut self.inbox, self.request.is_none());
        let end = stack.read(self.conn, stream, &mut |data| {
            // What follows a request has no meaning, and is not kept.
            if is_request && inbox.len() <= REQUEST_LIMIT {
                inbox.extend_from_slice(data);
            }
        });
        self.stopped |= end != Read::Open;
        if self.request.is_none() {
            if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
                let request = parse(&self.inbox[..end])?;
                self.begin(now, request);
                return Ok(());
            }
            if self.inbox.len() > REQUEST_LIMIT || self.stopped {
                return Err("no request");
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Instant, request: Request) {
        if request.direction == Direction::Download {
            self.log.measurement.requested = Some(now);
            self.sending = Sending::new(&request);
        }
        self.request = Some(request);
        self.log.start(self.start, self.peer.to_string(), request);
    }

    /// Ends the measurement when the client ends its control stream, or an upload is complete.
    fn stop(&mut self, now: Instant, stack: &mut dyn Stack) {
        let Some(request) = self.request else { return };
        let uploaded =
            request.direction == Direction::Upload && self.receiving.is_done(request.streams);
        if !self.stopped && !uploaded {
            return;
        }
        let is_upload = request.direction == Direction::Upload;
        let fault = is_upload.then(|| self.receiving.fault(&request));
        let data_equal = fault.as_ref().map(Option::is_none);
        self.sending.stop(stack, self.conn);
        self.finish(now, stack, fault.flatten(), data_equal);
        self.report = Some(Bytes::from(std::mem::take(&mut self.history)));
    }

    /// Sends the report, as far as it is taken now.
    fn send_report(&mut self, stack: &mut dyn Stack) {
        let (Some(report), Some(control)) = (&mut self.report, self.control) else {
            return;
        };
        if !report.is_empty() {
            stack.write(self.conn, control, report);
        }
        if report.is_empty() {
            stack.finish(self.conn, control);
            self.report = None;
        }
    }

    fn fail(&mut self, now: Instant, stack: &mut dyn Stack, why: &str) {
        let uploads = self
            .request
            .is_some_and(|request| request.direction == Direction::Upload);
        self.finish(now, stack, Some(why.to_owned()), uploads.then_some(false));
    }

    fn finish(
        &mut self,
        now: Instant,
        stack: &mut dyn Stack,
        failure: Option<String>,
        data_equal: Option<bool>,
    ) {
        let stats = stack.stats(self.conn);
        if self.request.is_some() {
            self.log.interval(now, &stats);
        }
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
        self.collect();
        self.stats = stats;
        self.outcome = Some(failure.map_or(Ok(()), Err));
    }

    fn collect(&mut self) {
        for line in self.log.take() {
            self.history += &line;
            self.history.push('\n');
            self.lines.push(line);
        }
    }
}

fn parse(line: &[u8]) -> Result<Request, &'static str> {
    let request: Request = serde_json::from_slice(line).map_err(|_| "not a satperf/2 request")?;
    if !(1..=MAX_STREAMS).contains(&request.streams) {
        return Err("the request has no stream, or too many");
    }
    if request.bytes.is_some() == request.duration_ms.is_some() {
        return Err("the request needs either bytes or a duration");
    }
    if request
        .source_mbps
        .is_some_and(|rate| !is_source_rate(rate))
    {
        return Err("the source's rate is out of range");
    }
    Ok(request)
}

/// See the module.
pub struct Server {
    context: Rc<Context>,
    once: bool,
    sessions: BTreeMap<Conn, Session>,
    /// The last one that is over.
    previous: Option<Session>,
    lines: Vec<String>,
    outcome: Option<Result<(), String>>,
}

impl Server {
    /// A server; `once`: it ends with its first connection.
    #[must_use]
    pub fn new(context: Rc<Context>, once: bool) -> Self {
        Self {
            context,
            once,
            sessions: BTreeMap::new(),
            previous: None,
            lines: Vec::new(),
            outcome: None,
        }
    }

    /// How far the transfer of the newest connection has come at this end, also when it is over.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        let it = self.newest()?;
        let measurement = &it.log.measurement;
        Some(Progress::new(
            it.conn,
            measurement,
            &it.sending,
            &it.receiving,
        ))
    }

    /// Totals of the newest connection, also when it is over.
    #[must_use]
    pub fn stats(&self, stack: &mut dyn Stack) -> Option<Stats> {
        let session = self.newest()?;
        Some(match session.outcome {
            None => stack.stats(session.conn),
            Some(_) => session.stats,
        })
    }

    fn newest(&self) -> Option<&Session> {
        let current = self.sessions.values().next_back();
        current.or(self.previous.as_ref())
    }

    fn event(&mut self, now: Instant, stack: &mut dyn Stack, conn: Conn, event: Event) {
        match event {
            Event::Accepted(_) if self.sessions.len() >= MAX_SESSIONS => {
                stack.close(now, conn, code::BUSY, "busy");
                stack.forget(now, conn);
            }
            Event::Accepted(peer) => {
                self.sessions
                    .insert(conn, Session::new(self.context.clone(), conn, peer, now));
            }
            Event::Connected => {
                if let Some(session) = self.sessions.get_mut(&conn) {
                    session.log.measurement.connected.get_or_insert(now);
                }
            }
            // A server sends no early data.
            Event::EarlyDataRejected => {}
            Event::Closed(close) => self.end_session(now, stack, conn, &close.reason),
        }
    }

    /// The connection ended: an unfinished session has failed.
    fn end_session(&mut self, now: Instant, stack: &mut dyn Stack, conn: Conn, why: &str) {
        let Some(mut session) = self.sessions.remove(&conn) else {
            return;
        };
        if session.outcome.is_none() {
            // Data that arrived together with the end counts.
            let _ = session.step(now, stack);
        }
        if session.outcome.is_none() {
            session.fail(now, stack, why);
        }
        self.lines.append(&mut session.lines);
        if self.once {
            self.outcome.clone_from(&session.outcome);
        }
        self.previous = Some(session);
        stack.forget(now, conn);
    }
}

impl App for Server {
    fn step(&mut self, now: Instant, stack: &mut dyn Stack) {
        while let Some((conn, event)) = stack.poll() {
            self.event(now, stack, conn, event);
        }
        let mut broken = Vec::new();
        for (conn, session) in &mut self.sessions {
            if let Err(why) = session.step(now, stack) {
                broken.push((*conn, why));
            }
            self.lines.append(&mut session.lines);
        }
        for (conn, why) in broken {
            stack.close(now, conn, code::PROTOCOL, why);
            self.end_session(now, stack, conn, why);
        }
    }

    fn wake(&self) -> Option<Instant> {
        let running = self.sessions.values().filter(|it| it.outcome.is_none());
        let due = |session: &Session| {
            session.request?;
            if session.more {
                return Some(session.start);
            }
            let line = session.log.measurement.due();
            Some(session.sending.due().map_or(line, |due| due.min(line)))
        };
        running.filter_map(due).min()
    }

    fn interrupt(&mut self, now: Instant, stack: &mut dyn Stack, why: &str) {
        for conn in self.sessions.keys().copied().collect::<Vec<_>>() {
            stack.close(now, conn, code::INTERRUPTED, why);
            self.end_session(now, stack, conn, why);
        }
        self.outcome = Some(Err(why.into()));
    }

    fn outcome(&self) -> Option<Result<(), String>> {
        self.outcome.clone()
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
}
