// SPDX-License-Identifier: GPL-3.0-or-later
//! Checks of `topology.xml`: tables, carriers, spots and assignments agree with the standards and
//! with the entities.

use std::collections::{BTreeSet, HashMap};

use dvb::modcod::ModCod;
use dvb::rcs2::Waveform;

use crate::element_check::UNSUPPORTED;
use crate::entities::Entities;
use crate::fault::Faults;
use crate::spots::{Membership, carrier_ids, is_random, is_scpc, membership};
use crate::xml_file::Place;

/// Checks `topology.xml` against the standard's tables and the entities.
pub(crate) fn check(topology: &Place<'_>, entities: Option<&Entities>, faults: &mut Faults) {
    check_tables(topology, faults);
    let spots = topology.items("frequency_plan/spots");
    for spot in &spots {
        for band in ["forward_band", "return_band"] {
            refuse_many_of_a_group(spot, band, faults);
        }
        note_limits_of_opensand(spot, faults);
        spot.items("forward_band")
            .iter()
            .for_each(|carrier| check_ratio(carrier, faults));
        check_carrier_ids(topology, spot, faults);
    }
    if let Some(entities) = entities {
        check_spots(&spots, entities, faults);
        check_assignment(topology, &spots, entities, faults);
    }
}

/// `OpenSAND` divides the traffic of a group among its carriers; satlink has one of each group.
fn refuse_many_of_a_group(spot: &Place<'_>, band: &str, faults: &mut Faults) {
    let carriers = spot.items(band);
    let mut groups: Vec<_> = (carriers.iter())
        .map(|it| it.text_at("group").unwrap_or_default())
        .collect();
    groups.sort_unstable();
    let mut pairs = groups.iter().zip(groups.iter().skip(1));
    if let Some((group, _)) = pairs.find(|(group, next)| group == next) {
        let reason = format!(
            "{} items, several of the group {}: more than one of a group is {UNSUPPORTED}",
            carriers.len(),
            group
        );
        spot.nearest(band)
            .refuse(faults, reason, "keep one <item> of each group");
    }
}

/// What satlink carries, and `OpenSAND` 8.2.0 does not.
fn note_limits_of_opensand(spot: &Place<'_>, faults: &mut Faults) {
    let group = |it: &Place<'_>| it.text_at("group").map(str::to_owned);
    let groups: BTreeSet<_> = (spot.items("forward_band").iter())
        .filter_map(group)
        .collect();
    if groups.len() > 1 {
        let reason = "the gateway of OpenSAND 8.2.0 crashes where forward carriers have two groups";
        let remedy = "for --emulator opensand keep one group";
        spot.nearest("forward_band").note(faults, reason, remedy);
    }
    for carrier in spot.items("return_band").iter().filter(|it| is_random(it)) {
        let ids = carrier.text_at("wave_form").unwrap_or_default();
        if ids.contains(['-', ';', ',']) {
            let reason = "OpenSAND 8.2.0 supports random access with only one waveform";
            let remedy = "for --emulator opensand keep one id";
            carrier.nearest("wave_form").note(faults, reason, remedy);
        }
    }
}

/// The ratio of a VCM carrier has a whole number for every group of ids.
fn check_ratio(carrier: &Place<'_>, faults: &mut Faults) {
    let (Some("VCM"), Some(ids)) = (carrier.text_at("type"), carrier.text_at("wave_form")) else {
        return;
    };
    let Some(ratio) = carrier.text_at("ratio") else {
        return;
    };
    let numbers: Vec<_> = ratio.split(',').map(str::parse::<u32>).collect();
    let groups = ids.split(',').count();
    if numbers.len() != groups || numbers.iter().any(Result::is_err) {
        carrier.fault_at(
            "ratio",
            faults,
            format!("{ratio:?} does not fit {groups} groups of ids"),
            format!("{groups} whole numbers with ',' between them"),
        );
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
                        format!("id {id} is not a known {what}"),
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

/// Every id that a carrier allows is in the table, and return ids have the scheduler's burst
/// length.
fn check_carrier_ids(topology: &Place<'_>, spot: &Place<'_>, faults: &mut Faults) {
    let burst = topology
        .get("advanced_settings/schedulers/burst_length")
        .and_then(|leaf| leaf.text());
    for (band, list) in [
        ("forward_band", "wave_forms/dvb_s2"),
        ("return_band", "wave_forms/dvb_rcs2"),
    ] {
        for carrier in spot.items(band) {
            // A return carrier of one terminal alone has DVB-S2 frames.
            let list = if is_scpc(&carrier) {
                "wave_forms/dvb_s2"
            } else {
                list
            };
            let rows = topology.items(list);
            for id in carrier_ids(&carrier) {
                let Some(row) = rows.iter().find(|row| row.value("id") == Some(id)) else {
                    carrier.nearest("wave_form").slip(
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

/// What ids are there, in words.
fn known(what: &str, ids: &[u8]) -> String {
    match ids {
        [one] => format!("the {what} of this profile is {one}"),
        _ => format!("the {what}s of this profile are {ids:?}"),
    }
}

/// Spots name gateways and satellites of the platform, one spot for a gateway.
fn check_spots(spots: &[Place<'_>], entities: &Entities, faults: &mut Faults) {
    let mut seen = HashMap::new();
    for assignments in spots.iter().filter_map(|spot| spot.get("assignments")) {
        let id = |name: &str| assignments.value::<u8>(name);
        check_listed(
            &assignments,
            "gateway_id",
            "gateway",
            &entities.gateways,
            faults,
        );
        if let Some(first) = id("gateway_id")
            .and_then(|id| seen.insert(id, assignments.source.line(assignments.node)))
        {
            let reason = format!("has a spot already in line {first}");
            assignments.fault_at("gateway_id", faults, reason, "one spot for a gateway");
        }
        let (of_gw, of_st) = (id("sat_id_gw"), id("sat_id_st"));
        if of_gw.is_some() && of_st.is_some() && of_gw != of_st {
            let reason = format!("two satellites joined by an ISL are {UNSUPPORTED}");
            assignments
                .nearest("sat_id_st")
                .refuse(faults, reason, "use one satellite");
        }
        for name in ["sat_id_gw", "sat_id_st"] {
            check_listed(
                &assignments,
                name,
                "satellite",
                &entities.satellites,
                faults,
            );
        }
    }
}

fn check_listed(place: &Place<'_>, name: &str, what: &str, ids: &[u8], faults: &mut Faults) {
    if place.value::<u8>(name).is_some_and(|id| !ids.contains(&id)) {
        let reason = format!("names no {what} of this profile");
        place.fault_at(name, faults, reason, known(what, ids));
    }
}

/// Terminals are assigned once, to gateways that have a spot; the ST's is the one that this profile
/// describes.
fn check_assignment(
    topology: &Place<'_>,
    spots: &[Place<'_>],
    entities: &Entities,
    faults: &mut Faults,
) {
    let Some(assignment) = topology.get("st_assignment") else {
        return;
    };
    let served: Vec<u8> = spots
        .iter()
        .filter_map(|spot| spot.value("assignments/gateway_id"))
        .filter(|id| entities.gateways.contains(id))
        .collect();
    let gateways = if served.is_empty() {
        &entities.gateways
    } else {
        &served
    };
    check_listed(
        &assignment,
        "defaults/default_gateway",
        "gateway",
        gateways,
        faults,
    );
    let mut seen = HashMap::new();
    for item in assignment.items("assignments") {
        check_listed(&item, "gateway_id", "gateway", gateways, faults);
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
    let (st, gw) = (entities.st.id, entities.gw.id);
    let assigned = membership(topology, Some(st)).map(|it| it.gateway_id);
    if assigned.is_some_and(|id| id != gw && gateways.contains(&id)) {
        let reason =
            format!("ST {st} belongs to another gateway than {gw} of infrastructure_gw.xml");
        assignment.fault(
            faults,
            reason,
            "the files of a folder describe an ST and its own gateway",
        );
    }
}

/// The category in the profile of a terminal is the group that it is assigned to.
pub(crate) fn check_category(topology: &Place<'_>, st: &Place<'_>, id: u8, faults: &mut Faults) {
    let Some(membership) = membership(topology, Some(id)) else {
        return;
    };
    let (Some(category), Some(name)) =
        (st.get("access/settings/category"), membership.group.text())
    else {
        return;
    };
    if category.text().is_some_and(|text| text != name) {
        let reason = "group differs from the one the ST is assigned to";
        category.slip(faults, reason, assigned(&membership, id));
    }
}

/// The spot of a terminal has carriers for its group.
pub(crate) fn check_carriers(topology: &Place<'_>, id: u8, faults: &mut Faults) {
    let Some(membership) = membership(topology, Some(id)) else {
        return;
    };
    let Some(name) = membership.group.text() else {
        return;
    };
    let spots = topology.items("frequency_plan/spots");
    let own =
        |spot: &&Place<'_>| spot.value("assignments/gateway_id") == Some(membership.gateway_id);
    let Some(spot) = spots.iter().find(own) else {
        return;
    };
    for band in ["forward_band", "return_band"] {
        let carriers = spot.items(band);
        let of_group = |carrier: &Place<'_>| carrier.text_at("group") == Some(name);
        if !carriers.is_empty() && !carriers.iter().any(of_group) {
            let reason = format!("no carrier for the group {name}");
            spot.fault_at(band, faults, reason, assigned(&membership, id));
        }
    }
}

/// Where the group of a terminal is written, in words.
fn assigned(membership: &Membership<'_>, id: u8) -> String {
    let group = &membership.group;
    format!(
        "{} (line {}) puts ST {id} into {}",
        group.path,
        group.source.line(group.node),
        group.text().unwrap_or("")
    )
}
