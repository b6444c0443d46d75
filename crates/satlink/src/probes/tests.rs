// SPDX-License-Identifier: GPL-3.0-or-later
//! Datagrams against a second reading of the format.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

use link::{Carrier, Counters, Volume};

use crate::samples::sampled;
use emulator::bearer::OfTerminal;
use emulator::drive::Snapshot;

/// A second reading of the format: time, entity, and every probe with its value.
fn decoded(datagram: &str) -> (u64, &str, BTreeMap<&str, f64>) {
    let words: Vec<_> = datagram.split(' ').collect();
    assert!(words.len() % 2 == 1, "{datagram}");
    let pairs = words[1..].chunks(2).map(|pair| (pair[0], pair[1]));
    let mut probes: BTreeMap<_, _> = pairs.collect();
    let entity = probes.remove("entity").unwrap();
    let values = probes
        .into_iter()
        .map(|(name, value)| (name, value.parse().unwrap()));
    (words[0].parse().unwrap(), entity, values.collect())
}

/// A shipped profile.
fn shipped(name: &str) -> Profile {
    let profiles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../opensand-profiles");
    profile::load(&Path::new(profiles).join(name)).unwrap()
}

fn snapshot(carrier: Carrier, es_n0_db: Option<f64>) -> Snapshot {
    let counters = Counters {
        packets_in: 100,
        bytes_in: 100_000,
        packets_out: 50,
        bytes_out: 50_000,
        packets_dropped: 7,
        bytes_dropped: 7000,
        frames_sent: 60,
        frames_lost: 2,
        ..Counters::default()
    };
    Snapshot {
        fifos: Vec::new(),
        terminals: Vec::new(),
        heard: None,
        counters,
        queue: Volume::new(9, 12_500),
        carrier,
        es_n0_db,
        tick: 1,
        refused: Volume::default(),
        late: None,
        late_packets: 0,
    }
}

/// The datagrams of an interval of 100 ms that ends at 1000.1 s, ST and GW.
fn example() -> (Entities, Vec<String>) {
    let profile = shipped("geo");
    let carriers = [
        Carrier::Forward {
            symbol_rate: 1,
            modcod: profile.forward.modcod,
            frame_size: dvb::modcod::FrameSize::Normal,
            pilots: false,
            label: [0; 6],
        },
        Carrier::Return {
            symbol_rate: 1,
            waveform: profile.return_link.waveform,
            superframe: 1,
            slots: 1,
        },
    ];
    let radio = carriers.map(|carrier| Some(snapshot(carrier, Some(7.25))));
    let wire = || Some(snapshot(Carrier::Wire, None));
    let [forward, back] = radio;
    let sample = sampled(&[forward, back, wire(), wire()]);
    let entities = Entities::of(&profile, &[]);
    let datagrams = entities.datagrams(&sample);
    let terrestrial = sampled(&[None, None, wire(), wire()]);
    assert!(entities.datagrams(&terrestrial).is_empty());
    (entities, datagrams)
}

#[test]
// promise: P57
fn datagrams_have_opensand_s_names_units_and_shape() {
    let (_, datagrams) = example();
    let (at, entity, st) = decoded(&datagrams[0]);
    assert_eq!((at, entity), (1_000_100, "st1"));
    let expected = [
        ("up_return_modcod.sent_modcod", 12.0),
        ("spot_0.st.down_forward_modcod.received_modcod", 1.0),
        ("spot_0.st.down_forward_modcod.rejected_modcod", 1.0),
        ("spot_0.st.phy.uplink_clear_sky_condition", 20.0),
        ("spot_0.st.phy.downlink_clear_sky_condition", 20.0),
        ("spot_0.st.phy.total_cn", 7.25),
        ("spot_0.st.phy.minimal_condition", -2.35),
        ("spot_0.st.phy.drops", 2.0),
        ("spot_0.st.queue_size.capacity.be", 100.0),
        ("spot_0.st.queue_size.packets.be", 9.0),
        ("spot_0.st.queue_loss.packets.be", 7.0),
        // 101 400 bytes and 50 700 bytes in 0.1 s.
        ("spot_0.st.throughputs.l2_to_sat_before_sched.be", 8112.0),
        ("spot_0.st.throughputs.l2_from_sat.total", 4056.0),
    ];
    for (name, value) in expected {
        assert!((st[name] - value).abs() < 1e-9, "{name}");
    }
    let (_, entity, gw) = decoded(&datagrams[1]);
    assert_eq!(entity, "gw0");
    for (name, value) in [
        ("spot_0.gw.up_forward_modcod.sent_modcod", 1.0),
        ("spot_0.gw.down_return_modcod.received_modcod", 12.0),
        ("spot_0.gw.phy.total_cn", 7.25),
        ("spot_0.gw.standard.queue_size.packets.be", 9.0),
        ("spot_0.gw.standard.global.bbframe_number", 60.0),
        ("spot_0.gw.throughputs.l2_from_sat", 4056.0),
        ("spot_0.gw.global.st_number", 1.0),
    ] {
        assert!((gw[name] - value).abs() < 1e-9, "{name}");
    }
    assert!(datagrams[0].contains(" spot_0.st.phy.total_cn 7.250000 "));
}

#[test]
fn delay_attenuation_allocation_and_capacities_are_reported_too() {
    let (entities, datagrams) = example();
    let (_, _, st) = decoded(&datagrams[0]);
    for (name, value) in [
        ("spot_0.st.phy.delay", 125.0),
        ("spot_0.st.phy.uplink_attenuation", 0.0),
        ("spot_0.st.phy.downlink_attenuation", 0.0),
        ("spot_0.st.queue_loss.capacity.be", 56.0),
        ("spot_0.st.queue_size.packets.ef", 0.0),
        ("spot_0.st.throughputs.l2_to_sat_after_sched.total", 4056.0),
        ("spot_0.st.perf.sof_interval", 26.5),
        // 171 bursts of 194 bytes in 26.5 ms; 60 of them in 0.1 s.
        ("spot_0.st.allocation.total", 10015.0),
        ("spot_0.st.allocation.remaining", 9084.0),
    ] {
        assert!((st[name] - value).abs() < 1e-9, "{name}: {}", st[name]);
    }
    let (_, _, gw) = decoded(&datagrams[1]);
    for (name, value) in [
        ("spot_0.gw.global.cra_allocated", 10_000.0),
        ("spot_0.gw.rbdc.rbdc_max", 0.0),
        ("spot_0.gw.phy.delay", 125.0),
        ("spot_0.gw.standard.queue_loss.rate.be", 560.0),
        ("spot_0.gw.up/return_total_capacity.available", 424_000.0),
        (
            "spot_0.gw.standard.up/return_capacity.carrier0.available",
            16e6,
        ),
        (
            "spot_0.gw.standard.down/forward_capacity.total.available",
            400_000.0,
        ),
        (
            "spot_0.gw.standard.down/forward_capacity.carrier0.ccm.available",
            19_610.0,
        ),
        ("spot_0.gw.perf.frames_interval", 10.0),
    ] {
        assert!((gw[name] - value).abs() < 1e-9, "{name}: {}", gw[name]);
    }
    assert_eq!(
        entities.status("Blocks initialized"),
        [
            "[EVENT][gw0][status] Blocks initialized",
            "[EVENT][st1][status] Blocks initialized"
        ]
    );
}

/// Names of the families below a prefix, with those of each FIFO for a `*`.
fn names(prefix: &str, families: &str) -> impl Iterator<Item = String> {
    let each = |family: &str| match family.strip_suffix('*') {
        Some(stem) => ["be", "af", "ef", "sig", "nm"]
            .iter()
            .map(|fifo| format!("{stem}{fifo}"))
            .collect(),
        None => vec![family.to_owned()],
    };
    let all: Vec<String> = families.split_whitespace().flat_map(each).collect();
    let prefix = prefix.to_owned();
    all.into_iter().map(move |name| format!("{prefix}{name}"))
}

/// What 8.2.0 was seen to send with five FIFOs, without what a gateway granted by kind.
#[test]
fn names_are_those_of_opensand() {
    let physical = "phy.minimal_condition phy.uplink_attenuation phy.downlink_attenuation phy.uplink_clear_sky_condition
        phy.downlink_clear_sky_condition phy.total_cn phy.drops phy.delay";
    let queue = "queue_size.capacity.* queue_size.packets.* queue_loss.packets.* throughputs.l2_to_sat_before_sched.*
        throughputs.l2_to_sat_after_sched.* throughputs.l2_to_sat_after_sched.total";
    let lan = "evc_frame_size.default evc_throughput.default";
    let st = names("spot_0.st.", physical)
        .chain(names("spot_0.st.", queue))
        .chain(names(
            "spot_0.st.",
            "queue_loss.capacity.* request.vbdc request.rbdc throughputs.l2_from_sat.total allocation.total
            allocation.remaining perf.sof_interval down_forward_modcod.required_modcod
            down_forward_modcod.received_modcod down_forward_modcod.rejected_modcod",
        ))
        .chain(names("", lan))
        .chain(names("", "up_return_modcod.sent_modcod"));
    let gw = names("spot_0.gw.", physical)
        .chain(names("spot_0.gw.standard.", queue))
        .chain(names(
            "spot_0.gw.standard.",
            "queue_loss.rate.* global.bbframe_number up/return_capacity.total.available
            up/return_capacity.total.remaining up/return_capacity.carrier0.available
            up/return_capacity.carrier0.remaining down/forward_capacity.total.available
            down/forward_capacity.total.remaining down/forward_capacity.carrier0.ccm.available
            down/forward_capacity.carrier0.ccm.remaining",
        ))
        .chain(names(
            "spot_0.gw.",
            "throughputs.l2_from_sat global.st_number global.cra_allocated rbdc.rbdc_max
            rbdc.rbdc_requested_capacity rbdc.rbdc_request_number vbdc.vbdc_requested_capacity
            vbdc.vbdc_request_number perf.frames_interval up/return_total_capacity.available
            up/return_total_capacity.remaining up_forward_modcod.sent_modcod
            down_return_modcod.received_modcod down_return_modcod.rejected_modcod",
        ))
        .chain(names("", lan));
    let expected = [st.collect::<BTreeSet<_>>(), gw.collect()];
    let (_, datagrams) = example();
    for (datagram, expected) in datagrams.iter().zip(&expected) {
        let sent: BTreeSet<_> = decoded(datagram).2.into_keys().map(str::to_owned).collect();
        assert_eq!(&sent, expected);
    }
    let [st, gw] = expected.map(|names| names.len());
    let document = include_str!("../../../../docs/opensand.md");
    let sentence = format!("{st} probes of a terminal (8.2.0: 51), {gw} of a gateway (8.2.0: 65)");
    let words = document.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&sentence), "docs/opensand.md: {sentence}");
}

#[test]
fn requests_are_the_terminal_s_and_the_gateway_s() {
    let (entities, _) = example();
    let mut back = snapshot(return_carrier(&entities), Some(7.25));
    back.counters.superframes = 4;
    back.counters.requests = 2;
    back.counters.rbdc_kbps = 3000;
    back.counters.vbdc_bursts = 10;
    let forward = snapshot(Carrier::Wire, Some(14.3));
    let wire = || Some(snapshot(Carrier::Wire, None));
    let sample = sampled(&[Some(forward), Some(back), wire(), wire()]);
    let datagrams = entities.datagrams(&sample);
    let (st, gw) = (decoded(&datagrams[0]).2, decoded(&datagrams[1]).2);
    // 10 bursts of 194 bytes.
    for (probes, name, value) in [
        (&st, "spot_0.st.request.rbdc", 1500.0),
        (&st, "spot_0.st.request.vbdc", 15.0),
        (&st, "spot_0.st.down_forward_modcod.required_modcod", 26.0),
        (&st, "evc_frame_size.default", 152_100.0),
        (&st, "evc_throughput.default", 12_168.0),
        (&gw, "spot_0.gw.rbdc.rbdc_requested_capacity", 1500.0),
        (&gw, "spot_0.gw.rbdc.rbdc_request_number", 2.0),
        (&gw, "spot_0.gw.vbdc.vbdc_requested_capacity", 15.0),
    ] {
        assert!((probes[name] - value).abs() < 1e-9, "{name}");
    }
}

#[test]
fn p331_each_fifo_has_its_own_figures_where_there_are_classes() {
    let profile = shipped("geo-dama");
    let entities = Entities::of(&profile, &[]);
    let mut back = snapshot(return_carrier(&entities), Some(7.25));
    // NM, EF, SIG, AF, BE.
    back.fifos = vec![link::FifoState::default(); 5];
    (back.fifos[1], back.fifos[4]) = (state(125), state(1250));
    let forward = snapshot(Carrier::Wire, None);
    let samples = [Some(forward), Some(back), None, None];
    let names = ["NM", "EF", "SIG", "AF", "BE"].map(str::to_owned).to_vec();
    let fifos = [vec![], vec![names], vec![], vec![]];
    let sample = crate::samples::sampled_with(&samples, fifos);
    let datagrams = entities.datagrams(&sample);
    let st = decoded(&datagrams[0]).2;
    for (name, value) in [
        ("queue_size.capacity.ef", 1.0),
        ("queue_size.capacity.be", 10.0),
        ("queue_size.packets.ef", 1.0),
        ("queue_loss.capacity.be", 30.0),
        ("queue_loss.packets.be", 1.0),
        ("queue_loss.packets.nm", 0.0),
        // 4 packets of 10 056 bytes in all with their Ethernet headers, and 2 of 5028, in 0.1 s.
        ("throughputs.l2_to_sat_before_sched.be", 804.0),
        ("throughputs.l2_to_sat_after_sched.be", 402.0),
        ("throughputs.l2_to_sat_after_sched.af", 0.0),
    ] {
        let found = st[format!("spot_0.st.{name}").as_str()];
        assert!((found - value).abs() < 1e-9, "{name}: {found}");
    }
    // The gateway's frames have no tags: all wait in one queue.
    let gw = decoded(&datagrams[1]).2;
    assert!((gw["spot_0.gw.standard.queue_size.packets.be"] - 9.0).abs() < 1e-9);
}

/// A FIFO with one packet of so many bytes.
fn state(bytes: u64) -> link::FifoState {
    link::FifoState {
        queue: Volume::new(1, bytes),
        offered: Volume::new(4, 8 * bytes),
        sent: Volume::new(2, 4 * bytes),
        dropped: Volume::new(1, 3 * bytes),
        waits: Vec::new(),
    }
}

#[test]
// promise: P57
fn p382_each_terminal_has_probes_and_the_gateway_those_of_all() {
    let profile = shipped("geo-dama");
    let further = [("st-2".to_owned(), profile.clone())];
    let entities = Entities::of(&profile, &further);
    let carrier = return_carrier(&entities);
    let terminal = |packets: u64, bytes: u64, es_n0_db: f64| OfTerminal {
        counters: Counters {
            packets_out: packets,
            bytes_out: 1000 * packets,
            superframes: 4,
            slots_assigned: packets,
            ..Counters::default()
        },
        queue: Volume::new(1, bytes),
        carrier,
        es_n0_db: Some(es_n0_db),
        fifos: vec![link::FifoState::default(), state(bytes)],
    };
    let mut back = snapshot(carrier, Some(7.25));
    back.terminals = vec![terminal(10, 125, 7.25), terminal(30, 1250, 3.5)];
    let mut forward = snapshot(Carrier::Wire, None);
    forward.terminals = vec![terminal(1, 125, 14.0), terminal(2, 125, 9.0)];
    let names = vec![["NM", "EF"].map(str::to_owned).to_vec(); 2];
    let fifos = [names.clone(), names, vec![], vec![]];
    let sample = crate::samples::sampled_with(&[Some(forward), Some(back), None, None], fifos);
    let datagrams = entities.datagrams(&sample);
    let [first, second, gw] = [0, 1, 2].map(|index| decoded(&datagrams[index]));
    assert_eq!((first.1, second.1, gw.1), ("st1", "st-2", "gw0"));
    for (probes, name, value) in [
        (&first.2, "spot_0.st.queue_size.capacity.ef", 1.0),
        (&second.2, "spot_0.st.queue_size.capacity.ef", 10.0),
        (&first.2, "spot_0.st.phy.total_cn", 14.0),
        (&second.2, "spot_0.st.phy.total_cn", 9.0),
        // 2 packets of 1014 bytes in 0.1 s.
        (&second.2, "spot_0.st.throughputs.l2_from_sat.total", 162.0),
        (&gw.2, "spot_0.gw.global.st_number", 2.0),
        (&gw.2, "spot_0.gw.throughputs.l2_from_sat", 4056.0),
        (&gw.2, "spot_0.gw.standard.queue_size.packets.be", 9.0),
    ] {
        assert!(
            (probes[name] - value).abs() < 1e-9,
            "{name}: {}",
            probes[name]
        );
    }
    let dama = profile.st_profile.dama;
    let sums = [
        (2 * u64::from(dama.cra_kbps), "global.cra_allocated"),
        (
            2 * u64::from(dama.rbdc_max_kbps.unwrap_or(0)),
            "rbdc.rbdc_max",
        ),
    ];
    for (value, name) in sums {
        let name = format!("spot_0.gw.{name}");
        assert!((gw.2[name.as_str()] - value as f64).abs() < 1e-9, "{name}");
    }
}

#[test]
fn p382_groups_of_carriers_have_figures_of_their_own() {
    let mut profile = shipped("geo-terminals");
    profile.gw_qos.is_tagged = false;
    let further = [4, 5].map(|id| (format!("st{id}"), profile.of(id).unwrap()));
    let entities = Entities::of(&profile, &further);
    let groups = entities.groups.iter();
    let groups: Vec<_> = groups
        .map(|it| (it.name.as_str(), it.members.as_slice()))
        .collect();
    assert_eq!(groups, [("standard", &[0, 1][..]), ("premium", &[2])]);
    let terminal = |frames: u64| OfTerminal {
        counters: Counters {
            frames_sent: frames,
            bytes_dropped: 1250 * frames,
            packets_dropped: frames,
            superframes: 4,
            requests: 1,
            rbdc_kbps: 100 * frames,
            ..Counters::default()
        },
        queue: Volume::new(frames, 125 * frames),
        carrier: return_carrier(&entities),
        es_n0_db: None,
        fifos: vec![link::FifoState::default()],
    };
    let mut forward = snapshot(Carrier::Wire, None);
    forward.terminals = vec![terminal(1), terminal(2), terminal(4)];
    let mut back = snapshot(return_carrier(&entities), None);
    back.terminals.clone_from(&forward.terminals);
    let sample = sampled(&[Some(forward), Some(back), None, None]);
    let datagrams = entities.datagrams(&sample);
    assert_eq!(datagrams.len(), 4);
    let gw = decoded(&datagrams[3]).2;
    let fifo = &entities.gw.fifo;
    for (name, value) in [
        (format!("standard.queue_size.packets.{fifo}"), 3.0),
        (format!("premium.queue_size.packets.{fifo}"), 4.0),
        (format!("standard.queue_loss.rate.{fifo}"), 300.0),
        ("premium.global.bbframe_number".to_owned(), 4.0),
    ] {
        let found = gw[format!("spot_0.gw.{name}").as_str()];
        assert!((found - value).abs() < 1e-9, "{name}: {found}");
    }
    assert!(!gw.contains_key("spot_0.gw.standard.global.bbframe_number"));
    let [own, other] = [0, 1].map(|at| entities.groups[at].carriers.cra_kbps);
    assert!((gw["spot_0.gw.global.cra_allocated"] - (own + other) as f64).abs() < 1e-9);
}

#[test]
fn p382_where_the_gateway_s_frames_have_tags_its_fifos_add_up_over_terminals() {
    let mut profile = shipped("geo-dama");
    profile.gw_qos.is_tagged = true;
    let entities = Entities::of(&profile, &[("st-2".to_owned(), profile.clone())]);
    let terminal = |bytes: u64| OfTerminal {
        counters: Counters::default(),
        queue: Volume::new(1, bytes),
        carrier: Carrier::Wire,
        es_n0_db: None,
        fifos: vec![link::FifoState::default(), state(bytes)],
    };
    let mut forward = snapshot(Carrier::Wire, None);
    forward.terminals = vec![terminal(125), terminal(1250)];
    let mut back = snapshot(return_carrier(&entities), None);
    back.terminals = vec![terminal(125), terminal(125)];
    let names = vec![["NM", "EF"].map(str::to_owned).to_vec(); 2];
    let fifos = [names.clone(), names, vec![], vec![]];
    let sample = crate::samples::sampled_with(&[Some(forward), Some(back), None, None], fifos);
    let datagrams = entities.datagrams(&sample);
    let gw = decoded(&datagrams[2]).2;
    assert!((gw["spot_0.gw.standard.queue_size.capacity.ef"] - 11.0).abs() < 1e-9);
    assert!((gw["spot_0.gw.standard.queue_size.packets.ef"] - 2.0).abs() < 1e-9);
    assert!((gw["spot_0.gw.standard.queue_size.packets.be"]).abs() < 1e-9);
}

fn return_carrier(entities: &Entities) -> Carrier {
    Carrier::Return {
        symbol_rate: 1,
        waveform: entities.groups[0].carriers.back.waveform,
        superframe: 1,
        slots: 1,
    }
}
