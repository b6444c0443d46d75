// SPDX-License-Identifier: GPL-3.0-or-later
//! The control socket: requests as lines of JSON, each answered by a line
//! (schemas/link-control.schema.json).
//!
//! Served by an ordinary thread, one connection at a time. Its changes reach the real-time threads
//! through their mailboxes; applied changes come back with the metrics.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use emulator::config::Config;
use emulator::directions::DIRECTIONS;
use emulator::gateway_changes::GatewayChanges;
use emulator::links;
use emulator::request::{self, Answer, Request, TimelineState};
use emulator::scheduled::{Origin, Scheduled, Variation};
use emulator::set_request::{SetRequest, Target};
use link::Nanos;
use profile::Profile;
use serde_json::{Map, Value, json};

use crate::mailbox::Mailbox;
use crate::metrics::Message;
use crate::sys::{self, Event, Poll};

/// Longest request, bytes.
const MAX_REQUEST: usize = 64 << 10;
/// Time that a connection may last: the next one waits for it.
const CONNECTION: Duration = Duration::from_secs(10);
/// Field of a direction's state with what was set of single terminals.
const TERMINALS: &str = "terminals";

/// The fields in force, by direction; `None` where a direction is not served.
#[derive(Debug)]
pub struct State(Mutex<[Option<Map<String, Value>>; 4]>);

impl State {
    /// What the configuration says. `delays` in ms, in the order of [`DIRECTIONS`].
    #[must_use]
    pub fn new(config: &Config, delays_ms: [f64; 4]) -> Self {
        let requested = [&config.forward.requested, &config.return_link.requested];
        let mut index = 0;
        Self(Mutex::new(delays_ms.map(|delay_ms| {
            let own = requested.get(index);
            let is_served = match own {
                Some(_) => config.satellite.is_some(),
                None => config.terrestrial.is_some(),
            };
            index += 1;
            let mut fields = own.copied().cloned().unwrap_or_default();
            fields.insert("delay_ms".into(), delay_ms.into());
            fields.insert("outage".into(), false.into());
            is_served.then_some(fields)
        })))
    }

    /// Records a change that was made.
    pub fn observe(&self, message: &Message) {
        let Message::Change(direction, applied) = message else {
            return;
        };
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(fields), None) = (&mut state[*direction], &applied.error) {
            let mut requested = applied.change.requested.clone();
            if let Some(index) = applied.change.terminal {
                // What happened to waiting packets is not part of the state.
                if let Some(gateway) = requested.get_mut("gateway") {
                    *gateway = gateway["id"].take();
                }
                extend_terminal(fields, index + 1, requested);
                return;
            }
            forget_of_terminals(fields, &requested);
            // A handover is many changes at once; what it does to waiting packets is not part of
            // the state.
            if let Some(Value::Object(mut all)) = requested.remove("handover") {
                all.remove("waiting");
                // The new link is as in the profile but for what was said.
                fields.remove("modcod");
                fields.remove("symbol_rate_baud");
                requested.extend(all);
            }
            fields.extend(requested);
        }
    }

    fn directions(&self) -> BTreeMap<&'static str, Option<Map<String, Value>>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        DIRECTIONS.into_iter().zip(state.iter().cloned()).collect()
    }
}

/// Records what was set of one terminal alone.
fn extend_terminal(fields: &mut Map<String, Value>, number: usize, requested: Map<String, Value>) {
    let all = fields.entry(TERMINALS).or_insert_with(|| json!({}));
    let own = all.as_object_mut().map(|all| {
        let own = all.entry(number.to_string());
        own.or_insert_with(|| json!({}))
    });
    if let Some(Value::Object(own)) = own {
        if requested.contains_key("gateway") {
            // Its link there is as in the profile.
            own.retain(|name, _| !["delay_ms", "modcod"].contains(&name.as_str()));
        }
        own.extend(requested);
    }
}

/// What is set of all terminals holds for each.
fn forget_of_terminals(fields: &mut Map<String, Value>, requested: &Map<String, Value>) {
    let all = fields.get_mut(TERMINALS).and_then(Value::as_object_mut);
    for own in all.into_iter().flat_map(Map::values_mut) {
        if let Value::Object(own) = own {
            own.retain(|name, _| !requested.contains_key(name));
        }
    }
}

/// Answers requests, without a socket.
pub struct Controller<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The state before the change.
    pub targets: [Target; 4],
    /// Changes of gateway.
    pub moves: GatewayChanges<'a>,
    /// What the profile changes by itself, by direction.
    pub variations: [Vec<Variation>; 4],
    /// Mailboxes of the directions that are served.
    pub mailboxes: [Option<Arc<Mailbox>>; 4],
    /// Fields in force.
    pub state: &'a State,
    /// Whether the timeline has started.
    pub has_started: bool,
}

/// Answers a request as a link would that serves no direction: nothing changes, every fault is
/// reported. For fuzzing.
#[must_use]
pub fn answer(config: &Config, profile: &Profile, request: &[u8]) -> Answer {
    let mut controller = Controller {
        config,
        targets: links::targets(config, profile),
        moves: GatewayChanges::new(config, profile),
        variations: [const { Vec::new() }; 4],
        mailboxes: [const { None }; 4],
        state: &State::new(config, [0.0; 4]),
        has_started: false,
    };
    controller.answer(0, request)
}

impl Controller<'_> {
    /// Answers one request that came at `now`. Any bytes are answered.
    pub fn answer(&mut self, now: Nanos, request: &[u8]) -> Answer {
        let has_satellite = self.config.satellite.is_some();
        let terminals = self.config.terminal_count();
        let answer = match request::parse(request, has_satellite, terminals, &cli::read_trace) {
            Ok(Request::SetRequest(set)) => self.set(now, &set),
            Ok(Request::GetState) => Ok(self.get(now)),
            Ok(Request::StartTimeline) => self.start(now),
            Err(faults) => Err(faults),
        };
        answer.unwrap_or_else(refusal)
    }

    fn set(&mut self, now: Nanos, set: &SetRequest) -> Result<Answer, Vec<String>> {
        let moves = self.moves.of(set, now, Origin::Control);
        let moves = moves.map_err(|faults| {
            let placed = faults.iter().map(|it| format!("request.set.{it}"));
            placed.collect::<Vec<_>>()
        })?;
        // What else is set is of the link at the new gateway.
        let others = set.scheduled(&self.targets, now, Origin::Control);
        self.post(moves.into_iter().chain(others))?;
        let (ok, t_s) = (true, seconds(now));
        Ok(Answer::Taken { ok, t_s })
    }

    fn get(&self, now: Nanos) -> Answer {
        let timeline = self.config.timeline.as_ref();
        Answer::State {
            ok: true,
            t_s: seconds(now),
            timeline: timeline.map(|it| TimelineState {
                steps: it.count(),
                started: self.has_started,
            }),
            directions: self.state.directions(),
        }
    }

    /// Starts the timeline: its time 0 is `now`.
    fn start(&mut self, now: Nanos) -> Result<Answer, Vec<String>> {
        let fault = |reason: &str| Err(vec![format!("request.start: {reason}")]);
        if self.config.timeline.is_none() {
            return fault("there is no timeline (set one in link.json)");
        }
        if self.has_started {
            return fault("the timeline has already started");
        }
        self.begin(now)?;
        let (ok, t_s) = (true, seconds(now));
        Ok(Answer::Taken { ok, t_s })
    }

    /// Starts at time 0 what does not wait for a request.
    pub fn start_at_once(&mut self) {
        let timeline = self.config.timeline.as_ref();
        if timeline.is_none_or(|timeline| timeline.starts_at_once) {
            // The mailboxes are empty and hold the longest timeline.
            let _ = self.begin(0);
        }
    }

    /// Time 0 of the timeline, and of the profile's own changes, is `zero`.
    fn begin(&mut self, zero: Nanos) -> Result<(), Vec<String>> {
        self.has_started = true;
        let variations = self.variations.iter().enumerate();
        let variations =
            variations.flat_map(|(index, of)| of.iter().map(move |it| (index, it.start(zero))));
        let timeline = self.config.timeline.iter();
        let timeline = timeline.flat_map(|it| it.scheduled(&self.targets, zero));
        let moves = match &self.config.timeline {
            Some(timeline) => self.moves.of_timeline(timeline, zero)?,
            None => Vec::new(),
        };
        self.post(moves.into_iter().chain(variations).chain(timeline))
    }

    /// Posts changes to their directions.
    fn post(&self, changes: impl Iterator<Item = (usize, Scheduled)>) -> Result<(), Vec<String>> {
        let mut sorted = [const { Vec::new() }; 4];
        for (direction, change) in changes {
            sorted[direction].push(change);
        }
        let mut faults = Vec::new();
        let posts = sorted.into_iter().zip(&self.mailboxes).zip(DIRECTIONS);
        for ((changes, mailbox), name) in posts {
            let Some(mailbox) = mailbox.as_ref().filter(|_| !changes.is_empty()) else {
                continue;
            };
            if !mailbox.post(changes.into_iter()) {
                faults.push(format!("{name}: too many changes wait (try again)"));
            }
        }
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }
}

fn refusal(faults: Vec<String>) -> Answer {
    Answer::Refused { ok: false, faults }
}

fn seconds(now: Nanos) -> f64 {
    now as f64 / 1e9
}

/// A listening socket; its file is removed with it.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens at `path`, for its owner alone. A socket that a killed process left there is
    /// replaced.
    ///
    /// # Errors
    /// Another process listens there, or the file cannot be made.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        let socket = Self {
            listener,
            path: path.to_owned(),
        };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        socket.listener.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// No further connection can be taken.
    pub fn serve(
        &self,
        controller: &mut Controller<'_>,
        stop: &Event,
        start: Instant,
    ) -> io::Result<()> {
        let mut poll = Poll::new([&self.listener as &dyn AsRawFd, stop])?;
        loop {
            poll.wait(CONNECTION)?;
            if poll.is_readable(1) {
                return Ok(());
            }
            if !poll.is_readable(0) {
                continue;
            }
            match self.listener.accept() {
                // An error concerns this client only: it closed, or does not read.
                Ok((stream, _)) => drop(serve_connection(stream, controller, stop, start)),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether a socket file exists on which no process listens.
fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && UnixStream::connect(path).is_err_and(refused)
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

/// Root, this process's user, and whom root has given the socket to: the user of the jobs that
/// control the link.
fn is_permitted(stream: &UnixStream, peer: u32) -> bool {
    let address = stream.local_addr().ok();
    let place = address.as_ref().and_then(|address| address.as_pathname());
    let owner = place
        .and_then(|place| fs::symlink_metadata(place).ok())
        .map(|meta| meta.uid());
    [0, sys::own_uid()].contains(&peer) || owner == Some(peer)
}

/// Answers the lines of one connection.
fn serve_connection(
    mut stream: UnixStream,
    controller: &mut Controller<'_>,
    stop: &Event,
    start: Instant,
) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    if !is_permitted(&stream, sys::peer_uid(&stream)?) {
        return reply(
            &mut stream,
            &refusal(vec!["request: another user's (become root)".into()]),
        );
    }
    let mut poll = Poll::new([&stream as &dyn AsRawFd, stop])?;
    let end = Instant::now() + CONNECTION;
    let mut lines = Lines::default();
    let mut buffer = [0; 4096];
    loop {
        poll.wait(end.saturating_duration_since(Instant::now()))?;
        if poll.is_readable(1) || Instant::now() >= end {
            return Ok(());
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => lines.add(&buffer[..length]),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        while let Some(line) = lines.next() {
            let now = start.elapsed().as_nanos() as Nanos;
            reply(&mut stream, &controller.answer(now, &line))?;
        }
        if lines.is_too_long() {
            let fault = format!("request: is longer than {MAX_REQUEST} bytes");
            return reply(&mut stream, &refusal(vec![fault]));
        }
    }
}

fn reply(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Bytes cut into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next whole line, without its end.
    fn next(&mut self) -> Option<Vec<u8>> {
        let end = self.0.iter().position(|&byte| byte == b'\n')?;
        let mut line: Vec<_> = self.0.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    fn is_too_long(&self) -> bool {
        self.0.len() > MAX_REQUEST
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
