// SPDX-License-Identifier: GPL-3.0-or-later
//! Demand assignment: from the profile, and the load of other terminals in `link.json`, to
//! [`link::Demand`].

use dvb::dama::{self, Arithmetic};
use dvb::rcs2::Waveform;
use link::{Demand, Fifo, LinkConfig, Load, Nanos, Other, Plans, Signalling};
use profile::{Profile, StProfile};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::timing::Timing;
use crate::units::Seconds;

/// Traffic of another terminal on the return carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "Fields")]
pub struct OtherLoad {
    /// Id of the terminal.
    pub terminal: u8,
    load: Load,
}

/// Traffic of another terminal on the return carrier.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "other_load")]
pub(crate) struct Fields {
    /// id in the profile
    #[schemars(range(min = 0, max = 255))]
    terminal: u8,
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    return_kbps: u32,
    /// start of the traffic, since the start of the emulator; default: 0
    from_s: Option<Seconds>,
    /// end of the traffic; left out: never
    until_s: Option<Seconds>,
}

impl From<Fields> for OtherLoad {
    fn from(fields: Fields) -> Self {
        let load = Load {
            from: fields.from_s.map_or(0, Seconds::ns),
            until: fields.until_s.map_or(Nanos::MAX, Seconds::ns),
            kbps: fields.return_kbps,
        };
        Self {
            terminal: fields.terminal,
            load,
        }
    }
}

/// What contradicts the profile, one line each.
#[must_use]
pub fn check(loads: &[OtherLoad], profile: &Profile) -> Vec<String> {
    let ids: Vec<u8> = profile.sharing().map(|it| it.id).collect();
    let mut faults = Vec::new();
    if !loads.is_empty() && !profile.is_on_demand() {
        faults.push(
            "others: with constant rates only, terminals do not compete for slots (remove it, or enable RBDC or VBDC)".to_owned(),
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

/// The demand assignment of the return link, whose plans travel on `forward`; `None` on a constant
/// rate in one queue.
#[must_use]
pub fn demand(loads: &[OtherLoad], profile: &Profile, forward: &LinkConfig) -> Option<Demand> {
    let others = profile.sharing().map(|terminal| Other {
        agreement: terminal.profile.dama.agreement(),
        access: default_fifo(&terminal.profile).access,
        load: loads
            .iter()
            .filter(|load| load.terminal == terminal.id)
            .map(|load| load.load)
            .collect(),
    });
    profile.is_on_demand().then(|| Demand {
        others: others.collect(),
        ..of_terminal(profile, forward)
    })
}

/// Returns the demand assignment of a terminal that has the carrier alone.
pub(crate) fn of_terminal(profile: &Profile, forward: &LinkConfig) -> Demand {
    let own = &profile.st_profile;
    Demand {
        fifos: fifos(own).collect(),
        fifo_of_dscp: own.qos.fifo_of_dscp(),
        agreement: own.dama.agreement(),
        fca_kbps: own.dama.fca_kbps,
        synchro: u64::from(own.dama.synchro_ms) * 1_000_000,
        others: Vec::new(),
        plans: Plans {
            losses: forward.losses.clone(),
            reception: forward.reception,
            threshold_db: most_robust_db(profile),
        },
    }
}

/// `Es/N0` at which every terminal receives signalling: the threshold of the most robust MODCOD,
/// dB.
fn most_robust_db(profile: &Profile) -> f64 {
    let thresholds = profile.forward.modcods.iter().map(|it| it.es_n0_db());
    thresholds.fold(profile.forward.modcod.es_n0_db(), f64::min)
}

/// The plans in the frames of the forward link; `None` without demand assignment, and with
/// `OpenSAND`'s timing, whose messages take none of its capacity.
#[must_use]
pub fn signalling(timing: Timing, profile: &Profile) -> Option<Signalling> {
    let has_plans = profile.is_on_demand() && timing == Timing::Standard;
    has_plans.then(|| {
        let (back, slots) = (&profile.return_link, slots(timing, profile).carrier);
        Signalling::of_return(back.superframe_ns, slots, profile.one_way_delay_ns)
    })
}

/// FIFOs of a terminal. Random access is refused with the profile.
fn fifos(profile: &StProfile) -> impl Iterator<Item = Fifo> {
    profile.qos.fifos.iter().map(|fifo| Fifo {
        access: fifo.access.dama().unwrap_or(dvb::dama::Access::Cra),
        packets: fifo.capacity_packets.into(),
    })
}

/// FIFO for traffic without a special class.
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
    /// Slots of the whole carrier.
    pub carrier: u32,
    /// Slots of the constant rate of the ST.
    pub cra: u32,
    /// Most that the ST may be granted.
    pub most: u32,
}

/// Returns the numbers of slots in the superframes of a profile.
#[must_use]
pub fn slots(timing: Timing, profile: &Profile) -> Slots {
    slots_of(timing, profile, profile.return_link.waveform)
}

/// Returns the numbers of slots while the terminal sends `waveform`.
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

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
