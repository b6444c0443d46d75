// SPDX-License-Identifier: GPL-3.0-or-later
//! Lines of the output, schemas/satperf.schema.json.

use std::time::Instant;

use quic::LegOptions;
use resume::{Jump, Phase, PhaseUpdate, Trigger};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stack::{Stats, ZeroRtt};

/// Which end measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Connects and sends the request.
    Client,
    /// Listens and answers.
    Server,
}

/// Direction of the payload.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Server to client.
    Download,
    /// Client to server.
    Upload,
}

/// A client's request: the first line of its first bidirectional stream.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Direction of the payload.
    pub direction: Direction,
    /// payload on all streams together; null: by duration
    pub bytes: Option<u64>,
    /// from time 0 of the client; null: by bytes
    pub duration_ms: Option<u64>,
    /// Number of streams.
    pub streams: u32,
    /// Rate at which the sender's application generates payload, Mbit/s; left out: all is there
    /// at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    pub source_mbps: Option<f64>,
}

/// Socket options in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Socket {
    /// Bytes that wait to be sent.
    pub send_buffer_bytes: usize,
    /// Bytes that wait to be read.
    pub receive_buffer_bytes: usize,
    /// datagrams per system call when sending
    pub gso_segments: usize,
}

/// Packets and acknowledgements, of an interval or altogether.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Counts {
    /// QUIC packets sent
    sent_packets: u64,
    /// UDP datagrams (quinn) or QUIC packets (quiche) received
    received_packets: u64,
    /// declared lost by this side
    lost_packets: u64,
    /// ACK frames; null where the stack does not count them (quiche)
    acks_sent: Option<u64>,
    /// ACK frames; null where the stack does not count them (quiche)
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
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// First line.
    Start(Start),
    /// One line per 100 ms.
    Interval(Interval),
    /// Last line.
    Summary(Box<Summary>),
}

/// Which end measures what.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Start {
    /// Name and version of the schema.
    #[schemars(extend("const" = "satlab/satperf/1"))]
    pub schema: &'static str,
    /// who measured; a client's file holds the server's lines, too, when its report arrived
    pub side: Side,
    /// whether this side sends or receives the payload
    #[schemars(extend("enum" = ["sender", "receiver"]))]
    pub role: &'static str,
    /// Version of satperf.
    pub version: &'static str,
    /// Name and version of the QUIC library.
    pub stack: &'static str,
    /// time 0 of this side: first packet sent (client), connection accepted (server)
    pub t_unix_s: f64,
    /// Address and port.
    pub peer: String,
    /// the client's request
    pub request: Request,
    /// options of this side in force
    pub options: LegOptions,
    /// options of the UDP socket, as the kernel granted them
    pub socket: Socket,
}

/// Figures since the line before.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Interval {
    /// Which end.
    pub side: Side,
    /// end of the interval, since time 0
    pub t_s: f64,
    /// length of the interval; 0.1 s except for the last interval and on a late host
    #[serde(rename = "interval_s")]
    pub length_s: f64,
    /// payload given to the application in order (receiver)
    pub bytes: u64,
    /// rate of these bytes, bit/s
    pub goodput_bps: f64,
    /// Congestion window at the end.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time at the end.
    pub rtt_ms: f64,
    /// sent, neither acknowledged nor lost, at the end of the interval; null where the stack does
    /// not report it (quiche)
    pub in_flight_bytes: Option<u64>,
    /// the congestion window is below the slow start threshold; null where the stack does not
    /// report it
    pub slow_start: Option<bool>,
    /// Before the last acknowledgement the window had room, but there was nothing to send or no
    /// credit; null where the stack does not report it.
    pub app_limited: Option<bool>,
    /// Rate that the congestion controller sets, bit/s, at the end of the interval; null: none, or
    /// not reported.
    pub pacing_bps: Option<u64>,
    /// UDP payload sent since time 0, bytes.
    pub sent_bytes: u64,
    /// of packets acknowledged since time 0; null where the stack does not report it
    pub acked_bytes: Option<u64>,
    /// Mean time until their acknowledgement of the packets that were acknowledged in the interval,
    /// with the time that the peer waited; null: none, or not reported.
    pub ack_ms: Option<f64>,
    /// The stack has taken all payload of this end.
    pub handed: bool,
    /// Packets.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Totals of a connection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// Which end.
    pub side: Side,
    /// How the transfer ended.
    #[schemars(extend("enum" = ["ok", "failed"]))]
    pub status: &'static str,
    /// Why the transfer ended.
    pub reason: String,
    /// End of the transfer, since time 0.
    pub t_s: f64,
    /// time 0 to a complete handshake; null: never
    pub handshake_ms: Option<f64>,
    /// Result of early data.
    pub zero_rtt: ZeroRtt,
    /// time 0 to the first payload byte (receiver); null: none
    pub time_to_first_byte_ms: Option<f64>,
    /// Payload in order.
    pub bytes: u64,
    /// from time 0 to the last payload byte; null: no payload
    pub goodput_bps: Option<f64>,
    /// time 0 to 2,000,000 payload bytes; null: not reached
    pub reached_2mb_s: Option<f64>,
    /// time 0 to 10,000,000 payload bytes; null: not reached
    pub reached_10mb_s: Option<f64>,
    /// time 0 to 100,000,000 payload bytes; null: not reached
    pub reached_100mb_s: Option<f64>,
    /// every byte received was compared with the one due at its stream and offset, and by bytes all
    /// came; null: this side sent
    pub data_equal: Option<bool>,
    /// Packets.
    #[serde(flatten)]
    pub counts: Counts,
    /// UDP payload sent, bytes.
    pub sent_bytes: u64,
    /// UDP payload declared lost, which is retransmitted
    pub lost_bytes: u64,
    /// `lost_bytes` / `sent_bytes`
    pub retransmitted_share: f64,
    /// user and system time of the process so far
    pub cpu_s: f64,
    /// Careful Resume of what this end sends; null: off.
    pub careful_resume: Option<Resumed>,
}

/// Careful Resume of one connection.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Resumed {
    /// Window of the jump, bytes; null: there was none.
    pub jump_bytes: Option<u64>,
    /// Bytes of the jump declared lost.
    pub lost_bytes: u64,
    /// The jump was taken back.
    pub retreated: bool,
    /// Changes of the phase.
    pub phases: Vec<PhaseAt>,
}

/// A change of the phase, with the state after it.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PhaseAt {
    /// Since the start of the connection, s.
    pub t_s: f64,
    /// Phase since then.
    pub phase: Phase,
    /// Why the phase changed.
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

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "One line of satperf's output: start, one interval per 100 ms, summary; counters are per interval, totals in the summary";
        schema::compare_with_file(&schema::written::<Line>("satperf", title));
    }
}
