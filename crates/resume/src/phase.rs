// SPDX-License-Identifier: GPL-3.0-or-later
//! Phases and their changes, as the qlog event `recovery:careful_resume_phase_updated` has them
//! (draft-ietf-tsvwg-careful-resume-qlog-02).

use std::time::Instant;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::store::Parameters;

/// Phase of a connection (RFC 9959 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nothing was saved for this path: ordinary congestion control.
    Observe,
    /// The initial window confirms the path.
    Reconnaissance,
    /// The jump is being sent, paced over a round trip.
    Unvalidated,
    /// All of the jump is sent; its acknowledgements arrive.
    Validating,
    /// Ordinary congestion control, after the jump or without one.
    Normal,
    /// The jump was too large: its packets leave the path.
    SafeRetreat,
}

/// Why a phase changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// The initial window is acknowledged, and there is more to send.
    CwndLimited,
    /// The round-trip time is not the saved one.
    RttNotValidated,
    /// The window of the jump is full.
    LastUnvalidatedPacketSent,
    /// The first packet of the jump is acknowledged.
    FirstUnvalidatedPacketAcknowledged,
    /// A round trip has passed.
    RttExceeded,
    /// The application did not use the jump.
    RateLimited,
    /// The jump is acknowledged.
    LastUnvalidatedPacketAcknowledged,
    /// A packet is lost.
    PacketLoss,
    /// A packet was marked by a router (RFC 3168).
    #[serde(rename = "ECN_CE")]
    EcnCe,
    /// What was in flight at the retreat is acknowledged.
    ExitRecovery,
    /// The connection uses another path.
    PathChanged,
}

/// A change of the phase, with the state after it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseUpdate {
    /// When.
    pub at: Instant,
    /// Phase before; `None` at the start of the connection.
    pub old: Option<Phase>,
    /// Phase since then.
    pub new: Phase,
    /// Bytes that the path is known to carry.
    pub pipe_size: u64,
    /// Number of the first packet of the jump.
    pub first_unvalidated: Option<u64>,
    /// Number of its last packet.
    pub last_unvalidated: Option<u64>,
    /// Congestion window, bytes.
    pub window: u64,
    /// Slow start threshold, bytes, if there is one.
    pub ssthresh: Option<u64>,
    /// What was saved for this path.
    pub restored: Option<Parameters>,
    /// Why; `None` where the event has no name for it.
    pub trigger: Option<Trigger>,
}

impl PhaseUpdate {
    /// Name of the event.
    pub const EVENT: &'static str = "recovery:careful_resume_phase_updated";

    /// The event's `data`.
    #[must_use]
    pub fn qlog(&self) -> Value {
        let mut state = json!({
            "pipesize": self.pipe_size,
            "first_unvalidated_packet": self.first_unvalidated.unwrap_or(0),
            "last_unvalidated_packet": self.last_unvalidated.unwrap_or(0),
            "congestion_window": self.window,
        });
        if let Some(ssthresh) = self.ssthresh {
            state["ssthresh"] = ssthresh.into();
        }
        let mut data = json!({ "new_phase": self.new, "state_data": state });
        if let Some(old) = self.old {
            data["old_phase"] = json!(old);
        }
        if let Some(Parameters { cwnd_bytes, rtt }) = self.restored {
            data["restored_data"] = json!({ "saved_congestion_window": cwnd_bytes, "saved_rtt": rtt.as_secs_f64() * 1e3 });
        }
        if let Some(trigger) = self.trigger {
            data["trigger"] = json!(trigger);
        }
        data
    }
}
