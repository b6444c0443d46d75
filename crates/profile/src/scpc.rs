// SPDX-License-Identifier: GPL-3.0-or-later
//! SCPC: a return carrier of one terminal alone, with the frames of DVB-S2 in place of bursts.

use crate::air_interface::own_carrier;
use crate::element_check::UNSUPPORTED;
use crate::entities::Entities;
use crate::fault::Faults;
use crate::random_access::check_fifos;
use crate::spots::{is_scpc, membership};
use crate::xml_file::Place;

/// The profile of the ST, and the SCPC carriers of all spots.
pub(crate) fn check(
    topology: &Place<'_>,
    st: &Place<'_>,
    entities: &Entities,
    faults: &mut Faults,
) {
    check_access(topology, st, entities.st.id, faults);
    check_fifos(topology, st, entities.st.id, faults);
    check_sharing(topology, entities, faults);
}

/// What the profile of a terminal switches on is what its return carrier has: demand assignment,
/// random access or SCPC, one of them.
pub(crate) fn check_access(topology: &Place<'_>, st: &Place<'_>, id: u8, faults: &mut Faults) {
    let Some(settings) = st.get("access/settings") else {
        return;
    };
    let Some((_, carrier)) = own_carrier(topology, Some(id), "return_band") else {
        return;
    };
    let is_on = |name: &str| settings.text_at(name) == Some("true");
    let kind = carrier.text_at("type").unwrap_or_default();
    let needed = match kind {
        "SCPC" => "scpc_enabled",
        "ALOHA" => "ra_enabled",
        _ => "dama_enabled",
    };
    if !is_on(needed) {
        let reason = format!(
            "{needed} is not true, and the return carrier of ST {id} is {kind}: {UNSUPPORTED}"
        );
        let remedy = format!(
            "write true, or another type in line {}",
            carrier.source.line(carrier.node)
        );
        settings.nearest(needed).refuse(faults, reason, remedy);
    }
    let all = ["dama_enabled", "scpc_enabled", "ra_enabled"];
    for other in all.iter().filter(|&&it| it != needed && is_on(it)) {
        let reason = format!("true is {UNSUPPORTED} where the return carrier of ST {id} is {kind}");
        settings
            .nearest(other)
            .refuse(faults, reason, "write false");
    }
}

/// An SCPC carrier has one terminal: a group of its own.
fn check_sharing(topology: &Place<'_>, entities: &Entities, faults: &mut Faults) {
    for spot in topology.items("frequency_plan/spots") {
        let gateway_id = spot.value::<u8>("assignments/gateway_id");
        for carrier in spot.items("return_band").iter().filter(|it| is_scpc(it)) {
            let group = carrier.text_at("group");
            let is_member = |id: u8| {
                membership(topology, Some(id))
                    .is_some_and(|it| Some(it.gateway_id) == gateway_id && it.group.text() == group)
            };
            let count = (entities.terminals.iter())
                .filter(|it| is_member(it.id))
                .count();
            if count > 1 {
                let reason = format!("SCPC for {count} terminals of a group is {UNSUPPORTED}");
                let remedy = "assign each of them to a group of its own";
                carrier.nearest("type").refuse(faults, reason, remedy);
            }
        }
    }
}
