// SPDX-License-Identifier: GPL-3.0-or-later
//! Lines of the output, schemas/satperf.schema.json.

use std::time::Instant;

use quic::LegOptions;
use resume::{Jump, Phase, PhaseUpdate, Trigger};
use serde::{Deserialize, Serialize};

use crate::stack::{Stats, ZeroRtt};

/// Which end measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Connects and sends the request.
    Client,
    /// Listens and answers.
    Server,
}

/// Direction of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Server to client.
    Download,
    /// Client to server.
    Upload,
}

/// A client's request: the first line of its first bidirectional stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Which way.
    pub direction: Direction,
    /// Payload of all streams together.
    pub bytes: Option<u64>,
    /// Time from the client's first packet.
    pub duration_ms: Option<u64>,
    /// Number of streams.
    pub streams: u32,
    /// Rate at which the sender's application generates payload, Mbit/s; `None`: all is there at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_mbps: Option<f64>,
}

/// Socket options in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Socket {
    /// Bytes.
    pub send_buffer_bytes: usize,
    /// Bytes.
    pub receive_buffer_bytes: usize,
    /// Datagrams per system call.
    pub gso_segments: usize,
}

/// Packets and acknowledgements, of an interval or altogether.
#[derive(Debug, Serialize)]
pub struct Counts {
    sent_packets: u64,
    received_packets: u64,
    lost_packets: u64,
    acks_sent: Option<u64>,
    acks_received: Option<u64>,
}

impl Counts {
    /// Returns what was added since `before`. Losses may be taken back, so they never count below
    /// zero.
    #[must_use]
    pub fn between(before: &Stats, now: &Stats) -> Self {
        let acks =
            |before: Option<u64>, now: Option<u64>| Some(now?.saturating_sub(before.unwrap_or(0)));
        Self {
            sent_packets: now.sent_packets.saturating_sub(before.sent_packets),
            received_packets: now.received_packets.saturating_sub(before.received_packets),
            lost_packets: now.lost_packets.saturating_sub(before.lost_packets),
            acks_sent: acks(before.acks_sent, now.acks_sent),
            acks_received: acks(before.acks_received, now.acks_received),
        }
    }
}

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first.
    Start(Start),
    /// Each 100 ms.
    Interval(Interval),
    /// The last.
    Summary(Box<Summary>),
}

/// Which end measures what.
#[derive(Debug, Serialize)]
pub struct Start {
    /// Name and version of the schema.
    pub schema: &'static str,
    /// Which end.
    pub side: Side,
    /// `sender` or `receiver` of payload.
    pub role: &'static str,
    /// Of this program.
    pub version: &'static str,
    /// Name and version of the QUIC library.
    pub stack: &'static str,
    /// Time 0.
    pub t_unix_s: f64,
    /// Address and port.
    pub peer: String,
    /// What is to be done.
    pub request: Request,
    /// Options in force.
    pub options: LegOptions,
    /// Socket in use.
    pub socket: Socket,
}

/// Figures since the line before.
#[derive(Debug, Serialize)]
pub struct Interval {
    /// Which end.
    pub side: Side,
    /// End, since time 0.
    pub t_s: f64,
    /// Length.
    #[serde(rename = "interval_s")]
    pub length_s: f64,
    /// Payload in order.
    pub bytes: u64,
    /// The same per second, in bits.
    pub goodput_bps: f64,
    /// Congestion window at the end.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time at the end.
    pub rtt_ms: f64,
    /// Sent, neither acknowledged nor lost, at the end.
    pub in_flight_bytes: Option<u64>,
    /// The window is below the slow start threshold.
    pub slow_start: Option<bool>,
    /// Before the last acknowledgement the window had room, but there was nothing to send or no
    /// credit.
    pub app_limited: Option<bool>,
    /// Rate that the congestion controller sets, bit/s.
    pub pacing_bps: Option<u64>,
    /// The stack has taken all payload of this end.
    pub handed: bool,
    /// Packets.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Totals of a connection.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// Which end.
    pub side: Side,
    /// `ok` or `failed`.
    pub status: &'static str,
    /// Why it ended.
    pub reason: String,
    /// End, since time 0.
    pub t_s: f64,
    /// Complete handshake.
    pub handshake_ms: Option<f64>,
    /// Result of early data.
    pub zero_rtt: ZeroRtt,
    /// First payload byte.
    pub time_to_first_byte_ms: Option<f64>,
    /// Payload in order.
    pub bytes: u64,
    /// From time 0 to the last payload byte.
    pub goodput_bps: Option<f64>,
    /// Time to 2, 10 and 100 MB of payload.
    pub reached_2mb_s: Option<f64>,
    /// As above.
    pub reached_10mb_s: Option<f64>,
    /// As above.
    pub reached_100mb_s: Option<f64>,
    /// All payload arrived, unchanged.
    pub data_equal: Option<bool>,
    /// Packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// UDP payload.
    pub sent_bytes: u64,
    /// UDP payload declared lost.
    pub lost_bytes: u64,
    /// Lost per sent.
    pub retransmitted_share: f64,
    /// User and system time of this process.
    pub cpu_s: f64,
    /// Careful Resume of what this end sends; `None`: off.
    pub careful_resume: Option<Resumed>,
}

/// Careful Resume of one connection.
#[derive(Debug, Serialize)]
pub struct Resumed {
    /// Window of the jump, bytes; `None`: there was none.
    pub jump_bytes: Option<u64>,
    /// Bytes of the jump declared lost.
    pub lost_bytes: u64,
    /// The jump was taken back.
    pub retreated: bool,
    /// Changes of the phase.
    pub phases: Vec<PhaseAt>,
}

/// A change of the phase, with the state after it.
#[derive(Debug, Serialize)]
pub struct PhaseAt {
    /// Since the start of the connection, s.
    pub t_s: f64,
    /// Phase since then.
    pub phase: Phase,
    /// Why.
    pub trigger: Option<Trigger>,
    /// Congestion window, bytes.
    pub cwnd_bytes: u64,
    /// Bytes that the path is known to carry.
    pub pipe_size_bytes: u64,
}

impl Resumed {
    /// What a stack reports; `since_s` turns a moment into a time since the start of the
    /// connection, s.
    #[must_use]
    pub fn new(
        (phases, jump): (&[PhaseUpdate], Option<Jump>),
        since_s: impl Fn(Instant) -> f64,
    ) -> Self {
        let phase = |it: &PhaseUpdate| PhaseAt {
            t_s: since_s(it.at),
            phase: it.new,
            trigger: it.trigger,
            cwnd_bytes: it.window,
            pipe_size_bytes: it.pipe_size,
        };
        Self {
            jump_bytes: jump.map(|it| it.bytes),
            lost_bytes: jump.map_or(0, |it| it.lost_bytes),
            retreated: jump.is_some_and(|it| it.retreated),
            phases: phases.iter().map(phase).collect(),
        }
    }
}
