// SPDX-License-Identifier: GPL-3.0-or-later
//! A satellite link as a profile folder describes it.

use crate::advanced_settings::Settings;
use crate::air_interface::{self, Forward, Return, combined_es_n0_db};
use crate::encapsulation::Encapsulation;
use crate::entities::Host;
use crate::fault::Faults;
use crate::gateway::Gateway;
use crate::physical::Physical;
use crate::qos::Qos;
use crate::random_access::RandomAccess;
use crate::spots::Spot;
use crate::terminal::{StProfile, Terminal};

/// A satellite link as a profile folder describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// SHA-256 over names and contents of the files and over the points of delay and attenuation
    /// files, hexadecimal.
    pub sha256: String,
    /// Terminal.
    pub st: Host,
    /// Gateway.
    pub gw: Host,
    /// Id of the satellite.
    pub sat_id: u8,
    /// One-way propagation delay at the start, ns: every packet passes the delay of both ground
    /// entities.
    pub one_way_delay_ns: u64,
    /// Carrier from GW to ST.
    pub forward: Forward,
    /// Carrier from ST to GW.
    pub return_link: Return,
    /// All spots of the frequency plan.
    pub spots: Vec<Spot>,
    /// All terminals of the platform, each with its profile.
    pub terminals: Vec<Terminal>,
    /// Profile of the terminal `st`.
    pub st_profile: StProfile,
    /// Delay and `Es/N0` at the gateway.
    pub gw_physical: Physical,
    /// Classes and FIFOs of the gateway.
    pub gw_qos: Qos,
    /// Encapsulation at the gateway.
    pub gw_encapsulation: Encapsulation,
    /// All gateways of the platform, `gw` first.
    pub gateways: Vec<Gateway>,
    /// Frames, margins and timers.
    pub settings: Settings,
    /// What a user should know when comparing with the real `OpenSAND` 8.2.0.
    pub advice: Vec<String>,
    /// What lenient loading let pass.
    pub warnings: Faults,
    pub(crate) unsupported: Faults,
}

impl Profile {
    /// Random access of the ST; `None`: the slots of its return carrier are assigned.
    #[must_use]
    pub fn random_access(&self) -> Option<RandomAccess> {
        let own = self.st_profile.random_access;
        own.filter(|_| self.return_link.is_random)
    }

    /// Whether the return link of the ST has more than a constant rate and one queue: capacity
    /// requests or traffic classes. An SCPC carrier has no slots that could be asked for, and those
    /// of one with random access are not.
    #[must_use]
    pub const fn is_on_demand(&self) -> bool {
        self.return_link.scpc.is_none()
            && !self.return_link.is_random
            && (self.st_profile.dama.is_on_demand() || self.st_profile.qos.is_tagged)
    }

    /// The same platform with another terminal in place of the ST, and its spot's gateway in place
    /// of the GW; `None`: there is no such terminal.
    ///
    /// Its MODCOD and waveform are the most efficient that its own `Es/N0` reaches, the most robust
    /// where it reaches none.
    #[must_use]
    pub fn of(&self, id: u8) -> Option<Self> {
        if id == self.st.id {
            return Some(self.clone());
        }
        let terminal = self.terminals.iter().find(|it| it.id == id)?;
        let place = (terminal.gateway_id, terminal.group.as_str());
        let (forward, return_link) = if place == (self.gw.id, self.group()) {
            (self.forward.clone(), self.return_link.clone())
        } else {
            terminal.carriers.clone()?
        };
        let mut profile = Self {
            st: terminal.host(),
            st_profile: terminal.profile.clone(),
            forward,
            return_link,
            ..self.clone()
        };
        if place.0 != self.gw.id {
            let mut gateways = self.gateways.iter();
            let gateway = gateways.find(|it| it.host.id == place.0)?.clone();
            profile.gw = gateway.host;
            profile.gw_physical = gateway.profile.physical;
            profile.gw_qos = gateway.profile.qos;
            profile.gw_encapsulation = gateway.profile.encapsulation;
        }
        profile.tune();
        Some(profile)
    }

    /// As [`Profile::of`], with another gateway in place of that of the terminal's spot: it is on
    /// the carriers of its group there. `None`: there is no such terminal, or none of its group in
    /// the spot of this gateway.
    #[must_use]
    pub fn at(&self, id: u8, gateway_id: u8) -> Option<Self> {
        let own = self.of(id)?;
        if own.gw.id == gateway_id {
            return Some(own);
        }
        let is_there = |it: &&Terminal| it.gateway_id == gateway_id && it.group == own.group();
        let there = self.terminals.iter().find(is_there)?;
        let mut profile = Self {
            st: own.st,
            st_profile: own.st_profile,
            ..self.of(there.id)?
        };
        let of_terminal = profile.terminals.iter_mut().filter(|it| it.id == id);
        of_terminal.for_each(|it| it.gateway_id = gateway_id);
        profile.tune();
        Some(profile)
    }

    /// Takes over delay, MODCOD and waveform from what its terminal and gateway have.
    fn tune(&mut self) {
        self.one_way_delay_ns = self.one_way_delay_at(0);
        let physical = [&self.gw_physical, &self.st_profile.physical];
        let (forward_db, return_db) = air_interface::steady_es_n0_db(physical);
        let (settings, dama) = (&self.settings, &self.st_profile.dama);
        self.forward.retune(forward_db, settings.forward_margin_db);
        self.return_link
            .retune(return_db, settings.return_margin_db, dama.cra_kbps);
    }

    /// Group of the ST.
    #[must_use]
    pub fn group(&self) -> &str {
        let own = self.terminals.iter().find(|it| it.id == self.st.id);
        own.map_or("", |own| &own.group)
    }

    /// All terminals but for the ST, whatever their spot and group, in the order of the platform.
    pub fn others(&self) -> impl Iterator<Item = &Terminal> {
        self.terminals.iter().filter(|it| it.id != self.st.id)
    }

    /// The terminals of the ST's spot but for the ST, whatever their group, in the order of the
    /// platform.
    pub fn of_spot(&self) -> impl Iterator<Item = &Terminal> {
        let own = self.terminals.iter().find(|it| it.id == self.st.id);
        let gateway_id = own.map(|own| own.gateway_id);
        let others = self.terminals.iter().filter(|it| it.id != self.st.id);
        others.filter(move |it| Some(it.gateway_id) == gateway_id)
    }

    /// Ids of the terminals of the ST's carriers, the ST first.
    pub fn terminals_of_carriers(&self) -> impl Iterator<Item = u8> {
        std::iter::once(self.st.id).chain(self.sharing().map(|it| it.id))
    }

    /// The terminals that share the return carrier with the ST.
    pub fn sharing(&self) -> impl Iterator<Item = &Terminal> {
        let own = self.terminals.iter().find(|it| it.id == self.st.id);
        let place = own.map(|own| (own.gateway_id, &own.group));
        let others = self.terminals.iter().filter(|it| it.id != self.st.id);
        others.filter(move |it| Some((it.gateway_id, &it.group)) == place)
    }

    /// One-way propagation delay in ns, `now` ns after the start.
    #[must_use]
    pub fn one_way_delay_at(&self, now: u64) -> u64 {
        self.gw_physical.delay.at(now) + self.st_profile.physical.delay.at(now)
    }

    /// `Es/N0` from GW to ST in dB at a step of attenuation; steps last `acm_refresh_ms`, the first
    /// is step 1.
    #[must_use]
    pub fn forward_es_n0_db(&self, step: u64) -> f64 {
        let (up, down) = (&self.gw_physical.uplink, &self.st_profile.physical.downlink);
        combined_es_n0_db(up.es_n0_db(step), down.es_n0_db(step))
    }

    /// `Es/N0` from ST to GW in dB at a step of attenuation.
    #[must_use]
    pub fn return_es_n0_db(&self, step: u64) -> f64 {
        let (up, down) = (&self.st_profile.physical.uplink, &self.gw_physical.downlink);
        combined_es_n0_db(up.es_n0_db(step), down.es_n0_db(step))
    }
}

/// The elements of a profile that satlink 0.1 does not support, with file, line and element. Empty:
/// it runs as written.
#[must_use]
pub fn supported(profile: &Profile) -> Faults {
    profile.unsupported.clone()
}
