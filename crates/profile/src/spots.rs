// SPDX-License-Identifier: GPL-3.0-or-later
//! Spots and carriers of the frequency plan as plain data.

use dvb::modcod::ModCod;
use dvb::rcs2::Waveform;

use crate::element_check::lenient_ids;
use crate::xml_file::Place;

/// Use of a forward carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardKind {
    /// One MODCOD for all: ACM with a single id.
    Ccm,
    /// A MODCOD for each terminal.
    Acm,
    /// Groups of MODCODs with fixed parts of the carrier.
    Vcm,
}

/// Use of a return carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnKind {
    /// Slots on demand.
    Dama,
    /// Random access.
    Aloha,
    /// One terminal alone.
    Scpc,
}

/// A DVB-S2 carrier.
#[derive(Debug, Clone, PartialEq)]
pub struct ForwardCarrier {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// Use.
    pub kind: ForwardKind,
    /// Group of terminals that it serves.
    pub group: String,
    /// MODCODs that it allows, by id.
    pub modcods: Vec<ModCod>,
}

/// A DVB-RCS2 carrier, or SCPC, which has none of its waveforms.
#[derive(Debug, Clone, PartialEq)]
pub struct ReturnCarrier {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// Use.
    pub kind: ReturnKind,
    /// Group of terminals that it serves.
    pub group: String,
    /// Waveforms that it allows, by id.
    pub waveforms: Vec<Waveform>,
}

/// A spot: one gateway and its carriers.
#[derive(Debug, Clone, PartialEq)]
pub struct Spot {
    /// Gateway, and number of the spot.
    pub gateway_id: u8,
    /// Satellite that the gateway sees.
    pub gateway_satellite_id: u8,
    /// Satellite that the terminals see.
    pub terminal_satellite_id: u8,
    /// Carriers to the terminals.
    pub forward: Vec<ForwardCarrier>,
    /// Carriers to the gateway.
    pub returns: Vec<ReturnCarrier>,
}

/// Every spot; those with a value that cannot be read, which is a fault already, are left out.
pub(crate) fn spots(topology: &Place<'_>) -> Vec<Spot> {
    let places = topology.items("frequency_plan/spots");
    places.iter().filter_map(spot).collect()
}

fn spot(place: &Place<'_>) -> Option<Spot> {
    let forward = place.items("forward_band").into_iter();
    let returns = place.items("return_band").into_iter();
    Some(Spot {
        gateway_id: place.value("assignments/gateway_id")?,
        gateway_satellite_id: place.value("assignments/sat_id_gw")?,
        terminal_satellite_id: place.value("assignments/sat_id_st")?,
        forward: forward
            .filter_map(|carrier| forward_carrier(place, &carrier))
            .collect(),
        returns: returns
            .filter_map(|carrier| return_carrier(place, &carrier))
            .collect(),
    })
}

fn forward_carrier(spot: &Place<'_>, carrier: &Place<'_>) -> Option<ForwardCarrier> {
    let modcods: Vec<_> = carrier_ids(carrier)
        .into_iter()
        .filter_map(ModCod::by_id)
        .collect();
    let kind = match carrier.text_at("type")? {
        "VCM" => ForwardKind::Vcm,
        _ if modcods.len() == 1 => ForwardKind::Ccm,
        _ => ForwardKind::Acm,
    };
    Some(ForwardCarrier {
        symbol_rate: symbol_rate(spot, carrier, "forward")?,
        kind,
        group: carrier.text_at("group")?.to_owned(),
        modcods,
    })
}

fn return_carrier(spot: &Place<'_>, carrier: &Place<'_>) -> Option<ReturnCarrier> {
    let kind = match carrier.text_at("type")? {
        "SCPC" => ReturnKind::Scpc,
        "ALOHA" => ReturnKind::Aloha,
        _ => ReturnKind::Dama,
    };
    Some(ReturnCarrier {
        symbol_rate: symbol_rate(spot, carrier, "return")?,
        kind,
        group: carrier.text_at("group")?.to_owned(),
        waveforms: carrier_ids(carrier)
            .into_iter()
            .filter(|_| kind != ReturnKind::Scpc)
            .filter_map(Waveform::by_id)
            .collect(),
    })
}

/// The waveform that stands where an SCPC carrier has none.
pub(crate) const NO_WAVEFORM: u8 = 3;

/// Whether an item of `return_band` is SCPC.
pub(crate) fn is_scpc(carrier: &Place<'_>) -> bool {
    carrier.text_at("type") == Some("SCPC")
}

/// Whether an item of `return_band` has random access.
pub(crate) fn is_random(carrier: &Place<'_>) -> bool {
    carrier.text_at("type") == Some("ALOHA")
}

/// Ids that a carrier allows, ascending.
pub(crate) fn carrier_ids(carrier: &Place<'_>) -> Vec<u8> {
    carrier
        .text_at("wave_form")
        .map(lenient_ids)
        .unwrap_or_default()
}

/// kHz and roll-off to symbols per second, rounded to the nearest baud.
pub(crate) fn symbol_rate(spot: &Place<'_>, carrier: &Place<'_>, direction: &str) -> Option<u64> {
    let roll_off: f64 = spot.get("roll_off")?.value(direction)?;
    Some((carrier.value::<f64>("bandwidth")? * 1000.0 / (1.0 + roll_off)).round() as u64)
}

/// Gateway and group of a terminal: its exception in `st_assignment`, else the default.
pub(crate) struct Membership<'a> {
    pub gateway_id: u8,
    /// Where the group is written.
    pub group: Place<'a>,
}

/// Of an unknown terminal the defaults.
pub(crate) fn membership<'a>(
    topology: &Place<'a>,
    terminal_id: Option<u8>,
) -> Option<Membership<'a>> {
    let assignment = topology.get("st_assignment")?;
    let exception = assignment
        .items("assignments")
        .into_iter()
        .find(|item| terminal_id.is_some() && item.value("terminal_id") == terminal_id);
    Some(match exception {
        Some(item) => Membership {
            gateway_id: item.value("gateway_id")?,
            group: item.get("group")?,
        },
        None => Membership {
            gateway_id: assignment.value("defaults/default_gateway")?,
            group: assignment.get("defaults/default_group")?,
        },
    })
}
