// SPDX-License-Identifier: GPL-3.0-or-later
//! Changes of gateway: which carriers a terminal leaves, and which it comes to.

use std::collections::BTreeMap;

use link::{Change, Nanos, Transfer, Waiting};
use profile::Profile;

use crate::config::Config;
use crate::gateways;
use crate::network::{self, Terminal};
use crate::scheduled::{self, Origin, Scheduled};
use crate::set_request::SetRequest;
use crate::timeline::Timeline;

/// Makes changes of gateway. The configuration of a terminal at a gateway is computed when it is
/// first needed.
#[derive(Debug)]
pub struct GatewayChanges<'a> {
    config: &'a Config,
    profile: &'a Profile,
    /// The terminals at the start; empty if there is one gateway.
    home: Vec<Terminal>,
    known: BTreeMap<(usize, u8), Result<[Transfer; 2], String>>,
}

impl<'a> GatewayChanges<'a> {
    /// Those of the terminals of a configuration.
    #[must_use]
    pub fn new(config: &'a Config, profile: &'a Profile) -> Self {
        let home = if config.gateways.is_empty() {
            Vec::new()
        } else {
            network::terminals(config, profile)
        };
        Self {
            config,
            profile,
            home,
            known: BTreeMap::new(),
        }
    }

    /// What a set asks for at `at`, with the direction of each; none where it leaves the gateways.
    ///
    /// # Errors
    /// What cannot be, one line each.
    pub fn of(
        &mut self,
        set: &SetRequest,
        at: Nanos,
        origin: Origin,
    ) -> Result<Vec<(usize, Scheduled)>, Vec<String>> {
        let Some(asked) = &set.gateway else {
            return Ok(Vec::new());
        };
        let ids = gateways::ids(&self.config.gateways, self.profile);
        if !ids.contains(&asked.id) || self.home.is_empty() {
            let fault = format!(
                "gateway: GW {} is not in this lab (it has {ids:?})",
                asked.id
            );
            return Err(vec![fault]);
        }
        let (mut made, mut faults) = (Vec::new(), Vec::new());
        let of = set.terminal.map_or(0..self.home.len(), |it| it..it + 1);
        for terminal in of {
            match self.links(terminal, asked.id) {
                Ok(links) => made.extend(links.into_iter().enumerate().map(|(direction, link)| {
                    let waiting = asked.waiting;
                    let change = Change::Transfer(Box::new(Transfer { waiting, ..link }));
                    let scheduled = Scheduled {
                        terminal: Some(terminal),
                        requested: asked.field.clone(),
                        ..Scheduled::new(at, change, origin)
                    };
                    (direction, scheduled)
                })),
                Err(fault) => faults.push(format!("gateway: {fault}")),
            }
        }
        if faults.is_empty() {
            Ok(made)
        } else {
            Err(faults)
        }
    }

    /// The changes of gateway of a timeline, with the direction of each, when its time 0 is `zero`.
    ///
    /// # Errors
    /// Those that are not possible, one line each.
    pub fn of_timeline(
        &mut self,
        timeline: &Timeline,
        zero: Nanos,
    ) -> Result<Vec<(usize, Scheduled)>, Vec<String>> {
        let (mut all, mut faults) = (Vec::new(), Vec::new());
        for (at, set) in timeline.steps() {
            match self.of(set, zero + at, Origin::Timeline) {
                Ok(made) => all.extend(made),
                Err(found) => {
                    let place = format!("timeline.steps: at {} s: ", *at as f64 / 1e9);
                    faults.extend(found.iter().map(|it| place.clone() + it));
                }
            }
        }
        if faults.is_empty() {
            Ok(all)
        } else {
            Err(faults)
        }
    }

    /// The forward and the return link of a terminal at a gateway.
    fn links(&mut self, terminal: usize, gateway_id: u8) -> Result<[Transfer; 2], String> {
        let place = (terminal, gateway_id);
        if let Some(known) = self.known.get(&place) {
            return known.clone();
        }
        let found = self.find(terminal, gateway_id);
        self.known.insert(place, found.clone());
        found
    }

    fn find(&self, index: usize, gateway_id: u8) -> Result<[Transfer; 2], String> {
        let own = self.home.get(index).ok_or("there is no such terminal")?;
        let (id, group) = (own.id, &own.group);
        let groups = network::groups(&self.home);
        let is_there = |first: &Terminal| (first.gateway_id, &first.group) == (gateway_id, group);
        let found = groups.iter().position(|(first, _)| is_there(first));
        let seen = self.profile.at(id, gateway_id);
        let (Some(carrier), Some(seen)) = (found, seen) else {
            return Err(format!(
                "GW {gateway_id} has no terminal of ST {id}'s group {group}, and so no carriers for it"
            ));
        };
        let there = groups[carrier].0;
        if [own, there]
            .iter()
            .any(|it| it.back.random_access.is_some())
        {
            return Err(format!(
                "ST {id} would change between return carriers, of which one has random access"
            ));
        }
        let varies = |seen: &Profile| {
            let all = scheduled::of_terminal(seen, None, true);
            all.iter().any(|it| !it.is_empty())
        };
        if varies(&seen) || self.profile.of(id).is_some_and(|it| varies(&it)) {
            return Err(format!(
                "the attenuation of ST {id} or of a gateway of it varies by the profile (set it constant)"
            ));
        }
        let mut moved = network::terminal(self.config, (id, &seen), index as u64);
        moved.forward.signalling = there.forward.signalling;
        if moved.back.delay != there.back.delay {
            return Err(format!(
                "ST {id} would have another delay than ST {} at GW {gateway_id}, and they would share a return carrier",
                there.id
            ));
        }
        network::carriers(&[there.clone(), moved.clone()], 2)
            .map_err(|error| format!("ST {id} at GW {gateway_id}: {error}"))?;
        Ok([moved.forward, moved.back].map(|config| Transfer {
            carrier,
            config,
            waiting: Waiting::Keep,
        }))
    }
}

/// What of terminals, gateways and their changes is not possible with a profile, one line each.
#[must_use]
pub fn check(config: &Config, profile: &Profile) -> Vec<String> {
    let faults = network::check(config, profile);
    if !faults.is_empty() {
        return faults;
    }
    let timeline = config.timeline.as_ref();
    let moves = timeline.map(|it| GatewayChanges::new(config, profile).of_timeline(it, 0));
    moves.and_then(Result::err).unwrap_or_default()
}

#[cfg(test)]
#[path = "gateway_changes_tests.rs"]
mod tests;
