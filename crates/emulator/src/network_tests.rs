// SPDX-License-Identifier: GPL-3.0-or-later
//! Terminals of the shipped profile with two of them.

use super::*;
use crate::config::parse_alone as parse;
use crate::testing::example;
use link::{Accepted, Nanos};
use serde_json::json;

const MS: Nanos = 1_000_000;

fn profile(name: &str) -> Profile {
    let dir = format!(
        "{}/../../opensand-profiles/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    profile::load(dir.as_ref()).unwrap()
}

fn of(name: &str, edit: impl Fn(&mut serde_json::Value)) -> Vec<Terminal> {
    let mut value = example(name);
    edit(&mut value);
    terminals(&parse(&value.to_string()).unwrap(), &profile(name))
}

#[test]
fn the_first_terminal_has_the_links_of_the_profile() {
    let config = parse(&example("geo-dama").to_string()).unwrap();
    let [forward, back, ..] = links(&config, &profile("geo-dama"));
    let found = of("geo-dama", |_| {});
    assert_eq!(found.iter().map(|it| it.id).collect::<Vec<_>>(), [1, 4]);
    let own = &found[0];
    assert_eq!(own.forward.carrier, forward.carrier);
    assert_eq!((own.forward.seed, own.back.seed), (forward.seed, back.seed));
    let mut alone = back.demand.unwrap();
    assert_eq!(alone.others.len(), 1);
    alone.others.clear();
    assert_eq!(own.back.demand.as_ref(), Some(&alone));
    assert_ne!(
        own.forward.carrier, found[1].forward.carrier,
        "labels differ"
    );
    assert_ne!(own.forward.seed, found[1].forward.seed);
}

#[test]
fn classes_are_the_gateway_s_where_its_frames_have_tags() {
    let config = parse(&example("geo-dama").to_string()).unwrap();
    let mut profile = profile("geo-dama");
    let of = |profile: &Profile| terminals(&config, profile)[1].forward.classes.clone();
    assert_eq!(of(&profile), None);
    profile.gw_qos.is_tagged = true;
    let classes = of(&profile).unwrap();
    assert_eq!(classes.packets, [1000, 3000, 1000, 2000, 6000]);
    assert_eq!((classes.of_dscp[46], classes.of_dscp[0]), (1, 4));
}

#[test]
fn p184_terminals_of_a_profile_share_its_carriers() {
    let found = of("geo-dama", |_| {});
    let (mut forward, mut back) = carriers(&found).unwrap();
    let mut bytes = [[0; 2]; 2];
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    let mut out = Vec::new();
    for now in (0..20_000 * MS).step_by(MS as usize) {
        for terminal in 0..2 {
            while forward.push(now, terminal, &packet) == Accepted::Queued {}
            while back.queue(terminal).0 < 500_000 {
                back.push(now, terminal, &packet);
            }
        }
        while let Some((due, terminal)) = forward.pop(now, &mut out) {
            bytes[0][terminal] += if due > 4_000 * MS { out.len() } else { 0 };
        }
        while let Some((due, terminal)) = back.pop(now, &mut out) {
            bytes[1][terminal] += if due > 4_000 * MS { out.len() } else { 0 };
        }
    }
    let [down, up] = bytes;
    assert!(
        (down[0] as f64 / down[1] as f64 - 1.0).abs() < 0.02,
        "{down:?}"
    );
    // 19.6 Mbit/s less headers and plans.
    let rate = (down[0] + down[1]) as f64 * 8.0 / 16.0;
    assert!((18.7e6..19.3e6).contains(&rate), "{rate}");
    assert!(up.iter().all(|&it| it > 1_000_000), "{up:?}");
}

#[test]
fn terminals_of_opensand_s_timing_cannot_share() {
    let found = of("geo-dama", |value| value["timing"] = json!("opensand"));
    assert_eq!(carriers(&found).err(), Some(LinkError::Shared));
}
