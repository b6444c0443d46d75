// SPDX-License-Identifier: GPL-3.0-or-later
//! What was recorded of a flow, simulated or measured.

use link::Nanos;
use resume::Jump;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Totals of a flow since its start; window and round-trip time at that moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Counts {
    /// Payload that arrived in order.
    pub payload_bytes: u64,
    /// Of it, wrong.
    pub differing_bytes: u64,
    /// UDP payload that arrived.
    pub received_bytes: u64,
    /// Datagrams that arrived.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that the sender declared lost.
    pub lost_packets: u64,
    /// UDP payload sent.
    pub sent_bytes: u64,
    /// UDP payload declared lost.
    pub lost_bytes: u64,
    /// Congestion window of the sender.
    pub cwnd_bytes: u64,
    /// Smoothed round-trip time of the sender.
    pub rtt_ms: f64,
    /// ACK frames of the receiver.
    pub acks: u64,
    /// The handshake is complete.
    pub is_connected: bool,
}

/// How a flow ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Complete, or stopped as planned.
    #[default]
    Ok,
    /// Payload was missing when its time was over.
    Censored,
    /// The connection died, never came about, or carried wrong bytes.
    Failed,
}

/// What was recorded of a flow.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// It has begun.
    pub is_started: bool,
    /// When it ended.
    pub ended: Option<Nanos>,
    /// How.
    pub status: Status,
    /// Why, if not well.
    pub reason: String,
    /// At its end.
    pub totals: Counts,
    /// The jump of Careful Resume.
    pub jump: Option<Jump>,
    /// At the end of each bin in which it ran.
    pub bins: Vec<Option<Counts>>,
}
