// SPDX-License-Identifier: GPL-3.0-or-later
//! What the entities of `OpenSAND` need of their machines: the part of a profile that a lab reads
//! when `OpenSAND` itself carries the frames and judges the rest.

use std::net::Ipv4Addr;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::entities::{GATEWAY, Role, SATELLITE, TERMINAL, address, entity_items};
use crate::fault::Faults;
use crate::layout::{self, Layout, newest};
use crate::load::incomplete;
use crate::xml_file::{Place, Source};

/// What an entity of `OpenSAND` needs of its machine; plays no part in the emulation of frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Station {
    /// Id on the platform.
    pub entity_id: u8,
    /// Address on the emulation network.
    pub emu_address: Ipv4Addr,
    /// TAP that a ground entity serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(max = 15))]
    pub tap_iface: Option<String>,
    /// MAC address of that TAP and of the bridge over it, as written in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub mac_address: Option<String>,
    /// Folder of the entity's own logs and probes; null: it keeps none.
    pub path_local: Option<String>,
    /// Its infrastructure file, relative to the folder of the profile. That of a further terminal
    /// may be another one's.
    pub infrastructure: String,
    /// Its profile file; null: it has none, as a transparent satellite.
    pub profile: Option<String>,
    /// Id of a further terminal's gateway where that is another than the first terminal's; as far
    /// as the topology says.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u8")]
    pub gateway: Option<u8>,
}

/// The machines of a platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Platform {
    /// Topology file, relative to the folder of the profile.
    pub topology: String,
    /// Satellite.
    pub sat: Station,
    /// Gateway.
    pub gw: Station,
    /// Terminal.
    pub st: Station,
    /// Further terminals, by id.
    pub further_sts: Vec<Station>,
    /// Further gateways, by id.
    pub further_gws: Vec<Station>,
}

/// Reads the machines of the profile in `dir`. Profiles are not looked at, of the topology only
/// whose gateway is whose, and of the infrastructure files only what a machine needs.
///
/// # Errors
/// What is missing of it, with file, line and element.
pub fn platform(dir: &Path) -> Result<Platform, Faults> {
    let mut faults = Faults::default();
    let layout = layout::find(dir, &mut faults);
    let found = parse(dir, &layout, &mut faults);
    let mut faults = faults.sorted();
    if found.is_none() && faults.is_empty() {
        faults.push(incomplete(dir));
    }
    found.filter(|_| faults.is_empty()).ok_or(faults)
}

fn parse(dir: &Path, layout: &Layout, faults: &mut Faults) -> Option<Platform> {
    let mut of = |at: usize, role: &Role| {
        let source = Source::read(dir, &layout.names[at], faults)?;
        let document = source.parse(faults)?;
        let root = source.checked_root(&document, faults)?;
        let mut own = station(&root, role, faults)?;
        own.profile = profile_of(dir, layout, at);
        let others = match at {
            0 => Vec::new(),
            1 => further((dir, &root), role, &own, &layout.further_gateways),
            _ => further((dir, &root), role, &own, &layout.further),
        };
        Some((own, others))
    };
    let (sat, gw, st) = (of(0, &SATELLITE), of(1, &GATEWAY), of(2, &TERMINAL));
    let ((gw, further_gws), (st, mut further_sts)) = (gw?, st?);
    let others = further_sts.iter().map(|it| it.entity_id);
    let ids: Vec<_> = others.chain([st.entity_id]).collect();
    let gateways = layout::gateways_of(dir, &layout.names[3], &ids);
    let first = gateways.get(&st.entity_id);
    for terminal in &mut further_sts {
        let own = gateways.get(&terminal.entity_id);
        terminal.gateway = own.filter(|_| own != first).copied();
    }
    Some(Platform {
        topology: layout.names[3].clone(),
        sat: sat?.0,
        gw,
        st,
        further_sts,
        further_gws,
    })
}

/// The profile of an infrastructure file's entity; a satellite has one only if it regenerates.
#[expect(clippy::disallowed_methods, reason = "files of the profile")]
fn profile_of(dir: &Path, layout: &Layout, at: usize) -> Option<String> {
    match at {
        1 => Some(layout.names[4].clone()),
        2 => Some(layout.names[5].clone()),
        _ => {
            let name = layout.names[at].replace("infrastructure", "profile");
            let name = newest(dir, &name.replace("_updated", ""));
            dir.join(&name).is_file().then_some(name)
        }
    }
}

/// An entity from its own section; a value that a machine needs and that is not there is a fault.
fn station(root: &Place<'_>, role: &Role, faults: &mut Faults) -> Option<Station> {
    let section = root.nearest(role.section);
    let needed: &[&str] = match role.section {
        "entity/entity_sat" => &["entity_id", "emu_address"],
        _ => &["entity_id", "emu_address", "tap_iface", "mac_address"],
    };
    for name in needed {
        if section.text_at(name).is_none() {
            let missing = root.child_named(&format!("{}/{name}", role.section));
            missing.fault(faults, "missing", "the entity's machine needs it");
        }
    }
    let entity_id = section.value("entity_id");
    if entity_id.is_none() && section.text_at("entity_id").is_some() {
        let wrong = root.child_named(&format!("{}/entity_id", role.section));
        wrong.fault(
            faults,
            "is not a number from 0 to 255",
            "write the id of the entity",
        );
    }
    let text = |name: &str| Some(section.text_at(name)?.to_owned());
    let keeps_files = root.text_at("storage/enable_local") == Some("true");
    let path_local = || Some(root.text_at("storage/path_local")?.to_owned());
    Some(Station {
        entity_id: entity_id?,
        emu_address: address(&section),
        tap_iface: text("tap_iface"),
        mac_address: text("mac_address"),
        path_local: path_local().filter(|_| keeps_files),
        infrastructure: root.source.name.clone(),
        profile: None,
        gateway: None,
    })
}

/// The other entities of the list, with the TAP of `own` and its files where they have none of
/// their own (`profiles`, by id).
fn further(
    (dir, root): (&Path, &Place<'_>),
    role: &Role,
    own: &Station,
    profiles: &[(u8, String)],
) -> Vec<Station> {
    let items = entity_items(root, role);
    let station = |item: &Place<'_>| {
        let id: u8 = item.value("entity_id").filter(|id| *id != own.entity_id)?;
        let profile = profiles.iter().find(|(of, _)| *of == id);
        let folder = profile.and_then(|(_, name)| Some(name.rsplit_once('/')?.0));
        let own_file = folder.map(|it| newest(dir, &format!("{it}/infrastructure.xml")));
        Some(Station {
            entity_id: id,
            emu_address: address(item),
            tap_iface: own.tap_iface.clone(),
            mac_address: item.text_at("mac_address").map(str::to_owned),
            path_local: own.path_local.clone(),
            infrastructure: own_file.unwrap_or_else(|| own.infrastructure.clone()),
            profile: profile
                .map(|(_, name)| name.clone())
                .or_else(|| own.profile.clone()),
            gateway: None,
        })
    };
    items.iter().filter_map(station).collect()
}
