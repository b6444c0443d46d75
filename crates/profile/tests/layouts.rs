// SPDX-License-Identifier: GPL-3.0-or-later
//! Profiles as `OpenSAND`'s own tools write them: each layout of files, and each leaf that their
//! files leave out. The files are written here, from the shipped GEO profile.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use std::fs;
use std::path::Path;

use common::{Edit, edited, shipped};
use profile::{FILES, Faults, Mode, check_single, load, platform};
use tempfile::TempDir;

/// Where each of [`FILES`] is: a folder for each entity, as the command line tool and the
/// deployment tool write them.
const LAYOUTS: [[&str; 6]; 3] = [
    [
        "sat/infrastructure.xml",
        "gw/infrastructure.xml",
        "st/infrastructure.xml",
        "topology.xml",
        "gw/profile.xml",
        "st/profile.xml",
    ],
    [
        "sat/infrastructure.xml",
        "gw/infrastructure.xml",
        "st/infrastructure.xml",
        "st/topology.xml",
        "gw/profile.xml",
        "st/profile.xml",
    ],
    [
        "entities/hub/infrastructure.xml",
        "entities/site a/infrastructure.xml",
        "entities/site b/infrastructure.xml",
        "topology.xml",
        "entities/site a/profile.xml",
        "entities/site b/profile.xml",
    ],
];

/// What `OpenSAND`'s own files leave out or hold that the shipped profiles do not.
const UPSTREAM: [Edit; 8] = [
    ("profile_st.xml", "<ra_enabled>false</ra_enabled>", ""),
    ("profile_st.xml", "<scpc_enabled>false</scpc_enabled>", ""),
    ("profile_st.xml", "<rbdc_enabled>false</rbdc_enabled>", ""),
    ("profile_st.xml", "<vbdc_enabled>false</vbdc_enabled>", ""),
    ("infrastructure_st.xml", "<default_gw>0</default_gw>", ""),
    ("infrastructure_gw.xml", "<default_gw>0</default_gw>", ""),
    ("infrastructure_sat.xml", "<default_gw>0</default_gw>", ""),
    // The section of an entity that this file is not about.
    (
        "infrastructure_gw.xml",
        "<tap_iface>tap</tap_iface>\n        <mac_address>00:00:00:00:00:02<",
        "<tap_iface>tap</tap_iface>\n        <mac_address>FF:FF:FF:00:00:10<",
    ),
];

fn laid_out(flat: &Path, names: &[&str; 6]) -> TempDir {
    let dir = TempDir::new().unwrap();
    for (from, to) in FILES.iter().zip(names) {
        let path = dir.path().join(to);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(flat.join(from), path).unwrap();
    }
    dir
}

/// Edits all infrastructure files alike.
fn everywhere(dir: &Path, from: &str, to: &str) {
    for name in &FILES[..3] {
        let text = fs::read_to_string(dir.join(name)).unwrap();
        assert!(text.contains(from), "{name} does not contain {from}");
        fs::write(dir.join(name), text.replace(from, to)).unwrap();
    }
}

fn reasons(faults: &Faults) -> Vec<(&str, &str)> {
    let faults = faults.as_slice().iter();
    faults
        .map(|it| (it.element.as_str(), it.reason.as_str()))
        .collect()
}

#[test]
fn each_layout_is_the_same_link() {
    let geo = load(&shipped("geo")).unwrap();
    for names in &LAYOUTS {
        let dir = laid_out(&shipped("geo"), names);
        let found = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(
            (&found.forward, &found.return_link),
            (&geo.forward, &geo.return_link)
        );
        assert_eq!(found.terminals, geo.terminals);
        let machines = platform(dir.path()).unwrap();
        assert_eq!(
            (
                machines.st.infrastructure.as_str(),
                machines.topology.as_str()
            ),
            (names[2], names[3])
        );
        assert_eq!(machines.gw.profile.as_deref(), Some(names[4]));
        assert_eq!(machines.sat.profile, None);
    }
}

#[test]
fn a_fault_names_the_file_of_its_layout() {
    let bad = edited(&[("profile_st.xml", "<cra>10000<", "<cra>many<")]);
    for (names, kept) in LAYOUTS.iter().zip([0, 1, 2]) {
        let dir = laid_out(bad.path(), names);
        let faults = load(dir.path()).unwrap_err();
        assert!(
            faults.as_slice()[0].file.ends_with(names[5]),
            "{kept}: {faults}"
        );
        fs::remove_file(dir.path().join(names[1])).unwrap();
        let lost = load(dir.path()).unwrap_err().to_string();
        assert!(
            lost.contains("gw/infrastructure.xml") && lost.contains("cannot be read"),
            "{lost}"
        );
    }
}

#[test]
fn leaves_that_upstream_leaves_out_may_be_absent() {
    let geo = load(&shipped("geo")).unwrap();
    let alone = UPSTREAM
        .iter()
        .filter(|(name, ..)| !name.starts_with("infrastructure"));
    for edit in alone {
        let found =
            load(edited(&[*edit]).path()).unwrap_or_else(|faults| panic!("{edit:?}\n{faults}"));
        assert_eq!(found.return_link, geo.return_link, "{edit:?}");
        assert!(found.warnings.is_empty());
    }
    let all = edited(&UPSTREAM);
    for names in &LAYOUTS {
        let found = load(laid_out(all.path(), names).path());
        let found = found.unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(
            (&found.forward, &found.return_link),
            (&geo.forward, &geo.return_link)
        );
    }
}

#[test]
fn further_mac_addresses_are_no_further_entities() {
    let dir = edited(&[]);
    let mac = |id: u8, last: &str| {
        format!(
            "<item><entity_id>{id}</entity_id><mac_address>02:00:00:00:00:{last}</mac_address></item>"
        )
    };
    let bare = "<item><entity_id>1</entity_id></item>";
    let more = format!("{}{}{bare}</terminals>", mac(0, "a0"), mac(1, "a1"));
    everywhere(dir.path(), "</terminals>", &more);
    let found = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(found.terminals.len(), 1);
    assert!(platform(dir.path()).unwrap().further_sts.is_empty());
    // One of another id is a terminal, with or without an address.
    everywhere(
        dir.path(),
        "</terminals>",
        &format!("{}</terminals>", mac(5, "a5")),
    );
    let ids: Vec<_> = load(dir.path())
        .unwrap()
        .terminals
        .iter()
        .map(|it| it.id)
        .collect();
    assert_eq!(ids, [1, 5]);
    // The same address twice is still a fault.
    everywhere(
        dir.path(),
        "</terminals>",
        &format!("{}</terminals>", mac(1, "a5")),
    );
    let faults = load(dir.path()).unwrap_err();
    assert!(
        faults
            .to_string()
            .contains("02:00:00:00:00:a5 is already used"),
        "{faults}"
    );
}

#[test]
fn elements_of_earlier_releases_are_named() {
    for (edit, element) in [
        (
            (
                "infrastructure_st.xml",
                "<satellites>",
                "<satellite/><satellites>",
            ),
            "infrastructure/satellite",
        ),
        (
            (
                "infrastructure_sat.xml",
                "<isl_settings/>",
                "<default_gw>-1</default_gw>",
            ),
            "entity/entity_sat/default_gw",
        ),
        (
            (
                "infrastructure_gw.xml",
                "<dvb>",
                "<encap><level>info</level></encap><dvb>",
            ),
            "logs/encap",
        ),
        (
            (
                "topology.xml",
                "<bandwidth>50000</bandwidth>",
                "<symbol_rate>40000000.0</symbol_rate>",
            ),
            "frequency_plan/spots/item[1]/forward_band/item[1]/symbol_rate",
        ),
        (
            (
                "profile_gw.xml",
                "<max_frag_id>8</max_frag_id>",
                "<packing_threshold>3</packing_threshold>",
            ),
            "encap/gse/packing_threshold",
        ),
    ] {
        let faults = load(edited(&[edit]).path()).unwrap_err();
        let named = reasons(&faults);
        let is_named =
            |it: &(&str, &str)| it.0 == element && it.1.contains("OpenSAND 7.x or earlier");
        assert!(named.iter().any(is_named), "{faults}");
    }
    let five = TempDir::new().unwrap();
    fs::write(five.path().join("core_global.conf"), "<configuration/>").unwrap();
    let faults = load(five.path()).unwrap_err().to_string();
    assert!(faults.contains("OpenSAND 5.x"), "{faults}");
}

#[test]
fn a_single_file_is_checked_by_what_it_is() {
    for name in FILES {
        assert!(check_single(&shipped("geo").join(name), Mode::Strict).is_ok());
    }
    let bad = edited(&[
        ("topology.xml", "<bandwidth>50000<", "<bandwidth>50000.5<"),
        ("profile_st.xml", "<cra>10000<", "<cra>many<"),
    ]);
    let topology = bad.path().join("topology.xml");
    assert!(check_single(&topology, Mode::Strict).is_err());
    assert_eq!(
        check_single(&topology, Mode::Lenient)
            .unwrap()
            .as_slice()
            .len(),
        1
    );
    let faults = check_single(&bad.path().join("profile_st.xml"), Mode::Lenient).unwrap_err();
    assert_eq!(reasons(&faults)[0].0, "access/dama/cra");
    let other = bad.path().join("other.xml");
    fs::write(
        &other,
        "<model version=\"1.0.0\"><root><list/></root></model>",
    )
    .unwrap();
    let faults = check_single(&other, Mode::Strict).unwrap_err().to_string();
    assert!(faults.contains("is none of OpenSAND's files"), "{faults}");
}

/// 8 bytes is what `OpenSAND` writes itself; with it 8.2.0 drops every forward packet
/// (`DecapErrorSizePduBuffer`).
#[test]
fn a_reassembly_buffer_without_room_for_a_packet_is_named() {
    let small = |name| (name, "<decap_buffer_len>5000<", "<decap_buffer_len>8<");
    let dir = edited(&[small("profile_st.xml"), small("profile_gw.xml")]);
    let found = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let said = reasons(&found.warnings);
    assert_eq!(said.len(), 2, "{}", found.warnings);
    assert!(said.iter().all(|it| it.0 == "encap/gse/decap_buffer_len"));
    assert!(
        found
            .warnings
            .to_string()
            .contains("drops every forward packet")
    );
    assert!(found.warnings.to_string().contains("write 5000"));
    let single = check_single(&dir.path().join("profile_st.xml"), Mode::Strict).unwrap();
    assert_eq!(reasons(&single)[0].0, "encap/gse/decap_buffer_len");
}

#[test]
fn machines_are_read_of_what_satlink_does_not_carry() {
    let scpc: Edit = ("topology.xml", "<type>DAMA<", "<type>SCPC<");
    let dir = edited(&[scpc, ("profile_st.xml", "<cra>10000<", "<cra>many<")]);
    assert!(load(dir.path()).is_err());
    assert_eq!(
        platform(dir.path()).unwrap(),
        platform(&shipped("geo")).unwrap()
    );
    let dir = edited(&[(
        "infrastructure_st.xml",
        "<entity_id>1</entity_id>\n        <emu_address>10.77.0.3<",
        "<emu_address>10.77.0.3<",
    )]);
    let faults = platform(dir.path()).unwrap_err();
    assert_eq!(
        reasons(&faults),
        [("entity/entity_st/entity_id", "missing")]
    );
}

/// Several gateways and spots as the deployment tool lays them out: a folder for each entity. The
/// first terminal's gateway is not the one with the lowest id.
#[test]
fn p343_folders_of_several_gateways_are_read_with_the_spots_of_their_terminals() {
    let spots = shipped("geo-spots");
    let flat = load(&spots).unwrap_or_else(|faults| panic!("{faults}"));
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: String| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let read = |name: &str| fs::read_to_string(spots.join(name)).unwrap();
    // The gateways swap their ids: ST 1 belongs to GW 6.
    let swapped = |text: String| {
        let text = text.replace("<gateway_id>0<", "<gateway_id>x<");
        let text = text.replace("<gateway_id>6<", "<gateway_id>0<");
        let text = text.replace("<gateway_id>x<", "<gateway_id>6<");
        let text = text.replace("<default_gateway>0<", "<default_gateway>6<");
        let text = text.replace("<entity_id>0<", "<entity_id>x<");
        let text = text.replace("<entity_id>6<", "<entity_id>0<");
        text.replace("<entity_id>x<", "<entity_id>6<")
    };
    write("topology.xml", swapped(read("topology.xml")));
    let own = swapped(read("infrastructure_gw.xml"));
    // The file of the other gateway is about that one.
    let other = own.replacen("<entity_id>6<", "<entity_id>0<", 1);
    for (folder, infrastructure, profile) in [
        ("sat", swapped(read("infrastructure_sat.xml")), None),
        ("gw0", other.clone(), Some("profile_gw6.xml")),
        ("gw6", own.clone(), Some("profile_gw.xml")),
        (
            "st1",
            swapped(read("infrastructure_st.xml")),
            Some("profile_st.xml"),
        ),
        (
            "st4",
            swapped(read("infrastructure_st.xml")).replacen("<entity_id>1<", "<entity_id>4<", 1),
            Some("profile_st4.xml"),
        ),
    ] {
        write(
            &format!("entities/{folder}/infrastructure.xml"),
            infrastructure,
        );
        if let Some(name) = profile {
            write(&format!("entities/{folder}/profile.xml"), read(name));
        }
    }
    let found = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((found.gw.id, found.of(4).unwrap().gw.id), (6, 0));
    assert_eq!(found.forward, flat.forward);
    assert_eq!(found.of(4).unwrap().forward, flat.of(4).unwrap().forward);
    assert_eq!(found.of(4).unwrap().one_way_delay_ns, 255_000_000);
    let machines = platform(dir.path()).unwrap();
    assert_eq!(
        machines.gw.infrastructure,
        "entities/gw6/infrastructure.xml"
    );
    assert_eq!(machines.further_sts[0].gateway, Some(0));
    // A second gateway in two halves is named.
    let split = other.replace(">Gateway<", ">Gateway Phy<");
    write("entities/gw0/infrastructure.xml", split);
    let faults = load(dir.path()).unwrap_err().to_string();
    assert!(faults.contains("Gateway Phy is not supported"), "{faults}");
}

#[test]
fn files_that_the_command_line_tool_filled_in_are_taken_instead_of_their_templates() {
    let geo = load(&shipped("geo")).unwrap();
    let dir = laid_out(&shipped("geo"), &LAYOUTS[0]);
    for name in LAYOUTS[0] {
        let path = dir.path().join(name);
        let filled = path.with_file_name(
            name.rsplit('/')
                .next()
                .unwrap()
                .replace(".xml", "_updated.xml"),
        );
        fs::rename(&path, filled).unwrap();
        fs::write(&path, "<model version=\"1.0.0\"><root/></model>").unwrap();
    }
    let found = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(found.forward, geo.forward);
    let machines = platform(dir.path()).unwrap();
    assert_eq!(machines.topology, "topology_updated.xml");
    assert_eq!(machines.st.infrastructure, "st/infrastructure_updated.xml");
    assert_eq!(
        machines.st.profile.as_deref(),
        Some("st/profile_updated.xml")
    );
    assert_eq!(machines.sat.profile, None);
}

#[test]
fn what_satlink_carries_and_8_2_0_does_not_is_a_warning() {
    let warned = |name: &str| {
        let found = load(&shipped(name)).unwrap();
        let warnings = found.warnings.as_slice().iter();
        let lines = warnings.map(|it| format!("{}: {}", it.element, it.reason));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert!(warned("geo-terminals").contains("forward carriers have two groups"));
    let aloha = warned("geo-aloha");
    assert!(
        aloha.contains("random access with only one waveform"),
        "{aloha}"
    );
    assert!(
        aloha.contains("access/settings/ra_enabled: OpenSAND 8.2.0 looks for it"),
        "{aloha}"
    );
    for name in ["geo", "leo", "geo-acm", "geo-dama", "geo-scpc", "geo-spots"] {
        assert_eq!(warned(name), "", "{name}");
    }
}

#[test]
fn an_entity_without_a_usable_id_is_refused_with_the_reason() {
    let id = "<entity_id>1</entity_id>";
    let dir = edited(&[("infrastructure_st.xml", id, "<entity_id>ST</entity_id>")]);
    let faults = platform(dir.path()).unwrap_err();
    assert_eq!(
        reasons(&faults),
        [(
            "entity/entity_st/entity_id",
            "is not a number from 0 to 255"
        )]
    );
}
