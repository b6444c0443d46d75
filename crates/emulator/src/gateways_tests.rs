// SPDX-License-Identifier: GPL-3.0-or-later
//! The shipped profile with two spots and their gateways.

use crate::config::{Config, parse_alone as parse};
use crate::links;
use crate::network::{check, served};
use crate::testing::{self, example};
use link::Nanos;
use profile::Profile;
use serde_json::json;

const MS: Nanos = 1_000_000;

/// The shipped profile with two spots, with these further gateways.
fn of_spots(gateways: serde_json::Value) -> (Config, Profile) {
    let mut value = example("geo-spots");
    value["terminals"] =
        json!([{"netns": "/run/netns/st-2", "tun": "sat0", "subnet": "198.18.66.0/24", "id": 4}]);
    value["gateways"] = gateways;
    let config = parse(&value.to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap();
    (config, profile)
}

fn packet_to(third: u8) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    packet[16..20].copy_from_slice(&[198, 18, third, 2]);
    packet
}

#[test]
fn test_t51_packets_go_by_the_gateway_of_their_spot_whatever_their_addresses() {
    let (config, profile) = of_spots(json!([{"netns": "/run/netns/gw-2", "tun": "sat0", "id": 6}]));
    assert_eq!(check(&config, &profile), [""; 0]);
    let [mut forward, mut back] = served(&config, &profile).unwrap();
    let mut out = Vec::new();
    // Each gateway has packets for both; what is for a terminal of another spot is for the first of
    // its own.
    for (gateway, third, terminal, delay) in [(0, 1, 0, 250), (1, 66, 1, 255), (1, 1, 1, 255)] {
        let [mut forward, _] = served(&config, &profile).unwrap();
        forward.offer(0, gateway, &packet_to(third));
        let (due, to) = forward.pop(400 * MS, &mut out).unwrap();
        assert_eq!((to, out.len()), (terminal, 1500));
        assert!((delay * MS..(delay + 10) * MS).contains(&due), "{due}");
    }
    // There is no third gateway.
    forward.offer(0, 2, &packet_to(1));
    assert_eq!(forward.pop(400 * MS, &mut out), None);
    for (terminal, least) in [(0, 250), (1, 255)] {
        back.offer(0, terminal, &packet_to(4));
        let mut found = None;
        for now in (0..3_000 * MS).step_by(MS as usize) {
            found = found.or_else(|| back.pop(now, &mut out));
        }
        let (due, gateway) = found.unwrap();
        assert_eq!(gateway, terminal);
        assert!(due > least * MS, "{due}");
        let [_, again] = served(&config, &profile).unwrap();
        back = again;
    }
}

#[test]
// promise: P21
fn p344_spots_have_carriers_of_their_own() {
    let (config, profile) = of_spots(json!([{"netns": "/run/netns/gw-2", "tun": "sat0", "id": 6}]));
    let [mut forward, _] = served(&config, &profile).unwrap();
    let mut bytes = [0; 2];
    let mut out = Vec::new();
    // A flood at both gateways: each spot has the rate of its own carrier.
    for now in (0..5_000 * MS).step_by(MS as usize) {
        for gateway in 0..2 {
            for _ in 0..5 {
                forward.offer(now, gateway, &packet_to([1, 66][gateway]));
            }
        }
        while let Some((_, terminal)) = forward.pop(now, &mut out) {
            bytes[terminal] += out.len();
        }
    }
    let plan = serde_json::to_value(crate::plan::plan(&config, &profile).unwrap()).unwrap();
    let terminals = plan["terminals"].as_array().unwrap();
    let gateways: Vec<_> = terminals.iter().map(|it| it["gateway"].as_u64()).collect();
    assert_eq!(gateways, [Some(0), Some(6)]);
    for (bytes, terminal) in bytes.iter().zip(terminals) {
        let (rate, planned) = (
            *bytes as f64 * 8.0 / 4.745,
            terminal["forward_rate_bps"].as_f64().unwrap(),
        );
        assert!(rate > 0.95 * planned && rate < planned, "{rate} {planned}");
    }
}

#[test]
fn p344_gateways_are_those_of_the_named_terminals() {
    let gateway = |id: u8| json!({"netns": format!("/run/netns/gw{id}"), "tun": "sat0", "id": id});
    for (gateways, said) in [
        (json!([]), "ST 4 belongs to GW 6, which is not named"),
        (
            json!([gateway(6), gateway(7)]),
            "GW 7 is named twice, or has no terminal",
        ),
        (json!([gateway(6), gateway(0)]), "GW 0 is named twice"),
    ] {
        let (config, profile) = of_spots(gateways);
        let faults = check(&config, &profile);
        assert!(faults.len() == 1 && faults[0].contains(said), "{faults:?}");
    }
    let mut value = example("geo-spots");
    value["gateways"] = json!([gateway(6)]);
    let faults = parse(&value.to_string()).unwrap_err().to_string();
    assert!(faults.contains("name these in terminals"), "{faults}");
}

#[test]
fn p382_probes_of_several_gateways_are_refused_by_name() {
    let (mut config, profile) =
        of_spots(json!([{"netns": "/run/netns/gw-2", "tun": "sat0", "id": 6}]));
    assert_eq!(links::check(&config, &profile), [""; 0]);
    let probes = json!({"address": "127.0.0.1:5361"});
    config.probes = serde_json::from_value(probes).unwrap();
    let faults = links::check(&config, &profile);
    assert!(
        faults.len() == 1 && faults[0].contains("probes: are those of one gateway"),
        "{faults:?}"
    );
    config.gateways.clear();
    assert_eq!(links::check(&config, &profile), [""; 0]);
}

#[test]
fn test_t51_no_packet_leaves_its_spot_and_each_is_accounted_for() {
    let (config, profile) = of_spots(json!([{"netns": "/run/netns/gw-2", "tun": "sat0", "id": 6}]));
    for seed in 1..4_u64 {
        let mut state = seed;
        let mut random = |below: u64| testing::random(&mut state) % below;
        for (index, mut served) in (0..).zip(served(&config, &profile).unwrap()) {
            let (mut offered, mut released) = ([0_u64; 2], [0_u64; 2]);
            let mut out = Vec::new();
            for now in (0..8_000 * MS).step_by(MS as usize) {
                // Then silence, so that all queues run empty.
                let count = if now < 2_000 * MS { random(4) } else { 0 };
                for _ in 0..count {
                    let spot = random(2) as usize;
                    // For any terminal, or for nobody.
                    let mut packet = packet_to([1, 66, 200][random(3) as usize]);
                    packet.truncate(60 + random(1441) as usize);
                    packet[9] = spot as u8;
                    served.offer(now, spot, &packet);
                    offered[spot] += 1;
                }
                while let Some((_, to)) = served.pop(now, &mut out) {
                    assert_eq!(to, usize::from(out[9]), "direction {index}");
                    released[to] += 1;
                }
            }
            let state = served.state(8_000 * MS);
            for (spot, one) in state.terminals.iter().enumerate() {
                let it = &one.counters;
                assert_eq!(
                    (it.packets_in, it.packets_out, one.queue),
                    (offered[spot], released[spot], link::Volume::default())
                );
                assert_eq!(
                    it.packets_in,
                    it.packets_out + it.packets_dropped + it.packets_lost
                );
                assert!(it.packets_out > 0);
            }
        }
    }
}
