// SPDX-License-Identifier: GPL-3.0-or-later
//! Random access from the shipped profile: its plan, its terminals in virtual time, and what it
//! does not have.

use serde_json::{Value, json};

use super::*;
use crate::bearer::State;
use crate::config::parse_alone as parse;
use crate::links;
use crate::plan::plan;
use crate::testing::{DEMAND_ALONE, example};

const MS: u64 = 1_000_000;
/// 4 Mbaud in bursts of 536 symbols, 26.5 ms: 197 of them; three superframes in an SA frame.
const SA_FRAME: u64 = 79_500_000;

fn aloha(edit: impl FnOnce(&mut Value)) -> (Config, Profile) {
    let mut value = example("geo-aloha");
    edit(&mut value);
    let config = parse(&value.to_string()).unwrap();
    let profile = profile::load(&config.profile).unwrap_or_else(|faults| panic!("{faults}"));
    (config, profile)
}

/// The second terminal of the profile, with a device of its own.
fn two(value: &mut Value) {
    let port =
        json!({"netns": "/run/netns/st-2", "tun": "sat0", "subnet": "198.18.66.0/24", "id": 4});
    value["terminals"] = json!([port]);
}

fn packet(length: usize) -> Vec<u8> {
    let mut packet = vec![0; length];
    packet[0] = 0x45;
    packet
}

/// What a direction did up to `end` with packets offered by `offer` every ms until then; and the
/// packets that came out.
fn run(
    served: &mut Bearer,
    end: u64,
    mut offer: impl FnMut(u64, &mut Bearer),
) -> (State, Vec<usize>) {
    let (mut out, mut came) = (Vec::new(), Vec::new());
    for now in (0..end).step_by(MS as usize) {
        offer(now, served);
        while let Some((_, terminal)) = served.pop(now, &mut out) {
            came.push(terminal);
        }
    }
    (served.state(end), came)
}

#[test]
fn p328_the_plan_of_random_access_is_that_of_its_sa_frames() {
    let (config, profile) = aloha(|_| {});
    let plan = serde_json::to_value(plan(&config, &profile).unwrap()).unwrap();
    let back = &plan["return"];
    assert_eq!(
        (&back["slots_per_superframe"], &back["demand"]),
        (&json!(197), &Value::Null)
    );
    let rtt = |name: &str| plan["rtt_ms"][name].as_f64().unwrap();
    // An echo waits for an SA frame and for its end; 0.8 to 1.7 ms are of the forward frames.
    let above = [rtt("min"), rtt("mean"), rtt("max")].map(|it| it - rtt("configured"));
    for (found, sa_frames) in above.iter().zip([1.0, 1.5, 2.0]) {
        let expected = sa_frames * SA_FRAME as f64 / 1e6;
        assert!((0.5..2.0).contains(&(found - expected)), "{above:?}");
    }
    // 100 bursts in an SA frame, 8 a packet of 1500 bytes.
    let planned = back["udp_goodput_bps"].as_f64().unwrap();
    let expected = 100.0 / 8.0 * 1472.0 * 8.0 / (SA_FRAME as f64 / 1e9);
    assert!(
        (planned / expected - 1.0).abs() < 0.02,
        "{planned} {expected}"
    );
    let [forward, back, ..] = links::links(&config, &profile);
    assert_eq!(
        (forward.signalling, back.demand, back.acm),
        (None, None, None)
    );
}

#[test]
fn p328_what_random_access_does_not_have_is_refused_by_name() {
    let refused = |edit: fn(&mut Value)| {
        let (config, profile) = aloha(edit);
        links::check(&config, &profile)
    };
    assert_eq!((refused(|_| {}), refused(two)), (vec![], vec![]));
    let named = |faults: Vec<String>, name: &str| faults.len() == 1 && faults[0].starts_with(name);
    for (field, edit) in DEMAND_ALONE {
        assert!(named(refused(edit), field), "{field}");
    }
}

#[test]
fn p329_terminals_of_a_lab_contend_and_all_their_packets_come() {
    let (config, profile) = aloha(two);
    let [forward, mut back] = served(&config, &profile).unwrap();
    assert!(matches!(forward, Bearer::Forward(..)));
    let (state, came) = run(&mut back, 20_000 * MS, |now, served| {
        // 60 packets a second of each, up to a time at which all can have come.
        if now % (16 * MS) == 0 && now < 10_000 * MS {
            (0..2).for_each(|terminal| served.offer(now, terminal, &packet(700)));
        }
    });
    assert_eq!(came.len(), 2 * 625);
    assert_eq!(state.terminals.len(), 2);
    for one in &state.terminals {
        let seen = &one.counters;
        assert_eq!((seen.packets_in, seen.packets_out), (625, 625));
        assert_eq!((one.queue, seen.packets_lost), (link::Volume::default(), 0));
        // Two replicas of 4 bursts each, and those that were retransmitted.
        assert!(
            seen.frames_sent >= 625 * 8 && seen.slots_assigned == 0,
            "{seen:?}"
        );
    }
    assert_eq!(state.all.counters.packets_out, 1250);
}

#[test]
fn p329_a_terminal_alone_is_a_direction_of_its_own() {
    let (config, profile) = aloha(|_| {});
    let [_, back, ..] = links::links(&config, &profile);
    let mut back = Bearer::of_one(back, &Assignments::default()).unwrap();
    let (state, came) = run(&mut back, 2000 * MS, |now, served| {
        if now == 100 * MS {
            served.offer(now, 0, &packet(100));
        }
    });
    assert_eq!(
        (came, state.terminals.len(), state.all.fifos.len()),
        (vec![0], 0, 1)
    );
    assert_eq!(back.next_event(), None);
}
