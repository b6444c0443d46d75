// SPDX-License-Identifier: GPL-3.0-or-later
//! Several spots, carriers and terminals: which carrier is whose, and what its terminals may take
//! of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;

use std::fs;

use common::{edited, shipped};
use profile::{Faults, ForwardKind, Mode, Profile, load, read, supported};
use tempfile::TempDir;

fn elements(faults: &Faults) -> Vec<&str> {
    let faults = faults.as_slice();
    faults.iter().map(|fault| fault.element.as_str()).collect()
}

/// The GEO profile with a second gateway, spot, carrier and terminal.
fn two_spots() -> TempDir {
    let files = [
        "infrastructure_sat.xml",
        "infrastructure_gw.xml",
        "infrastructure_st.xml",
    ];
    let host = |id: u8, tail: &str| {
        format!(
            "<item><entity_id>{id}</entity_id><emu_address>10.77.0.{id}</emu_address><mac_address>00:00:00:00:00:{id:02}</mac_address></item>{tail}"
        )
    };
    let dir = edited(&[("topology.xml", "<wave_form>1<", "<wave_form>1;4-6<")]);
    let edit = |name: &str, change: &dyn Fn(String) -> String| {
        let path = dir.path().join(name);
        fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
    };
    for name in files {
        edit(name, &|text| {
            text.replace("</gateways>", &host(10, "</gateways>"))
                .replace("</terminals>", &host(11, "</terminals>"))
        });
    }
    edit("topology.xml", &|text| {
        let start = text.find("<spots>").unwrap() + "<spots>".len();
        let end = text.find("</spots>").unwrap();
        let spot = text[start..end]
            .replace("<gateway_id>0<", "<gateway_id>10<")
            .replace("<group>Standard<", "<group>Premium<");
        let carrier = "<item><bandwidth>10000</bandwidth><type>ACM</type><wave_form>1-28</wave_form><group>Premium</group></item></forward_band>";
        let spot = spot.replace("</forward_band>", carrier);
        let member = "<assignments><item><terminal_id>11</terminal_id><gateway_id>10</gateway_id><group>Premium</group></item></assignments>";
        assert!(text.contains("<assignments/>"));
        format!("{}{spot}{}", &text[..end], &text[end..]).replace("<assignments/>", member)
    });
    dir
}

#[test]
fn several_spots_carriers_and_terminals_are_read() {
    let dir = two_spots();
    let profile = read(dir.path(), Mode::Strict).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(profile.spots.len(), 2);
    let second = &profile.spots[1].forward[1];
    assert_eq!(
        (second.symbol_rate, second.kind),
        (8_000_000, ForwardKind::Acm)
    );
    assert_eq!(
        (second.modcods.len(), second.group.as_str()),
        (28, "Premium")
    );
    let members: Vec<_> = profile
        .terminals
        .iter()
        .map(|it| (it.id, it.gateway_id))
        .collect();
    assert_eq!(members, [(1, 0), (11, 10)]);
    // The ST of the folder keeps its own spot and carrier.
    assert_eq!(
        (profile.forward.symbol_rate, profile.forward.modcod.id),
        (40_000_000, 6)
    );
    // Several gateways and spots are carried, two carriers of one group are not.
    let unsupported = supported(&profile);
    assert_eq!(
        elements(&unsupported),
        ["frequency_plan/spots/item[2]/forward_band"]
    );
    assert!(load(dir.path()).is_err());
}

#[test]
fn further_terminals_may_have_their_own_profile() {
    let dir = two_spots();
    let st = fs::read_to_string(dir.path().join("profile_st.xml")).unwrap();
    let own = dir.path().join("profile_st11.xml");
    let premium = st.replace("<category>Standard<", "<category>Premium<");
    fs::write(&own, premium.replace("<cra>10000<", "<cra>2000<")).unwrap();
    let profile = read(dir.path(), Mode::Strict).unwrap_or_else(|faults| panic!("{faults}"));
    let rates: Vec<_> = (profile.terminals.iter())
        .map(|it| (it.id, it.profile.dama.cra_kbps))
        .collect();
    assert_eq!(rates, [(1, 10_000), (11, 2000)]);
    // The group is checked there, too, and the file is part of the identity.
    fs::write(&own, premium.replace("<cra>10000<", "<cra>2001<")).unwrap();
    let other = read(dir.path(), Mode::Strict).unwrap();
    assert_ne!(other.sha256, profile.sha256);
    fs::write(&own, &st).unwrap();
    let faults = read(dir.path(), Mode::Strict).unwrap_err();
    assert_eq!(elements(&faults), ["access/settings/category"], "{faults}");
    assert!(faults.as_slice()[0].file.ends_with("profile_st11.xml"));
    // Unknown terminals, and a second profile of the first one.
    for (name, part) in [
        ("profile_st12.xml", "no ST 12"),
        ("profile_st1.xml", "is the profile of ST 1"),
    ] {
        let dir = edited(&[]);
        fs::write(dir.path().join(name), &st).unwrap();
        let faults = load(dir.path()).unwrap_err().to_string();
        assert!(faults.contains(part), "{faults}");
    }
}

#[test]
fn every_terminal_needs_carriers_of_its_group() {
    let dir = two_spots();
    let path = dir.path().join("topology.xml");
    let text = fs::read_to_string(&path).unwrap();
    let from = "<gateway_id>10</gateway_id><group>Premium<";
    assert!(text.contains(from));
    fs::write(
        &path,
        text.replace(from, "<gateway_id>10</gateway_id><group>SNO<"),
    )
    .unwrap();
    let faults = read(dir.path(), Mode::Lenient).unwrap_err();
    let bands =
        ["forward_band", "return_band"].map(|it| format!("frequency_plan/spots/item[2]/{it}"));
    assert_eq!(elements(&faults), bands, "{faults}");
    assert!(
        faults.to_string().contains("puts ST 11 into SNO"),
        "{faults}"
    );
}

#[test]
fn constant_rates_of_all_terminals_fit_the_carrier() {
    // One more ST with the same profile on the carrier of 791 bursts: 2 * 396 are too many.
    let many = |cra: &'static str| {
        let dir = edited(&[("profile_st.xml", "<cra>10000<", cra)]);
        for name in &profile::FILES[..3] {
            let path = dir.path().join(name);
            let text = fs::read_to_string(&path).unwrap();
            let item = "<item><entity_id>11</entity_id><emu_address>10.77.0.11</emu_address><mac_address>00:00:00:00:00:11</mac_address></item></terminals>";
            fs::write(&path, text.replace("</terminals>", item)).unwrap();
        }
        read(dir.path(), Mode::Strict)
    };
    // 395 * 1552 bit / 26.5 ms
    assert!(many("<cra>23133<").is_ok());
    let faults = many("<cra>23134<").unwrap_err().to_string();
    assert!(
        faults.contains("all terminals of Standard need 792 bursts"),
        "{faults}"
    );
}

fn ids<'a>(terminals: impl Iterator<Item = &'a profile::Terminal>) -> Vec<u8> {
    terminals.map(|it| it.id).collect()
}

#[test]
fn p197_terminals_of_several_categories_have_carriers_of_their_own() {
    let profile = profile::load(&shipped("geo-terminals")).unwrap_or_else(|it| panic!("{it}"));
    assert_eq!(ids(profile.of_spot()), [4, 5]);
    assert_eq!(ids(profile.sharing()), [4]);
    let seen = [1, 4, 5].map(|id| profile.of(id).unwrap());
    let rates = seen
        .each_ref()
        .map(|it| (it.forward.symbol_rate, it.return_link.symbol_rate));
    assert_eq!(
        rates,
        [
            (10_000_000, 16_000_000),
            (10_000_000, 16_000_000),
            (5_000_000, 4_000_000)
        ]
    );
    let chosen = seen
        .each_ref()
        .map(|it| (it.forward.modcod.id, it.return_link.waveform.id));
    assert_eq!(chosen, [(28, 12), (18, 9), (28, 12)]);
    assert_eq!(
        seen.each_ref().map(Profile::group),
        ["Standard", "Standard", "Premium"]
    );
    // From each of them the others look the same.
    assert_eq!(seen[2].of(4).unwrap().forward, seen[1].forward);
    assert_eq!(ids(seen[2].sharing()), [] as [u8; 0]);
    assert_eq!(profile.of(6), None);
}

#[test]
fn several_carriers_of_one_group_are_refused_and_rates_of_each_group_are_summed() {
    let dir = copied("geo-terminals");
    let edit = |name: &str, from: &str, to: &str| {
        let path = dir.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    // 4 Mbaud hold 197 bursts of 194 bytes in 26.5 ms: 11.5 Mbit/s.
    edit("profile_st5.xml", "<cra>512<", "<cra>12000<");
    let faults = profile::load(dir.path()).unwrap_err().to_string();
    assert!(faults.contains("all terminals of Premium need"), "{faults}");
    edit("profile_st5.xml", "<cra>12000<", "<cra>512<");
    edit(
        "topology.xml",
        "<bandwidth>6250</bandwidth>",
        "<bandwidth>6251</bandwidth>",
    );
    assert!(profile::load(dir.path()).is_ok());
    let item = "<item><bandwidth>6250</bandwidth><type>ACM</type><wave_form>1</wave_form><group>Premium</group></item>";
    edit(
        "topology.xml",
        "</forward_band>",
        &format!("{item}</forward_band>"),
    );
    let faults = profile::load(dir.path()).unwrap_err();
    assert_eq!(
        elements(&faults),
        ["frequency_plan/spots/item[1]/forward_band"],
        "{faults}"
    );
    assert!(
        faults
            .to_string()
            .contains("more than one of a group is not supported"),
        "{faults}"
    );
}

#[test]
// promise: P21
fn p342_a_terminal_sees_the_gateway_and_carriers_of_its_spot() {
    let profile = profile::load(&shipped("geo-spots")).unwrap_or_else(|it| panic!("{it}"));
    let gateways: Vec<_> = profile.gateways.iter().map(|it| it.host.id).collect();
    assert_eq!((gateways, profile.gw.id), (vec![0, 6], 0));
    assert_eq!(
        (ids(profile.of_spot()), ids(profile.others())),
        (vec![], vec![4])
    );
    let other = profile.of(4).unwrap();
    assert_eq!((other.gw.id, other.st.id), (6, 4));
    let rates = [&profile, &other].map(|it| (it.forward.symbol_rate, it.return_link.symbol_rate));
    assert_eq!(rates, [(10_000_000, 16_000_000), (5_000_000, 4_000_000)]);
    // 125 and 130 ms of the gateways, each with 125 ms of its terminal.
    let delays = [&profile, &other].map(|it| it.one_way_delay_ns / 1_000_000);
    assert_eq!(delays, [250, 255]);
    // The uplink of the second gateway is 6 dB below that of the first.
    let es_n0_db = [&profile, &other].map(|it| it.forward_es_n0_db(1));
    assert!((es_n0_db[0] - 17.99).abs() < 0.01 && (es_n0_db[1] - 14.03).abs() < 0.01);
    assert_eq!(
        [&profile, &other].map(|it| it.forward.modcod.id),
        [28, 24],
        "{es_n0_db:?}"
    );
    assert_eq!(other.of(1).unwrap().forward, profile.forward);
}

#[test]
fn p363_a_terminal_at_another_gateway_has_its_delay_and_carriers() {
    let profile = profile::load(&shipped("geo-spots")).unwrap_or_else(|it| panic!("{it}"));
    let [own, other, moved] = [profile.of(1), profile.of(4), profile.at(1, 6)].map(Option::unwrap);
    assert_eq!((moved.st.id, moved.gw.id), (1, 6));
    assert_eq!(
        (&moved.st_profile, &moved.gw_qos),
        (&own.st_profile, &other.gw_qos)
    );
    assert_eq!(moved.one_way_delay_ns, other.one_way_delay_ns);
    assert_eq!(moved.forward, other.forward);
    assert_eq!(moved.return_link.symbol_rate, other.return_link.symbol_rate);
    assert_eq!(moved.return_link.cra_kbps, own.return_link.cra_kbps);
    // Both share the carriers there.
    assert_eq!(ids(moved.sharing()), [4]);
    assert_eq!(profile.at(4, 6).unwrap(), other);
    assert_eq!((profile.at(1, 7), profile.at(9, 6)), (None, None));
    let mut of_groups = profile;
    of_groups.terminals[0].group = "Premium".to_owned();
    assert_eq!(of_groups.at(1, 6), None);
}

#[test]
fn p342_each_gateway_is_listed_and_has_a_spot() {
    let of = |name: &str, from: &str, to: &str| {
        let dir = copied("geo-spots");
        let path = dir.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{name}: {from}");
        fs::write(&path, text.replace(from, to)).unwrap();
        profile::load(dir.path()).unwrap_err().to_string()
    };
    for (name, from, to, said) in [
        (
            "topology.xml",
            "<terminal_id>4</terminal_id>\n          <gateway_id>6<",
            "<terminal_id>4</terminal_id>\n          <gateway_id>7<",
            "names no gateway of this profile",
        ),
        (
            "topology.xml",
            "<gateway_id>6</gateway_id>\n            <sat_id_gw>",
            "<gateway_id>0</gateway_id>\n            <sat_id_gw>",
            "one spot for a gateway",
        ),
        (
            "profile_gw6.xml",
            "<delay_value>130<",
            "<delay_value>far<",
            "profile_gw6.xml",
        ),
    ] {
        let faults = of(name, from, to);
        assert!(faults.contains(said), "{faults}");
    }
    let dir = copied("geo-spots");
    for (name, said) in [
        ("profile_gw7.xml", "no GW 7"),
        ("profile_gw0.xml", "is the profile of GW 0"),
    ] {
        let path = dir.path().join(name);
        fs::copy(dir.path().join("profile_gw.xml"), &path).unwrap();
        let faults = profile::load(dir.path()).unwrap_err().to_string();
        assert!(faults.contains(said), "{faults}");
        fs::remove_file(path).unwrap();
    }
}

fn copied(name: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    for entry in fs::read_dir(shipped(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    dir
}

#[test]
fn p346_what_a_satellite_would_have_to_do_is_refused_by_element() {
    let path = |name: &str| format!("frequency_plan/spots/item[2]/assignments/{name}");
    for (name, from, to, remedy) in [
        (
            "forward_regen_level",
            "Transparent",
            "BBFrame",
            "Transparent",
        ),
        ("return_regen_level", "Transparent", "IP", "Transparent"),
        ("sat_id_st", "2", "3", "use one satellite"),
    ] {
        let dir = copied("geo-spots");
        let file = dir.path().join("topology.xml");
        let text = fs::read_to_string(&file).unwrap();
        let second = text.find("<gateway_id>6<").unwrap();
        let (before, after) = text.split_at(second);
        let (from, to) = (format!("<{name}>{from}<"), format!("<{name}>{to}<"));
        assert!(after.contains(&from));
        fs::write(&file, format!("{before}{}", after.replacen(&from, &to, 1))).unwrap();
        let faults = load(dir.path()).unwrap_err();
        let found = faults.as_slice().iter();
        let named: Vec<_> = found.filter(|it| it.element == path(name)).collect();
        assert!(
            named.iter().any(|it| it.reason.contains("not supported")),
            "{faults}"
        );
        assert!(
            named[0].file.ends_with("topology.xml") && named[0].line > 0,
            "{faults}"
        );
        assert!(
            named.iter().any(|it| it.remedy.contains(remedy)),
            "{faults}"
        );
    }
}
