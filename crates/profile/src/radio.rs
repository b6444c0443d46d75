// SPDX-License-Identifier: GPL-3.0-or-later
//! Carriers, C/N and granted slots: from topology and physical layer to the figures of the air interface.

use std::collections::HashMap;

use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;

use crate::check::{UNSUPPORTED, wave_forms};
use crate::document::Place;
use crate::entities::Entities;
use crate::fault::Faults;

/// The DVB-S2 carrier from GW to ST.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forward {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// The most efficient MODCOD that the carrier allows and the C/N reaches.
    pub modcod: ModCod,
    /// C/N over both legs, dB.
    pub cn_db: f64,
    /// Time between two runs of `OpenSAND`'s forward scheduler, ns.
    pub tick_ns: u64,
}

/// The DVB-RCS2 carrier from ST to GW.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Return {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// The most efficient waveform that the carrier allows and the C/N reaches.
    pub waveform: Waveform,
    /// C/N over both legs, dB.
    pub cn_db: f64,
    /// Superframe duration, ns; whole microseconds as in `OpenSAND`.
    pub superframe_ns: u64,
    /// Constant rate that the terminal is assigned (CRA), kbit/s.
    pub cra_kbps: u64,
    /// Bursts granted per superframe for it.
    pub slots: u32,
}

/// Places of `root` in the files that describe the radio link.
pub(crate) struct Files<'a> {
    pub topology: &'a Place<'a>,
    pub gw: &'a Place<'a>,
    pub st: &'a Place<'a>,
}

/// Carrier-to-noise ratio over two legs, dB: noise powers add.
#[must_use]
pub fn combined_cn_db(up_db: f64, down_db: f64) -> f64 {
    let linear = |db: f64| 10f64.powf(db / 10.0);
    10.0 * (1.0 / (1.0 / linear(up_db) + 1.0 / linear(down_db))).log10()
}

/// Bursts per superframe that carry `cra_kbps`: whole bursts, rounded up.
#[must_use]
pub fn cra_slots(cra_kbps: u64, superframe_ns: u64, waveform: Waveform) -> u64 {
    let payload_bits = waveform.payload_bytes as u128 * 8;
    // kbit/s * ns = 1e-6 bit.
    (u128::from(cra_kbps) * u128::from(superframe_ns)).div_ceil(payload_bits * 1_000_000) as u64
}

/// Bursts that one terminal can send in a superframe, one after the other.
#[must_use]
pub fn slot_limit(symbol_rate: u64, superframe_ns: u64, waveform: Waveform) -> u64 {
    (u128::from(symbol_rate) * u128::from(superframe_ns)
        / (u128::from(waveform.symbols) * 1_000_000_000)) as u64
}

/// Checks `topology.xml` against the standard's tables and the entities.
pub(crate) fn check_topology(
    topology: &Place<'_>,
    entities: Option<&Entities>,
    faults: &mut Faults,
) {
    check_tables(topology, faults);
    let spots = topology.items("frequency_plan/spots");
    let few = |place: &Place<'_>, path: &str, faults: &mut Faults| {
        let count = place.items(path).len();
        if count > 1 {
            place.fault_at(
                path,
                faults,
                format!("{count} items: more than one is {UNSUPPORTED}"),
                "keep one <item>",
            );
        }
    };
    few(topology, "frequency_plan/spots", faults);
    for spot in &spots {
        few(spot, "forward_band", faults);
        few(spot, "return_band", faults);
        check_carrier_ids(topology, spot, faults);
        if let Some(entities) = entities {
            check_spot_ids(spot, entities, faults);
        }
    }
    if let Some(entities) = entities {
        check_assignment(topology, entities, faults);
    }
}

/// Rows of the MODCOD tables are the standard's: id, modulation, coding, burst length.
fn check_tables(topology: &Place<'_>, faults: &mut Faults) {
    for list in ["wave_forms/dvb_s2", "wave_forms/dvb_rcs2"] {
        let mut seen = HashMap::new();
        for row in topology.items(list) {
            let Some(id) = row.value::<u8>("id") else {
                continue;
            };
            if let Some(first) = seen.insert(id, row.source.line(row.node)) {
                row.fault_at(
                    "id",
                    faults,
                    format!("id {id} stands already in the row of line {first}"),
                    "keep one row",
                );
            }
            match (standard_row(list, id), written_row(&row)) {
                (None, _) => {
                    let (what, range) = match list {
                        "wave_forms/dvb_s2" => ("DVB-S2 MODCOD", "1 to 28"),
                        _ => ("DVB-RCS2 waveform", "3 to 22"),
                    };
                    row.fault_at(
                        "id",
                        faults,
                        format!("id {id} is no known {what}"),
                        format!("ids {range}"),
                    );
                }
                (Some(standard), Some(written)) if standard != written => {
                    let reason = format!("id {id} is {standard}, not {written}");
                    row.fault_at(
                        "id",
                        faults,
                        reason,
                        "write the standard's modulation, coding and burst length",
                    );
                }
                _ => {}
            }
        }
    }
}

/// The row of EN 302 307-1 (MODCOD coding of the PLHEADER) or EN 301 545-2 annex A.
fn standard_row(list: &str, id: u8) -> Option<String> {
    if list == "wave_forms/dvb_s2" {
        ModCod::by_id(id).map(|row| format!("{} {}", row.modulation, row.rate))
    } else {
        Waveform::by_id(id)
            .map(|row| format!("{} {} {} sym", row.modulation, row.rate, row.symbols))
    }
}

fn written_row(row: &Place<'_>) -> Option<String> {
    let text = |name: &str| row.get(name).and_then(|leaf| leaf.text());
    let (modulation, coding) = (text("modulation")?, text("coding")?);
    Some(match text("burst_length") {
        Some(burst) => format!("{modulation} {coding} {burst}"),
        None => format!("{modulation} {coding}"),
    })
}

/// Every id that a carrier allows is in the table, and return ids have the scheduler's burst length.
fn check_carrier_ids(topology: &Place<'_>, spot: &Place<'_>, faults: &mut Faults) {
    let burst = topology
        .get("advanced_settings/schedulers/burst_length")
        .and_then(|leaf| leaf.text());
    for (band, list) in [
        ("forward_band", "wave_forms/dvb_s2"),
        ("return_band", "wave_forms/dvb_rcs2"),
    ] {
        let rows = topology.items(list);
        for carrier in spot.items(band) {
            for id in carrier_ids(&carrier) {
                let Some(row) = rows.iter().find(|row| row.value("id") == Some(id)) else {
                    carrier.fault_at(
                        "wave_form",
                        faults,
                        format!("id {id} is not in {list}"),
                        "add the row, or allow another id",
                    );
                    continue;
                };
                let length = row.get("burst_length").and_then(|leaf| leaf.text());
                if length.is_some() && burst.is_some() && length != burst {
                    let reason = format!("id {id} has bursts of {}", length.unwrap_or(""));
                    let remedy = format!(
                        "schedulers/burst_length is {}: allow its ids",
                        burst.unwrap_or("")
                    );
                    carrier.fault_at("wave_form", faults, reason, remedy);
                }
            }
        }
    }
}

fn carrier_ids(carrier: &Place<'_>) -> Vec<u8> {
    carrier
        .get("wave_form")
        .and_then(|leaf| wave_forms(leaf.text()?))
        .unwrap_or_default()
}

/// The spot names the platform's gateway and satellite.
fn check_spot_ids(spot: &Place<'_>, entities: &Entities, faults: &mut Faults) {
    let Some(assignments) = spot.get("assignments") else {
        return;
    };
    let id = |name: &str| assignments.value::<u8>(name);
    if id("gateway_id").is_some_and(|found| found != entities.gw.id) {
        let remedy = format!("the gateway of infrastructure_gw.xml is {}", entities.gw.id);
        assignments.fault_at(
            "gateway_id",
            faults,
            "names no gateway of this profile",
            remedy,
        );
    }
    if id("sat_id_gw").is_some() && id("sat_id_st").is_some() && id("sat_id_gw") != id("sat_id_st")
    {
        let reason = format!("two satellites joined by an ISL are {UNSUPPORTED}");
        assignments.fault_at("sat_id_st", faults, reason, "use one satellite");
    }
    for name in ["sat_id_gw", "sat_id_st"] {
        if id(name).is_some_and(|found| found != entities.sat_id) {
            let remedy = format!(
                "the satellite of infrastructure_sat.xml is {}",
                entities.sat_id
            );
            assignments.fault_at(name, faults, "names no satellite of this profile", remedy);
        }
    }
}

/// Terminals are assigned once, to the gateway that exists.
fn check_assignment(topology: &Place<'_>, entities: &Entities, faults: &mut Faults) {
    let Some(assignment) = topology.get("st_assignment") else {
        return;
    };
    let remedy = format!("the gateway of this profile is {}", entities.gw.id);
    if assignment
        .value::<u8>("defaults/default_gateway")
        .is_some_and(|id| id != entities.gw.id)
    {
        assignment.fault_at(
            "defaults/default_gateway",
            faults,
            "names no gateway of this profile",
            remedy.clone(),
        );
    }
    let mut seen = HashMap::new();
    for item in assignment.items("assignments") {
        if item
            .value::<u8>("gateway_id")
            .is_some_and(|id| id != entities.gw.id)
        {
            item.fault_at(
                "gateway_id",
                faults,
                "names no gateway of this profile",
                remedy.clone(),
            );
        }
        if let Some(terminal) = item.value::<u8>("terminal_id") {
            if let Some(first) = seen.insert(terminal, item.source.line(item.node)) {
                item.fault_at(
                    "terminal_id",
                    faults,
                    format!("assigned already in line {first}"),
                    "keep one assignment",
                );
            }
        }
    }
}

/// Checks that category, assignment and carriers name one group for the ST.
pub(crate) fn check_groups(files: &Files<'_>, st_id: u8, faults: &mut Faults) {
    let exception = files
        .topology
        .items("st_assignment/assignments")
        .into_iter()
        .find(|item| item.value("terminal_id") == Some(st_id))
        .and_then(|item| item.get("group"));
    let Some(group) =
        exception.or_else(|| files.topology.get("st_assignment/defaults/default_group"))
    else {
        return;
    };
    let Some(name) = group.text() else { return };
    let remedy = format!(
        "{} (line {}) puts ST {st_id} into {name}",
        group.path,
        group.source.line(group.node)
    );
    let mut members: Vec<_> = files
        .st
        .get("access/settings/category")
        .into_iter()
        .collect();
    for spot in files.topology.items("frequency_plan/spots") {
        for band in ["forward_band", "return_band"] {
            members.extend(
                spot.items(band)
                    .iter()
                    .filter_map(|carrier| carrier.get("group")),
            );
        }
    }
    for member in members {
        if member.text().is_some_and(|text| text != name) {
            member.fault(
                faults,
                "group differs from the one the ST is assigned to",
                remedy.clone(),
            );
        }
    }
}

/// C/N of a direction, dB: the sender's uplink and the receiver's downlink.
fn direction_cn_db(sender: &Place<'_>, receiver: &Place<'_>) -> Option<f64> {
    let leg = |place: &Place<'_>, name: &str| -> Option<f64> {
        let leg = place.get("physical_layer")?.get(name)?;
        Some(leg.value::<f64>("clear_sky")? - leg.value::<f64>("ideal_attenuation_value")?)
    };
    Some(combined_cn_db(
        leg(sender, "uplink_attenuation")?,
        leg(receiver, "downlink_attenuation")?,
    ))
}

/// With a constant minimal condition the receiver drops every frame below it.
fn check_gate(receiver: &Place<'_>, cn_db: f64, faults: &mut Faults) {
    let Some(condition) = receiver.get("physical_layer/minimal_condition") else {
        return;
    };
    let constant = condition
        .get("minimal_condition_type")
        .and_then(|kind| kind.text())
        == Some("Constant");
    if constant
        && condition
            .value::<f64>("threshold")
            .is_some_and(|threshold| threshold > cn_db)
    {
        let reason = format!("above the C/N of {cn_db:.2} dB: every frame is dropped");
        condition.fault_at(
            "threshold",
            faults,
            reason,
            "lower the threshold, or use ACM-Loop",
        );
    }
}

/// The allowed id with the highest efficiency whose threshold of the file plus margin is within the C/N.
fn best_id(
    carrier: &Place<'_>,
    rows: &[Place<'_>],
    (cn_db, margin_db): (f64, f64),
    efficiency: impl Fn(u8) -> Option<f64>,
    faults: &mut Faults,
) -> Option<u8> {
    let threshold = |id: u8| {
        rows.iter()
            .find(|row| row.value("id") == Some(id))?
            .value::<f64>("threshold")
    };
    let candidates: Vec<_> = carrier_ids(carrier)
        .into_iter()
        .filter_map(|id| Some((id, threshold(id)? + margin_db, efficiency(id)?)))
        .collect();
    let best = candidates
        .iter()
        .filter(|(_, needed, _)| *needed <= cn_db)
        .max_by(|left, right| left.2.total_cmp(&right.2))
        .map(|(id, _, _)| *id);
    if best.is_none() && !candidates.is_empty() {
        let lowest = candidates
            .iter()
            .map(|(_, needed, _)| *needed)
            .fold(f64::INFINITY, f64::min);
        let reason = format!(
            "C/N of {cn_db:.2} dB reaches none of these ids; the most robust needs {lowest:.2} dB with its margin"
        );
        carrier.fault_at(
            "wave_form",
            faults,
            reason,
            "raise clear_sky, lower attenuation or margin, or allow another id",
        );
    }
    best
}

/// The only item of the list at `path`.
fn single<'a>(place: &Place<'a>, path: &str) -> Option<Place<'a>> {
    let mut items = place.items(path);
    (items.len() == 1).then(|| items.pop())?
}

/// kHz and roll-off to symbols per second, rounded to the nearest baud.
fn symbol_rate(spot: &Place<'_>, carrier: &Place<'_>, direction: &str) -> Option<u64> {
    let roll_off: f64 = spot.get("roll_off")?.value(direction)?;
    Some((carrier.value::<f64>("bandwidth")? * 1000.0 / (1.0 + roll_off)).round() as u64)
}

/// The forward carrier, `None` after a fault.
pub(crate) fn forward(files: &Files<'_>, faults: &mut Faults) -> Option<Forward> {
    let spot = single(files.topology, "frequency_plan/spots")?;
    let carrier = single(&spot, "forward_band")?;
    let cn_db = direction_cn_db(files.gw, files.st)?;
    check_gate(files.st, cn_db, faults);
    let links = files.topology.get("advanced_settings/links")?;
    let margin_db = links.value("forward_margin")?;
    let efficiency = |id| Some(ModCod::by_id(id)?.efficiency(FrameSize::Normal, false));
    let rows = files.topology.items("wave_forms/dvb_s2");
    let id = best_id(&carrier, &rows, (cn_db, margin_db), efficiency, faults)?;
    Some(Forward {
        symbol_rate: symbol_rate(&spot, &carrier, "forward")?,
        modcod: ModCod::by_id(id)?,
        cn_db,
        tick_ns: duration_ns(&links, "forward_duration")?,
    })
}

/// The return carrier with its granted slots, `None` after a fault.
pub(crate) fn return_link(files: &Files<'_>, faults: &mut Faults) -> Option<Return> {
    let spot = single(files.topology, "frequency_plan/spots")?;
    let carrier = single(&spot, "return_band")?;
    let cn_db = direction_cn_db(files.st, files.gw)?;
    check_gate(files.gw, cn_db, faults);
    let links = files.topology.get("advanced_settings/links")?;
    let margin_db = links.value("return_margin")?;
    let efficiency = |id| Some(Waveform::by_id(id)?.efficiency());
    let rows = files.topology.items("wave_forms/dvb_rcs2");
    let id = best_id(&carrier, &rows, (cn_db, margin_db), efficiency, faults)?;
    let waveform = Waveform::by_id(id)?;
    let symbol_rate = symbol_rate(&spot, &carrier, "return")?;
    let superframe_ns = duration_ns(&links, "return_duration")?;
    let slots = grant(files.st, symbol_rate, superframe_ns, waveform, faults)?;
    Some(Return {
        symbol_rate,
        waveform,
        cn_db,
        superframe_ns,
        cra_kbps: files.st.value("access/dama/cra")?,
        slots,
    })
}

/// Duration of a frame given in ms, in whole microseconds as in `OpenSAND`.
fn duration_ns(links: &Place<'_>, name: &str) -> Option<u64> {
    Some((links.value::<f64>(name)? * 1000.0).round() as u64 * 1000)
}

/// Slots for the terminal's CRA; a CRA beyond the carrier is a fault.
fn grant(
    st: &Place<'_>,
    symbol_rate: u64,
    superframe_ns: u64,
    waveform: Waveform,
    faults: &mut Faults,
) -> Option<u32> {
    let cra_kbps: u64 = st.value("access/dama/cra")?;
    let (slots, limit) = (
        cra_slots(cra_kbps, superframe_ns, waveform),
        slot_limit(symbol_rate, superframe_ns, waveform),
    );
    if slots > limit {
        let most = u128::from(limit) * waveform.payload_bytes as u128 * 8_000_000
            / u128::from(superframe_ns);
        let reason = format!(
            "needs {slots} bursts per superframe, the carrier holds {limit} of waveform {}",
            waveform.id
        );
        st.fault_at(
            "access/dama/cra",
            faults,
            reason,
            format!("at most {most} kbit/s, or a wider return_band"),
        );
        return None;
    }
    u32::try_from(slots).ok()
}
