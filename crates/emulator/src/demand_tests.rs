// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment from profile and configuration.

use super::*;
use crate::config::parse_alone as parse;
use crate::links;
use crate::plan;
use crate::testing::example;
use dvb::dama::Access::{Cra, Rbdc, Vbdc};
use serde_json::{Value, json};

fn profile(name: &str) -> Profile {
    let dir = format!(
        "{}/../../opensand-profiles/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    profile::load(dir.as_ref()).unwrap()
}

fn forward(name: &str) -> LinkConfig {
    let config = parse(&example(name).to_string()).unwrap();
    let [forward, ..] = links::links(&config, &profile(name));
    forward
}

#[test]
fn plans_meet_what_the_forward_link_meets_and_take_their_bytes() {
    let mut value = example("geo-dama");
    value["forward"]["loss"] = json!({"ratio": 0.25, "unit": "frame"});
    let config = parse(&value.to_string()).unwrap();
    let profile = profile("geo-dama");
    let [forward, back, ..] = links::links(&config, &profile);
    let plans = back.demand.unwrap().plans;
    assert_eq!(
        (&plans.losses, plans.reception),
        (&forward.losses, forward.reception)
    );
    assert!((plans.threshold_db - profile.forward.modcod.es_n0_db()).abs() < 1e-9);
    let expected = Signalling {
        period: 26_500_000,
        slots: 791,
        // The gateway plans when bursts come that were sent at the start of a superframe, and a
        // millisecond later frames say so.
        first: 250_000_000 % 26_500_000 + 1_000_000,
    };
    assert_eq!(forward.signalling, Some(expected));
    assert_eq!(signalling(Timing::OpenSand, &profile), None);
}

fn faults(others: &Value, name: &str) -> Vec<String> {
    let mut value = example(name);
    value["others"] = others.clone();
    match parse(&value.to_string()) {
        Ok(config) => check(&config.others, &profile(name)),
        Err(faults) => faults.0,
    }
}

#[test]
fn a_constant_rate_has_no_demand_assignment() {
    assert_eq!(demand(&[], &profile("geo"), &forward("geo")), None);
    assert_eq!(signalling(Timing::Standard, &profile("geo")), None);
    let slots = slots(Timing::Standard, &profile("geo"));
    assert_eq!((slots.carrier, slots.cra, slots.most), (791, 171, 171));
}

#[test]
fn demand_of_the_example_profile() {
    let profile = profile("geo-dama");
    let demand = demand(&[], &profile, &forward("geo-dama")).unwrap();
    let accesses: Vec<_> = demand.fifos.iter().map(|fifo| fifo.access).collect();
    assert_eq!(accesses, [Cra, Rbdc, Rbdc, Rbdc, Vbdc]);
    // CS6 to signalling, EF to EF, AF41 to AF, default and CS1 to best effort.
    let fifo = |dscp: usize| demand.fifo_of_dscp[dscp];
    assert_eq!([48, 46, 34, 0, 8].map(fifo), [2, 1, 3, 4, 4]);
    assert_eq!(demand.others.len(), 1);
    let slots = slots(Timing::Standard, &profile);
    // 256 kbit/s are five bursts; VBDC may bring the rest of the carrier.
    assert_eq!((slots.carrier, slots.cra, slots.most), (791, 5, 791));
}

#[test]
fn plan_of_the_example_profile_predicts_its_first_packet() {
    let config = parse(&example("geo-dama").to_string()).unwrap();
    let plan = plan::plan(&config, &profile("geo-dama")).unwrap();
    let plan = serde_json::to_value(plan).unwrap();
    let demand = &plan["return"]["demand"];
    // A constant rate is there as well: half of its 5.3 ms grid on top of 250 ms and a burst.
    assert!(
        (demand["first_packet_ms"]["mean"].as_f64().unwrap() - 252.7).abs() < 0.5,
        "{demand}"
    );
    assert_eq!(
        (&demand["request_bytes"], &demand["plan_bytes"]),
        (&json!(8), &json!(806))
    );
    assert!(plan["return"]["tcp_goodput_bps"].as_f64().unwrap() > 1e6);
}

#[test]
fn loads_of_others_are_read_and_checked() {
    let good = json!([{"terminal": 4, "return_kbps": 500, "from_s": 1.5, "until_s": 3}]);
    assert_eq!(faults(&good, "geo-dama"), [""; 0]);
    let mut value = example("geo-dama");
    value["others"] = good.clone();
    let config = parse(&value.to_string()).unwrap();
    let forward = forward("geo-dama");
    let demand = demand(&config.others, &profile("geo-dama"), &forward).unwrap();
    let load = Load {
        from: 1_500_000_000,
        until: 3_000_000_000,
        kbps: 500,
    };
    assert_eq!(demand.others[0].load, [load]);
    assert!(faults(&good, "geo")[0].contains("do not compete"));
    assert!(faults(&good, "geo")[1].contains("ST 4 does not share"));
    let bad = faults(
        &json!([{"terminal": -1, "return_kbps": 0, "to_s": 1}, 7]),
        "geo-dama",
    );
    for expected in [
        "others[0].terminal: -1 is not allowed",
        "others[0].return_kbps: 0 is not allowed",
        "others[0].to_s: is unknown",
        "others[1]: is not an object",
    ] {
        assert!(bad.iter().any(|fault| fault.contains(expected)), "{bad:?}");
    }
}
