// SPDX-License-Identifier: GPL-3.0-or-later
//! The result, schemas/virtual-flows-outcome.schema.json. Times are of the clock that it names.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::measured::{Measured, MeasuredFlow};
use super::record::{Counts, Record, Status};
use super::shared_tunnel::TunnelTotals;
use super::spec::{Kind, Spec};
use super::statistics::{self, GroupStatistics, PhaseStatistics, QueueStatistics};
use crate::outcome::{Direction, seconds};
use crate::path::LinkHistory;

/// The whole document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Outcome {
    #[schemars(extend("const" = "satlab/virtual-flows-outcome/1"))]
    schema: &'static str,
    version: &'static str,
    #[schemars(extend("enum" = ["virtual", "real"]))]
    clock: &'static str,
    /// what was asked for (schemas/virtual-flows.schema.json), defaults filled in
    #[schemars(with = "Map<String, Value>")]
    request: Spec,
    /// One per flow, in order.
    pub flows: Vec<FlowResult>,
    groups: Vec<GroupStatistics>,
    queues: [QueueStatistics; 2],
    link: Links,
    /// Ends of the tunnel in the simulation: client's side, server's side.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "[TunnelTotals; 2]")]
    tunnel: Option<[TunnelTotals; 2]>,
    /// Names of what was out of its limits, on the real clock; none: calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    calibration: Option<Vec<String>>,
}

/// Totals of each direction.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Links {
    Simulated(Vec<Direction>),
    Measured(#[schemars(with = "Vec<Map<String, Value>>")] Vec<Value>),
}

/// One flow.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowResult {
    id: String,
    library: String,
    /// How it ended.
    pub status: Status,
    reason: String,
    /// When the first packet was sent, where that is not its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64")]
    began_s: Option<f64>,
    /// When packets from each further address of the client arrived, on the real clock.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved_s: Vec<f64>,
    ended_s: Option<f64>,
    payload_bytes: u64,
    /// payload in order per time that the flow ran
    goodput_mbps: f64,
    sent_packets: u64,
    /// declared lost by the sender; of udp: sent and not received
    lost_packets: u64,
    /// UDP payload declared lost per sent
    retransmitted_share: f64,
    /// ACK frames of the receiver
    acks: u64,
    /// from the start until a second with 80 % of the link shared among the flows of the group that
    /// run then
    time_to_80_percent_s: Option<f64>,
    /// share in what the group carried in the first 20 s of this flow
    share_20s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "JumpResult")]
    careful_resume: Option<JumpResult>,
    /// Where figures are from, on the real clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    sources: Option<BTreeMap<String, String>>,
    phases: Vec<PhaseStatistics>,
    bins: Series,
}

/// What Careful Resume did.
#[derive(Debug, Serialize, JsonSchema)]
struct JumpResult {
    jump_bytes: u64,
    lost_bytes: u64,
    retreated: bool,
}

/// A flow over time: one entry a bin, null where it did not run; `received_bytes` is UDP payload at
/// the receiver.
#[derive(Debug, Default, Serialize, JsonSchema)]
struct Series {
    payload_bytes: Vec<Option<u64>>,
    received_bytes: Vec<Option<u64>>,
    lost_packets: Vec<Option<u64>>,
    cwnd_bytes: Vec<Option<u64>>,
    rtt_ms: Vec<Option<f64>>,
}

fn series(bins: &[Option<Counts>]) -> Series {
    let mut series = Series::default();
    let mut before = Counts::default();
    for bin in bins {
        let since = |value: fn(&Counts) -> u64| {
            bin.as_ref()
                .map(|now| value(now).saturating_sub(value(&before)))
        };
        series.payload_bytes.push(since(|it| it.payload_bytes));
        series.received_bytes.push(since(|it| it.received_bytes));
        series.lost_packets.push(since(|it| it.lost_packets));
        series.cwnd_bytes.push(bin.map(|it| it.cwnd_bytes));
        series
            .rtt_ms
            .push(bin.map(|it| statistics::round(it.rtt_ms)));
        before = bin.unwrap_or(before);
    }
    series
}

/// Puts the document of a simulation together.
pub(super) fn outcome(
    spec: &Spec,
    records: &[Record],
    history: &LinkHistory,
    tunnel: Option<[TunnelTotals; 2]>,
) -> Outcome {
    let queues = history.queues();
    let all = statistics::All::new(spec, records, &queues);
    let flows = spec.flows.iter().zip(records).enumerate();
    let flows = flows.map(|(index, (flow, record))| {
        let library = flow.stack.library().map_or("udp", |it| it.name());
        flow_result(&all, index, record, library.to_owned())
    });
    Outcome {
        clock: "virtual",
        flows: flows.collect(),
        link: Links::Simulated(history.directions()),
        tunnel,
        calibration: None,
        ..whole(spec, &all)
    }
}

/// Puts the document of flows together that were measured on the real clock.
#[must_use]
pub fn of_measured(spec: &Spec, measured: Measured) -> Outcome {
    let records: Vec<_> = measured.flows.iter().map(MeasuredFlow::record).collect();
    let all = statistics::All::new(spec, &records, &measured.queues);
    let flows = measured.flows.into_iter().zip(&records).enumerate();
    let flows = flows.map(|(index, (flow, record))| FlowResult {
        began_s: flow.began_s,
        moved_s: flow.moved_s,
        sources: Some(flow.sources),
        ..flow_result(&all, index, record, flow.library)
    });
    Outcome {
        clock: "real",
        flows: flows.collect(),
        link: Links::Measured(measured.link),
        calibration: Some(measured.calibration),
        ..whole(spec, &all)
    }
}

/// What does not depend on the clock.
fn whole(spec: &Spec, all: &statistics::All<'_>) -> Outcome {
    Outcome {
        schema: "satlab/virtual-flows-outcome/1",
        version: env!("CARGO_PKG_VERSION"),
        clock: "",
        request: spec.clone(),
        flows: Vec::new(),
        groups: all.groups(),
        queues: all.queues(),
        link: Links::Measured(Vec::new()),
        tunnel: None,
        calibration: None,
    }
}

fn flow_result(
    all: &statistics::All<'_>,
    index: usize,
    record: &Record,
    library: String,
) -> FlowResult {
    let (spec, flow) = (all.spec, &all.spec.flows[index]);
    let totals = record.totals;
    let end_s = record.ended.map_or(spec.duration_s, seconds);
    let active_s = (end_s - flow.start_s).max(f64::MIN_POSITIVE);
    FlowResult {
        id: flow.id.clone(),
        library,
        status: record.status,
        reason: record.reason.clone(),
        began_s: None,
        moved_s: Vec::new(),
        ended_s: record.ended.map(seconds),
        payload_bytes: totals.payload_bytes,
        goodput_mbps: statistics::round(totals.payload_bytes as f64 * 8e-6 / active_s),
        sent_packets: totals.sent_packets,
        lost_packets: if flow.stack == Kind::Udp {
            totals.sent_packets.saturating_sub(totals.received_packets)
        } else {
            totals.lost_packets
        },
        retransmitted_share: totals.lost_bytes as f64 / (totals.sent_bytes.max(1)) as f64,
        acks: totals.acks,
        time_to_80_percent_s: all.time_to_share(index, 0.8),
        share_20s: all.first_share(index, 20.0),
        careful_resume: record.jump.map(|jump| JumpResult {
            jump_bytes: jump.bytes,
            lost_bytes: jump.lost_bytes,
            retreated: jump.retreated,
        }),
        sources: None,
        phases: all.phases(index),
        bins: series(&record.bins),
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome;

    #[test]
    fn schema_file_is_that_of_the_types() {
        let title = "Output of satvirtual flows and satlab flows; times are of the clock";
        schema::compare_with_file(&schema::written::<Outcome>("virtual-flows-outcome", title));
    }
}
