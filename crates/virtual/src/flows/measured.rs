// SPDX-License-Identifier: GPL-3.0-or-later
//! What was measured of flows on the real clock, from which the same figures are made as from
//! simulated ones.

use std::collections::BTreeMap;

use schema::Faults;
use serde::Deserialize;
use serde_json::Value;

use super::record::{Counts, Record, Status};
use super::spec::Spec;
use crate::path::QueueSample;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// In the order of the request.
    pub flows: Vec<MeasuredFlow>,
    /// Forward and return queue every 50 ms.
    pub queues: [Vec<QueueSample>; 2],
    /// Totals of each direction.
    pub link: Vec<Value>,
    /// What was out of calibration.
    pub calibration: Vec<String>,
}

/// One flow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredFlow {
    /// Program and version.
    pub library: String,
    status: Status,
    reason: String,
    /// When the client's first packet was sent.
    #[serde(default)]
    pub began_s: Option<f64>,
    /// When packets from each further address of the client arrived.
    #[serde(default)]
    pub moved_s: Vec<f64>,
    ended_s: Option<f64>,
    totals: Counts,
    bins: Vec<Option<Counts>>,
    /// Where figures are from.
    pub sources: BTreeMap<String, String>,
}

impl MeasuredFlow {
    /// As the simulation records a flow.
    #[must_use]
    pub fn record(&self) -> Record {
        Record {
            is_started: true,
            ended: self.ended_s.map(|at| (at * 1e9) as u64),
            status: self.status,
            reason: self.reason.clone(),
            totals: self.totals,
            jump: None,
            bins: self.bins.clone(),
        }
    }

    /// Totals never fall.
    fn is_rising(&self) -> bool {
        let bins: Vec<_> = self.bins.iter().flatten().collect();
        let rises = |value: fn(&Counts) -> u64| bins.is_sorted_by_key(|it| value(it));
        rises(|it| it.payload_bytes)
            && rises(|it| it.received_bytes)
            && rises(|it| it.lost_packets)
            && self.ended_s.is_none_or(|at| at >= 0.0)
    }
}

impl Measured {
    /// Reads the text of a file for the flows of a request.
    ///
    /// # Errors
    /// It is not of these flows, or a total falls.
    pub fn parse(text: &str, spec: &Spec) -> Result<Self, Faults> {
        let measured: Self = serde_json::from_str(text).map_err(|error| vec![error.to_string()])?;
        let (found, asked) = (measured.flows.len(), spec.flows.len());
        let mut faults = Faults::new();
        if found != asked {
            faults.push(format!("flows: {found} were measured of {asked}"));
        }
        for (index, flow) in measured.flows.iter().enumerate() {
            if !flow.is_rising() {
                faults.push(format!("flows[{index}].bins: a total falls"));
            }
        }
        if faults.is_empty() {
            Ok(measured)
        } else {
            Err(faults)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::outcome;
    use super::super::spec::{Clock, Spec, tests::two_flows};
    use super::*;

    fn spec() -> Spec {
        let mut value = two_flows();
        value["flows"][0]["stack"] = json!("ngtcp2");
        Spec::parse(&value.to_string(), Clock::Real).unwrap()
    }

    fn flow(bin_bytes: u64, status: &str, ended_s: f64) -> Value {
        let bins = (1..=100u64).map(|bin| {
            let at_s = 0.1 * bin as f64;
            (at_s <= ended_s + 1e-9)
                .then(|| json!({"payload_bytes": bin * bin_bytes, "rtt_ms": 60.0}))
        });
        let bins: Vec<_> = bins.collect();
        json!({"library": "ngtcp2 0.12.1", "status": status, "reason": "", "began_s": 0.25, "moved_s": [1.5], "ended_s": ended_s,
               "totals": {"payload_bytes": 100 * bin_bytes, "sent_bytes": 10, "lost_bytes": 1},
               "bins": bins, "sources": {"rtt_ms": "qlog of the server"}})
    }

    fn measured(flows: &[Value]) -> Value {
        let queue = vec![json!({"delay_ms": 1.0, "rate_bps": 10e6}); 200];
        json!({"flows": flows, "queues": [queue, queue], "link": [{"name": "forward"}],
               "calibration": ["rtt_ms"]})
    }

    #[test]
    fn measured_flows_have_the_figures_of_simulated_ones() {
        let flows = [flow(100_000, "ok", 10.0), flow(50_000, "failed", 2.0)];
        let text = measured(&flows).to_string();
        let read = Measured::parse(&text, &spec()).unwrap();
        let found = serde_json::to_value(outcome::of_measured(&spec(), read)).unwrap();
        assert_eq!(
            (&found["clock"], &found["calibration"][0]),
            (&json!("real"), &json!("rtt_ms"))
        );
        assert_eq!(found["groups"][0]["failed"], 1);
        // As of simulated flows: 9 MB of one, 0.5 MB of the other from 1 to 10 s.
        let jain = found["groups"][0]["jain"].as_f64().unwrap();
        assert!((jain - 9.5f64.powi(2) / (2.0 * 81.25)).abs() < 1e-6);
        assert_eq!(found["flows"][0]["retransmitted_share"], 0.1);
        assert_eq!(found["flows"][0]["sources"]["rtt_ms"], "qlog of the server");
        assert_eq!(found["flows"][0]["began_s"], 0.25);
        assert_eq!(found["flows"][0]["moved_s"], json!([1.5]));
        assert_eq!(found["link"][0]["name"], "forward");
    }

    #[test]
    fn what_is_not_of_the_request_is_refused() {
        let text = measured(&[flow(1, "ok", 10.0)]).to_string();
        let faults = Measured::parse(&text, &spec()).unwrap_err();
        assert_eq!(faults, ["flows: 1 were measured of 2"]);
        let mut falls = flow(1, "ok", 10.0);
        falls["bins"][5]["payload_bytes"] = json!(0);
        let text = measured(&[falls, flow(1, "ok", 10.0)]).to_string();
        let faults = Measured::parse(&text, &spec()).unwrap_err();
        assert_eq!(faults, ["flows[0].bins: a total falls"]);
        assert!(Measured::parse("{}", &spec()).is_err());
    }
}
