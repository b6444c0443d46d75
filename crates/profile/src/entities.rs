// SPDX-License-Identifier: GPL-3.0-or-later
//! What the three infrastructure files say together: who is there, under which id and address.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::element_check::{UNSUPPORTED, mac};
use crate::fault::Faults;
use crate::xml_file::{Place, elements, join};

/// A ground entity: terminal or gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Id, 0 to 30.
    pub id: u8,
    /// Address on the emulation network.
    pub emu_address: Ipv4Addr,
    /// MAC address; the label of GSE packets to this host.
    pub mac: [u8; 6],
}

/// The entities of a profile.
#[derive(Debug, Clone)]
pub(crate) struct Entities {
    pub sat_id: u8,
    pub gw: Host,
    pub st: Host,
    /// Everything that the platform lists, this profile's own entities included.
    pub satellites: Vec<u8>,
    pub gateways: Vec<u8>,
    pub gateway_hosts: Vec<Host>,
    pub terminals: Vec<Host>,
}

/// The places of `root` in the three infrastructure files, `None` where a file does not parse.
pub(crate) struct Infrastructures<'a> {
    pub sat: Option<Place<'a>>,
    pub gw: Option<Place<'a>>,
    pub st: Option<Place<'a>>,
}

/// One entity kind: value of `entity_type`, own section, list in the platform section.
pub(crate) struct Role {
    entity_type: &'static str,
    pub section: &'static str,
    list: &'static str,
}

pub(crate) const SATELLITE: Role = Role {
    entity_type: "Satellite",
    section: "entity/entity_sat",
    list: "infrastructure/satellites",
};
pub(crate) const GATEWAY: Role = Role {
    entity_type: "Gateway",
    section: "entity/entity_gw",
    list: "infrastructure/gateways",
};
pub(crate) const TERMINAL: Role = Role {
    entity_type: "Terminal",
    section: "entity/entity_st",
    list: "infrastructure/terminals",
};

/// Checks each file and the files against each other; returns the entities if all three are
/// readable.
pub(crate) fn check(files: &Infrastructures<'_>, faults: &mut Faults) -> Option<Entities> {
    let present: Vec<_> = [&files.sat, &files.gw, &files.st]
        .into_iter()
        .flatten()
        .collect();
    if let Some((first, others)) = present.split_first() {
        check_platform(first, faults);
        for other in others {
            check_same_platform(first, other, faults);
        }
    }
    for (file, role) in [
        (&files.sat, SATELLITE),
        (&files.gw, GATEWAY),
        (&files.st, TERMINAL),
    ] {
        if let Some(root) = file {
            check_own_entity(root, &role, faults);
        }
    }
    Some(Entities {
        sat_id: files
            .sat
            .as_ref()?
            .get(SATELLITE.section)?
            .value("entity_id")?,
        gw: host(&files.gw.as_ref()?.get(GATEWAY.section)?)?,
        st: host(&files.st.as_ref()?.get(TERMINAL.section)?)?,
        satellites: listed(files.sat.as_ref()?, &SATELLITE),
        gateways: listed(files.gw.as_ref()?, &GATEWAY),
        gateway_hosts: hosts(files.gw.as_ref()?, &GATEWAY),
        terminals: hosts(files.st.as_ref()?, &TERMINAL),
    })
}

/// The items of a list that are entities. An item without address under the id of an entity that
/// stands before it, of any list, is a further MAC address behind that entity: packets to it go
/// there.
pub(crate) fn entity_items<'a>(root: &Place<'a>, role: &Role) -> Vec<Place<'a>> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    for one in [SATELLITE, GATEWAY, TERMINAL] {
        for item in root.items(one.list) {
            let id = item.value::<u64>("entity_id");
            if item.get("emu_address").is_none() && seen.contains(&id) {
                continue;
            }
            seen.push(id);
            if one.list == role.list {
                found.push(item);
            }
        }
    }
    found
}

/// Ids of a list of the platform.
fn listed(root: &Place<'_>, role: &Role) -> Vec<u8> {
    let items = entity_items(root, role);
    items
        .iter()
        .filter_map(|item| item.value("entity_id"))
        .collect()
}

/// Entities of a list of the platform.
fn hosts(root: &Place<'_>, role: &Role) -> Vec<Host> {
    let items = entity_items(root, role);
    items.iter().filter_map(host).collect()
}

fn host(section: &Place<'_>) -> Option<Host> {
    Some(Host {
        id: section.value("entity_id")?,
        emu_address: address(section),
        mac: section
            .text_at("mac_address")
            .and_then(mac)
            .unwrap_or([0; 6]),
    })
}

/// The unspecified address in place of a malformed one, which lenient loading accepts as `OpenSAND`
/// does.
pub(crate) fn address(section: &Place<'_>) -> Ipv4Addr {
    section
        .value("emu_address")
        .unwrap_or(Ipv4Addr::UNSPECIFIED)
}

/// The file is about the entity that its name says, and its own section agrees with the platform's
/// list.
fn check_own_entity(root: &Place<'_>, role: &Role, faults: &mut Faults) {
    if let Some(kind) = root.get("entity/entity_type") {
        let known = ["Satellite", "Gateway", "Terminal"];
        if kind
            .text()
            .is_some_and(|text| text != role.entity_type && known.contains(&text))
        {
            let reason = format!("this file describes a {}", role.entity_type);
            kind.fault(faults, reason, format!("write {}", role.entity_type));
        }
    }
    let Some(own) = root.get(role.section) else {
        return;
    };
    let Some(id) = own.value::<u64>("entity_id") else {
        return;
    };
    let Some(item) = root
        .items(role.list)
        .into_iter()
        .find(|item| item.value("entity_id") == Some(id))
    else {
        own.nearest("entity_id").slip(
            faults,
            format!("id {id} is not in {}", role.list),
            "make entity and infrastructure agree",
        );
        return;
    };
    for name in ["emu_address", "mac_address"] {
        let (Some(ours), Some(listed)) = (own.get(name), item.get(name)) else {
            continue;
        };
        if !same(ours.text(), listed.text()) {
            let reason = format!(
                "{} differs from {} in {} (line {})",
                ours.text().unwrap_or(""),
                listed.text().unwrap_or(""),
                listed.path,
                root.source.line(listed.node),
            );
            ours.slip(faults, reason, "make entity and infrastructure agree");
        }
    }
}

fn same(left: Option<&str>, right: Option<&str>) -> bool {
    left.unwrap_or("").eq_ignore_ascii_case(right.unwrap_or(""))
}

/// Numbers of entities, uniqueness of ids and addresses, and the default gateway of one file.
fn check_platform(root: &Place<'_>, faults: &mut Faults) {
    let satellites = entity_items(root, &SATELLITE).len();
    if satellites > 1 {
        let reason = format!("{satellites} satellites: more than one is {UNSUPPORTED}");
        let place = root.nearest(SATELLITE.list);
        place.refuse(faults, reason, "keep one satellite");
    }
    let items: Vec<_> = [SATELLITE, GATEWAY, TERMINAL]
        .iter()
        .flat_map(|role| root.items(role.list))
        .collect();
    let entities: Vec<_> = [SATELLITE, GATEWAY, TERMINAL]
        .iter()
        .flat_map(|role| entity_items(root, role))
        .collect();
    for name in ["entity_id", "emu_address", "mac_address"] {
        let mut seen = HashMap::new();
        let of = if name == "entity_id" {
            &entities
        } else {
            &items
        };
        for leaf in of.iter().filter_map(|item| item.get(name)) {
            let Some(text) = leaf.text() else { continue };
            let line = root.source.line(leaf.node);
            if let Some(first) = seen.insert(text.to_ascii_lowercase(), line) {
                let reason = format!("{text} is already used in line {first}");
                leaf.slip(
                    faults,
                    reason,
                    "satellites, gateways and terminals share one space: choose another",
                );
            }
        }
    }
    let gateways: Vec<u64> = root
        .items(GATEWAY.list)
        .iter()
        .filter_map(|item| item.value("entity_id"))
        .collect();
    if let Some(default) = root.value::<u64>("infrastructure/default_gw") {
        if default != 65_535 && !gateways.contains(&default) {
            let reason = format!("{default} is not a gateway of this platform");
            root.nearest("infrastructure/default_gw").slip(
                faults,
                reason,
                format!("one of {gateways:?}, or 65535 to drop"),
            );
        }
    }
}

/// The platform section is the same in every file.
fn check_same_platform(first: &Place<'_>, other: &Place<'_>, faults: &mut Faults) {
    let (Some(left), Some(right)) = (first.get("infrastructure"), other.get("infrastructure"))
    else {
        return;
    };
    let (left, right) = (leaves(&left), leaves(&right));
    let remedy = "the infrastructure section is the same in all three files";
    for (ours, theirs) in left.iter().zip(&right) {
        if ours.path == theirs.path && same(ours.text(), theirs.text()) {
            continue;
        }
        let reason = format!(
            "differs from {}:{}: {} {}",
            ours.source.file,
            ours.source.line(ours.node),
            ours.path,
            ours.text().unwrap_or(""),
        );
        theirs.slip(faults, reason, remedy);
        if ours.path != theirs.path {
            return;
        }
    }
    if left.len() != right.len() {
        let reason = format!(
            "has {} values, {} has {}",
            right.len(),
            first.source.file,
            left.len()
        );
        other.nearest("infrastructure").slip(faults, reason, remedy);
    }
}

fn leaves<'a>(place: &Place<'a>) -> Vec<Place<'a>> {
    let mut found = Vec::new();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for node in elements(place.node) {
        let name = node.tag_name().name();
        let count = counts.entry(name).or_insert(0);
        *count += 1;
        let step = if name == "item" {
            format!("item[{count}]")
        } else {
            name.to_owned()
        };
        let child = Place {
            source: place.source,
            node,
            path: join(&place.path, &step),
        };
        if elements(node).next().is_none() {
            found.push(child);
        } else {
            found.extend(leaves(&child));
        }
    }
    found
}
