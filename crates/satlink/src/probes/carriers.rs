// SPDX-License-Identifier: GPL-3.0-or-later
//! Capacities of carriers in probes, and who shares them.

use dvb::modcod::{FrameSize, ModCod};
use dvb::rcs2::Waveform;
use profile::Profile;

use super::datagram::Datagram;
use super::part::Part;
use crate::samples::Direction;

/// Terminals that share carriers.
#[derive(Debug)]
pub(super) struct Group {
    /// Its name in the profile, lower case.
    pub name: String,
    pub carriers: Carriers,
    /// Indexes of its terminals.
    pub members: Vec<usize>,
}

impl Group {
    /// The groups of terminals, each of which has the profile as it sees it; that of the first one
    /// first.
    pub fn of(terminals: &[&Profile]) -> Vec<Self> {
        let mut names: Vec<&str> = Vec::new();
        for seen in terminals {
            if !names.contains(&seen.group()) {
                names.push(seen.group());
            }
        }
        let of_name = |name: &str| {
            let members = (0..terminals.len()).filter(|at| terminals[*at].group() == name);
            let members: Vec<_> = members.collect();
            let further = members[1..].iter().map(|at| terminals[*at]);
            let carriers = Carriers::of(terminals[members[0]], &further.collect::<Vec<_>>());
            let name = if name.is_empty() { "standard" } else { name };
            Self {
                name: name.to_lowercase(),
                carriers,
                members,
            }
        };
        names.into_iter().map(of_name).collect()
    }

    /// Its part of a direction.
    pub fn part<'a>(&self, direction: &'a Direction) -> Part<'a> {
        Part::of_some(direction, &self.members)
    }
}

/// What the carriers of the profile hold.
#[derive(Debug)]
pub(super) struct Carriers {
    pub forward: profile::Forward,
    pub back: profile::Return,
    /// Constant rates of all terminals of the carrier, and the most that they may ask for by rate,
    /// kbit/s.
    pub cra_kbps: u64,
    pub rbdc_max_kbps: u64,
}

impl Carriers {
    /// Those of the first of these terminals; where it is alone, the others that share them hold
    /// their constant rates.
    fn of(profile: &Profile, further: &[&Profile]) -> Self {
        let own = std::iter::once(profile.st_profile.dama);
        let others = profile.sharing().map(|it| it.profile.dama);
        let others = others.filter(|_| further.is_empty());
        let further = further.iter().map(|it| it.st_profile.dama);
        let all = own.chain(others).chain(further);
        let (cra_kbps, rbdc_max_kbps) = all.fold((0, 0), |sum, dama| {
            let rbdc = dama.rbdc_max_kbps.unwrap_or(0);
            (sum.0 + u64::from(dama.cra_kbps), sum.1 + u64::from(rbdc))
        });
        Self {
            forward: profile.forward.clone(),
            back: profile.return_link.clone(),
            cra_kbps,
            rbdc_max_kbps,
        }
    }

    /// Part of the forward carrier's symbols that frames took.
    fn forward_use(&self, sent: &Part<'_>, seconds: f64) -> f64 {
        let modcod = sent.modcod_id.and_then(ModCod::by_id);
        let symbols = modcod.map_or(0, |it| it.plframe_symbols(FrameSize::Normal, false));
        let taken = (sent.frames * symbols) as f64;
        (taken / (self.forward.symbol_rate as f64 * seconds)).min(1.0)
    }

    /// kbit/s of the forward carrier with the MODCOD in force.
    fn forward_kbps(&self, sent: &Part<'_>) -> f64 {
        let modcod = sent.modcod_id.and_then(ModCod::by_id);
        let efficiency = modcod.map_or(0.0, |it| it.efficiency(FrameSize::Normal, false));
        self.forward.symbol_rate as f64 * efficiency / 1e3
    }

    /// kbit/s of bursts: assigned to the terminal, and sent.
    fn bursts_kbps(&self, sent: &Part<'_>, seconds: f64) -> [f64; 2] {
        let waveform = sent.modcod_id.and_then(Waveform::by_id);
        let bits = waveform.map_or(0, |it| it.payload_bytes * 8) as f64;
        let superframes = seconds * 1e9 / self.back.superframe_ns as f64;
        let assigned = sent.slots_assigned.map_or_else(
            || f64::from(self.back.slots) * superframes,
            |slots| slots as f64,
        );
        [assigned, sent.frames as f64].map(|bursts| bursts * bits / seconds / 1e3)
    }

    /// What a terminal was assigned.
    pub fn allocation(&self, st: &mut Datagram, prefix: &str, back: &Part<'_>, seconds: f64) {
        let [assigned, sent] = self.bursts_kbps(back, seconds);
        let total = assigned.round() as u64;
        st.whole(&format!("{prefix}.allocation.total"), total);
        let left = (assigned - sent).max(0.0).round() as u64;
        st.whole(&format!("{prefix}.allocation.remaining"), left);
        let [rbdc_kbps, vbdc_kbits] = asked(back);
        st.whole(&format!("{prefix}.request.rbdc"), rbdc_kbps);
        st.whole(&format!("{prefix}.request.vbdc"), vbdc_kbits);
        let superframe_ms = self.back.superframe_ns as f64 / 1e6;
        st.decimal(&format!("{prefix}.perf.sof_interval"), superframe_ms);
    }

    /// Part of the return carrier that was not assigned.
    fn return_left(&self, back: &Part<'_>, seconds: f64) -> f64 {
        let [assigned, _] = self.bursts_kbps(back, seconds);
        let waveform = back.modcod_id.and_then(Waveform::by_id);
        let efficiency = waveform.map_or(1.0, Waveform::efficiency);
        (1.0 - assigned * 1e3 / efficiency / self.back.symbol_rate as f64).max(0.0)
    }

    /// Symbols of the return carrier in a superframe: all, and those that were not assigned.
    pub fn per_superframe(&self, back: &Part<'_>, seconds: f64) -> [f64; 2] {
        let all = self.back.symbol_rate as f64 * self.back.superframe_ns as f64 / 1e9;
        [all, all * self.return_left(back, seconds)]
    }

    /// What the return carrier holds and has left.
    pub fn return_capacities(
        &self,
        gw: &mut Datagram,
        prefix: &str,
        back: &Part<'_>,
        seconds: f64,
    ) {
        let (symbols, left) = (
            self.back.symbol_rate as f64,
            self.return_left(back, seconds),
        );
        for name in ["total", "carrier0"] {
            let name = format!("{prefix}.up/return_capacity.{name}");
            gw.capacity(&name, symbols, left);
        }
    }

    /// What the forward carrier holds and has left.
    pub fn forward_capacities(
        &self,
        gw: &mut Datagram,
        prefix: &str,
        forward: &Part<'_>,
        seconds: f64,
    ) {
        let left = 1.0 - self.forward_use(forward, seconds);
        let per_tick = self.forward.symbol_rate as f64 * self.forward.tick_ns as f64 / 1e9;
        let name = format!("{prefix}.down/forward_capacity");
        gw.capacity(&format!("{name}.total"), per_tick, left);
        let now = self.forward_kbps(forward);
        gw.capacity(&format!("{name}.carrier0.ccm"), now, left);
    }
}

/// Rate in kbit/s and volume in kbit that the terminal asked for; of several requests in an
/// interval the mean rate.
pub(super) fn asked(back: &Part<'_>) -> [u64; 2] {
    let requested = back.asked;
    let waveform = back.modcod_id.and_then(Waveform::by_id);
    let bytes = waveform.map_or(0, |it| it.payload_bytes as u64);
    let requests = back.requests.unwrap_or(0);
    let rate = requested.rbdc_kbps.checked_div(requests).unwrap_or(0);
    [rate, requested.vbdc_bursts * bytes * 8 / 1000]
}
