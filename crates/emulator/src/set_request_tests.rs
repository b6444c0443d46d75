// SPDX-License-Identifier: GPL-3.0-or-later
//! Sets: their faults and their changes.

use super::*;
use crate::config::parse_alone as parse;
use crate::config_checks;
use crate::links;
use crate::testing::example;
use link::{LossUnit, Reorder};
use serde_json::json;

fn set(value: &Value) -> Result<SetRequest, String> {
    let no_files = |_: &str| Err(String::new());
    let mut traces = Traces::new(&no_files);
    let schema = schema::read::<SetFields>("link-control", "A test");
    let mut faults = schema::check(&schema, "set", value, &config_checks::FORMATS);
    config_checks::set("set", value, true, &mut traces, &mut faults);
    if faults.is_empty() {
        Ok(SetRequest::read(value, &traces).unwrap())
    } else {
        Err(faults.join("\n"))
    }
}

fn targets() -> [Target; 4] {
    let outages = Some(Loss::random(0.5, LossUnit::Frame));
    [(); 4].map(|()| Target {
        carrier: Carrier::Wire,
        rtt_ns: 1,
        delay_ns: 0,
        queue: None,
        outages: outages.clone(),
        has_plans: false,
    })
}

#[test]
fn plans_meet_what_happens_to_the_forward_link() {
    let mut targets = targets();
    targets[1].has_plans = true;
    let set = set(&json!({"direction": "both", "outage": 2})).unwrap();
    let scheduled: Vec<_> = set.scheduled(&targets, 5, Origin::Control).collect();
    let down = Change::Outage(true);
    let changes: Vec<_> = scheduled
        .iter()
        .map(|(index, it)| (*index, it.change.clone()))
        .collect();
    let plans = Change::Plans(Box::new(down.clone()));
    assert_eq!(changes, [(0, down.clone()), (1, plans), (1, down)]);
    // It ends with the outage, and is reported once.
    let (_, mirrored) = &scheduled[1];
    assert!(mirrored.requested.is_empty());
    let end = mirrored.next(5).unwrap();
    let up = Change::Plans(Box::new(Change::Outage(false)));
    assert_eq!(
        (end.at, end.change, end.requested.len()),
        (2_000_000_005, up, 0)
    );
}

fn changes(set: &SetRequest) -> Vec<(usize, Change, Option<Nanos>)> {
    set.scheduled(&targets(), 5, Origin::Control)
        .map(|(index, scheduled)| (index, scheduled.change, scheduled.lasts))
        .collect()
}

#[test]
fn both_directions_get_every_change() {
    let set = set(&json!({"direction": "both", "delay_ms": 0.5, "outage": 2})).unwrap();
    let delay = Change::Delay(500_000);
    let outage = (Change::Outage(true), Some(2_000_000_000));
    let expected = [0, 1].map(|index| {
        [
            (index, delay.clone(), None),
            (index, outage.0.clone(), outage.1),
        ]
    });
    assert_eq!(changes(&set), expected.concat());
}

#[test]
fn impairments_are_changes_of_every_direction() {
    let reorder = json!({"ratio": 0.1, "packets": 2, "ms": 50});
    let requested = json!({"direction": "terrestrial_down", "reorder": reorder, "duplicate": 0.2, "corrupt": 0});
    let (ratio, packets, hold) = (0.1, Some(2), 50_000_000);
    let expected = [
        Impairment::Reorder(Some(Reorder {
            ratio,
            packets,
            hold,
        })),
        Impairment::Duplicate(0.2),
        Impairment::Corrupt(0.0),
    ];
    let expected = expected.map(|it| (2, Change::Impairment(it), None));
    assert_eq!(changes(&set(&requested).unwrap()), expected);
    let off = json!({"direction": "return", "reorder": {"ratio": 0, "ms": 1}});
    let kept = Change::Impairment(Impairment::Reorder(None));
    assert_eq!(changes(&set(&off).unwrap()), [(1, kept, None)]);
}

#[test]
fn impossible_impairments_are_refused() {
    let reorder = json!({"ratio": 2, "packets": 0, "ms": 0, "depth": 1});
    let faults =
        set(&json!({"direction": "both", "reorder": reorder, "duplicate": -1, "corrupt": "x"}))
            .unwrap_err();
    for expected in [
        "set.reorder.ratio: 2 is not allowed",
        "set.reorder.packets: 0 is not allowed",
        "set.reorder.ms: 0 is not allowed",
        "set.reorder.depth: is unknown",
        "set.duplicate: -1 is not allowed",
        "set.corrupt: \"x\" is not allowed",
    ] {
        assert!(faults.contains(expected), "{expected} not in\n{faults}");
    }
}

#[test]
fn configured_outages_outlive_new_losses() {
    let loss = json!({"ratio": 0.1, "unit": "packet"});
    let set = set(&json!({"direction": "terrestrial_up", "loss": loss})).unwrap();
    let losses = vec![
        Loss::random(0.1, LossUnit::Packet),
        Loss::random(0.5, LossUnit::Frame),
    ];
    assert_eq!(changes(&set), [(3, Change::Losses(losses), None)]);
}

#[test]
fn every_fault_has_its_place() {
    let faults = set(
        &json!({"direction": "up", "delay_ms": -1, "loss": {"ratio": 2, "unit": "packet"},
            "jitter": {"uniform_ms": "x"}, "outage": 0, "queue": {}, "colour": 1}),
    )
    .unwrap_err();
    for expected in [
        "set.direction: \"up\" is not allowed (one of: forward, return, both, terrestrial_down, terrestrial_up)",
        "set.delay_ms: -1 is not allowed",
        "set.loss.ratio: 2 is not allowed",
        "set.jitter.uniform_ms: \"x\" is not allowed",
        "set.outage: 0 is not allowed (true, false, or seconds",
        "set.queue: needs exactly one of",
        "set.colour: is unknown",
    ] {
        assert!(faults.contains(expected), "{expected} not in\n{faults}");
    }
    assert_eq!(faults.lines().count(), 7, "{faults}");
    let nothing = set(&json!({"direction": "both"})).unwrap_err();
    assert!(nothing.contains("set: changes nothing"), "{nothing}");
    let wire = set(&json!({"direction": "terrestrial_up", "queue": {"bdp": 1}})).unwrap_err();
    assert!(wire.contains("set.queue: a wire has none"), "{wire}");
}

#[test]
fn the_radio_link_changes_by_what_it_is_made_of() {
    let set = set(
        &json!({"direction": "forward", "attenuation_db": 6.5, "modcod": 4, "symbol_rate_baud": 1000}),
    );
    let expected = [
        Change::Attenuation(6.5),
        Change::Modcod(ModCod::by_id(4)),
        Change::SymbolRate(1000),
    ];
    let expected = expected.map(|change| (0, change, None));
    assert_eq!(changes(&set.unwrap()), expected);
    let acm = self::set(&json!({"direction": "forward", "modcod": "acm"})).unwrap();
    assert_eq!(changes(&acm), [(0, Change::Modcod(None), None)]);
}

#[test]
fn a_handover_takes_what_is_not_said_from_the_profile() {
    let value = example("geo");
    let config = parse(&value.to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap();
    let targets = links::targets(&config, &profile);
    let requested = json!({"direction": "forward", "handover": {"waiting": "flush", "delay_ms": 16, "symbol_rate_baud": 20_000_000}});
    let set = set(&requested).unwrap();
    let scheduled: Vec<_> = set.scheduled(&targets, 0, Origin::Control).collect();
    let [(0, change)] = &scheduled[..] else {
        panic!("{scheduled:?}")
    };
    let Change::Handover(handover) = change.change else {
        panic!("{change:?}")
    };
    assert_eq!(
        handover.carrier,
        targets[0].carrier.with_symbol_rate(20_000_000)
    );
    assert_eq!(
        (handover.delay, handover.waiting),
        (16_000_000, Waiting::Flush)
    );
    // One BDP of 9.8 Mbit/s and 2 (16 + 40) ms.
    assert_eq!(handover.queue.bytes, 137_268);
}

#[test]
fn a_plain_line_takes_over() {
    let requested = json!({"direction": "forward",
            "handover": {"waiting": "keep", "rate_mbps": 10, "delay_ms": 30, "queue": {"bdp": 1}}});
    let targets = targets().map(|target| Target {
        rtt_ns: 0,
        ..target
    });
    let set = self::set(&requested).unwrap();
    let (_, change) = set.scheduled(&targets, 0, Origin::Control).next().unwrap();
    let Change::Handover(handover) = change.change else {
        panic!("{change:?}")
    };
    assert_eq!(handover.carrier, Carrier::line(10_000_000));
    assert_eq!((handover.delay, handover.queue.bytes), (30_000_000, 75_000));
    let both = json!({"direction": "return",
            "handover": {"waiting": "keep", "rate_mbps": 10, "symbol_rate_baud": 1000}});
    let fault = self::set(&both).unwrap_err();
    assert!(fault.contains("a plain line has no symbols"), "{fault}");
    let frames =
        json!({"direction": "return", "handover": {"waiting": "keep", "header_bytes": 14}});
    let fault = self::set(&frames).unwrap_err();
    assert!(
        fault.contains("set.handover.header_bytes: a link of frames has its own"),
        "{fault}"
    );
}

#[test]
fn what_a_direction_has_not_is_refused() {
    let both = json!({"direction": "both", "modcod": 29});
    assert!(
        set(&both)
            .unwrap_err()
            .contains("set.modcod: only the forward link")
    );
    let wire = json!({"direction": "terrestrial_up", "attenuation_db": 1, "handover": {"waiting": "keep"}});
    assert_eq!(set(&wire).unwrap_err().lines().count(), 2);
    let wrong = json!({"direction": "forward", "modcod": 29, "attenuation_db": -1, "symbol_rate_baud": 0,
            "handover": {"waiting": "hold", "queue": {}, "rate": 1}});
    let faults = set(&wrong).unwrap_err();
    for expected in [
        "set.modcod: 29 is not allowed (an id, 1 to 28, or \"acm\")",
        "set.attenuation_db: -1 is not allowed (a number from 0 to 100)",
        "set.symbol_rate_baud: 0 is not allowed",
        "set.handover.waiting: \"hold\" is not allowed (one of: keep, flush, drop)",
        "set.handover.queue: needs exactly one of",
        "set.handover.rate: is unknown",
    ] {
        assert!(faults.contains(expected), "{expected} not in\n{faults}");
    }
}
