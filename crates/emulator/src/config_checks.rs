// SPDX-License-Identifier: GPL-3.0-or-later
//! Checks that the schemas cannot express: values of a configuration or change against each other.

use std::net::{Ipv4Addr, SocketAddr};

use schema::{Faults, Format};
use serde_json::Value;

use crate::direction::WINDOWS;
use crate::directions::{BOTH, DIRECTIONS};
use crate::set_request::{CHANGES, CHANGES_OF_WIRES};
use crate::terminals::{self, Subnet};
use crate::traces::Traces;
use crate::units::ns_of_ms;

/// Formats of texts in the schemas.
pub const FORMATS: [Format; 4] = [
    ("ipv4", |text| text.parse::<Ipv4Addr>().is_ok()),
    ("socket-address", |text| text.parse::<SocketAddr>().is_ok()),
    ("ipv4-subnet", |text| Subnet::parse(text).is_some()),
    ("ipv6-subnet", |text| Subnet::parse6(text).is_some()),
];

/// The rules of a whole configuration.
pub(crate) fn configuration(config: &Value, traces: &mut Traces<'_>, faults: &mut Faults) {
    let has_satellite = !config["st"].is_null();
    for name in ["forward", "return"] {
        let direction = &config[name];
        queue(&format!("{name}.queue"), &direction["queue"], faults);
        losses(
            &format!("{name}.loss"),
            &direction["loss"],
            Some(traces),
            faults,
        );
        let windows = &direction["outages_s"];
        if !is_in_order(windows) {
            let fault = format!("{name}.outages_s: {windows} is not allowed ({WINDOWS})");
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }
    let steps = config["timeline"]["steps"].as_array().into_iter().flatten();
    for (index, step) in steps
        .enumerate()
        .filter(|(_, step)| step["set"].is_object())
    {
        let place = format!("timeline.steps[{index}].set");
        set(&place, &step["set"], has_satellite, traces, faults);
    }
    for (one, other) in [("st", "gw"), ("near", "far")] {
        for (one, other) in [(one, other), (other, one)] {
            if config[one].is_null() && !config[other].is_null() {
                faults.push(format!(
                    "{one}: is null, and {other} is not (name both, or none)"
                ));
            }
        }
    }
    distinct_ports(config, faults);
    defects(config, faults);
    terminals(config, faults);
    distinct_entities("emulation", &config["emulation"], faults);
}

/// The rules of one loss process or a list. Files of traces are read with `traces`; without, none
/// may be named.
pub(crate) fn losses(
    place: &str,
    value: &Value,
    mut traces: Option<&mut Traces<'_>>,
    faults: &mut Faults,
) {
    let (all, is_list) = match value {
        Value::Array(all) => (&all[..], true),
        one => (std::slice::from_ref(one), false),
    };
    for (index, loss) in all.iter().enumerate() {
        let place = if is_list {
            format!("{place}[{index}]")
        } else {
            place.to_owned()
        };
        bursts(&place, loss, faults);
        chain(&place, loss, faults);
        match (
            loss["file"].as_str().filter(|it| !it.is_empty()),
            &mut traces,
        ) {
            (None, _) => {}
            (Some(file), Some(traces)) => traces.check(&format!("{place}.file"), file, faults),
            (Some(_), None) => faults.push(format!(
                "{place}.file: a wire has no files (name another loss model)"
            )),
        }
    }
}

/// Windows follow each other without overlap.
fn is_in_order(windows: &Value) -> bool {
    let edges = windows.as_array().into_iter().flatten();
    let edges = edges.flat_map(|it| it.as_array().into_iter().flatten());
    edges.filter_map(Value::as_f64).is_sorted()
}

/// A burst fits its period.
fn bursts(place: &str, loss: &Value, faults: &mut Faults) {
    let time = |name: &str| loss[name].as_f64();
    let (Some(period), Some(duration)) = (time("period_ms"), time("duration_ms")) else {
        return;
    };
    if ns_of_ms(period) == 0 || duration > period {
        faults.push(format!(
            "{place}: a burst of duration_ms does not fit period_ms (period above 0, duration at most the period)"
        ));
    }
}

/// A shortest burst is counted in steps.
fn chain(place: &str, loss: &Value, faults: &mut Faults) {
    let time = |name: &str| loss[name].as_f64().unwrap_or_default();
    if loss["model"] != "gilbert-elliott" {
        return;
    }
    if ns_of_ms(time("min_burst_ms")) > 0 && loss["step_ms"].is_null() {
        faults.push(format!(
            "{place}.min_burst_ms: a chain without time has no bursts of a length (add \"step_ms\")"
        ));
    }
}

/// Options of a queue fit its management.
pub(crate) fn queue(place: &str, queue: &Value, faults: &mut Faults) {
    if queue["ecn"] == true && queue["aqm"].is_null() {
        faults.push(format!(
            "{place}.ecn: a drop-tail queue does not mark (add \"aqm\", or leave ecn out)"
        ));
    }
    let is_codel = queue["aqm"] == "codel" || queue["aqm"] == "fq-codel";
    let owners = [
        ("interval_ms", is_codel),
        ("step_ms", queue["aqm"] == "dualpi2"),
    ];
    for (field, is_owner) in owners {
        if !queue["aqm"].is_null() && !is_owner && !queue[field].is_null() {
            faults.push(format!("{place}.{field}: is unknown (remove it)"));
        }
    }
}

/// The defects of `OpenSAND` are those of its timing.
fn defects(config: &Value, faults: &mut Faults) {
    if config["opensand_defects"] == true && config["timing"] != "opensand" {
        faults.push(
            "opensand_defects: needs the timing of OpenSAND (\"timing\": \"opensand\")".into(),
        );
    }
    let drifts = config["opensand_drift_us"]
        .as_u64()
        .is_some_and(|it| it > 0);
    if drifts && config["opensand_defects"] != true {
        faults.push(
            "opensand_drift_us: is one of OpenSAND's defects (\"opensand_defects\": true)".into(),
        );
    }
}

/// One device cannot be two ends.
fn distinct_ports(config: &Value, faults: &mut Faults) {
    let names = ["near", "far", "st", "gw"];
    let mut present: Vec<_> = names.map(|name| (name.to_owned(), &config[name])).into();
    for list in ["terminals", "gateways"] {
        let further = config[list].as_array().into_iter().flatten();
        let numbered = (0..).zip(further);
        present.extend(numbered.map(|(index, it)| (format!("{list}[{index}]"), it)));
    }
    let device = |port: &Value| (port["netns"].clone(), port["tun"].clone());
    for (index, (name, port)) in present.iter().enumerate() {
        let same = |(_, other): &&(String, &Value)| {
            port.is_object() && other.is_object() && device(other) == device(port)
        };
        for (other, _) in present[..index].iter().filter(same) {
            faults.push(format!(
                "{name}: is the same device as {other} (set a TUN device for each)"
            ));
        }
    }
}

/// Further terminals have subnets of their own, and what the rest of the configuration asks for can
/// be shared.
fn terminals(config: &Value, faults: &mut Faults) {
    let further: Vec<_> = config["terminals"]
        .as_array()
        .into_iter()
        .flatten()
        .collect();
    let count = 1 + further.len();
    let steps = config["timeline"]["steps"].as_array().into_iter().flatten();
    for (index, step) in steps.enumerate() {
        let place = format!("timeline.steps[{index}].set");
        of_terminals(&place, &step["set"], count, faults);
    }
    gateways(config, &further, faults);
    if further.is_empty() {
        return;
    }
    let of = |names: [&str; 2], parse: fn(&str) -> Option<Subnet>| {
        let texts = further
            .iter()
            .flat_map(|it| names.map(|name| it[name].as_str()));
        texts.flatten().filter_map(parse).collect()
    };
    let subnets = of(["subnet", "address"], Subnet::parse);
    let subnets6 = of(["subnet6", "address6"], Subnet::parse6);
    if terminals::overlap(subnets) || terminals::overlap(subnets6) {
        faults.push("terminals: two subnets overlap (set one of its own for each)".into());
    }
    let ids: Vec<_> = further.iter().filter_map(|it| it["id"].as_u64()).collect();
    if !ids.is_empty() && ids.len() < further.len() {
        faults.push(
            "terminals: some have an id of the profile (set one for each, or leave it out of all: equal to the ST)".into(),
        );
    }
    if config["st"].is_null() {
        faults.push(
            "terminals: another emulator carries the satellite segment (leave it out)".into(),
        );
    }
    if config["timing"] == "opensand" {
        faults.push(
            "terminals: share carriers of the standards alone (\"timing\": \"standard\")".into(),
        );
    }
    for name in ["emulation", "others"] {
        let is_given = match &config[name] {
            Value::Null => false,
            Value::Array(list) => !list.is_empty(),
            _ => true,
        };
        if is_given {
            faults.push(format!(
                "{name}: is of one terminal (leave it out, or terminals)"
            ));
        }
    }
}

/// Further gateways are those of terminals of the profile.
fn gateways(config: &Value, further: &[&Value], faults: &mut Faults) {
    let given = config["gateways"].as_array();
    let is_given = given.is_some_and(|it| !it.is_empty());
    if is_given && further.iter().all(|it| it["id"].is_null()) {
        faults.push(
            "gateways: are those of terminals with an id of the profile (name these in terminals)"
                .into(),
        );
    }
}

/// A change names a terminal that is there, and one that shares its carrier leaves the others
/// theirs.
pub(crate) fn of_terminals(place: &str, set: &Value, count: usize, faults: &mut Faults) {
    let direction = set["direction"].as_str().unwrap_or_default();
    let is_wire = DIRECTIONS[2..].contains(&direction);
    if let Some(terminal) = set["terminal"].as_u64() {
        if is_wire {
            faults.push(format!(
                "{place}.terminal: all share a terrestrial direction (leave it out)"
            ));
        } else if terminal > count as u64 {
            faults.push(format!(
                "{place}.terminal: there is no terminal {terminal} (1 to {count})"
            ));
        }
    }
    if count == 1 || is_wire {
        return;
    }
    let is_forward = direction == DIRECTIONS[0];
    let possible = |name: &str| match name {
        "outage" | "attenuation_db" | "gateway" => true,
        "delay_ms" | "modcod" => is_forward,
        _ => false,
    };
    let given = CHANGES.into_iter().filter(|name| !set[name].is_null());
    for name in given.filter(|name| !possible(name)) {
        faults.push(format!(
            "{place}.{name}: terminals share this carrier (outage, attenuation_db, gateway, of forward delay_ms and modcod)"
        ));
    }
}

/// Every entity has an address of its own.
fn distinct_entities(place: &str, emulation: &Value, faults: &mut Faults) {
    let [st, sat, gw] = ["st", "sat", "gw"].map(|name| &emulation[name]);
    if emulation.is_null() {
        return;
    }
    if st == sat || sat == gw || st == gw {
        faults.push(format!(
            "{place}.sat: two entities have one address (set one for each)"
        ));
    }
}

/// The rules of a change: its parts, at least one, and those that its direction has.
pub(crate) fn set(
    place: &str,
    set: &Value,
    has_satellite: bool,
    traces: &mut Traces<'_>,
    faults: &mut Faults,
) {
    queue(&format!("{place}.queue"), &set["queue"], faults);
    queue(
        &format!("{place}.handover.queue"),
        &set["handover"]["queue"],
        faults,
    );
    losses(&format!("{place}.loss"), &set["loss"], Some(traces), faults);
    let direction = set["direction"].as_str().unwrap_or_default();
    let is_radio = DIRECTIONS[..2].contains(&direction) || direction == BOTH;
    let is_wire = DIRECTIONS[2..].contains(&direction);
    if is_radio && !has_satellite {
        faults.push(format!(
            "{place}.direction: another emulator carries it (terrestrial_down or terrestrial_up)"
        ));
    }
    let handover = &set["handover"];
    if !handover["rate_mbps"].is_null() && !handover["symbol_rate_baud"].is_null() {
        faults.push(format!(
            "{place}.handover.rate_mbps: a plain line has no symbols (leave symbol_rate_baud out)"
        ));
    }
    if !handover["header_bytes"].is_null() && handover["rate_mbps"].is_null() {
        faults.push(format!(
            "{place}.handover.header_bytes: a link of frames has its own (leave it out, or set rate_mbps)"
        ));
    }
    let given: Vec<_> = CHANGES
        .into_iter()
        .filter(|name| !set[name].is_null())
        .collect();
    if given.is_empty() {
        faults.push(format!(
            "{place}: changes nothing (set one of: {})",
            CHANGES.join(", ")
        ));
    }
    for name in given {
        if is_wire && CHANGES[CHANGES_OF_WIRES..].contains(&name) {
            faults.push(format!("{place}.{name}: a wire has none (leave it out)"));
        } else if name == "modcod" && direction != DIRECTIONS[0] {
            faults.push(format!(
                "{place}.modcod: only the forward link has MODCODs (direction forward)"
            ));
        } else if name == "gateway" && direction != BOTH {
            faults.push(format!(
                "{place}.gateway: a terminal has one gateway for both directions (direction both)"
            ));
        }
    }
}
