// SPDX-License-Identifier: GPL-3.0-or-later
//! Traffic classes and FIFOs of an ST or GW profile.

use std::collections::HashMap;

use dvb::dama::Access;

use crate::fault::Faults;
use crate::xml_file::Place;

/// What serves a FIFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessType {
    /// Constant rate (ST).
    DamaCra,
    /// Requests by rate (ST).
    DamaRbdc,
    /// Requests by volume (ST).
    DamaVbdc,
    /// Slotted random access (ST).
    SlottedAloha,
    /// Adaptive coding (GW).
    Acm,
    /// This group of a VCM carrier (GW).
    Vcm(u8),
}

impl AccessType {
    /// Kind of its capacity requests; `None` without demand assignment.
    #[must_use]
    pub const fn dama(self) -> Option<Access> {
        match self {
            Self::DamaCra => Some(Access::Cra),
            Self::DamaRbdc => Some(Access::Rbdc),
            Self::DamaVbdc => Some(Access::Vbdc),
            Self::SlottedAloha | Self::Acm | Self::Vcm(_) => None,
        }
    }
}

/// A FIFO; they are served in strict priority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fifo {
    /// Priority, 0 first.
    pub priority: u8,
    /// Name.
    pub name: String,
    /// Most packets in it.
    pub capacity_packets: u16,
    /// Its kind of capacity.
    pub access: AccessType,
}

/// Where a priority code point goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// Priority code point of IEEE 802.1Q, 0 to 7.
    pub pcp: u8,
    /// Name.
    pub name: String,
    /// Name of a FIFO.
    pub fifo: String,
}

/// Traffic classes and FIFOs of one ground entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qos {
    /// Classes as written.
    pub classes: Vec<Class>,
    /// Class of frames without a tag.
    pub default_pcp: u8,
    /// Frames of the LAN have tags (802.1Q).
    pub is_tagged: bool,
    /// FIFOs, highest priority first.
    pub fifos: Vec<Fifo>,
}

impl Qos {
    /// The FIFO of a priority code point, as an index into `fifos`: that of its class, else of the
    /// default class.
    #[must_use]
    pub fn fifo_of_pcp(&self, pcp: u8) -> Option<usize> {
        let named = |pcp: u8| {
            let class = self.classes.iter().find(|class| class.pcp == pcp)?;
            self.fifos.iter().position(|fifo| fifo.name == class.fifo)
        };
        named(pcp).or_else(|| named(self.default_pcp))
    }

    /// The FIFO of each DSCP, as an index into `fifos`: tags carry the code point of
    /// [`pcp_of_dscp`], and without them all traffic has the default one.
    #[must_use]
    pub fn fifo_of_dscp(&self) -> [u8; 64] {
        let mut fifos = [0; 64];
        for (dscp, fifo) in (0..).zip(&mut fifos) {
            let pcp = if self.is_tagged {
                pcp_of_dscp(dscp)
            } else {
                self.default_pcp
            };
            // A class that names no FIFO, which lenient loading lets pass, is served first.
            *fifo = self.fifo_of_pcp(pcp).unwrap_or(0) as u8;
        }
        fifos
    }
}

/// Priority code point of a DSCP when nothing else is agreed: its class selector (RFC 2474 clause
/// 4.2.2), so that EF becomes 5 (VO), AF41 4 (VI) and the default 0 (BE).
#[must_use]
pub const fn pcp_of_dscp(dscp: u8) -> u8 {
    (dscp & 0x3f) >> 3
}

/// Reads and checks `network`; `fifos` is `st_fifos` or `gw_fifos`. `None` after a fault.
pub(crate) fn read(root: &Place<'_>, fifos: &str, faults: &mut Faults) -> Option<Qos> {
    let network = root.get("network")?;
    check(&network, fifos, faults);
    let mut fifos: Vec<_> = network
        .items(fifos)
        .iter()
        .map(fifo)
        .collect::<Option<_>>()?;
    // Stable: of two equal priorities the first written one is served first.
    fifos.sort_by_key(|fifo: &Fifo| fifo.priority);
    let classes = network.items("qos_classes");
    Some(Qos {
        classes: classes.iter().map(class).collect::<Option<_>>()?,
        default_pcp: network.value("qos_settings/default_pcp")?,
        is_tagged: network.text_at("qos_settings/lan_frame_type") == Some("802.1Q"),
        fifos,
    })
}

fn fifo(place: &Place<'_>) -> Option<Fifo> {
    Some(Fifo {
        priority: place.value("priority")?,
        name: place.text_at("name")?.to_owned(),
        capacity_packets: place.value("capacity")?,
        access: access_type(place.text_at("access_type")?)?,
    })
}

fn access_type(text: &str) -> Option<AccessType> {
    Some(match text {
        "DAMA_CRA" => AccessType::DamaCra,
        "DAMA_RBDC" => AccessType::DamaRbdc,
        "DAMA_VBDC" => AccessType::DamaVbdc,
        "SALOHA" => AccessType::SlottedAloha,
        "ACM" => AccessType::Acm,
        _ => AccessType::Vcm(text.strip_prefix("VCM")?.parse().ok()?),
    })
}

fn class(place: &Place<'_>) -> Option<Class> {
    Some(Class {
        pcp: place.value("pcp")?,
        name: place.text_at("name")?.to_owned(),
        fifo: place.text_at("fifo")?.to_owned(),
    })
}

/// FIFOs of `root` that no class names.
pub(crate) fn unreachable(qos: &Qos) -> impl Iterator<Item = &str> {
    let reached = |name: &str| qos.classes.iter().any(|class| class.fifo == name);
    let names = qos.fifos.iter().map(|fifo| fifo.name.as_str());
    names.filter(move |name| !reached(name))
}

fn check(network: &Place<'_>, fifos: &str, faults: &mut Faults) {
    let (classes, fifos) = (network.items("qos_classes"), network.items(fifos));
    check_unique(&classes, "pcp", faults);
    check_unique(&fifos, "name", faults);
    check_unique(&fifos, "priority", faults);
    let names: Vec<_> = fifos
        .iter()
        .filter_map(|fifo| fifo.text_at("name"))
        .collect();
    for fifo in classes.iter().filter_map(|class| class.get("fifo")) {
        if let Some(name) = fifo.text().filter(|name| !names.contains(name)) {
            let remedy = format!("one of: {}", names.join(", "));
            fifo.slip(faults, format!("there is no FIFO {name}"), remedy);
        }
    }
    let pcps: Vec<u64> = classes
        .iter()
        .filter_map(|class| class.value("pcp"))
        .collect();
    if let Some(pcp) = network
        .value::<u64>("qos_settings/default_pcp")
        .filter(|pcp| !pcps.contains(pcp))
    {
        let reason = format!("no class has pcp {pcp}");
        let remedy = format!("one of {pcps:?}");
        network.fault_at("qos_settings/default_pcp", faults, reason, remedy);
    }
}

fn check_unique(items: &[Place<'_>], name: &str, faults: &mut Faults) {
    let mut seen = HashMap::new();
    for leaf in items.iter().filter_map(|item| item.get(name)) {
        let Some(text) = leaf.text() else { continue };
        if let Some(first) = seen.insert(text, leaf.source.line(leaf.node)) {
            let reason = format!("{text} is already used in line {first}");
            leaf.slip(faults, reason, "choose another");
        }
    }
}
