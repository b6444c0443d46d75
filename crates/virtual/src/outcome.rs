// SPDX-License-Identifier: GPL-3.0-or-later
//! The result, schemas/virtual-outcome.schema.json. Times are virtual.

use link::{Counters, Nanos};
use satperf::record::Resumed;
use satperf::stack::Stats;
use satperf::streams::SourceState;
use schemars::JsonSchema;
use serde::Serialize;

use crate::transfer::Transfer;

/// The whole document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Outcome {
    /// Name and version of the schema.
    #[schemars(extend("const" = "satlab/virtual-outcome/1"))]
    pub schema: &'static str,
    /// Version of this program.
    pub version: &'static str,
    /// QUIC library, or the programs of both ends.
    pub stack: String,
    /// Kind of clock.
    #[schemars(extend("const" = "virtual"))]
    pub clock: &'static str,
    /// Hash of the link's configuration.
    pub config_sha256: String,
    /// Hash of the profile.
    pub profile_sha256: String,
    /// The transfers as requested.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub request: Transfer,
    /// One per connection, in order.
    pub transfers: Vec<TransferResult>,
    /// Every 50 ms while a transfer runs.
    pub samples: Vec<Sample>,
    /// Totals of the link.
    pub link: Vec<Direction>,
}

/// One transfer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TransferResult {
    /// censored: the time was over; failed: the connection ended before the payload was there
    #[schemars(extend("enum" = ["ok", "failed", "censored"]))]
    pub status: &'static str,
    /// Why the status is not `ok`.
    pub reason: String,
    /// Start of the connection, its first packet, s.
    pub started_s: f64,
    /// From there to the client's handshake, ms.
    pub handshake_ms: Option<f64>,
    /// From there until the sender knew what to send, ms.
    pub asked_ms: Option<f64>,
    /// From there to the first byte of payload at the receiver, ms.
    pub time_to_first_byte_ms: Option<f64>,
    /// From there to the last byte that arrived, or to the end, s.
    pub duration_s: f64,
    /// Payload that arrived, bytes.
    pub bytes: u64,
    /// Times at which amounts had arrived.
    pub marks: Vec<Mark>,
    /// The request went as 0-RTT data and was taken.
    pub zero_rtt: bool,
    /// At the sender of the payload; null: it never saw the connection, or is a program.
    pub sender: Option<Stack>,
    /// Counters at the receiver of the payload.
    pub receiver: Option<Stack>,
    /// Careful Resume at the sender; null: off.
    pub careful_resume: Option<Resumed>,
}

/// When an amount had arrived.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Mark {
    /// Amount, bytes.
    pub bytes: u64,
    /// Since the start of the connection, s; null: it did not.
    pub t_s: Option<f64>,
}

/// Counters of one end's stack.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Stack {
    sent_datagrams: u64,
    sent_bytes: u64,
    sent_acks: u64,
    lost_packets: u64,
    congestion_events: u64,
    cwnd_bytes: u64,
    rtt_ms: f64,
    /// `DATA_BLOCKED` and `STREAM_DATA_BLOCKED` frames sent
    blocked_by_flow_control: u64,
}

impl From<Stats> for Stack {
    /// quinn counts all of them.
    fn from(stats: Stats) -> Self {
        Self {
            sent_datagrams: stats.sent_datagrams.unwrap_or(0),
            sent_bytes: stats.sent_bytes,
            sent_acks: stats.acks_sent.unwrap_or(0),
            lost_packets: stats.lost_packets,
            congestion_events: stats.congestion_events.unwrap_or(0),
            cwnd_bytes: stats.cwnd_bytes,
            rtt_ms: stats.rtt.as_secs_f64() * 1e3,
            blocked_by_flow_control: stats.blocked_frames.unwrap_or(0),
        }
    }
}

/// State at a moment. Counters run from the start of the transfer.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Sample {
    /// Virtual time, s.
    pub t_s: f64,
    /// Payload that has arrived, bytes.
    pub received_bytes: u64,
    /// The sender's congestion window, bytes.
    pub cwnd_bytes: u64,
    /// What the sender has in flight, bytes.
    pub in_flight_bytes: u64,
    /// The sender's handshake is not complete: it may send three times what it got (RFC 9000
    /// section 8.1), if a server.
    pub handshaking: bool,
    /// The sender has not left slow start, or is in it again.
    pub slow_start: bool,
    /// The window had room, but there was nothing to send, or nothing that flow control allowed.
    pub app_limited: bool,
    /// Rate that the sender's congestion controller sets, bit/s.
    pub pacing_bps: Option<u64>,
    /// What the sending application has for the stack.
    pub supply: SourceState,
    /// The sender's smoothed round-trip time, ms.
    pub rtt_ms: f64,
    /// Packets that the sender has declared lost.
    pub lost_packets: u64,
    /// UDP payload that the sender has sent, bytes.
    pub sent_bytes: u64,
    /// Of packets that were acknowledged; null: not reported.
    pub acked_bytes: Option<u64>,
    /// Mean time until their acknowledgement of the packets that were acknowledged since the sample
    /// before, with the time that the receiver waited, ms; null: none, or not reported.
    pub ack_ms: Option<f64>,
    /// Time that the forward link needs for the bytes in its queue, ms.
    pub forward_queue_ms: f64,
    /// Time that the return link needs for the bytes in its queue, ms.
    pub return_queue_ms: f64,
    /// Bytes of IP packets that the forward link has released since the start.
    pub forward_out_bytes: u64,
    /// Bytes of IP packets that the return link has released since the start.
    pub return_out_bytes: u64,
    /// Packets that the queue of the forward link has dropped since the start.
    pub forward_dropped_packets: u64,
    /// Packets that were lost on the forward link since the start.
    pub forward_lost_packets: u64,
    /// Packets that the queue of the return link has dropped since the start.
    pub return_dropped_packets: u64,
    /// Packets that were lost on the return link since the start.
    pub return_lost_packets: u64,
}

/// One direction of the link.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Direction {
    #[schemars(extend("enum" = emulator::directions::DIRECTIONS))]
    name: &'static str,
    /// Offered.
    pub in_packets: u64,
    out_packets: u64,
    out_bytes: u64,
    dropped_packets: u64,
    /// Lost on air.
    pub lost_packets: u64,
    /// That a later packet overtook.
    pub reordered_packets: u64,
    /// Copies that the link made, contained in `out_packets`.
    pub duplicated_packets: u64,
    /// UDP datagrams with a flipped bit.
    pub corrupted_packets: u64,
    marked_packets: u64,
    frames: u64,
}

impl Direction {
    /// The counters under their names.
    #[must_use]
    pub fn new(name: &'static str, counters: Counters) -> Self {
        Self {
            name,
            in_packets: counters.packets_in,
            out_packets: counters.packets_out,
            out_bytes: counters.bytes_out,
            dropped_packets: counters.packets_dropped,
            lost_packets: counters.packets_lost,
            reordered_packets: counters.packets_reordered,
            duplicated_packets: counters.packets_duplicated,
            corrupted_packets: counters.packets_corrupted,
            marked_packets: counters.packets_marked,
            frames: counters.frames_sent,
        }
    }
}

/// Seconds of a virtual time.
#[must_use]
pub fn seconds(time: Nanos) -> f64 {
    time as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "Output of satvirtual; times are virtual";
        schema::compare_with_file(&schema::written::<Outcome>("virtual-outcome", title));
    }
}
