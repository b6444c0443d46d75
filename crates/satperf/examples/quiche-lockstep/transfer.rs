// SPDX-License-Identifier: GPL-3.0-or-later
//! A connection and its transfer: the payload's sender writes, the other side counts and hashes.

use std::collections::VecDeque;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quiche::{Connection, ConnectionId, RecvInfo, SendInfo};
use sha2::{Digest, Sha256};

use crate::message::{Report, Sender};
use crate::metrics::{Metrics, Reader};

/// UDP payload of a datagram: satperf's.
pub const DATAGRAM: usize = 1350;
/// Packets that are due this soon leave together, as satperf's.
const SLACK: Duration = Duration::from_micros(500);
/// The only stream, the client's first one.
const STREAM: u64 = 0;
const PERIOD: usize = 251;
const PART: usize = 1 << 16;
/// `ssl_early_data_accepted` of `BoringSSL`.
const EARLY_DATA_ACCEPTED: u32 = 2;

/// What both sides know of the transfer.
pub struct Role {
    pub is_client: bool,
    pub sends: bool,
    pub bytes: u64,
}

pub struct Transfer {
    pub quic: Connection,
    /// Connection ids by which packets for this end are known.
    ids: Vec<ConnectionId<'static>>,
    role: Role,
    /// Request of a client, and what of it was not written yet.
    head: VecDeque<u8>,
    resumes: bool,
    requested: bool,
    written: u64,
    received: u64,
    is_finished: bool,
    hash: Sha256,
    sha256: Option<String>,
    /// A packet that is not due yet.
    waiting: Option<(Vec<u8>, SendInfo)>,
    metrics: Option<Arc<Mutex<Metrics>>>,
    block: Vec<u8>,
    scratch: Vec<u8>,
}

impl Transfer {
    pub fn new(
        mut quic: Connection,
        ids: Vec<ConnectionId<'static>>,
        role: Role,
        resumes: bool,
    ) -> Self {
        let metrics = role.sends.then(|| {
            let reader = Reader::default();
            let shared = reader.shared();
            quic.set_qlog(Box::new(reader), String::new(), String::new());
            shared
        });
        let verb = if role.sends { "PUT" } else { "GET" };
        let head = if role.is_client {
            format!("{verb} /{}\r\n", role.bytes)
        } else {
            String::new()
        };
        Self {
            quic,
            ids,
            head: head.into_bytes().into(),
            resumes,
            requested: role.is_client && role.sends,
            written: 0,
            received: 0,
            is_finished: false,
            hash: Sha256::new(),
            sha256: None,
            waiting: None,
            metrics,
            block: (0..PERIOD + PART)
                .map(|index| (index % PERIOD) as u8)
                .collect(),
            scratch: vec![0; PART],
            role,
        }
    }

    pub fn is_for(&self, id: &ConnectionId<'_>) -> bool {
        self.ids.iter().any(|own| own == id)
    }

    /// A packet has arrived. A fault of it is ignored, or the connection's, which then ends with
    /// it.
    pub fn receive(&mut self, data: &mut [u8], from: SocketAddr, to: SocketAddr) {
        let _ = self.quic.recv(data, RecvInfo { from, to });
    }

    /// Runs timers and the application, and puts what is due by `now` to `out`.
    pub fn work(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) {
        if self.quic.timeout_instant().is_some_and(|due| due <= now) {
            self.quic.on_timeout();
        }
        self.read();
        if self.role.is_client && self.sha256.is_some() && self.quic.local_error().is_none() {
            let _ = self.quic.close(true, 0, b"");
        }
        while self.feed() | self.send(now, out) {}
    }

    /// Takes what has arrived on the stream.
    fn read(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        while let Ok((length, is_end)) = self.quic.stream_recv(STREAM, &mut scratch) {
            self.take(&scratch[..length], is_end);
        }
        self.scratch = scratch;
    }

    fn take(&mut self, mut data: &[u8], is_end: bool) {
        if !self.role.is_client && !self.requested {
            let Some(end) = data.iter().position(|&one| one == b'\n') else {
                return;
            };
            self.requested = true;
            data = &data[end + 1..];
        }
        if !self.role.sends {
            self.hash.update(data);
            self.received += data.len() as u64;
        }
        if is_end && self.sha256.is_none() && (self.role.is_client || !self.role.sends) {
            let mut text = String::new();
            for byte in std::mem::take(&mut self.hash).finalize() {
                let _ = write!(text, "{byte:02x}");
            }
            self.sha256 = Some(text);
        }
    }

    /// Writes what the application has and the stack takes; returns whether it took something.
    fn feed(&mut self) -> bool {
        if self.is_finished || !(self.quic.is_established() || self.quic.is_in_early_data()) {
            return false;
        }
        if !self.head.is_empty() {
            let head = self.head.make_contiguous();
            let taken = self
                .quic
                .stream_send(STREAM, head, !self.role.sends)
                .unwrap_or(0);
            self.head.drain(..taken);
            self.is_finished = self.head.is_empty() && !self.role.sends;
            return taken > 0;
        }
        if !self.role.sends {
            // A server of an upload answers with an empty stream once it has all.
            self.is_finished =
                self.sha256.is_some() && self.quic.stream_send(STREAM, b"", true).is_ok();
            return self.is_finished;
        }
        let mut has_taken = false;
        while self.requested && !self.is_finished {
            let left = (self.role.bytes - self.written).min(PART as u64) as usize;
            let is_end = self.written + left as u64 == self.role.bytes;
            let skip = (self.written % PERIOD as u64) as usize;
            let part = &self.block[skip..skip + left];
            let taken = self.quic.stream_send(STREAM, part, is_end).unwrap_or(0);
            self.written += taken as u64;
            self.is_finished = self.written == self.role.bytes;
            has_taken |= taken > 0;
            if taken < left {
                break;
            }
        }
        has_taken
    }

    /// Puts packets that are due to `out`; returns whether there was one.
    fn send(&mut self, now: Instant, out: &mut VecDeque<Vec<u8>>) -> bool {
        let before = out.len();
        loop {
            let next = self.waiting.take().or_else(|| {
                let mut packet = vec![0; DATAGRAM];
                let (length, info) = self.quic.send(&mut packet).ok()?;
                packet.truncate(length);
                Some((packet, info))
            });
            let Some((packet, info)) = next else {
                break;
            };
            // Pacing ends with the connection, whose last packet must leave.
            if info.at > now + SLACK && self.quic.local_error().is_none() {
                self.waiting = Some((packet, info));
                break;
            }
            out.push_back(packet);
        }
        out.len() > before
    }

    /// When this connection wants to work again.
    pub fn due(&self) -> Option<Instant> {
        let paced = self.waiting.as_ref().map(|(_, info)| info.at);
        [paced, self.quic.timeout_instant()]
            .into_iter()
            .flatten()
            .min()
    }

    pub fn report(&mut self) -> Report {
        Report {
            connected: self.quic.is_established(),
            requested: self.requested,
            early_data: self.resumes && self.quic.early_data_reason() == EARLY_DATA_ACCEPTED,
            received_bytes: self.received,
            sha256: self.sha256.clone().filter(|_| !self.role.sends),
            error: self.error(),
            sender: self.sender(),
        }
    }

    /// Why the connection has ended before its transfer.
    fn error(&self) -> Option<String> {
        if self.sha256.is_some()
            || (self.role.sends && self.is_finished && !self.quic.is_timed_out())
        {
            return None;
        }
        let named = |who: &str, error: &quiche::ConnectionError| {
            let kind = if error.is_app {
                "application"
            } else {
                "transport"
            };
            let reason = String::from_utf8_lossy(&error.reason);
            format!(
                "closed by {who}: {reason} ({kind} error {:#x})",
                error.error_code
            )
        };
        let by = self.quic.peer_error().map(|error| named("the peer", error));
        by.or_else(|| self.quic.local_error().map(|error| named("itself", error)))
            .or_else(|| self.quic.is_timed_out().then(|| "timed out".into()))
            .or_else(|| self.quic.is_closed().then(|| "closed".into()))
    }

    fn sender(&mut self) -> Option<Sender> {
        let newest = *self
            .metrics
            .as_ref()?
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let path = self.quic.path_stats().next()?;
        let has_room = newest.in_flight_bytes + 2 * (DATAGRAM as u64) < path.cwnd as u64;
        let is_full = self.requested
            && self
                .quic
                .stream_capacity(STREAM)
                .is_ok_and(|room| room == 0);
        let supply = match (self.is_finished, has_room && is_full) {
            (true, _) => "done",
            (_, true) => "blocked",
            _ => "slow",
        };
        Some(Sender {
            cwnd_bytes: path.cwnd,
            in_flight_bytes: newest.in_flight_bytes,
            slow_start: (path.cwnd as u64) < newest.threshold_bytes,
            supply,
            rtt_ms: path.rtt.as_secs_f64() * 1e3,
            lost_packets: self.quic.stats().lost,
        })
    }
}
