// SPDX-License-Identifier: GPL-3.0-or-later
//! Shipped profiles load with the expected figures; planted faults are found, named and all
//! reported.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use crate::common;

use std::fs;

use common::{Edit, edited, shipped};
use profile::{FILES, Faults, Profile, load};
use tempfile::TempDir;

fn load_edited(edits: &[Edit]) -> Result<Profile, Faults> {
    load(edited(edits).path())
}

#[test]
fn shipped_profiles_have_the_figures_of_seed_paper() {
    // Kosek et al., IFIP Networking 2022, section III: 50/20 MHz, roll-off 0.25, QPSK 1/4, clear
    // sky 20 dB.
    for (name, delay_ms) in [("geo", 250), ("leo", 16)] {
        let profile = load(&shipped(name)).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(profile.one_way_delay_ns, delay_ms * 1_000_000);
        assert_eq!(profile.forward.symbol_rate, 40_000_000);
        assert_eq!(profile.forward.modcod.to_string(), "QPSK 1/4");
        let rate = profile.forward.symbol_rate as f64
            * profile
                .forward
                .modcod
                .efficiency(dvb::modcod::FrameSize::Normal, false);
        assert!((rate - 19.61e6).abs() < 5e3, "{rate}");
        assert!((profile.forward.es_n0_db - 16.99).abs() < 0.005);
        let back = profile.return_link;
        assert_eq!(
            (back.symbol_rate, back.waveform.id, back.superframe_ns),
            (16_000_000, 12, 26_500_000)
        );
        // ceil(10 Mbit/s * 26.5 ms / (194 * 8 bit)) = ceil(170.7)
        assert_eq!(back.slots, 171);
        assert_eq!((profile.sat_id, profile.gw.id, profile.st.id), (2, 0, 1));
    }
}

#[test]
fn addresses_agree_with_the_lab() {
    let lab = fs::read_to_string(shipped("..").join("vagrant/lab.yml")).unwrap();
    for name in ["geo", "leo"] {
        let profile = load(&shipped(name)).unwrap();
        for (node, address) in [
            ("st", profile.st.emu_address),
            ("gw", profile.gw.emu_address),
        ] {
            let section = lab.split(&format!("\n  {node}:\n")).nth(1).unwrap();
            let emu = section
                .lines()
                .find(|line| line.trim_start().starts_with("emu0:"))
                .unwrap();
            assert!(
                emu.contains(&format!("address: {address}}}")),
                "{node}: {emu}"
            );
        }
    }
}

#[test]
fn hash_follows_the_contents() {
    let same = load_edited(&[]).unwrap();
    assert_eq!(same.sha256, load(&shipped("geo")).unwrap().sha256);
    assert_eq!(same.sha256.len(), 64);
    let other = load_edited(&[("topology.xml", ">50000<", ">40000<")]).unwrap();
    assert_ne!(same.sha256, other.sha256);
}

#[test]
fn best_modcod_is_the_most_efficient_one_that_fits() {
    let wide = |edits: &[Edit]| {
        let mut edits = edits.to_vec();
        edits.push((
            "topology.xml",
            "<wave_form>1</wave_form>",
            "<wave_form>1-28</wave_form>",
        ));
        load_edited(&edits).unwrap().forward.modcod.id
    };
    // 16.99 dB is above the 16.05 dB of 32APSK 9/10.
    assert_eq!(wide(&[]), 28);
    // A margin of 1 dB leaves 15.99 dB: 32APSK 8/9 at 15.69 dB.
    assert_eq!(
        wide(&[(
            "topology.xml",
            "<forward_margin>0.0<",
            "<forward_margin>1.0<"
        )]),
        27
    );
    // 13.2 dB reaches id 23 (16APSK 9/10, 13.13 dB) and id 24 (32APSK 3/4, 12.73 dB, more
    // efficient).
    assert_eq!(
        wide(&[(
            "topology.xml",
            "<forward_margin>0.0<",
            "<forward_margin>3.79<"
        )]),
        24
    );
}

#[test]
fn thresholds_are_those_of_the_profile_s_table() {
    let wide = (
        "topology.xml",
        "<wave_form>1</wave_form>",
        "<wave_form>27-28</wave_form>",
    );
    let stricter = ("topology.xml", "<threshold>16.05<", "<threshold>17.5<");
    let forward = load_edited(&[wide, stricter]).unwrap().forward;
    let found: Vec<_> = forward
        .modcods
        .iter()
        .map(|it| (it.id, it.es_n0_centi_db))
        .collect();
    assert_eq!(found, [(27, 1569), (28, 1750)]);
    // 16.99 dB.
    assert_eq!(forward.modcod.id, 27);
}

#[test]
fn cra_becomes_whole_bursts_up_to_the_carrier() {
    let slots = |cra: &'static str| {
        load_edited(&[("profile_st.xml", "<cra>10000<", cra)]).map(|p| p.return_link.slots)
    };
    assert_eq!(slots("<cra>1<"), Ok(1));
    assert_eq!(slots("<cra>3000<"), Ok(52));
    // floor(16 Mbaud * 26.5 ms / 536) = 791 bursts of 1552 bits: 46325 kbit/s.
    assert_eq!(slots("<cra>46325<"), Ok(791));
    let faults = slots("<cra>46326<").unwrap_err().to_string();
    assert!(
        faults.contains("access/dama/cra") && faults.contains("at most 46325 kbit/s"),
        "{faults}"
    );
}

#[rustfmt::skip]
/// Element path and a part of reason or remedy that each edit has to provoke.
const PLANTED: &[(Edit, &str, &str)] = &[
    // Shape
    (("topology.xml", "model version=\"1.0.0\"", "model version=\"2.0.0\""), "model", "1.0.0"),
    (("topology.xml", "model version=\"1.0.0\"", "model"), "model", "version is missing"),
    (("topology.xml", "<schedulers>", "<schedulers><foo/>"), "advanced_settings/schedulers/foo", "unknown element"),
    (("profile_st.xml", "<cra>10000</cra>", "<cra>10000</cra><cra>1</cra>"), "access/dama/cra", "twice"),
    (("profile_st.xml", "<cra>10000</cra>", ""), "access/dama/cra", "missing"),
    (("profile_st.xml", "<cra>10000</cra>", "<cra/>"), "access/dama/cra", "is empty"),
    (("profile_st.xml", "<cra>10000</cra>", "<cra> 10000</cra>"), "access/dama/cra", "blanks"),
    (("profile_st.xml", "<cra>10000</cra>", "<cra unit=\"k\">10000</cra>"), "access/dama/cra", "unknown attribute"),
    (("profile_st.xml", "<cra>10000</cra>", "<cra>1<!-- -->0</cra>"), "access/dama/cra", "more than text"),
    (("profile_st.xml", "<access2>", "<access2>stray"), "access2", "text between"),
    (("topology.xml", "<item>\n          <assignments>", "<spot/><item>\n          <assignments>"), "frequency_plan/spots/spot", "<item>"),
    (("infrastructure_st.xml", "</root>", "<logs/></root>"), "logs", "twice"),
    (("topology.xml", "</root>", "</root><root/>"), "model", "holds 2 elements"),
    // Values
    (("profile_st.xml", "<cra>10000<", "<cra>-1<"), "access/dama/cra", "an integer"),
    (("profile_st.xml", "<cra>10000<", "<cra>10000.5<"), "access/dama/cra", "\"10000.5\" is not allowed"),
    (("profile_st.xml", "<delay_value>125<", "<delay_value>99999<"), "physical_layer/delay/delay_value", "0 to 10000"),
    (("profile_gw.xml", "<clear_sky>20.0<", "<clear_sky>nan<"), "physical_layer/uplink_attenuation/clear_sky", "decimal"),
    (("profile_st.xml", "<disable_control_plane>false<", "<disable_control_plane>0<"), "control_plane/disable_control_plane", "one of: false"),
    (("topology.xml", "<bandwidth>50000<", "<bandwidth>0<"), "frequency_plan/spots/item[1]/forward_band/item[1]/bandwidth", "1 to"),
    (("topology.xml", "<wave_form>3-12<", "<wave_form>12-3<"), "frequency_plan/spots/item[1]/return_band/item[1]/wave_form", "rising range"),
    (("infrastructure_st.xml", "10.77.0.3", "10.77.0.300"), "entity/entity_st/emu_address", "IPv4"),
    (("infrastructure_st.xml", "<tap_iface>tap<", "<tap_iface>tap/0<"), "entity/entity_st/tap_iface", "interface name"),
    (("infrastructure_st.xml", "00:00:00:00:00:02", "01:00:00:00:00:02"), "entity/entity_st/mac_address", "unicast"),
    (("infrastructure_gw.xml", "<level>warning</level>\n      </dvb>", "<level>loud</level>\n      </dvb>"), "logs/dvb/level", "one of: debug"),
    // Waveforms
    (("topology.xml", "<wave_form>1<", "<wave_form>29<"), "frequency_plan/spots/item[1]/forward_band/item[1]/wave_form", "id 29 is not in wave_forms/dvb_s2"),
    (("topology.xml", "<wave_form>3-12<", "<wave_form>3;13<"), "frequency_plan/spots/item[1]/return_band/item[1]/wave_form", "1616 sym"),
    (("topology.xml", "<id>28<", "<id>40<"), "wave_forms/dvb_s2/item[28]/id", "1 to 28"),
    (("topology.xml", "<id>28<", "<id>27<"), "wave_forms/dvb_s2/item[28]/id", "already in the row"),
    (("topology.xml", "<coding>1/4<", "<coding>1/3<"), "wave_forms/dvb_s2/item[1]/id", "id 1 is QPSK 1/4, not QPSK 1/3"),
    (("topology.xml", "<forward_margin>0.0<", "<forward_margin>60.0<"), "frequency_plan/spots/item[1]/forward_band/item[1]/wave_form", "reaches none"),
    // Contradictions
    (("infrastructure_gw.xml", "<entity_type>Gateway<", "<entity_type>Terminal<"), "entity/entity_type", "write Gateway"),
    (("infrastructure_gw.xml", "<default_gw>0<", "<default_gw>5<"), "infrastructure/default_gw", "differs from"),
    (("infrastructure_sat.xml", "<default_gw>0<", "<default_gw>5<"), "infrastructure/default_gw", "not a gateway"),
    (("infrastructure_st.xml", "<entity_st>\n        <entity_id>1<", "<entity_st>\n        <entity_id>3<"), "entity/entity_st/entity_id", "not in infrastructure/terminals"),
    (("infrastructure_st.xml", "<entity_st>\n        <entity_id>1</entity_id>\n        <emu_address>10.77.0.3<", "<entity_st>\n        <entity_id>1</entity_id>\n        <emu_address>10.77.0.9<"), "entity/entity_st/emu_address", "differs from 10.77.0.3"),
    (("topology.xml", "<gateway_id>0<", "<gateway_id>4<"), "frequency_plan/spots/item[1]/assignments/gateway_id", "is 0"),
    (("topology.xml", "<default_gateway>0<", "<default_gateway>4<"), "st_assignment/defaults/default_gateway", "is 0"),
    (("profile_st.xml", "<category>Standard<", "<category>Premium<"), "access/settings/category", "Standard"),
    (("profile_st.xml", "<fifo>SIG<", "<fifo>GIS<"), "network/qos_classes/item[2]/fifo", "no FIFO GIS"),
    (("profile_gw.xml", "<priority>4<", "<priority>3<"), "network/gw_fifos/item[5]/priority", "already used"),
    (("profile_gw.xml", "<pcp>0<", "<pcp>1<"), "network/qos_settings/default_pcp", "no class has pcp 0"),
    (("profile_st.xml", "<minimal_condition_type>ACM-Loop<", "<minimal_condition_type>Constant<"), "physical_layer/minimal_condition/threshold", "needed when minimal_condition_type is Constant"),
    (("profile_st.xml", "<delay_value>125</delay_value>", ""), "physical_layer/delay/delay_value", "needed when delay_type is ConstantDelay"),
    (("profile_st.xml", "ACM-Loop</minimal_condition_type>", "Constant</minimal_condition_type><threshold>18</threshold>"), "physical_layer/minimal_condition/threshold", "every frame is dropped"),
    // Known to OpenSAND, refused by name
    (("infrastructure_gw.xml", "<entity_type>Gateway<", "<entity_type>Gateway Phy<"), "entity/entity_type", "Gateway Phy is not supported by satlink 0.1"),
    (("topology.xml", "<return_regen_level>Transparent<", "<return_regen_level>IP<"), "frequency_plan/spots/item[1]/assignments/return_regen_level", "IP is not supported by satlink 0.1"),
    (("topology.xml", "<type>ACM<", "<type>VCM<"), "frequency_plan/spots/item[1]/forward_band/item[1]/type", "VCM is not supported by satlink 0.1"),
    (("topology.xml", "<wave_form>1<", "<wave_form>1,2<"), "frequency_plan/spots/item[1]/forward_band/item[1]/wave_form", "VCM"),
    (("profile_st.xml", "<dama_enabled>true<", "<dama_enabled>false<"), "access/settings/dama_enabled", "dama_enabled is not true, and the return carrier of ST 1 is DAMA"),
    (("profile_st.xml", "<scpc_enabled>false<", "<scpc_enabled>true<"), "access/settings/scpc_enabled", "true is not supported by satlink 0.1 where the return carrier of ST 1 is DAMA"),
    (("topology.xml", "<sat_id_st>2<", "<sat_id_st>3<"), "frequency_plan/spots/item[1]/assignments/sat_id_st", "ISL are not supported by satlink 0.1"),
    (("profile_st.xml", "<delay_type>ConstantDelay<", "<delay_type>FileDelay<"), "physical_layer/delay/file_path", "missing, needed when delay_type is FileDelay"),
    (("profile_st.xml", "<attenuation_type>Ideal<", "<attenuation_type>Triangular<"), "physical_layer/uplink_attenuation/triangle_attenuation_slope", "missing, needed when attenuation_type is Triangular"),
    (("profile_st.xml", "<rbdc_enabled>false<", "<rbdc_enabled>true<"), "access/dama/rbdc_max", "needed when rbdc_enabled is true"),
    (("profile_st.xml", "<ra_enabled>false<", "<ra_enabled>true<"), "access/settings/ra_enabled", "not supported by satlink 0.1"),
    (("profile_st.xml", "<lan_frame_type>Ethernet<", "<lan_frame_type>802.1ad<"), "network/qos_settings/lan_frame_type", "802.1ad is not supported by satlink 0.1"),
    (("profile_gw.xml", "<simulation>None<", "<simulation>Random<"), "network/simulation", "Random is not supported by satlink 0.1"),
    (("profile_st.xml", "<virtual_connections/>", "<virtual_connections><item/></virtual_connections>"), "network/virtual_connections", "not supported by satlink 0.1"),
    (("infrastructure_sat.xml", "<isl_settings/>", "<isl_settings><item/></isl_settings>"), "entity/entity_sat/isl_settings", "not supported by satlink 0.1"),
];

#[test]
fn planted_faults_are_named() {
    for (edit, element, part) in PLANTED {
        let faults = load_edited(&[*edit]).expect_err(&format!("{edit:?} must be a fault"));
        let hit = faults.as_slice().iter().any(|fault| {
            fault.element == *element
                && fault.file.ends_with(edit.0)
                && fault.line > 0
                && format!("{} ({})", fault.reason, fault.remedy).contains(part)
        });
        assert!(hit, "not refused: {edit:?}\n{faults}");
    }
}

/// As `OpenSAND` writes an ST without demand assignment: its values of `access/dama` are not there.
const SCPC: [Edit; 6] = [
    ("topology.xml", "<type>DAMA<", "<type>SCPC<"),
    (
        "profile_st.xml",
        "<dama_enabled>true<",
        "<dama_enabled>false<",
    ),
    (
        "profile_st.xml",
        "<scpc_enabled>false<",
        "<scpc_enabled>true<",
    ),
    ("profile_st.xml", "<cra>10000</cra>", ""),
    ("profile_st.xml", "<algorithm>Legacy</algorithm>", ""),
    ("profile_st.xml", "<duration>23</duration>", ""),
];

/// A second terminal of the platform.
const SECOND: (&str, &str) = (
    "</item>\n      </terminals>",
    "</item><item><entity_id>4</entity_id><emu_address>10.77.0.4</emu_address><mac_address>00:00:00:00:00:04</mac_address></item></terminals>",
);

#[test]
// promise: P8
fn p307_an_scpc_carrier_is_read_with_the_modcods_of_dvb_s2() {
    let profile = load_edited(&SCPC).unwrap_or_else(|faults| panic!("{faults}"));
    let back = &profile.return_link;
    assert!(!profile.is_on_demand());
    assert_eq!(
        (back.symbol_rate, back.slots, back.cra_kbps),
        (16_000_000, 0, 0)
    );
    let scpc = back.scpc.as_ref().unwrap();
    let ids: Vec<u8> = scpc.modcods.iter().map(|it| it.id).collect();
    assert_eq!(ids, (3..=12).collect::<Vec<_>>());
    // 16.99 dB reach all of them; QPSK 9/10 has 1.789 bit/symbol, 8PSK 3/5 1.780.
    assert_eq!((scpc.symbol_rate, scpc.modcod.id), (16_000_000, 11));
    assert_eq!(
        profile.terminals[0].carriers.as_ref().map(|it| &it.1),
        Some(back)
    );
    let margin = (
        "topology.xml",
        "<return_margin>0.0<",
        "<return_margin>16.0<",
    );
    let faults = load_edited(&[&SCPC[..], &[margin]].concat()).map(|it| it.return_link.scpc);
    // 0.99 dB: QPSK 1/2 at 1.00 dB is just beyond, 2/5 is not.
    assert_eq!(faults.unwrap().unwrap().modcod.id, 3);
}

#[test]
fn p308_what_an_scpc_carrier_cannot_be_is_refused_by_name() {
    let faults = load_edited(&SCPC[..1]).unwrap_err().to_string();
    for said in [
        "dama_enabled: true is not supported by satlink 0.1 where the return carrier of ST 1 is SCPC",
        "scpc_enabled: scpc_enabled is not true, and the return carrier of ST 1 is SCPC",
    ] {
        assert!(faults.contains(said), "{faults}");
    }
    let second: &[Edit] = &[
        ("infrastructure_sat.xml", SECOND.0, SECOND.1),
        ("infrastructure_gw.xml", SECOND.0, SECOND.1),
        ("infrastructure_st.xml", SECOND.0, SECOND.1),
    ];
    let faults = load_edited(&[&SCPC[..], second].concat())
        .unwrap_err()
        .to_string();
    assert!(
        faults.contains("SCPC for 2 terminals of a group is not supported by satlink 0.1"),
        "{faults}"
    );
}

/// As `OpenSAND` writes an ST with random access.
const ALOHA: [Edit; 8] = [
    ("topology.xml", "<type>DAMA<", "<type>ALOHA<"),
    (
        "profile_st.xml",
        "<dama_enabled>true<",
        "<dama_enabled>false<",
    ),
    ("profile_st.xml", "<ra_enabled>false<", "<ra_enabled>true<"),
    ("profile_st.xml", ">DAMA_RBDC<", ">SALOHA<"),
    ("profile_st.xml", "<cra>10000</cra>", ""),
    ("profile_st.xml", "<algorithm>Legacy</algorithm>", ""),
    ("profile_st.xml", "<duration>23</duration>", ""),
    (
        "profile_st.xml",
        "<random_access/>",
        "<random_access><timeout>7</timeout><replicas>2</replicas><max_packets>5</max_packets><max_retry>9</max_retry><backoff_algo>EIED</backoff_algo><max_cw>16</max_cw><backoff_multiple>3</backoff_multiple></random_access>",
    ),
];

#[test]
fn p328_a_carrier_with_random_access_is_read() {
    let profile = load_edited(&ALOHA).unwrap_or_else(|faults| panic!("{faults}"));
    let expected = profile::RandomAccess {
        superframes: 3,
        replicas: 2,
        max_packets: 5,
        max_retries: 9,
        timeout: 7,
        algorithm: dvb::aloha::Algorithm::Eied,
        most_window: 16,
        multiple: 3,
        receiver: dvb::aloha::Receiver::Cancelling,
    };
    assert_eq!(profile.random_access(), Some(expected));
    assert!(!profile.is_on_demand() && profile.return_link.is_random);
    let dsa = ("profile_gw.xml", ">CRDSA<", ">DSA<");
    let beb = ("profile_st.xml", ">16<", ">17<");
    let other = load_edited(&[&ALOHA[..], &[dsa, beb]].concat()).unwrap();
    let found = other.random_access().unwrap();
    assert_eq!(
        (found.receiver, found.most_window),
        (dvb::aloha::Receiver::Diversity, 17)
    );
    assert_eq!(load_edited(&[]).unwrap().random_access(), None);
}

#[test]
fn p328_what_random_access_cannot_be_is_refused_by_name() {
    let refused = |edits: &[Edit], said: &str| {
        let faults = load_edited(edits).unwrap_err().to_string();
        assert!(faults.contains(said), "{said}: {faults}");
    };
    refused(
        &ALOHA[..2],
        "ra_enabled is not true, and the return carrier of ST 1 is ALOHA",
    );
    refused(
        &[ALOHA[0], ALOHA[2]],
        "dama_enabled: true is not supported by satlink 0.1 where the return carrier of ST 1 is ALOHA",
    );
    refused(
        &ALOHA[2..3],
        "ra_enabled: true is not supported by satlink 0.1 where the return carrier of ST 1 is DAMA",
    );
    refused(
        &ALOHA[3..4],
        "SALOHA is not supported by satlink 0.1 where the return carrier of ST 1 is DAMA",
    );
    refused(
        &[&ALOHA[..3], &ALOHA[4..]].concat(),
        "DAMA_RBDC is not supported by satlink 0.1 where the return carrier of ST 1 is ALOHA",
    );
    refused(&ALOHA[..7], "missing, needed when ra_enabled is true");
    let replicas = ("profile_st.xml", "<replicas>2<", "<replicas>0<");
    refused(
        &[&ALOHA[..], &[replicas]].concat(),
        "with 0 there is no random access",
    );
    let algorithm = ("profile_gw.xml", "<saloha_algo>CRDSA</saloha_algo>", "");
    refused(
        &[&ALOHA[..], &[algorithm]].concat(),
        "saloha_algo is missing",
    );
}

#[test]
fn all_faults_of_all_files_are_reported_in_order() {
    let edits: Vec<Edit> = vec![
        ("topology.xml", "<bandwidth>50000<", "<bandwidth>x<"),
        (
            "topology.xml",
            "<burst_length>536 sym</burst_length>\n        <crdsa",
            "<crdsa",
        ),
        ("profile_st.xml", "<cra>10000<", "<cra>0<"),
        ("profile_st.xml", "<delay_value>125</delay_value>", ""),
        (
            "infrastructure_gw.xml",
            "<default_gw>0<",
            "<default_gw>65535<",
        ),
    ];
    let faults = load_edited(&edits).unwrap_err();
    let elements: Vec<_> = faults
        .as_slice()
        .iter()
        .map(|fault| fault.element.as_str())
        .collect();
    assert_eq!(
        elements,
        [
            "infrastructure/default_gw",
            "access/dama/cra",
            "physical_layer/delay/delay_value",
            "frequency_plan/spots/item[1]/forward_band/item[1]/bandwidth",
            "advanced_settings/schedulers/burst_length",
        ],
        "{faults}"
    );
    assert_eq!(faults.to_string().lines().count(), faults.as_slice().len());
}

#[test]
fn fault_line_is_where_the_element_stands() {
    let faults = load_edited(&[("profile_st.xml", "<cra>10000<", "<cra>x<")]).unwrap_err();
    let text = fs::read_to_string(shipped("geo").join("profile_st.xml")).unwrap();
    let line = text
        .lines()
        .position(|line| line.contains("<cra>"))
        .unwrap()
        + 1;
    assert_eq!(faults.as_slice()[0].line as usize, line);
    let display = faults.to_string();
    assert!(
        display.contains(&format!(
            "profile_st.xml:{line}: access/dama/cra: \"x\" is not allowed (an integer"
        )),
        "{display}"
    );
}

#[test]
fn faults_serialise_as_a_list_of_objects() {
    let faults = load_edited(&[("profile_st.xml", "<cra>10000<", "<cra>x<")]).unwrap_err();
    let value = serde_json::to_value(&faults).unwrap();
    let fault = &value.as_array().unwrap()[0];
    for key in ["file", "line", "element", "reason", "remedy"] {
        assert!(fault.get(key).is_some(), "{key} in {fault}");
    }
}

#[test]
fn missing_files_are_all_named() {
    let dir = TempDir::new().unwrap();
    let faults = load(dir.path()).unwrap_err();
    assert_eq!(faults.as_slice().len(), FILES.len(), "{faults}");
}

#[test]
fn out_of_order_elements_are_faults() {
    let edit = (
        "profile_st.xml",
        "<category>Standard</category>\n        <dama_enabled>true</dama_enabled>",
        "<dama_enabled>true</dama_enabled>\n        <category>Standard</category>",
    );
    let faults = load_edited(&[edit]).unwrap_err().to_string();
    assert!(
        faults.contains(
            "access/settings/category: element is out of order (move it before <dama_enabled>"
        ),
        "{faults}"
    );
}
