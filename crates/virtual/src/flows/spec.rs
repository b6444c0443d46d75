// SPDX-License-Identifier: GPL-3.0-or-later
//! `flows.json` (schemas/virtual-flows.schema.json): every fault at once, with its place; unknown
//! fields are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use quic::{CarefulResume, LegOptions, SlowStart};
use schema::Faults;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use super::kind::{Clock, Control, Kind};
use crate::path::{Side, Wire, plain_wire};
use crate::tunnel::TunnelOptions;

/// Nodes of the dumbbell, and their sides.
pub const NODES: [(&str, Side); 4] = [
    ("client1", Side::Client),
    ("client2", Side::Client),
    ("server1", Side::Server),
    ("server2", Side::Server),
];
/// Most flows of one node: each has a port of its own.
pub const PORTS: usize = 64;

static SCHEMA: LazyLock<Value> = LazyLock::new(schema);

/// The schema of the file.
fn schema() -> Value {
    let title = "Flows that share one link: satvirtual flows, satlab flows";
    schema::read::<Spec>("virtual-flows", title)
}

/// Flows that share one link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{"required": ["link"]}, {"required": ["wire"]}]))]
pub struct Spec {
    /// Name and version of the schema.
    #[schemars(extend("const" = "satlab/virtual-flows/1"))]
    pub schema: String,
    /// Seed of the link, of connection ids and of all other random choices of the stacks.
    #[schemars(range(min = 0, max = 4_294_967_295_u32))]
    pub seed: u64,
    /// Time that is simulated or measured.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 10_000))]
    pub duration_s: f64,
    /// Length of a bin of the series.
    #[serde(default = "default_bin")]
    #[schemars(range(min = 10, max = 10_000))]
    pub bin_ms: u32,
    /// Virtual clock: most time that a host takes to wake a program up for a packet; it is uniform
    /// from 0, drawn with `seed`, and the program then takes all that has arrived.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 100_000))]
    pub host_latency_us: u32,
    /// File of a satellite link (schemas/link-config.schema.json), from the folder of this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 4096))]
    pub link: Option<String>,
    /// Rate, delay, queue and losses of each direction; no frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Wire")]
    pub wire: Option<Wire>,
    /// A tunnel between both sides that repairs losses: all flows are in it, datagrams have at most
    /// 1372 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TunnelOptions")]
    pub fec: Option<TunnelOptions>,
    /// Whether CUBIC of the kernel leaves slow start early; the setting is the whole host's, and
    /// restored at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub tcp_hystart: Option<bool>,
    /// Boundaries between phases, rising: statistics are of each phase too.
    #[serde(default)]
    #[schemars(length(max = 1000), extend("items" = {"type": "number", "exclusiveMinimum": 0, "maximum": 10_000}))]
    pub phases_s: Vec<f64>,
    /// The flows.
    #[schemars(length(min = 1, max = 256))]
    pub flows: Vec<Flow>,
}

/// One flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Name of the flow.
    #[schemars(length(min = 1, max = 64))]
    pub id: String,
    /// Group of the flow; statistics are computed for each group.
    #[serde(default = "default_group")]
    #[schemars(length(min = 1, max = 64))]
    pub group: String,
    /// client1, client2, server1 or server2: the sender.
    #[schemars(length(min = 1, max = 64))]
    pub from: String,
    /// A node of the other side.
    #[schemars(length(min = 1, max = 64))]
    pub to: String,
    /// quiche, ngtcp2, picoquic and tcp run on the real clock alone.
    pub stack: Kind,
    /// Of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Control")]
    pub congestion_control: Option<Control>,
    /// Start of the flow, s.
    #[schemars(range(min = 0, max = 10_000))]
    pub start_s: f64,
    /// Time at which the connection is closed, s. Without `stop_s` and `bytes` it is closed at the
    /// end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", extend("exclusiveMinimum" = 0, "maximum" = 10_000))]
    pub stop_s: Option<f64>,
    /// Payload after which the flow is complete, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 1, max = 10_000_000_000_u64))]
    pub bytes: Option<u64>,
    /// With udp: rate of IP packets, Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "f64", range(min = 0.001, max = 100_000))]
    pub rate_mbps: Option<f64>,
    /// UDP payload of a full datagram; quinn and noq find it out without. tcp: segments in packets
    /// of the same size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u16", range(min = 1200, max = 1472))]
    pub datagram_bytes: Option<u16>,
    /// Ack-eliciting packets that the receiver is asked to let pass before it acknowledges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 1_000_000))]
    pub ack_threshold: Option<u32>,
    /// Longest delay of an acknowledgement that is asked for, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 16_000))]
    pub max_ack_delay_ms: Option<u32>,
    /// Initial window, packets of 1200 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", range(min = 1, max = 10_000))]
    pub initial_window: Option<u32>,
    /// Flow control of connection and stream, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64", range(min = 65_536, max = 4_294_967_296_u64))]
    pub window_bytes: Option<u64>,
    /// The client takes another address then; rising, while the flow runs. On the real clock with
    /// quinn, noq and, once, ngtcp2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000), extend("items" = {"type": "number", "exclusiveMinimum": 0, "maximum": 10_000}))]
    pub migrate_s: Vec<f64>,
    /// Of the sender; search with quinn and cubic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SlowStart")]
    pub slow_start: Option<SlowStart>,
    /// Of the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CarefulResume")]
    pub careful_resume: Option<CarefulResume>,
    /// Knowledge of an earlier connection about the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SavedPath")]
    pub saved: Option<SavedPath>,
}

/// Knowledge about a path before a flow starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SavedPath {
    /// Bytes that were acknowledged in a round trip.
    #[schemars(range(min = 2400, max = 4_294_967_296_u64))]
    pub cwnd_bytes: u64,
    /// Smallest round-trip time, ms.
    #[schemars(range(min = 0.001, max = 60_000))]
    pub rtt_ms: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn default_bin() -> u32 {
    100
}

fn default_group() -> String {
    "all".into()
}

/// The side of a node.
#[must_use]
pub fn side(node: &str) -> Option<Side> {
    let found = NODES.iter().find(|(name, _)| *name == node);
    found.map(|(_, side)| *side)
}

impl Spec {
    /// Reads the text of a file for a clock, which decides what stacks there are.
    ///
    /// # Errors
    /// All faults of the text, one each: `place: reason (remedy)`.
    pub fn parse(text: &str, clock: Clock) -> Result<Self, Faults> {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            vec![format!(
                "is not JSON: {error} (see schemas/virtual-flows.schema.json)"
            )]
        })?;
        let mut faults = schema::check(&SCHEMA, "", &value, &[]);
        plain_wire::check(&value["wire"], &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let spec: Self = serde_json::from_value(value).map_err(|error| vec![error.to_string()])?;
        let faults = spec.faults(clock);
        if faults.is_empty() {
            Ok(spec)
        } else {
            Err(faults)
        }
    }

    /// Bytes that a sender keeps: four times what can be on the way, as slow start overshoots; of
    /// four flows and more each once. Over a satellite link it is the default: payload that waits
    /// takes no memory.
    #[must_use]
    pub fn send_window(&self, flow: &Flow) -> u64 {
        let default = LegOptions::default().send_window;
        if let Some(window) = flow.window_bytes {
            return (window + window / 2).min(1 << 32);
        }
        let most = self.wire.as_ref().and_then(|it| it.most_in_flight().ok());
        most.map_or(default, |most| {
            let times = (4 / self.flows.len() as u64).max(1);
            most.saturating_mul(times).clamp(1 << 20, default)
        })
    }

    /// Values against each other.
    fn faults(&self, clock: Clock) -> Faults {
        let mut faults = Faults::new();
        if clock == Clock::Real {
            self.real_faults(&mut faults);
        }
        if let Some(Err(why)) = self.fec.as_ref().map(TunnelOptions::protection) {
            faults.push(format!("fec.{why}"));
        }
        if self.tcp_hystart.is_some() && !self.flows.iter().any(|it| it.stack == Kind::Tcp) {
            faults.push("tcp_hystart: no flow has stack tcp (remove it)".into());
        }
        let phases = &self.phases_s;
        if !phases.is_sorted_by(|a, b| a < b) || phases.iter().any(|at| *at >= self.duration_s) {
            faults.push("phases_s: not rising, or not before duration_s (sort them)".into());
        }
        let mut ids = BTreeSet::new();
        let mut ports: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, flow) in self.flows.iter().enumerate() {
            let place = format!("flows[{index}]");
            if !ids.insert(&flow.id) {
                faults.push(format!(
                    "{place}.id: {:?} is there twice (rename one)",
                    flow.id
                ));
            }
            flow.faults(&place, self.duration_s, clock, &mut faults);
            for (field, node) in [("from", &flow.from), ("to", &flow.to)] {
                let used = ports.entry(node).or_default();
                *used += 1;
                if *used == PORTS + 1 {
                    faults.push(format!(
                        "{place}.{field}: {node} has no port left for its flow {used} (at most {PORTS} flows a node; use the second one)"
                    ));
                }
            }
        }
        faults
    }
}

impl Flow {
    fn faults(&self, place: &str, duration_s: f64, clock: Clock, faults: &mut Faults) {
        let names: Vec<_> = NODES.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let mut sides = Vec::new();
        for (field, node) in [("from", &self.from), ("to", &self.to)] {
            match side(node) {
                Some(side) => sides.push(side),
                None => faults.push(format!(
                    "{place}.{field}: {node:?} is an unknown node (one of: {names})"
                )),
            }
        }
        if sides.len() == 2 && sides[0] == sides[1] {
            faults.push(format!(
                "{place}.to: is on the side of from (one of: {names})"
            ));
        }
        let end_s = self.stop_s.unwrap_or(duration_s);
        if self.start_s >= end_s || end_s > duration_s {
            faults.push(format!(
                "{place}.start_s: {} is not before the end at {end_s} s, or that is after duration_s (start_s < stop_s <= duration_s)",
                self.start_s
            ));
        }
        match self.stack {
            Kind::Udp => self.udp_faults(place, faults),
            _ => self.transport_faults(place, faults),
        }
        let outside = |at: &&f64| **at <= self.start_s || **at >= end_s;
        if let Some(at) = self.migrate_s.iter().find(outside) {
            faults.push(format!(
                "{place}.migrate_s: {at} is not while the flow runs, {} to {end_s} s (migrate then, or not at all)",
                self.start_s
            ));
        }
        match clock {
            Clock::Real => self.real_faults(place, faults),
            Clock::Virtual if self.stack.library().is_none() && self.stack != Kind::Udp => {
                faults.push(format!(
                    "{place}.stack: {} runs on the real clock alone (satlab flows --clock real)",
                    self.stack.name()
                ));
            }
            Clock::Virtual => {}
        }
    }

    /// Why the stack does not take the congestion control, if so.
    fn refusal(&self, control: Control) -> Option<String> {
        let known = control.of_library();
        if let (Some(library), Some(_)) = (self.stack.library(), known) {
            return library.refuses(&self.sender());
        }
        let offered = self.stack.controls();
        let is_offered = self.stack.library().is_none() && offered.contains(&control);
        let names: Vec<_> = offered.iter().map(|it| it.name()).collect();
        (!is_offered).then(|| {
            format!(
                "{} is not offered with {} (one of: {})",
                control.name(),
                self.stack.name(),
                names.join(", ")
            )
        })
    }

    fn transport_faults(&self, place: &str, faults: &mut Faults) {
        if self.rate_mbps.is_some() {
            faults.push(format!("{place}.rate_mbps: is for udp alone (remove it)"));
        }
        match self.congestion_control {
            None => faults.push(format!(
                "{place}.congestion_control: is missing (reno, cubic or bbr3)"
            )),
            Some(control) => {
                let why = self.refusal(control);
                faults.extend(why.map(|why| format!("{place}.congestion_control: {why}")));
            }
        }
        if !self.migrate_s.is_sorted() {
            faults.push(format!("{place}.migrate_s: does not rise (sort it)"));
        }
        if self.saved.is_some() != self.careful_resume.is_some() {
            faults.push(format!(
                "{place}.saved: goes with careful_resume (name both, or none)"
            ));
        }
    }

    fn udp_faults(&self, place: &str, faults: &mut Faults) {
        if self.rate_mbps.is_none() {
            faults.push(format!(
                "{place}.rate_mbps: is missing (Mbit/s of IP packets)"
            ));
        }
        let given = [
            ("congestion_control", self.congestion_control.is_some()),
            ("bytes", self.bytes.is_some()),
            ("ack_threshold", self.ack_threshold.is_some()),
            ("max_ack_delay_ms", self.max_ack_delay_ms.is_some()),
            ("initial_window", self.initial_window.is_some()),
            ("window_bytes", self.window_bytes.is_some()),
            ("slow_start", self.slow_start.is_some()),
            ("careful_resume", self.careful_resume.is_some()),
            ("migrate_s", !self.migrate_s.is_empty()),
            ("saved", self.saved.is_some()),
        ];
        for (field, _) in given.iter().filter(|(_, is_given)| *is_given) {
            faults.push(format!("{place}.{field}: udp has none (remove it)"));
        }
    }

    /// Options of the sender.
    #[must_use]
    pub fn sender(&self) -> LegOptions {
        let default = LegOptions::default();
        LegOptions {
            congestion_control: self
                .congestion_control
                .and_then(Control::of_library)
                .unwrap_or(default.congestion_control),
            initial_window: self.initial_window.unwrap_or(default.initial_window),
            slow_start: self.slow_start.unwrap_or_default(),
            careful_resume: self.careful_resume.unwrap_or_default(),
            ack_threshold: self.ack_threshold,
            max_ack_delay_ms: self.max_ack_delay_ms,
            ..self.receiver()
        }
    }

    /// Options of the receiver.
    #[must_use]
    pub fn receiver(&self) -> LegOptions {
        let default = LegOptions::default();
        LegOptions {
            receive_window: self.window_bytes.unwrap_or(default.receive_window),
            stream_receive_window: self.window_bytes.unwrap_or(default.stream_receive_window),
            ..default
        }
    }

    /// Whether the payload travels from the gateway to the terminal.
    #[must_use]
    pub fn is_forward(&self) -> bool {
        side(&self.from) == Some(Side::Server)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Each expected text is in a fault, and there are no others.
    pub(crate) fn assert_faults(faults: &[String], expected: &[&str]) {
        for text in expected {
            assert!(
                faults.iter().any(|it| it.contains(text)),
                "{text} not in {faults:?}"
            );
        }
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        schema::compare_with_file(&super::schema());
    }

    pub(crate) fn two_flows() -> Value {
        let half = json!({"rate_mbps": 10, "delay_ms": 30, "queue": {"bdp": 1}});
        let flow = |id: &str, start: f64| {
            json!({"id": id, "from": "server1", "to": "client1", "stack": "quinn",
                   "congestion_control": "cubic", "start_s": start})
        };
        json!({"schema": "satlab/virtual-flows/1", "seed": 1, "duration_s": 10,
               "wire": {"forward": half, "return": half}, "flows": [flow("a", 0.0), flow("b", 1.0)]})
    }

    #[test]
    fn a_file_is_read() {
        let spec = Spec::parse(&two_flows().to_string(), Clock::Virtual).unwrap();
        assert_eq!((spec.flows.len(), spec.bin_ms), (2, 100));
        assert!(spec.flows[0].is_forward());
    }

    #[test]
    fn every_fault_is_reported_with_its_place() {
        let mut value = two_flows();
        let flows = &mut value["flows"];
        flows[0]["from"] = json!("server9");
        flows[0]["congestion_control"] = json!("bbr");
        flows[1]["start_s"] = json!(5);
        flows[1]["stop_s"] = json!(4);
        flows[1]["id"] = json!("a");
        flows[1]["to"] = json!("server2");
        flows[1]["rate_mbps"] = json!(1);
        let faults = Spec::parse(&value.to_string(), Clock::Virtual).unwrap_err();
        assert_faults(
            &faults,
            &[
                "flows[0].from: \"server9\" is an unknown node",
                "flows[0].congestion_control: congestion-control: bbr is not offered with quinn",
                "flows[1].id: \"a\" is there twice",
                "flows[1].start_s: 5 is not before the end at 4 s",
                "flows[1].to: is on the side of from",
                "flows[1].rate_mbps: is for udp alone",
            ],
        );
    }

    #[test]
    fn faults_of_the_schema_have_their_place() {
        let mut value = two_flows();
        value["speed"] = json!(1);
        value["wire"]["forward"]["queue"] = json!({"bdp": 1, "bytes": 1});
        value["flows"][0]["stack"] = json!("sctp");
        let faults = Spec::parse(&value.to_string(), Clock::Virtual)
            .unwrap_err()
            .join("\n");
        for expected in [
            "speed: is unknown",
            "wire.forward.queue: needs exactly one of",
            "flows[0].stack: \"sctp\" is not allowed",
        ] {
            assert!(faults.contains(expected), "{expected} not in\n{faults}");
        }
    }

    #[test]
    fn a_node_has_so_many_ports() {
        let mut value = two_flows();
        let flow = value["flows"][0].clone();
        let many = (0..=PORTS).map(|index| {
            let mut flow = flow.clone();
            flow["id"] = index.to_string().into();
            flow
        });
        value["flows"] = many.collect();
        let faults = Spec::parse(&value.to_string(), Clock::Virtual).unwrap_err();
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].starts_with("flows[64].from: server1 has no port left"),
            "{faults:?}"
        );
    }
}
