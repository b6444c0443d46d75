// SPDX-License-Identifier: GPL-3.0-or-later
//! One interface to several QUIC libraries: a state machine without socket or thread, stepped by
//! datagrams and time.

#[cfg(feature = "noq")]
pub mod noq;
#[cfg(feature = "quiche")]
pub mod quiche;
pub mod quinn;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::quic::{Faults, LegOptions, QlogFile, QlogHealth, SenderState, TlsError};
use bytes::{Bytes, BytesMut};
use resume::{Jump, PhaseUpdate};

/// Handle of a connection, never used again within a process.
pub type Conn = usize;

/// Protocol name in the TLS handshake.
pub const ALPN: &[u8] = b"satperf/2";

/// Streams that a peer may have open at once, per kind.
pub const MAX_STREAMS: u32 = 100;

/// Answers without a connection that wait to be sent, at most: of further ones the peer asks again.
const MOST_ANSWERS: usize = 64;

/// What every stack is made from.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Options of this side.
    pub options: LegOptions,
    /// Folder for qlog files.
    pub qlog: Option<PathBuf>,
    /// Session of an earlier process, for 0-RTT (client, quiche).
    pub session: Option<Vec<u8>>,
    /// One moment on both clocks: monotonic, and Unix time in s. Without it nothing is resumed.
    pub epoch: Option<(Instant, f64)>,
    /// Text of the state file of Careful Resume; empty: no path is known (quinn).
    pub resume_state: String,
    /// Makes connection ids and other random choices the same in every run, for simulations (quinn,
    /// noq).
    pub seed: Option<u64>,
    /// UDP payload of a full datagram, bytes, 1200 at least; `None`: found out (quinn, noq).
    pub datagram_bytes: Option<u16>,
}

/// Files of the TLS handshake.
#[derive(Debug, Clone)]
pub enum TlsFiles {
    /// A server shows a certificate.
    Server {
        /// Chain, PEM.
        cert: PathBuf,
        /// Private key, PEM.
        key: PathBuf,
    },
    /// A client checks it.
    Client {
        /// The only certificates that are trusted, PEM.
        ca: PathBuf,
    },
}

/// qlog files of an endpoint's connections.
struct Qlogs {
    dir: Option<PathBuf>,
    healths: Vec<QlogHealth>,
}

impl Qlogs {
    fn new(setup: &Setup) -> Self {
        Self {
            dir: setup.qlog.clone(),
            healths: Vec::new(),
        }
    }

    /// Creates a file if there is a folder for qlog; a failure is kept.
    fn create(&mut self, name: &str) -> Result<Option<QlogFile>, StackError> {
        let Some(dir) = &self.dir else {
            return Ok(None);
        };
        let (result, health) = match QlogFile::create(dir, name) {
            Ok((file, health)) => (Ok(Some(file)), health),
            Err(source) => {
                let (dir, health) = (dir.clone(), QlogHealth::default());
                let error = StackError::Qlog { dir, source };
                health.note(&error.to_string());
                (Err(error), health)
            }
        };
        self.healths.push(health);
        result
    }

    fn fault(&self) -> Option<String> {
        let mut faults = self.healths.iter().filter_map(QlogHealth::fault);
        faults.next().map(str::to_owned)
    }
}

/// Why a stack or a connection cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// Options out of range, or not known to this stack.
    #[error("{0}")]
    Options(#[from] Faults),
    /// Certificate, key or CA cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The library's own message.
    #[error("{what}: {why}")]
    Library {
        /// What was attempted.
        what: &'static str,
        /// The library's message.
        why: String,
    },
    /// The state file of Careful Resume is wrong.
    #[error("state of Careful Resume: {0}")]
    ResumeState(String),
    /// A qlog file cannot be made.
    #[error("qlog in {dir}: {source}")]
    Qlog {
        /// The folder.
        dir: PathBuf,
        /// The host's error.
        source: std::io::Error,
    },
}

/// A change of a connection's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A client connected (server).
    Accepted(SocketAddr),
    /// The handshake is complete.
    Connected,
    /// The server took no early data: streams that were opened for it are gone (client).
    EarlyDataRejected,
    /// The peer, the idle timer or a fault ended it; there is none after an own [`Stack::close`].
    Closed(Close),
}

/// End of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    /// The application closed it with code 0.
    pub clean: bool,
    /// Description with the code.
    pub reason: String,
}

/// A burst of datagrams to one place; their bytes are in the buffer given to [`Stack::transmit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: SocketAddr,
    /// From which own address, if it matters.
    pub from: Option<IpAddr>,
    /// Two bits of the IP header (RFC 3168).
    pub ecn: Option<u8>,
    /// Bytes of each datagram but the last; `None`: one datagram.
    pub segment: Option<usize>,
}

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Where from.
    pub from: SocketAddr,
    /// To which own address.
    pub to: SocketAddr,
    /// Two bits of the IP header (RFC 3168).
    pub ecn: Option<u8>,
    /// Contents.
    pub data: BytesMut,
}

/// How a read of a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// More will come.
    Open,
    /// All was read.
    Finished,
    /// The peer reset the stream.
    Reset,
}

/// Result of early data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZeroRtt {
    /// No session was offered.
    NotAsked,
    /// The server took it.
    Accepted,
    /// The server did not take it.
    Refused,
}

/// Totals of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// QUIC packets sent.
    pub sent_packets: u64,
    /// Datagrams sent, where counted.
    pub sent_datagrams: Option<u64>,
    /// Datagrams (quinn) or packets (quiche) received.
    pub received_packets: u64,
    /// UDP payload received.
    pub received_bytes: u64,
    /// Packets declared lost.
    pub lost_packets: u64,
    /// UDP payload sent.
    pub sent_bytes: u64,
    /// UDP payload declared lost.
    pub lost_bytes: u64,
    /// ACK frames sent, where counted.
    pub acks_sent: Option<u64>,
    /// ACK frames received, where counted.
    pub acks_received: Option<u64>,
    /// Congestion events (RFC 9002 section 7.3.2), where counted.
    pub congestion_events: Option<u64>,
    /// `DATA_BLOCKED` and `STREAM_DATA_BLOCKED` frames sent, where counted.
    pub blocked_frames: Option<u64>,
    /// State of this end's congestion controller, where available.
    pub sender: Option<SenderState>,
}

impl Stats {
    /// Mean time until their acknowledgement of the packets acknowledged since `before`, ms; `None`:
    /// none, or not reported.
    #[must_use]
    pub fn ack_ms(&self, before: &Self) -> Option<f64> {
        let before = before.sender.map(|it| it.acks).unwrap_or_default();
        self.sender?.acks.mean_ms(before)
    }
}

/// A QUIC library. Streams have the numbers of RFC 9000 section 2.1. A call for a connection that
/// is gone does nothing.
pub trait Stack {
    /// Starts a connection (client).
    ///
    /// # Errors
    /// A name or address that the library does not take.
    fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Conn, StackError>;
    /// Takes a datagram.
    fn receive(&mut self, now: Instant, datagram: Datagram);
    /// Appends the next burst of at most `segments` datagrams to the empty `buffer`.
    fn transmit(&mut self, now: Instant, segments: usize, buffer: &mut Vec<u8>)
    -> Option<Transmit>;
    /// The client sends from another own address from now on (RFC 9000 section 9): its connections
    /// take other ids.
    fn migrated(&mut self, _: Instant) {}
    /// When [`Stack::handle_timeout`] and [`Stack::transmit`] are due at the latest.
    fn timeout(&mut self) -> Option<Instant>;
    /// Handles timers that are due at `now`.
    fn handle_timeout(&mut self, now: Instant);
    /// Returns the next event.
    fn poll(&mut self) -> Option<(Conn, Event)>;
    /// Application data may be sent, be it early data.
    fn may_write(&self, conn: Conn) -> bool;
    /// Opens a stream to write, with a way back (`both`) or without; `None` while the peer allows
    /// no more.
    fn open(&mut self, conn: Conn, both: bool) -> Option<u64>;
    /// Writes as much of `data` as is taken now and cuts it off.
    fn write(&mut self, conn: Conn, stream: u64, data: &mut Bytes);
    /// Ends a stream.
    fn finish(&mut self, conn: Conn, stream: u64);
    /// Resets a stream that was being written.
    fn reset(&mut self, conn: Conn, stream: u64);
    /// Returns a stream that has something new.
    fn readable(&mut self, conn: Conn) -> Option<u64>;
    /// Reads in order what is there.
    fn read(&mut self, conn: Conn, stream: u64, sink: &mut dyn FnMut(&[u8])) -> Read;
    /// Closes a connection at once.
    fn close(&mut self, now: Instant, conn: Conn, code: u32, reason: &str);
    /// Drops a connection that ended, with its totals.
    fn forget(&mut self, now: Instant, conn: Conn);
    /// Totals of a connection; zeros for one that was forgotten.
    fn stats(&mut self, conn: Conn) -> Stats;
    /// Result of early data.
    fn zero_rtt(&self, conn: Conn) -> ZeroRtt;
    /// Session for a later 0-RTT connection, once the server has sent one (client).
    fn session(&self, conn: Conn) -> Option<Vec<u8>>;
    /// Changes of the phase of Careful Resume so far, and the jump; `None`: it is off.
    fn resumed(&self, _: Conn) -> Option<(&[PhaseUpdate], Option<Jump>)> {
        None
    }
    /// Text of the state file of Careful Resume, where it is in use.
    fn resume_state(&self) -> Option<String> {
        None
    }
    /// Why a qlog file is incomplete.
    fn qlog_fault(&self) -> Option<String>;
    /// Options in force, where the library needs others than those given.
    fn options(&self) -> &LegOptions;
    /// Name and version of the library.
    fn name(&self) -> &'static str;
}
