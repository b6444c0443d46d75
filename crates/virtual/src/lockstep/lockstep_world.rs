// SPDX-License-Identifier: GPL-3.0-or-later
//! Two programs and the time between them.

use std::fmt::Write;

use link::Nanos;
use satperf::record::Direction;
use sha2::{Digest, Sha256};

use super::end::End;
use super::message::{self, INTERFACE, Pipe, Setup};
use crate::endpoint_world::{CLIENT, SERVER, nanos};
use crate::outcome::{Mark, Sample, TransferResult, seconds};
use crate::path::{Ends, SAMPLE, Side};
use crate::tls;
use crate::transfer::Transfer;

/// A transfer that runs: when things happened first.
#[derive(Default)]
struct Running {
    started: Nanos,
    connected: Option<Nanos>,
    requested: Option<Nanos>,
    first_byte: Option<Nanos>,
    marks: Vec<Option<Nanos>>,
}

/// Whether there is something to come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Over,
}

/// Both programs, and the clock.
pub struct World {
    now: Nanos,
    transfer: Transfer,
    /// SHA-256 of the payload.
    expected: String,
    /// By [`Side`]; none if one of them could not be set up.
    ends: Option<[End; 2]>,
    names: [String; 2],
    running: Option<Running>,
    next_start: Option<Nanos>,
    next_sample: Nanos,
    /// Transfers that are over.
    pub done: Vec<TransferResult>,
    /// Every [`SAMPLE`] while a transfer runs, if its sender reports its state.
    pub samples: Vec<Sample>,
}

impl World {
    /// Two programs that have their set-up, at time 0. One that fails at it ends the first
    /// transfer.
    ///
    /// # Errors
    /// A library makes no certificate.
    pub fn new(
        transfer: Transfer,
        [client, server]: [Box<dyn Pipe>; 2],
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (certificate, key) = tls::certificate()?;
        let (certificate, key) = (certificate.pem(), tls::key_pem(&key));
        let mut setup = Setup {
            interface: INTERFACE,
            role: "client",
            seed: transfer.seed,
            direction: transfer.direction,
            bytes: transfer.bytes,
            connections: transfer.repeats,
            early_data: transfer.zero_rtt,
            server_name: tls::NAME,
            certificate: &certificate,
            key: None,
        };
        let client = End::new(client, &setup, [CLIENT, SERVER]);
        (setup.role, setup.key) = ("server", Some(key.as_str()));
        let server = End::new(server, &setup, [SERVER, CLIENT]);
        let mut world = Self {
            now: 0,
            expected: digest(transfer.bytes),
            ends: None,
            names: Default::default(),
            running: None,
            next_start: Some(nanos(transfer.start_s)),
            next_sample: 0,
            done: Vec::new(),
            samples: Vec::new(),
            transfer,
        };
        world.join(client, server);
        Ok(world)
    }

    /// Takes both ends, or ends the first transfer with the reason why one of them is missing.
    fn join(&mut self, client: Made, server: Made) {
        match (client, server) {
            (Ok(Ok((client, first))), Ok(Ok((server, second)))) => {
                self.ends = Some([client, server]);
                self.names = [first, second];
            }
            (Ok(Err(why)), _) => {
                self.record(&Running::default(), "unsupported", of(Side::Client, &why));
            }
            (_, Ok(Err(why))) => {
                self.record(&Running::default(), "unsupported", of(Side::Server, &why));
            }
            (Err(why), _) => self.record(&Running::default(), "failed", of(Side::Client, &why)),
            (_, Err(why)) => self.record(&Running::default(), "failed", of(Side::Server, &why)),
        }
    }

    /// The stack of both programs, or of client and server.
    #[must_use]
    pub fn name(&self) -> String {
        let [client, server] = &self.names;
        if client == server {
            client.clone()
        } else {
            format!("{client} to {server}")
        }
    }

    /// The payload's sender and receiver.
    fn roles(&self) -> [Side; 2] {
        match self.transfer.direction {
            Direction::Download => [Side::Server, Side::Client],
            Direction::Upload => [Side::Client, Side::Server],
        }
    }

    /// Does what is due.
    fn turn(&mut self) -> Progress {
        let Some(ends) = &mut self.ends else {
            return Progress::Over;
        };
        if self.next_start.is_some_and(|at| at <= self.now) {
            self.next_start = None;
            self.running = Some(Running {
                started: self.now,
                marks: vec![None; self.transfer.marks_bytes.len()],
                ..Running::default()
            });
            ends.iter_mut().for_each(End::start);
        }
        let mut fault = None;
        for side in [Side::Server, Side::Client] {
            let end = &mut ends[side as usize];
            let stepped = end.step(self.now);
            let broken = stepped.err().map(|why| of(side, &why));
            let reported = end.report.error.as_deref();
            fault = fault
                .or(broken)
                .or_else(|| reported.map(|why| gave_up(side, why)));
        }
        if let Some(running) = self.running.take() {
            return self.observe(running, fault);
        }
        if fault.is_none() && self.next_start.is_some() {
            Progress::GoesOn
        } else {
            Progress::Over
        }
    }

    /// Notes times and samples, and the transfer's end.
    fn observe(&mut self, mut running: Running, fault: Option<String>) -> Progress {
        let [sender, receiver] = self.roles();
        let Some(ends) = &self.ends else {
            return Progress::Over;
        };
        let now = Some(self.now);
        let [source, sink, client] =
            [sender, receiver, Side::Client].map(|side| &ends[side as usize].report);
        let arrived = sink.received_bytes;
        let first = |at: &mut Option<Nanos>, is_there: bool| {
            if is_there {
                *at = at.or(now);
            }
        };
        first(&mut running.connected, client.connected);
        first(&mut running.requested, source.requested);
        first(&mut running.first_byte, arrived > 0);
        for (mark, bytes) in running.marks.iter_mut().zip(&self.transfer.marks_bytes) {
            first(mark, arrived >= *bytes);
        }
        let sha256 = sink.sha256.clone();
        if self.now >= self.next_sample {
            self.next_sample = (self.now / SAMPLE + 1) * SAMPLE;
            self.sample(&running);
        }
        if let Some(why) = fault {
            self.record(&running, "failed", why);
            return Progress::Over;
        }
        if let Some(found) = sha256 {
            return self.complete(&running, arrived, &found);
        }
        if self.now - running.started >= nanos(self.transfer.timeout_s) {
            let limit = self.transfer.timeout_s;
            self.record(
                &running,
                "censored",
                format!("not complete within {limit} s"),
            );
            return Progress::Over;
        }
        self.running = Some(running);
        Progress::GoesOn
    }

    /// The receiver has the payload: another transfer may follow.
    fn complete(&mut self, running: &Running, arrived: u64, found: &str) -> Progress {
        let total = self.transfer.bytes;
        let fault = if arrived != total {
            Some(format!("wrong payload: {arrived} bytes instead of {total}"))
        } else if found != self.expected {
            Some(format!("wrong payload: {total} bytes with another SHA-256"))
        } else {
            None
        };
        if let Some(why) = fault {
            self.record(running, "failed", why);
            return Progress::Over;
        }
        self.record(running, "ok", String::new());
        if self.done.len() >= self.transfer.repeats as usize {
            return Progress::Over;
        }
        self.next_start = Some(self.now + nanos(self.transfer.pause_s));
        Progress::GoesOn
    }

    fn record(&mut self, running: &Running, status: &'static str, reason: String) {
        let since = |at: Nanos| seconds(at - running.started);
        let ms = |at: Option<Nanos>| at.map(|at| since(at) * 1e3);
        let [_, receiver] = self.roles();
        let report = |side: Side| self.ends.as_ref().map(|ends| &ends[side as usize].report);
        let marks = &self.transfer.marks_bytes;
        let reached = running.marks.iter().copied().chain(std::iter::repeat(None));
        let mark = |(bytes, at): (&u64, Option<Nanos>)| Mark {
            bytes: *bytes,
            t_s: at.map(since),
        };
        self.done.push(TransferResult {
            status,
            reason,
            started_s: seconds(running.started),
            handshake_ms: ms(running.connected),
            asked_ms: ms(running.requested),
            time_to_first_byte_ms: ms(running.first_byte),
            duration_s: since(self.now),
            bytes: report(receiver).map_or(0, |it| it.received_bytes),
            marks: marks.iter().zip(reached).map(mark).collect(),
            zero_rtt: report(Side::Client).is_some_and(|it| it.early_data),
            sender: None,
            receiver: None,
            careful_resume: None,
        });
    }

    fn sample(&mut self, running: &Running) {
        let [sender, receiver] = self.roles();
        let Some(ends) = &self.ends else {
            return;
        };
        let [source, sink] = [sender, receiver].map(|side| &ends[side as usize].report);
        let Some(state) = source.sender else {
            return;
        };
        self.samples.push(Sample {
            t_s: seconds(self.now),
            received_bytes: sink.received_bytes,
            cwnd_bytes: state.cwnd_bytes,
            in_flight_bytes: state.in_flight_bytes,
            handshaking: !source.connected || running.requested.is_none(),
            slow_start: state.slow_start,
            app_limited: state.supply != message::Supply::Slow,
            pacing_bps: state.pacing_bps,
            supply: state.supply.into(),
            rtt_ms: state.rtt_ms,
            lost_packets: state.lost_packets,
            sent_bytes: ends[sender as usize].sent_bytes,
            acked_bytes: None,
            ack_ms: None,
            forward_queue_ms: 0.0,
            return_queue_ms: 0.0,
            forward_out_bytes: 0,
            return_out_bytes: 0,
            forward_dropped_packets: 0,
            forward_lost_packets: 0,
            return_dropped_packets: 0,
            return_lost_packets: 0,
        });
    }

    /// The next moment at which something happens without a packet.
    fn own_deadline(&self) -> Nanos {
        let running = self.running.as_ref();
        let limit = running.map(|it| it.started + nanos(self.transfer.timeout_s));
        let sample = running.map(|_| self.next_sample);
        let timers = self.ends.iter().flatten().map(|end| end.timer);
        let own = timers.chain([limit, sample, self.next_start]);
        own.flatten().min().unwrap_or(Nanos::MAX)
    }
}

/// A program that answered its set-up.
type Made = Result<Result<(End, String), String>, String>;

/// A reason with the end that it is about.
fn of(side: Side, why: &str) -> String {
    format!("the {}: {why}", name(side))
}

/// A reason that an end reports itself: its program runs, but gave up the connection.
fn gave_up(side: Side, why: &str) -> String {
    format!("the {} gave up: {}", name(side), message::short(why))
}

const fn name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

/// SHA-256 of a payload in hexadecimal digits.
fn digest(bytes: u64) -> String {
    // A multiple of the payload's period: each block is the same.
    let block = message::payload(251 << 12);
    let mut hash = Sha256::new();
    let mut left = bytes as usize;
    while left > 0 {
        let length = left.min(block.len());
        hash.update(&block[..length]);
        left -= length;
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Ends for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn advance(&mut self, deadline: Nanos, is_busy: bool) -> bool {
        loop {
            if self.turn() == Progress::Over {
                return false;
            }
            let has_packets = self.ends.iter().flatten().any(|end| !end.out.is_empty());
            if is_busy || has_packets || deadline <= self.now {
                return true;
            }
            let own = self.own_deadline();
            if deadline <= own {
                self.now = deadline;
                return true;
            }
            self.now = own.max(self.now + 1);
        }
    }

    fn take(&mut self, side: Side) -> Option<Vec<u8>> {
        self.ends.as_mut()?[side as usize].out.pop_front()
    }

    fn receive(&mut self, side: Side, packet: &[u8]) {
        if let Some(ends) = &mut self.ends {
            ends[side as usize].receive(packet);
        }
    }
}
