// SPDX-License-Identifier: GPL-3.0-or-later
//! Carriers, `Es/N0` and granted slots: from topology and physical layer to the figures of the air
//! interface.

use dvb::dama::{Arithmetic, Carrier};
use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;

use crate::advanced_settings::Settings;
use crate::fault::Faults;
use crate::physical::{Leg, Physical, check_gate};
use crate::spots::{NO_WAVEFORM, carrier_ids, is_random, is_scpc, membership, symbol_rate};
use crate::xml_file::Place;

/// A DVB-S2 carrier: from GW to ST, or from ST to GW if it is SCPC.
#[derive(Debug, Clone, PartialEq)]
pub struct Forward {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// The most efficient MODCOD that the carrier allows and the `Es/N0` reaches.
    pub modcod: ModCod,
    /// All MODCODs that the carrier allows, by id, with the thresholds of the profile's table: one
    /// is CCM, several are ACM.
    pub modcods: Vec<ModCod>,
    /// `Es/N0` over both legs without attenuation that changes, dB.
    pub es_n0_db: f64,
    /// Time between two runs of `OpenSAND`'s forward scheduler, ns; 0 for an SCPC carrier, which
    /// does not have its timing.
    pub tick_ns: u64,
}

/// The carrier from ST to GW, of DVB-RCS2 or SCPC.
#[derive(Debug, Clone, PartialEq)]
pub struct Return {
    /// Symbols per second: bandwidth / (1 + roll-off).
    pub symbol_rate: u64,
    /// The most efficient waveform that the carrier allows and the `Es/N0` reaches.
    pub waveform: Waveform,
    /// All waveforms that the carrier allows, by id, with the thresholds of the profile's table.
    pub waveforms: Vec<Waveform>,
    /// `Es/N0` over both legs without attenuation that changes, dB.
    pub es_n0_db: f64,
    /// Superframe duration, ns; whole microseconds as in `OpenSAND`.
    pub superframe_ns: u64,
    /// Constant rate that the terminal is assigned (CRA), kbit/s.
    pub cra_kbps: u64,
    /// Bursts granted per superframe for it.
    pub slots: u32,
    /// Slots are drawn, not assigned.
    pub is_random: bool,
    /// An SCPC carrier: DVB-S2 frames of one terminal in place of bursts. Waveforms, constant rate
    /// and slots are not used then.
    pub scpc: Option<Forward>,
}

impl Forward {
    /// For a terminal that receives at this `Es/N0`.
    pub(crate) fn retune(&mut self, es_n0_db: f64, margin_db: f64) {
        self.es_n0_db = es_n0_db;
        let limit_db = es_n0_db - margin_db;
        let efficiency = |it: &ModCod| it.efficiency(FrameSize::Normal, false);
        self.modcod =
            reached(&self.modcods, limit_db, |it| it.es_n0_db(), efficiency).unwrap_or(self.modcod);
    }
}

/// The most efficient of those that need at most `limit_db`, else the most robust; `None` of none.
fn reached<T: Copy>(
    all: &[T],
    limit_db: f64,
    needed_db: impl Fn(&T) -> f64,
    efficiency: impl Fn(&T) -> f64,
) -> Option<T> {
    let within = all.iter().filter(|it| needed_db(it) <= limit_db);
    let best = within.max_by(|left, right| efficiency(left).total_cmp(&efficiency(right)));
    let robust = || {
        let order = |left: &&T, right: &&T| needed_db(left).total_cmp(&needed_db(right));
        all.iter().min_by(order)
    };
    best.or_else(robust).copied()
}

impl Return {
    /// For a terminal that the gateway receives at this `Es/N0`, with this constant rate.
    pub(crate) fn retune(&mut self, es_n0_db: f64, margin_db: f64, cra_kbps: u32) {
        self.es_n0_db = es_n0_db;
        if let Some(scpc) = &mut self.scpc {
            scpc.retune(es_n0_db, margin_db);
            return;
        }
        let limit_db = es_n0_db - margin_db;
        let waveforms = &self.waveforms;
        self.waveform = reached(
            waveforms,
            limit_db,
            |it| it.threshold_db(),
            |it| it.efficiency(),
        )
        .unwrap_or(self.waveform);
        self.cra_kbps = cra_kbps.into();
        let slots = cra_slots(self.cra_kbps, self.superframe_ns, self.waveform);
        self.slots = u32::try_from(slots).unwrap_or(u32::MAX);
    }

    /// The carrier that terminals share, as `dvb::dama` has it.
    #[must_use]
    pub const fn carrier(&self, arithmetic: Arithmetic) -> Carrier {
        Carrier {
            symbol_rate: self.symbol_rate,
            superframe: self.superframe_ns,
            waveform: self.waveform,
            arithmetic,
        }
    }
}

/// Places of `root` in the files that describe the radio link.
pub(crate) struct Files<'a> {
    pub topology: &'a Place<'a>,
    pub gw: &'a Place<'a>,
    pub st: &'a Place<'a>,
    /// The terminal of `st`, if its infrastructure file says so.
    pub st_id: Option<u8>,
}

/// Carrier-to-noise ratio over two legs, dB: noise powers add.
#[must_use]
pub fn combined_es_n0_db(up_db: f64, down_db: f64) -> f64 {
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

/// Physical layers of both ends of the link.
#[derive(Clone, Copy)]
pub(crate) struct Ends<'a> {
    pub gw: &'a Physical,
    pub st: &'a Physical,
}

/// `Es/N0` without attenuation that changes, dB, of the forward and the return link between gateway
/// and terminal.
pub(crate) fn steady_es_n0_db([gw, st]: [&Physical; 2]) -> (f64, f64) {
    // The sender's uplink and the receiver's downlink.
    let of = |up: &Leg, down: &Leg| combined_es_n0_db(up.steady_es_n0_db(), down.steady_es_n0_db());
    (of(&gw.uplink, &st.downlink), of(&st.uplink, &gw.downlink))
}

/// The allowed id with the highest efficiency whose threshold of the file plus margin is within the
/// `Es/N0`.
fn best_id(
    carrier: &Place<'_>,
    rows: &[Place<'_>],
    (es_n0_db, margin_db): (f64, f64),
    efficiency: impl Fn(u8) -> Option<f64>,
    faults: &mut Faults,
) -> Option<u8> {
    let candidates: Vec<_> = carrier_ids(carrier)
        .into_iter()
        .filter_map(|id| Some((id, threshold_db(rows, id)? + margin_db, efficiency(id)?)))
        .collect();
    let best = candidates
        .iter()
        .filter(|(_, needed, _)| *needed <= es_n0_db)
        .max_by(|left, right| left.2.total_cmp(&right.2))
        .map(|(id, _, _)| *id);
    if best.is_none() && !candidates.is_empty() {
        let lowest = candidates
            .iter()
            .map(|(_, needed, _)| *needed)
            .fold(f64::INFINITY, f64::min);
        let reason = format!(
            "Es/N0 of {es_n0_db:.2} dB reaches none of these ids; the most robust needs {lowest:.2} dB with its margin"
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

/// Threshold of an id in a waveform table, dB.
fn threshold_db(rows: &[Place<'_>], id: u8) -> Option<f64> {
    let row = rows.iter().find(|row| row.value("id") == Some(id))?;
    row.value("threshold")
}

/// A MODCOD with the threshold of the profile's table.
fn modcod(rows: &[Place<'_>], id: u8) -> Option<ModCod> {
    Some(ModCod {
        es_n0_centi_db: centi_db(threshold_db(rows, id)?),
        ..ModCod::by_id(id)?
    })
}

/// Hundredths of a dB, which a table has at the most.
fn centi_db(db: f64) -> i16 {
    (db * 100.0).round() as i16
}

/// The spot of a terminal and the first of its carriers that serves the group of the terminal.
pub(crate) fn own_carrier<'a>(
    topology: &Place<'a>,
    terminal_id: Option<u8>,
    band: &str,
) -> Option<(Place<'a>, Place<'a>)> {
    let membership = membership(topology, terminal_id)?;
    let group = membership.group.text()?;
    let spots = topology.items("frequency_plan/spots");
    let spot = spots
        .into_iter()
        .find(|spot| spot.value("assignments/gateway_id") == Some(membership.gateway_id))?;
    let carriers = spot.items(band);
    let carrier = carriers
        .into_iter()
        .find(|carrier| carrier.text_at("group") == Some(group))?;
    Some((spot, carrier))
}

/// The forward carrier, `None` after a fault.
pub(crate) fn forward(
    files: &Files<'_>,
    ends: Ends<'_>,
    settings: &Settings,
    faults: &mut Faults,
) -> Option<Forward> {
    let (es_n0_db, _) = steady_es_n0_db([ends.gw, ends.st]);
    check_gate(files.st, ends.st.minimal_es_n0_db, es_n0_db, faults);
    let (spot, carrier) = own_carrier(files.topology, files.st_id, "forward_band")?;
    let efficiency = |id| Some(ModCod::by_id(id)?.efficiency(FrameSize::Normal, false));
    let rows = files.topology.items("wave_forms/dvb_s2");
    let limits = (es_n0_db, settings.forward_margin_db);
    let id = best_id(&carrier, &rows, limits, efficiency, faults)?;
    Some(Forward {
        symbol_rate: symbol_rate(&spot, &carrier, "forward")?,
        modcod: modcod(&rows, id)?,
        modcods: modcods(&rows, &carrier),
        es_n0_db,
        tick_ns: settings.forward_frame_ns,
    })
}

/// All MODCODs that a carrier allows, by id.
fn modcods(rows: &[Place<'_>], carrier: &Place<'_>) -> Vec<ModCod> {
    let ids = carrier_ids(carrier).into_iter();
    ids.filter_map(|id| modcod(rows, id)).collect()
}

/// All waveforms that a carrier allows, by id, with the thresholds of the profile's table.
fn waveforms(rows: &[Place<'_>], carrier: &Place<'_>) -> Vec<Waveform> {
    let of_id = |id: u8| {
        Some(Waveform {
            threshold_centi_db: centi_db(threshold_db(rows, id)?),
            ..Waveform::by_id(id)?
        })
    };
    let ids = carrier_ids(carrier).into_iter();
    ids.filter_map(of_id).collect()
}

/// The carriers of a terminal's group, tuned to its own `Es/N0` as [`crate::Profile::of`] has it;
/// `None`: its spot has none that can be read.
pub(crate) fn of_terminal(
    topology: &Place<'_>,
    terminal_id: u8,
    physical: [&Physical; 2],
    settings: &Settings,
    cra_kbps: u32,
) -> Option<(Forward, Return)> {
    let of = |band: &str| own_carrier(topology, Some(terminal_id), band);
    let ((spot, down), (_, up)) = (of("forward_band")?, of("return_band")?);
    let modcods = modcods(&topology.items("wave_forms/dvb_s2"), &down);
    let waveforms = waveforms(&topology.items("wave_forms/dvb_rcs2"), &up);
    let (forward_db, return_db) = steady_es_n0_db(physical);
    let mut forward = Forward {
        symbol_rate: symbol_rate(&spot, &down, "forward")?,
        modcod: *modcods.first()?,
        modcods,
        es_n0_db: forward_db,
        tick_ns: settings.forward_frame_ns,
    };
    forward.retune(forward_db, settings.forward_margin_db);
    let mut back = if is_scpc(&up) {
        scpc_return(topology, (&spot, &up), settings)?
    } else {
        Return {
            symbol_rate: symbol_rate(&spot, &up, "return")?,
            waveform: *waveforms.first()?,
            waveforms,
            es_n0_db: return_db,
            superframe_ns: settings.superframe_ns,
            cra_kbps: cra_kbps.into(),
            slots: 0,
            is_random: is_random(&up),
            scpc: None,
        }
    };
    back.retune(return_db, settings.return_margin_db, cra_kbps);
    Some((forward, back))
}

/// An SCPC carrier that is not yet tuned to an `Es/N0`; `None`: a value cannot be read.
fn scpc_return(
    topology: &Place<'_>,
    (spot, carrier): (&Place<'_>, &Place<'_>),
    settings: &Settings,
) -> Option<Return> {
    let modcods = modcods(&topology.items("wave_forms/dvb_s2"), carrier);
    let symbol_rate = symbol_rate(spot, carrier, "return")?;
    Some(Return {
        symbol_rate,
        waveform: Waveform::by_id(NO_WAVEFORM)?,
        waveforms: Vec::new(),
        es_n0_db: 0.0,
        superframe_ns: settings.superframe_ns,
        cra_kbps: 0,
        slots: 0,
        is_random: false,
        scpc: Some(Forward {
            symbol_rate,
            modcod: *modcods.first()?,
            modcods,
            es_n0_db: 0.0,
            tick_ns: 0,
        }),
    })
}

/// The return carrier with its granted slots, `None` after a fault.
pub(crate) fn return_link(
    files: &Files<'_>,
    ends: Ends<'_>,
    settings: &Settings,
    faults: &mut Faults,
) -> Option<Return> {
    let (_, es_n0_db) = steady_es_n0_db([ends.gw, ends.st]);
    check_gate(files.gw, ends.gw.minimal_es_n0_db, es_n0_db, faults);
    let (spot, carrier) = own_carrier(files.topology, files.st_id, "return_band")?;
    let limits = (es_n0_db, settings.return_margin_db);
    if is_scpc(&carrier) {
        let efficiency = |id| Some(ModCod::by_id(id)?.efficiency(FrameSize::Normal, false));
        let rows = files.topology.items("wave_forms/dvb_s2");
        best_id(&carrier, &rows, limits, efficiency, faults)?;
        let mut found = scpc_return(files.topology, (&spot, &carrier), settings)?;
        found.retune(es_n0_db, settings.return_margin_db, 0);
        return Some(found);
    }
    let efficiency = |id| Some(Waveform::by_id(id)?.efficiency());
    let rows = files.topology.items("wave_forms/dvb_rcs2");
    let id = best_id(&carrier, &rows, limits, efficiency, faults)?;
    let waveforms = waveforms(&rows, &carrier);
    let waveform = *waveforms.iter().find(|it| it.id == id)?;
    let symbol_rate = symbol_rate(&spot, &carrier, "return")?;
    let superframe_ns = settings.superframe_ns;
    // A terminal without demand assignment has no constant rate.
    let is_off = files.st.text_at("access/settings/dama_enabled") == Some("false");
    let cra_kbps: u64 = if is_off {
        0
    } else {
        files.st.value("access/dama/cra")?
    };
    let slots = grant(
        files.st,
        cra_kbps,
        (symbol_rate, superframe_ns),
        waveform,
        faults,
    )?;
    Some(Return {
        symbol_rate,
        waveform,
        waveforms,
        es_n0_db,
        superframe_ns,
        cra_kbps,
        slots,
        is_random: is_random(&carrier),
        scpc: None,
    })
}

/// Slots for the terminal's CRA; a CRA beyond the carrier is a fault.
fn grant(
    st: &Place<'_>,
    cra_kbps: u64,
    (symbol_rate, superframe_ns): (u64, u64),
    waveform: Waveform,
    faults: &mut Faults,
) -> Option<u32> {
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
