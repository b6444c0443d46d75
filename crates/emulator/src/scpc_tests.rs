// SPDX-License-Identifier: GPL-3.0-or-later
//! SCPC return carriers from the shipped profile: their arithmetic, their frames in virtual time,
//! and what they do not have.

use link::{Accepted, Change, Link, Stage};
use serde_json::{Value, json};

use super::*;
use crate::config::parse_alone as parse;
use crate::plan::plan;
use crate::testing::{DEMAND_ALONE, example};

const SECOND: u64 = 1_000_000_000;
/// 8PSK 9/10 in normal frames without pilots, EN 302 307-1 tables 5a and 12: BCH block less
/// BBHEADER; symbols of a PLFRAME.
const DATA_FIELD_BITS: f64 = 58_192.0 - 80.0;
const FRAME_SYMBOLS: f64 = 21_600.0 + 90.0;
/// 5000 kHz with a roll-off of 0.25.
const BAUD: f64 = 4e6;

fn scpc(edit: impl FnOnce(&mut Value)) -> (Config, Profile) {
    let mut value = example("geo-scpc");
    edit(&mut value);
    let config = parse(&value.to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap_or_else(|faults| panic!("{faults}"));
    (config, profile)
}

/// Bits of IP packets per second that come out of a saturated link, after the first two seconds of
/// its time.
fn goodput_bps(link: &mut Link, packet: &[u8], seconds: u64) -> f64 {
    let (mut out, mut bytes) = (Vec::new(), 0);
    let from = 2 * SECOND;
    for now in (0..from + seconds * SECOND).step_by(1_000_000) {
        link.advance(now);
        while link.push(now, packet) == Accepted::Queued {}
        while link.pop(now, &mut out).is_some() {
            bytes += if now >= from { packet.len() } else { 0 };
        }
    }
    (bytes * 8) as f64 / seconds as f64
}

fn packet() -> Vec<u8> {
    let mut packet = vec![0; 1500];
    packet[..4].copy_from_slice(&[0x45, 0, 0x05, 0xdc]);
    packet
}

fn is_near(found: f64, expected: f64) -> bool {
    (found / expected - 1.0).abs() < 0.005
}

#[test]
fn p307_the_rate_of_an_scpc_carrier_is_that_of_its_frames() {
    let (config, profile) = scpc(|_| {});
    let plan = serde_json::to_value(plan(&config, &profile).unwrap()).unwrap();
    let back = &plan["return"];
    assert_eq!(
        (&back["modcod"], &back["modcod_id"]),
        (&json!("8PSK 9/10"), &json!(17))
    );
    assert_eq!(back["symbol_rate_baud"], 4_000_000);
    let rate_bps = BAUD * DATA_FIELD_BITS / FRAME_SYMBOLS;
    assert!(
        is_near(back["rate_bps"].as_f64().unwrap(), rate_bps),
        "{back}"
    );
    assert_eq!(back["frame_payload_bytes"], 58_112 / 8);
    let frame_ns = FRAME_SYMBOLS / BAUD * 1e9;
    assert!(
        is_near(back["frame_ns"].as_f64().unwrap(), frame_ns),
        "{back}"
    );
    assert_eq!(back["acm"]["modcod_ids"].as_array().unwrap().len(), 17);
    assert_eq!(back.get("slots_per_superframe"), None);
    // The forward link carries no plans, and is that of geo.
    let forward = &links(&config, &profile)[0];
    assert_eq!(forward.signalling, None);
}

#[test]
fn p307_a_saturated_scpc_carrier_carries_what_its_plan_says() {
    let (config, profile) = scpc(|_| {});
    let [_, back, ..] = links(&config, &profile);
    assert_eq!((&back.demand, &back.classes), (&None, &None));
    let found = goodput_bps(&mut Link::new(back).unwrap(), &packet(), 8);
    // GSE (TS 102 606-1): 10 bytes of a whole packet under a label of 6 bytes, and 10 more for one
    // that two frames share.
    let frame_bytes = DATA_FIELD_BITS / 8.0;
    let packets = (frame_bytes - 10.0) / 1510.0;
    let expected = packets * 1500.0 * 8.0 * BAUD / FRAME_SYMBOLS;
    assert!(is_near(found, expected), "{found} {expected}");
    let plan = serde_json::to_value(plan(&config, &profile).unwrap()).unwrap();
    let planned = plan["return"]["udp_goodput_bps"].as_f64().unwrap() * 1500.0 / 1472.0;
    assert!(is_near(found, planned), "{found} {planned}");
}

#[test]
fn p307_its_modcod_follows_what_the_gateway_receives() {
    let (config, profile) = scpc(|_| {});
    let [_, back, ..] = links(&config, &profile);
    let mut link = Link::new(back).unwrap();
    link.set(SECOND, &Change::Attenuation(10.0)).unwrap();
    link.advance(5 * SECOND);
    // 6.99 dB: 8PSK 2/3 needs 6.62 dB and the hysteresis only upwards.
    assert_eq!(link.config().carrier.modcod().map(|it| it.id), Some(13));
    let found = packets_after(&mut link, 5 * SECOND);
    assert!(found > 0, "frames come through again");
}

/// Packets that come out of a link in two seconds from a moment on.
fn packets_after(link: &mut Link, from: u64) -> usize {
    let mut out = Vec::new();
    let mut count = 0;
    for now in (from..from + 2 * SECOND).step_by(1_000_000) {
        link.advance(now);
        let _ = link.push(now, &packet());
        while link.pop(now, &mut out).is_some() {
            count += 1;
        }
    }
    count
}

#[test]
fn p308_what_an_scpc_carrier_does_not_have_is_refused_by_name() {
    let refused = |edit: fn(&mut Value)| {
        let (config, profile) = scpc(edit);
        check(&config, &profile)
    };
    assert_eq!(refused(|_| {}), [""; 0]);
    let named = |faults: Vec<String>, name: &str| faults.len() == 1 && faults[0].starts_with(name);
    for (field, edit) in DEMAND_ALONE {
        assert!(named(refused(edit), field), "{field}");
    }
    let terminals = |it: &mut Value| {
        let port = json!({"netns": "/run/netns/st-2", "tun": "sat0", "subnet": "198.18.66.0/24"});
        it["terminals"] = json!([port]);
    };
    assert!(named(refused(terminals), "terminals:"));
    // OpenSAND judges the profile that it carries.
    let theirs = |it: &mut Value| {
        it["timing"] = json!("opensand");
        it["st"] = Value::Null;
        it["gw"] = Value::Null;
    };
    assert_eq!(refused(theirs), [""; 0]);
}
