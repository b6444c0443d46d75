// SPDX-License-Identifier: GPL-3.0-or-later
//! Terminals of the shipped profile with two of them.

use super::*;
use crate::config::parse_alone as parse;
use crate::testing::{example, random};
use link::SharedCarrier as _;
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
fn p187_terminals_of_a_profile_share_its_carriers() {
    let found = of("geo-dama", |_| {});
    let (mut forward, mut back) = carriers(&found, found.len()).unwrap();
    let mut bytes = [[0; 2]; 2];
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    let mut out = Vec::new();
    for now in (0..20_000 * MS).step_by(MS as usize) {
        for terminal in 0..2 {
            while forward.push(now, terminal, &packet) == Accepted::Queued {}
            while back.queue(terminal).bytes < 500_000 {
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

/// A configuration with so many terminals, and its profile.
fn of_count(name: &str, count: usize) -> (Config, Profile) {
    let mut value = example(name);
    value["terminals"] = (2..=count)
        .map(|number| {
            json!({"netns": format!("/run/netns/st-{number}"), "tun": "sat0", "subnet": format!("198.18.{}.0/24", 64 + number)})
        })
        .collect();
    let config = parse(&value.to_string()).unwrap();
    let loaded = profile(name);
    assert_eq!(check(&config, &loaded), [""; 0]);
    let profile = of_equals(&config, loaded);
    (config, profile)
}

#[test]
fn equal_terminals_divide_a_constant_rate_that_the_carrier_does_not_have_for_all() {
    let cra = |name, count| {
        let (config, profile) = of_count(name, count);
        let found = terminals(&config, &profile);
        assert_eq!(found.len(), count);
        let rates = found
            .iter()
            .map(|it| it.back.demand.as_ref().unwrap().agreement.cra_kbps);
        let rates: Vec<_> = rates.collect();
        assert!(rates.iter().all(|&it| it == rates[0]), "{rates:?}");
        let labels: std::collections::BTreeSet<_> = found
            .iter()
            .map(|it| match it.forward.carrier {
                link::Carrier::Forward { label, .. } => label,
                _ => panic!("not a forward carrier"),
            })
            .collect();
        assert_eq!(labels.len(), count);
        rates[0]
    };
    // 791 bursts of 194 bytes in 26.5 ms: 46.3 Mbit/s.
    assert_eq!((cra("geo", 1), cra("geo", 4)), (10_000, 10_000));
    let of_16 = cra("geo", 16);
    assert!((2700..2900).contains(&of_16), "{of_16}");
    assert!((600..720).contains(&cra("geo", 64)));
    assert_eq!(
        cra("geo-dama", 2),
        profile("geo-dama").st_profile.dama.cra_kbps
    );
}

/// Bytes per terminal that come out in `seconds` after a second, where `offer` offers.
fn shares(
    served: &mut Bearer,
    seconds: u64,
    mut offer: impl FnMut(Nanos, &mut Bearer),
) -> Vec<u64> {
    let mut bytes = vec![0; 64];
    let mut out = Vec::new();
    for now in (0..(seconds + 1) * 1000 * MS).step_by(MS as usize) {
        offer(now, served);
        while let Some((due, terminal)) = served.pop(now, &mut out) {
            bytes[terminal] += if due > 1000 * MS { out.len() as u64 } else { 0 };
        }
    }
    bytes
}

fn packet_for(terminal: usize) -> Vec<u8> {
    let mut packet = vec![0; 1500];
    packet[0] = 0x45;
    let of_lan = [
        198,
        18,
        if terminal == 0 {
            1
        } else {
            65 + terminal as u8
        },
        2,
    ];
    packet[16..20].copy_from_slice(&of_lan);
    packet
}

#[test]
// promise: P15
fn p189_packets_of_equal_terminals_find_their_terminal_and_get_equal_parts() {
    let (config, profile) = of_count("geo", 3);
    let [mut forward, mut back] = served(&config, &profile).unwrap();
    let packets = [0, 1, 2].map(packet_for);
    let down = shares(&mut forward, 10, |now, link| {
        for packet in packets.iter().flat_map(|it| [it; 3]) {
            link.offer(now, 9, packet);
        }
    });
    let up = shares(&mut back, 10, |now, link| {
        for (terminal, packet) in packets.iter().enumerate() {
            for _ in 0..3 {
                link.offer(now, terminal, packet);
            }
        }
    });
    for shares in [&down, &up] {
        let mean = shares.iter().sum::<u64>() as f64 / 3.0;
        for share in &shares[..3] {
            assert!((*share as f64 / mean - 1.0).abs() < 0.02, "{shares:?}");
        }
    }
    let mbps = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 * 8.0 / 10e6;
    assert!((18.7..19.7).contains(&mbps(&down)), "{}", mbps(&down));
    // Three times the constant rate of 10 Mbit/s, less headers.
    assert!((28.0..30.1).contains(&mbps(&up)), "{}", mbps(&up));
    let state = forward.state(11_000 * MS);
    assert_eq!(state.terminals.len(), 3);
    let sum: u64 = state
        .terminals
        .iter()
        .map(|it| it.counters.packets_in)
        .sum();
    assert_eq!(sum, state.all.counters.packets_in);
    assert!(state.all.counters.packets_dropped > 0);
}

#[test]
fn test_t44_a_flood_of_one_terminal_leaves_the_others_their_shares() {
    let (config, profile) = of_count("geo", 3);
    let [mut forward, mut back] = served(&config, &profile).unwrap();
    let packets = [0, 1, 2].map(packet_for);
    // The others offer 2.4 Mbit/s each, the flood 60 Mbit/s.
    let offered = |now: Nanos, terminal: usize| match terminal {
        1 => 5,
        _ => usize::from((now / MS) % 5 == 0),
    };
    let down = shares(&mut forward, 10, |now, link| {
        for (terminal, packet) in packets.iter().enumerate() {
            (0..offered(now, terminal)).for_each(|_| link.offer(now, 9, packet));
        }
    });
    let up = shares(&mut back, 10, |now, link| {
        for (terminal, packet) in packets.iter().enumerate() {
            (0..offered(now, terminal)).for_each(|_| link.offer(now, terminal, packet));
        }
    });
    for (name, shares) in [("down", &down), ("up", &up)] {
        for quiet in [0, 2] {
            let mbps = shares[quiet] as f64 * 8.0 / 10e6;
            assert!((2.35..2.45).contains(&mbps), "{name} {quiet}: {mbps}");
        }
    }
    let state = forward.state(11_000 * MS);
    let dropped = [0, 1, 2].map(|it| state.terminals[it].counters.packets_dropped);
    assert!(
        dropped[0] == 0 && dropped[2] == 0 && dropped[1] > 1000,
        "{dropped:?}"
    );
}

#[test]
fn a_change_of_one_terminal_is_not_one_of_the_others() {
    let (config, profile) = of_count("geo", 3);
    let [mut forward, _] = served(&config, &profile).unwrap();
    forward
        .set(0, Some(1), &link::Change::Attenuation(30.0))
        .unwrap();
    let packets = [0, 1, 2].map(packet_for);
    let down = shares(&mut forward, 2, |now, link| {
        for packet in &packets {
            link.offer(now, 0, packet);
        }
    });
    assert!(down[0] > 0 && down[1] == 0 && down[2] > 0, "{down:?}");
    let lost = |state: crate::bearer::State| {
        state
            .terminals
            .iter()
            .map(|it| it.counters.frames_lost > 0)
            .collect::<Vec<_>>()
    };
    assert_eq!(lost(forward.state(3000 * MS)), [false, true, false]);
}

#[test]
fn terminals_of_opensand_s_timing_cannot_share() {
    let found = of("geo-dama", |value| value["timing"] = json!("opensand"));
    assert_eq!(carriers(&found, found.len()).err(), Some(LinkError::Shared));
}

/// A configuration whose further terminals are those of the profile with these ids.
fn own(name: &str, ids: &[u8]) -> (Config, Profile) {
    let mut value = example(name);
    let further = (2..).zip(ids).map(|(number, id)| {
        json!({"netns": format!("/run/netns/st-{number}"), "tun": "sat0", "subnet": format!("198.18.{}.0/24", 64 + number), "id": id})
    });
    value["terminals"] = further.collect();
    (parse(&value.to_string()).unwrap(), profile(name))
}

#[test]
// promise: P18
fn p196_each_terminal_has_the_links_of_its_own_profile() {
    let (config, profile) = own("geo-terminals", &[4, 5]);
    assert_eq!(check(&config, &profile), [""; 0]);
    let profile = of_equals(&config, profile);
    let found = terminals(&config, &profile);
    let of: Vec<_> = found.iter().map(|it| (it.id, it.group.as_str())).collect();
    assert_eq!(of, [(1, "Standard"), (4, "Standard"), (5, "Premium")]);
    let es_n0 = |it: &Terminal| it.forward.reception.unwrap().es_n0_db;
    // Two legs of 21 dB are 17.99 dB, and with 10 dB off the one of the terminal 10.59 dB.
    let found_db: Vec<_> = found
        .iter()
        .map(|it| (es_n0(it) * 100.0).round() / 100.0)
        .collect();
    assert_eq!(found_db, [17.99, 10.59, 17.99]);
    let ids = found.iter().map(|it| match it.forward.carrier {
        link::Carrier::Forward {
            symbol_rate,
            modcod,
            ..
        } => (symbol_rate, modcod.id),
        _ => panic!("not a forward carrier"),
    });
    // With a margin of 1 dB.
    assert_eq!(
        ids.collect::<Vec<_>>(),
        [(10_000_000, 28), (10_000_000, 18), (5_000_000, 28)]
    );
    let cra = found
        .iter()
        .map(|it| it.back.demand.as_ref().unwrap().agreement.cra_kbps);
    assert_eq!(cra.collect::<Vec<_>>(), [512, 256, 512]);
    let classes = found.iter().map(|it| it.forward.classes.is_some());
    assert_eq!(classes.collect::<Vec<_>>(), [true; 3]);
}

#[test]
fn p196_terminals_of_a_profile_are_all_named_and_have_one_delay_in_a_group() {
    for ids in [&[4][..], &[4, 6], &[4, 4], &[1, 4]] {
        let (config, profile) = own("geo-terminals", ids);
        let [fault] = &check(&config, &profile)[..] else {
            panic!("{ids:?}");
        };
        assert!(fault.contains("the profile has [4, 5]"), "{fault}");
    }
    let (config, mut profile) = own("geo-terminals", &[4, 5]);
    let delayed = |profile: &mut Profile, id: u8| {
        let mut terminals = profile.terminals.iter_mut();
        let terminal = terminals.find(|it| it.id == id).unwrap();
        terminal.profile.physical.delay = profile::Delay::Constant { ms: 20 };
    };
    // Another group has a return carrier of its own.
    delayed(&mut profile, 5);
    assert_eq!(check(&config, &profile), [""; 0]);
    assert!(served(&config, &profile).is_ok());
    delayed(&mut profile, 4);
    let faults = check(&config, &profile);
    assert!(
        faults[0].contains("ST 4 has another delay than ST 1"),
        "{faults:?}"
    );
}

#[test]
// promise: P17
fn p197_a_fade_costs_the_terminal_in_it_and_a_category_has_its_own_carriers() {
    let (config, profile) = own("geo-terminals", &[4, 5]);
    let [mut forward, mut back] = served(&config, &profile).unwrap();
    let packets = [0, 1, 2].map(packet_for);
    let down = shares(&mut forward, 10, |now, link| {
        for packet in packets.iter().flat_map(|it| [it; 3]) {
            link.offer(now, 9, packet);
        }
    });
    let up = shares(&mut back, 10, |now, link| {
        for (terminal, packet) in packets.iter().enumerate() {
            link.offer(now, terminal, packet);
        }
    });
    let mbps = |bytes: u64| bytes as f64 * 8.0 / 10e6;
    // The carrier of 10 Mbaud has 44.5 Mbit/s in MODCOD 28, and 26.4 in 18. Two terminals have the
    // same airtime each; the carrier of 5 Mbaud is the third's alone.
    let [clear, faded, alone] = [0, 1, 2].map(|it| mbps(down[it]));
    assert!((20.5..22.3).contains(&clear), "{clear}");
    assert!((12.0..13.2).contains(&faded), "{faded}");
    assert!((20.5..22.3).contains(&alone), "{alone}");
    // Each up to its own constant rate and its requests of 4 Mbit/s, and volumes.
    assert!((0..3).all(|it| mbps(up[it]) > 3.0), "{up:?}");
    for served in [&mut forward, &mut back] {
        let state = served.state(11_000 * MS);
        for one in &state.terminals {
            let it = &one.counters;
            let passed = it.packets_out + it.packets_dropped + it.packets_lost + one.queue.packets;
            assert!(it.packets_in >= passed, "{it:?}");
            assert_eq!(it.packets_lost, 0);
        }
    }
}

#[test]
fn p197_variations_are_those_of_each_terminal() {
    let (config, mut profile) = own("geo-terminals", &[4, 5]);
    let fade = |db: f64| profile::Attenuation::OnOff {
        on: 1,
        off: 1,
        amplitude_db: db,
    };
    assert!(variations(&config, &profile).iter().all(Vec::is_empty));
    profile.terminals[1].profile.physical.downlink.attenuation = fade(5.0);
    profile.terminals[2].profile.physical.uplink.attenuation = fade(7.0);
    let found = variations(&config, &profile);
    let of =
        |index: usize| -> Vec<_> { found[index].iter().map(|it| it.start(0).terminal).collect() };
    assert_eq!(of(0), [Some(1)]);
    // The plans of the one in the forward fade, and the bursts of the other.
    assert_eq!(of(1), [Some(1), Some(2)]);
}

/// A link of one direction that nothing has passed: 0 forward, 1 return.
fn fresh(config: &Config, profile: &Profile, direction: usize) -> Bearer {
    let [forward, back] = served(config, profile).unwrap();
    if direction == 0 { forward } else { back }
}

/// Longest delay of the first terminal's packets, one of 1500 bytes each 5 ms, while `offer` offers
/// those of others for 10 s.
fn longest_delay(served: &mut Bearer, offer: impl Fn(Nanos, &mut Bearer)) -> Nanos {
    let (mut out, mut longest, mut seen) = (Vec::new(), 0, 0);
    let mut packet = packet_for(0);
    for now in (0..12_000 * MS).step_by(MS as usize) {
        if now < 10_000 * MS {
            if now % (5 * MS) == 0 {
                packet[20..28].copy_from_slice(&now.to_be_bytes());
                served.offer(now, 0, &packet);
            }
            offer(now, served);
        }
        while let Some((due, terminal)) = served.pop(now, &mut out) {
            if terminal == 0 {
                let offered = <[u8; 8]>::try_from(&out[20..28]).unwrap();
                longest = longest.max(due - u64::from_be_bytes(offered));
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 2000);
    longest
}

#[test]
// promise: P17
fn p289_a_terminal_that_is_flooded_or_in_any_fade_does_not_delay_another() {
    let (config, profile) = own("geo-terminals", &[4, 5]);
    for (direction, allowed) in [(0, 10 * MS), (1, 53 * MS)] {
        // Allowed: a frame in progress, one of plans and its own, of 3.3 ms each in the most robust
        // MODCOD; two superframes.
        let link = || fresh(&config, &profile, direction);
        let alone = longest_delay(&mut link(), |_, _| {});
        for attenuation_db in [0.0, 8.0, 40.0] {
            let mut link = link();
            let fade = link::Change::Attenuation(attenuation_db);
            link.set(0, Some(1), &fade).unwrap();
            let flood = packet_for(1);
            let longest = longest_delay(&mut link, |now, link| {
                (0..10).for_each(|_| link.offer(now, 1, &flood));
            });
            assert!(
                longest < alone + allowed,
                "{direction}, {attenuation_db} dB: {longest} {alone}"
            );
        }
    }
}

#[test]
fn p289_packets_of_any_content_for_a_terminal_do_not_delay_another() {
    let (config, profile) = own("geo-terminals", &[4, 5]);
    for (direction, allowed) in [(0, 10 * MS), (1, 53 * MS)] {
        let link = || fresh(&config, &profile, direction);
        let alone = longest_delay(&mut link(), |_, _| {});
        let state = std::cell::Cell::new(7);
        let next = || {
            let mut seed = state.get();
            let found = random(&mut seed);
            state.set(seed);
            found
        };
        let longest = longest_delay(&mut link(), |now, link| {
            for _ in 0..10 {
                // A true version and destination, in the class of the others, which a higher one
                // would precede; lengths, options, fragments and all else are as they come.
                let mut bytes = packet_for(1);
                let destination = <[u8; 4]>::try_from(&bytes[16..20]).unwrap();
                bytes.truncate(20 + (next() % 1481) as usize);
                bytes.fill_with(|| next() as u8);
                (bytes[0], bytes[1]) = (0x40 | bytes[0] & 0x0F, 0);
                bytes[16..20].copy_from_slice(&destination);
                link.offer(now, 1, &bytes);
            }
            // From a device anything comes; on the forward link what has no destination is the
            // first terminal's own.
            for garbage in [&[][..], &[0x45], &[0xFF; 3], &[0x60; 39]]
                .into_iter()
                .take(4 * direction)
            {
                link.offer(now, 1, garbage);
            }
        });
        assert!(longest < alone + allowed, "{direction}: {longest} {alone}");
    }
}

#[test]
// promise: P15
fn p290_what_a_terminal_does_not_use_of_the_forward_link_goes_to_the_others() {
    let (config, profile) = of_count("geo", 4);
    let [mut forward, _] = served(&config, &profile).unwrap();
    let packets = [0, 1, 2, 3].map(packet_for);
    let mut out = Vec::new();
    let mut seconds = vec![[0_u64; 4]; 20];
    let (mut ended, silence) = (None, 8_000 * MS);
    for now in (0..20_000 * MS).step_by(MS as usize) {
        let wanting = if now < silence { 0..4 } else { 1..4 };
        packets[wanting].iter().for_each(|packet| {
            (0..2).for_each(|_| forward.offer(now, 9, packet));
        });
        if now >= silence && ended.is_none() && forward.state(now).terminals[0].queue.packets == 0 {
            ended = Some(now);
        }
        while let Some((due, terminal)) = forward.pop(now, &mut out) {
            seconds[(due / (1000 * MS)) as usize][terminal] += out.len() as u64;
        }
    }
    // From its last packet on, which takes the delay of the link, the others have its part.
    let after = (ended.unwrap() + profile.one_way_delay_ns) / (1000 * MS) + 1;
    let before = seconds[7];
    for second in &seconds[after as usize..19] {
        assert_eq!(second[0], 0);
        for terminal in 1..4 {
            let more = second[terminal] as f64 / before[terminal] as f64;
            assert!(
                (more / (4.0 / 3.0) - 1.0).abs() < 0.02,
                "{more}, {seconds:?}"
            );
        }
    }
    assert!(after < 15, "{after}");
}

#[test]
// promise: P17
fn p198_every_packet_of_every_terminal_is_accounted_for_and_none_reaches_another() {
    let (config, profile) = own("geo-terminals", &[4, 5]);
    for seed in 1..6 {
        let mut state = seed;
        for (index, mut served) in (0..).zip(served(&config, &profile).unwrap()) {
            let mut out = Vec::new();
            let mut offered = [0_u64; 3];
            let mut released = [0_u64; 3];
            for now in (0..30_000 * MS).step_by(MS as usize) {
                let is_over = now >= 4_000 * MS;
                // Bursts of any length to any of them, then silence so that all queues run empty.
                let count = if is_over { 0 } else { random(&mut state) % 8 };
                for _ in 0..count {
                    let terminal = (random(&mut state) % 3) as usize;
                    let mut packet = packet_for(terminal);
                    packet.truncate(60 + (random(&mut state) % 1441) as usize);
                    packet[9] = terminal as u8;
                    packet[1] = ((random(&mut state) % 64) << 2) as u8;
                    served.offer(now, terminal, &packet);
                    offered[terminal] += 1;
                }
                let change = |db: f64| link::Change::Attenuation(db);
                if is_over && now % (1_000 * MS) == 0 {
                    served.set(now, None, &change(0.0)).unwrap();
                } else if !is_over && random(&mut state) % 500 == 0 {
                    let terminal = (random(&mut state) % 3) as usize;
                    let fade = change((random(&mut state) % 25) as f64);
                    served.set(now, Some(terminal), &fade).unwrap();
                }
                while let Some((_, terminal)) = served.pop(now, &mut out) {
                    assert_eq!(usize::from(out[9]), terminal);
                    released[terminal] += 1;
                }
            }
            let end = served.state(30_000 * MS);
            for (terminal, one) in end.terminals.iter().enumerate() {
                let it = &one.counters;
                let seen = (it.packets_in, it.packets_out, one.queue);
                assert_eq!(
                    seen,
                    (
                        offered[terminal],
                        released[terminal],
                        link::Volume::default()
                    )
                );
                let known = it.packets_out + it.packets_dropped + it.packets_lost;
                assert_eq!(known, it.packets_in, "{index} {terminal}: {it:?}");
                let of_fifos = one
                    .fifos
                    .iter()
                    .map(|it| it.sent.packets + it.dropped.packets);
                assert_eq!(of_fifos.sum::<u64>(), it.packets_in, "{index} {terminal}");
            }
        }
    }
}
