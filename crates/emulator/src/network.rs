// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminals of a profile that carry traffic: the links of each, and the carriers that several
//! of them share.

use dvb::dama::Arithmetic;
use link::{
    Assignments, LinkConfig, LinkError, RandomReturn, ReturnCarrier, SharedForward, SharedReturn,
};
use profile::Profile;

use crate::bearer::Bearer;
use crate::carriers::Carriers;
use crate::config::Config;
use crate::demand;
use crate::gateways;
use crate::links::links;
use crate::scheduled::{self, Variation};
use crate::terminals::Subnets;

/// A terminal, and its links as if it had the carriers for itself.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// Id of the terminal in the profile; for equal terminals the index.
    pub id: u8,
    /// Id of the terminal's gateway, which is also the number of the spot.
    pub gateway_id: u8,
    /// Group of the terminal. Terminals of one group of a spot share carriers.
    pub group: String,
    /// Link from the gateway.
    pub forward: LinkConfig,
    /// Link to the gateway.
    pub back: LinkConfig,
}

impl Terminal {
    /// What terminals that share carriers have in common.
    fn place(&self) -> (u8, &str) {
        (self.gateway_id, &self.group)
    }
}

/// Returns the features of a profile that several terminals cannot share, and the configured
/// terminals that the profile lacks; one line each.
#[must_use]
pub fn check(config: &Config, profile: &Profile) -> Vec<String> {
    if config.terminals.is_empty() {
        return Vec::new();
    }
    let named: Vec<u8> = config.terminals.iter().filter_map(|it| it.id).collect();
    let of_gateways = gateways::check(&config.gateways, &named, profile);
    let of_ids = check_ids(named, profile).into_iter();
    of_ids
        .chain(of_gateways)
        .chain(check_delays(&of_platform(config, profile)))
        .collect()
}

/// Terminals of the profile are named once each, all of them.
fn check_ids(mut given: Vec<u8>, profile: &Profile) -> Option<String> {
    let mut expected: Vec<u8> = profile.others().map(|it| it.id).collect();
    given.sort_unstable();
    expected.sort_unstable();
    let is_right = given.is_empty() || given == expected;
    (!is_right).then(|| {
        format!(
            "terminals: {given:?} are named, and the profile has {expected:?} in addition to ST {} (name each of them once)",
            profile.st.id
        )
    })
}

/// Terminals of a group have the same constant delay: they share a return carrier, whose plans
/// count from it.
fn check_delays(platform: &[(u8, Profile)]) -> Option<String> {
    let varies = |seen: &Profile| {
        let parts = [&seen.gw_physical.delay, &seen.st_profile.physical.delay];
        parts.iter().any(|it| it.step_ns().is_some())
    };
    if platform.iter().any(|(_, seen)| varies(seen)) {
        return Some("terminals: the delay of the profile varies, and a shared return carrier keeps its own (set a constant delay)".to_owned());
    }
    let mut pairs = platform.iter().enumerate().flat_map(|(index, one)| {
        let earlier = platform[..index].iter();
        earlier.map(move |other| (other, one))
    });
    let ((other, _), (id, _)) = pairs.find(|((_, other), (_, one))| {
        let share = (one.gw.id, one.group()) == (other.gw.id, other.group());
        share && one.one_way_delay_ns != other.one_way_delay_ns
    })?;
    Some(format!(
        "terminals: ST {id} has another delay than ST {other}, and they share a return carrier (set the same delay)"
    ))
}

/// The ST and the further terminals of a configuration, each with the profile as it sees it;
/// without further ones those of the ST's carriers.
#[must_use]
pub fn of_platform(config: &Config, profile: &Profile) -> Vec<(u8, Profile)> {
    let seen = |id| Some((id, profile.of(id)?));
    if config.terminals.is_empty() {
        return profile.terminals_of_carriers().filter_map(seen).collect();
    }
    if config.has_own_profiles() {
        let further = config.terminals.iter().filter_map(|it| it.id);
        return (std::iter::once(profile.st.id).chain(further))
            .filter_map(seen)
            .collect();
    }
    let equals = 0..config.terminal_count() as u8;
    equals.map(|index| (index, equal(profile, index))).collect()
}

/// Returns the terminals if each has its own profile, the ST first; empty if they are equal.
pub(crate) fn own_profiles(config: &Config, profile: &Profile) -> Vec<(u8, Profile)> {
    if config.has_own_profiles() {
        return of_platform(config, profile);
    }
    Vec::new()
}

/// The profile of a terminal among as many equal ones as `config` has, without the other terminals
/// of the platform; where these are the further ones, the profile as it is.
///
/// Its constant rate is that of the profile, or an equal part of what the carrier holds beyond
/// requests where that is less.
#[must_use]
pub fn of_equals(config: &Config, mut profile: Profile) -> Profile {
    if config.terminals.is_empty() || config.has_own_profiles() {
        return profile;
    }
    let own = profile.st.id;
    profile.terminals.retain(|it| it.id == own);
    let count = config.terminal_count() as u64;
    let carrier = profile.return_link.carrier(Arithmetic::Standard);
    let dama = &mut profile.st_profile.dama;
    let synchro_ns = (u64::from(dama.synchro_ms) * 1_000_000).max(1);
    let requests = (count * carrier.superframe).div_ceil(synchro_ns);
    let part = u64::from(carrier.capacity()).saturating_sub(requests) / count;
    // kbit/s * ns = 1e-6 bit.
    let bits_e6 = u128::from(part * carrier.burst_bytes()) * 8_000_000;
    let kbps = bits_e6 / u128::from(carrier.superframe.max(1));
    dama.cra_kbps = dama.cra_kbps.min(kbps.try_into().unwrap_or(u32::MAX));
    let cra_kbps = dama.cra_kbps;
    profile.return_link.cra_kbps = cra_kbps.into();
    for terminal in &mut profile.terminals {
        terminal.profile.dama.cra_kbps = cra_kbps;
    }
    profile
}

/// The terminals, the ST first: those of [`Config::terminals`], without any those of the ST's
/// carriers. What `config` adds to the profile is the same for each.
///
/// The return link has demand assignment, also where all rates are constant, or random access. The
/// plans on a forward carrier are those of its group, whichever of its terminals asks for slots.
#[must_use]
pub fn terminals(config: &Config, profile: &Profile) -> Vec<Terminal> {
    let platform = of_platform(config, profile).into_iter();
    let terminal = |((id, seen), index)| terminal(config, (id, &seen), index);
    let mut terminals: Vec<_> = platform.zip(0..).map(terminal).collect();
    for index in 0..terminals.len() {
        let own = terminals[index].place();
        let mut sharing = terminals.iter().filter(|it| it.place() == own);
        let signalling = sharing.find_map(|it| it.forward.signalling);
        terminals[index].forward.signalling = signalling;
    }
    terminals
}

/// The terminal with this index, by its id and the profile as it sees it; its plans are its own.
pub(crate) fn terminal(config: &Config, (id, seen): (u8, &Profile), index: u64) -> Terminal {
    let config = Config {
        // Each terminal has losses of its own.
        seed: config.seed.wrapping_add(index),
        others: Vec::new(),
        ..config.clone()
    };
    let [forward, back, ..] = links(&config, seen);
    let is_assigned = seen.random_access().is_none();
    let demand = is_assigned.then(|| demand::of_terminal(seen, &forward));
    Terminal {
        id,
        gateway_id: seen.gw.id,
        group: seen.group().to_owned(),
        forward,
        back: LinkConfig { demand, ..back },
    }
}

/// The carriers of one group at work, terminals by their index in `terminals`, all of the same
/// weight; of `most` some may come later. Where the forward carrier has plans, they are those of
/// the return carrier, with terminal N by its number among these.
///
/// # Errors
/// The terminals cannot share carriers: with the timing of `OpenSAND`, or with different delays.
pub fn carriers(
    terminals: &[Terminal],
    most: usize,
) -> Result<(Box<SharedForward>, Box<dyn ReturnCarrier>), LinkError> {
    let forward: Vec<_> = terminals.iter().map(|it| (it.forward.clone(), 1)).collect();
    let back: Vec<_> = terminals.iter().map(|it| it.back.clone()).collect();
    let mut down = Box::new(SharedForward::with_room(&forward, most)?);
    if back.first().is_some_and(|it| it.random_access.is_some()) {
        let up = RandomReturn::new(&back)?;
        return Ok((down, Box::new(up)));
    }
    let mut up = SharedReturn::with_room(&back, most)?;
    let plans = Assignments::default();
    up.say(&plans);
    down.hear(&plans);
    Ok((down, Box::new(up)))
}

/// Returns a copy of the ST under another label. The first is the ST itself.
fn equal(profile: &Profile, index: u8) -> Profile {
    let mut profile = profile.clone();
    let [.., group, last] = &mut profile.st.mac;
    if index > 0 {
        *group = group.wrapping_add(1);
        *last = index;
    }
    profile
}

/// Forward and return carriers of a configuration with further terminals, at work: a pair for each
/// group of each spot.
///
/// # Errors
/// The terminals cannot share carriers.
pub fn served(config: &Config, profile: &Profile) -> Result<[Bearer; 2], LinkError> {
    let terminals = terminals(config, profile);
    let ids = gateways::ids(&config.gateways, profile);
    let gateway = |it: &Terminal| ids.iter().position(|id| *id == it.gateway_id);
    let (mut forward, mut back, mut gateways) = (Vec::new(), Vec::new(), Vec::new());
    for (first, members) in groups(&terminals) {
        let own: Vec<_> = members.iter().map(|&it| terminals[it].clone()).collect();
        // With one gateway nobody comes later.
        let most = if ids.len() > 1 {
            terminals.len()
        } else {
            own.len()
        };
        let (down, up) = carriers(&own, most)?;
        forward.push((down, members.clone()));
        back.push((up, members));
        gateways.push(gateway(first).unwrap_or(0));
    }
    let subnets = (0..ids.len()).map(|index| {
        let is_own = |it: &usize| gateway(&terminals[*it]).unwrap_or(0) == index;
        let spot: Vec<_> = (0..terminals.len()).filter(is_own).collect();
        Subnets::of_spot(&config.terminals, &spot)
    });
    let subnets = subnets.collect();
    let gateways = if ids.len() > 1 { gateways } else { Vec::new() };
    Ok([
        Bearer::Forward(Carriers::new(forward), subnets),
        Bearer::Return(Carriers::new(back), gateways),
    ])
}

/// Those that share carriers: the first terminal of each group of each spot, and the indexes of
/// all.
pub(crate) fn groups(terminals: &[Terminal]) -> Vec<(&Terminal, Vec<usize>)> {
    let mut groups: Vec<(&Terminal, Vec<usize>)> = Vec::new();
    for (index, terminal) in terminals.iter().enumerate() {
        let place = terminal.place();
        match groups.iter_mut().find(|(first, _)| first.place() == place) {
            Some((_, members)) => members.push(index),
            None => groups.push((terminal, vec![index])),
        }
    }
    groups
}

/// What varies by itself of the links of a configuration, in the order of
/// [`crate::directions::DIRECTIONS`]: of each terminal by its own profile.
#[must_use]
pub fn variations(config: &Config, profile: &Profile) -> [Vec<Variation>; 4] {
    if !config.has_own_profiles() {
        return scheduled::variations(profile);
    }
    let mut all = [const { Vec::new() }; 4];
    for (index, (_, seen)) in own_profiles(config, profile).into_iter().enumerate() {
        let own = scheduled::of_terminal(&seen, Some(index), true);
        for (direction, more) in all.iter_mut().zip(own) {
            direction.extend(more);
        }
    }
    all
}

#[cfg(test)]
#[path = "named_tests.rs"]
mod named_tests;

#[cfg(test)]
#[path = "random_tests.rs"]
mod random_tests;

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
