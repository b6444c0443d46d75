// SPDX-License-Identifier: GPL-3.0-or-later
//! The server: one session per connection; the protocol is told in `client`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;

use crate::app::{App, code};
use crate::book::{Book, End, Setting};
use crate::flow::{Receiving, Sending};
use crate::record::{Direction, Request};
use crate::stack::{Conn, Event, MAX_STREAMS, Read, Stack};

/// Connections at once; further ones are refused.
const MAX_SESSIONS: usize = 64;

/// Longest request.
const REQUEST_LIMIT: usize = 4096;

struct Session {
    conn: Conn,
    peer: SocketAddr,
    start: Instant,
    book: Book,
    control: Option<u64>,
    inbox: Vec<u8>,
    /// The client has ended its side of the control stream.
    stopped: bool,
    request: Option<Request>,
    sending: Sending,
    /// There is payload for the next step.
    more: bool,
    receiving: Receiving,
    /// All lines so far, for the client.
    history: String,
    lines: Vec<String>,
    report: Option<Bytes>,
    outcome: Option<Result<(), String>>,
}

impl Session {
    fn new(setting: Rc<Setting>, conn: Conn, peer: SocketAddr, now: Instant) -> Self {
        Self {
            conn,
            peer,
            start: now,
            book: Book::new(setting, now),
            control: None,
            inbox: Vec::new(),
            stopped: false,
            request: None,
            sending: Sending::new(None, 0),
            more: false,
            receiving: Receiving::default(),
            history: String::new(),
            lines: Vec::new(),
            report: None,
            outcome: None,
        }
    }

    /// Does what is due; `Err`: the client broke the rules.
    fn step(&mut self, now: Instant, stack: &mut dyn Stack) -> Result<(), &'static str> {
        if self.outcome.is_none() {
            self.read(now, stack)?;
            if self.request.is_some() {
                self.more = self.sending.push(stack, self.conn);
                self.book.meter.handed(self.sending.is_handed());
                self.book.tick(now, &stack.stats(self.conn));
                self.collect();
                self.stop(now, stack);
            }
        }
        self.tell(stack);
        Ok(())
    }

    fn read(&mut self, now: Instant, stack: &mut dyn Stack) -> Result<(), &'static str> {
        while let Some(stream) = stack.readable(self.conn) {
            // Client's bidirectional streams are 0, 4, 8, ... (RFC 9000 section 2.1).
            if stream % 4 == 0 {
                self.read_control(stream, stack)?;
            } else {
                self.receiving.pull(stack, self.conn, stream);
            }
        }
        self.book.meter.received(now, self.receiving.bytes);
        Ok(())
    }

    fn read_control(&mut self, stream: u64, stack: &mut dyn Stack) -> Result<(), &'static str> {
        if *self.control.get_or_insert(stream) != stream {
            return Err("one request per connection");
        }
        let inbox = &mut self.inbox;
        let end = stack.read(self.conn, stream, &mut |data| inbox.extend_from_slice(data));
        self.stopped |= end != Read::Open;
        if self.request.is_none() {
            if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
                let request = parse(&self.inbox[..end])?;
                self.begin(request);
                return Ok(());
            }
            if self.inbox.len() > REQUEST_LIMIT || self.stopped {
                return Err("no request");
            }
        }
        Ok(())
    }

    fn begin(&mut self, request: Request) {
        if request.direction == Direction::Download {
            self.sending = Sending::new(request.bytes, request.streams);
        }
        self.request = Some(request);
        self.book.start(self.start, self.peer.to_string(), request);
    }

    /// Ends the measurement when the client says so, or an upload is complete.
    fn stop(&mut self, now: Instant, stack: &mut dyn Stack) {
        let Some(request) = self.request else { return };
        let uploaded =
            request.direction == Direction::Upload && self.receiving.is_done(request.streams);
        if !self.stopped && !uploaded {
            return;
        }
        let whole = request
            .bytes
            .is_none_or(|bytes| bytes == self.receiving.bytes);
        let data_equal = (request.direction == Direction::Upload)
            .then_some(whole && self.receiving.differing == 0);
        let failure = (data_equal == Some(false)).then(|| {
            let (got, wrong) = (self.receiving.bytes, self.receiving.differing);
            format!("payload is not the one due: {got} bytes came, {wrong} of them wrong")
        });
        self.sending.stop(stack, self.conn);
        self.finish(now, stack, failure, data_equal);
        self.report = Some(Bytes::from(std::mem::take(&mut self.history)));
    }

    /// Sends the report, as far as it is taken now.
    fn tell(&mut self, stack: &mut dyn Stack) {
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
            self.book.interval(now, &stats);
        }
        let zero_rtt = stack.zero_rtt(self.conn);
        self.book.end(
            now,
            &stats,
            End {
                failure: failure.clone(),
                zero_rtt,
                data_equal,
            },
        );
        self.collect();
        self.outcome = Some(failure.map_or(Ok(()), Err));
    }

    fn collect(&mut self) {
        for line in self.book.take() {
            self.history += &line;
            self.history.push('\n');
            self.lines.push(line);
        }
    }
}

fn parse(line: &[u8]) -> Result<Request, &'static str> {
    let request: Request =
        serde_json::from_slice(line).map_err(|_| "the request is no satperf/1")?;
    if !(1..=MAX_STREAMS).contains(&request.streams) {
        return Err("the request has no stream, or too many");
    }
    if request.bytes.is_some() == request.duration_ms.is_some() {
        return Err("the request needs either bytes or a duration");
    }
    Ok(request)
}

/// See the module.
pub struct Server {
    setting: Rc<Setting>,
    once: bool,
    sessions: BTreeMap<Conn, Session>,
    lines: Vec<String>,
    outcome: Option<Result<(), String>>,
}

impl Server {
    /// A server; `once`: it ends with its first connection.
    pub fn new(setting: Rc<Setting>, once: bool) -> Self {
        Self {
            setting,
            once,
            sessions: BTreeMap::new(),
            lines: Vec::new(),
            outcome: None,
        }
    }

    fn event(&mut self, now: Instant, stack: &mut dyn Stack, conn: Conn, event: Event) {
        match event {
            Event::Accepted(_) if self.sessions.len() >= MAX_SESSIONS => {
                stack.close(now, conn, code::BUSY, "busy");
                stack.forget(conn);
            }
            Event::Accepted(peer) => {
                self.sessions
                    .insert(conn, Session::new(self.setting.clone(), conn, peer, now));
            }
            Event::Connected => {
                if let Some(session) = self.sessions.get_mut(&conn) {
                    session.book.meter.connected(now);
                }
            }
            Event::Closed(close) => self.over(now, stack, conn, &close.reason),
        }
    }

    /// The connection is gone: whatever was not finished has failed.
    fn over(&mut self, now: Instant, stack: &mut dyn Stack, conn: Conn, why: &str) {
        let Some(mut session) = self.sessions.remove(&conn) else {
            return;
        };
        if session.outcome.is_none() {
            // What came together with the end counts; why it ended stands already.
            let _ = session.step(now, stack);
        }
        if session.outcome.is_none() {
            session.fail(now, stack, why);
        }
        self.lines.append(&mut session.lines);
        if self.once {
            self.outcome = session.outcome;
        }
        stack.forget(conn);
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
            self.over(now, stack, conn, why);
        }
    }

    fn wake(&self) -> Option<Instant> {
        let running = self.sessions.values().filter(|it| it.outcome.is_none());
        let due = |session: &Session| {
            session.request?;
            Some(if session.more {
                session.start
            } else {
                session.book.meter.due()
            })
        };
        running.filter_map(due).min()
    }

    fn interrupt(&mut self, now: Instant, stack: &mut dyn Stack, why: &str) {
        for conn in self.sessions.keys().copied().collect::<Vec<_>>() {
            stack.close(now, conn, code::INTERRUPTED, why);
            self.over(now, stack, conn, why);
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
