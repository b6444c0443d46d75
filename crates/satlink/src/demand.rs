// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment: from the profile, and the load of other terminals in `link.json`, to [`link::Demand`].

use dvb::dama::{self, Arithmetic};
use dvb::rcs2::Waveform;
use link::{Demand, Fifo, LinkConfig, LinkError, Load, Nanos, Other, Plans, Signalling};
use profile::{Profile, StProfile};
use serde::Serialize;
use serde_json::Value;

use crate::config::{Faults, Object, Timing};
use crate::plan::{ECHO_BYTES, ms};

/// Longest time of a load, s.
const LONGEST_S: f64 = 1e9;
/// Loads that are read at most.
const MAX_LOADS: usize = 1000;

/// Traffic of another terminal on the return carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherLoad {
    /// Id of the terminal.
    pub terminal: u8,
    load: Load,
}

/// Reads `others`; null, or left out: they are silent.
pub(crate) fn read(parent: &mut Object, faults: &mut Faults) -> Option<Vec<OtherLoad>> {
    let name = "others";
    if parent.is_nothing(name) {
        return Some(Vec::new());
    }
    let remedy = format!("a list of at most {MAX_LOADS} loads");
    let place = parent.place(name);
    let items = parent.take(name, &remedy, faults, |value| {
        let items = value.as_array()?;
        (items.len() <= MAX_LOADS).then(|| items.clone())
    })?;
    let loads: Vec<_> = items
        .into_iter()
        .enumerate()
        .map(|(index, item)| read_load(item, format!("{place}[{index}]"), faults))
        .collect();
    loads.into_iter().collect()
}

fn read_load(item: Value, place: String, faults: &mut Faults) -> Option<OtherLoad> {
    let mut object = Object::new(item, place, faults)?;
    let terminal = object.integer("terminal", 0, 255, faults);
    let kbps = object.integer("return_kbps", 1, u32::MAX.into(), faults);
    let mut second = |name: &str, default: Nanos| {
        if object.is_nothing(name) {
            return Some(default);
        }
        let value = object.number(name, 0.0, LONGEST_S, faults)?;
        Some((value * 1e9).round() as Nanos)
    };
    let (from, until) = (second("from_s", 0), second("until_s", Nanos::MAX));
    object.finish(faults);
    let load = Load {
        from: from?,
        until: until?,
        kbps: kbps? as u32,
    };
    Some(OtherLoad {
        terminal: terminal? as u8,
        load,
    })
}

/// What contradicts the profile, one line each.
#[must_use]
pub fn check(loads: &[OtherLoad], profile: &Profile) -> Vec<String> {
    let ids: Vec<u8> = profile.sharing().map(|it| it.id).collect();
    let mut faults = Vec::new();
    if !loads.is_empty() && !profile.is_on_demand() {
        faults.push(
            "others: on constant rates alone nobody competes for slots (remove it, or enable RBDC or VBDC)".to_owned(),
        );
    }
    for load in loads.iter().filter(|load| !ids.contains(&load.terminal)) {
        faults.push(format!(
            "others: ST {} does not share the return carrier (one of {ids:?})",
            load.terminal
        ));
    }
    faults
}

/// The demand assignment of the return link, whose plans travel on `forward`; `None` on a constant rate in one queue.
#[must_use]
pub fn demand(loads: &[OtherLoad], profile: &Profile, forward: &LinkConfig) -> Option<Demand> {
    if !profile.is_on_demand() {
        return None;
    }
    let own = &profile.st_profile;
    let others = profile.sharing().map(|terminal| Other {
        agreement: terminal.profile.dama.agreement(),
        access: default_fifo(&terminal.profile).access,
        load: loads
            .iter()
            .filter(|load| load.terminal == terminal.id)
            .map(|load| load.load)
            .collect(),
    });
    Some(Demand {
        fifos: fifos(own).collect(),
        fifo_of_dscp: own.qos.fifo_of_dscp(),
        agreement: own.dama.agreement(),
        fca_kbps: own.dama.fca_kbps,
        synchro: u64::from(own.dama.synchro_ms) * 1_000_000,
        others: others.collect(),
        plans: Plans {
            losses: forward.losses.clone(),
            reception: forward.reception,
            threshold_db: most_robust_db(profile),
        },
    })
}

/// What signalling needs that every terminal has to hear: the threshold of the most robust MODCOD, dB.
fn most_robust_db(profile: &Profile) -> f64 {
    let thresholds = profile.forward.modcods.iter().map(|it| it.es_n0_db());
    thresholds.fold(profile.forward.modcod.es_n0_db(), f64::min)
}

/// The plans in the frames of the forward link; `None` without demand assignment, and with `OpenSAND`'s timing, whose
/// messages take none of its capacity.
#[must_use]
pub fn signalling(timing: Timing, profile: &Profile) -> Option<Signalling> {
    let has_plans = profile.is_on_demand() && timing == Timing::Standard;
    has_plans.then(|| Signalling {
        period: profile.return_link.superframe_ns,
        slots: slots(timing, profile).carrier,
    })
}

/// FIFOs of a terminal. Random access is refused with the profile.
fn fifos(profile: &StProfile) -> impl Iterator<Item = Fifo> {
    profile.qos.fifos.iter().map(|fifo| Fifo {
        access: fifo.access.dama().unwrap_or(dvb::dama::Access::Cra),
        packets: fifo.capacity_packets.into(),
    })
}

/// Where traffic of no special class waits.
fn default_fifo(profile: &StProfile) -> Fifo {
    let index = usize::from(profile.qos.fifo_of_dscp()[0]);
    let none = Fifo {
        access: dvb::dama::Access::Cra,
        packets: 1,
    };
    fifos(profile).nth(index).unwrap_or(none)
}

/// Bursts of a superframe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Of the whole carrier.
    pub carrier: u32,
    /// Of the constant rate of the ST.
    pub cra: u32,
    /// Most that the ST may be granted.
    pub most: u32,
}

/// How the superframes of a profile divide.
#[must_use]
pub fn slots(timing: Timing, profile: &Profile) -> Slots {
    slots_of(timing, profile, profile.return_link.waveform)
}

/// How they divide while the terminal sends `waveform`.
#[must_use]
pub fn slots_of(timing: Timing, profile: &Profile, waveform: Waveform) -> Slots {
    let arithmetic = match timing {
        Timing::Standard => Arithmetic::Standard,
        Timing::OpenSand => Arithmetic::OpenSand,
    };
    let carrier = dama::Carrier {
        waveform,
        ..profile.return_link.carrier(arithmetic)
    };
    let dama = &profile.st_profile.dama;
    let all = carrier.capacity();
    let cra = carrier.bursts_of_rate(dama.cra_kbps);
    let by_rate = carrier.bursts_of_rate(dama.rbdc_max_kbps.unwrap_or(0));
    let most = match dama.vbdc_max_kbit {
        // All that was asked for may come at once.
        Some(1..) => all,
        _ => cra
            .saturating_add(by_rate)
            .saturating_add(carrier.bursts_of_rate(dama.fca_kbps)),
    };
    Slots {
        carrier: all,
        cra: cra.min(all),
        most: most.min(all),
    }
}

/// Demand assignment in the plan.
#[derive(Debug, Serialize)]
pub struct Planned {
    carrier_slots: u32,
    cra_slots: u32,
    synchro_ms: f64,
    request_bytes: usize,
    plan_bytes: usize,
    first_packet_ms: FirstPacketMs,
    other_terminals: usize,
}

#[derive(Debug, Serialize)]
struct FirstPacketMs {
    min: f64,
    mean: f64,
    max: f64,
}

/// What the plan says of the return link's demand assignment; `None` without.
///
/// # Errors
/// The configuration cannot be a link.
pub(crate) fn planned(
    timing: Timing,
    profile: &Profile,
    back: &LinkConfig,
) -> Result<Option<Planned>, LinkError> {
    let Some(demand) = &back.demand else {
        return Ok(None);
    };
    let slots = slots(timing, profile);
    let first = link::idle_delay(back, ECHO_BYTES)?;
    Ok(Some(Planned {
        carrier_slots: slots.carrier,
        cra_slots: slots.cra,
        synchro_ms: ms(demand.synchro),
        request_bytes: dama::SAC_BYTES,
        plan_bytes: signalling(timing, profile).map_or(0, |it| dama::tbtp2_bytes(it.slots)),
        first_packet_ms: FirstPacketMs {
            min: ms(first.min),
            mean: ms(first.mean),
            max: ms(first.max),
        },
        other_terminals: demand.others.len(),
    }))
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
