// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminals of a profile with packets of their own: their links, and the carriers that they share.

use link::{Classes, LinkConfig, LinkError, SharedForward, SharedReturn};
use profile::{Profile, Qos};

use crate::config::Config;
use crate::demand;
use crate::links::links;

/// A terminal, and its links as if it had the carriers for itself.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// Id in the profile.
    pub id: u8,
    /// From the gateway.
    pub forward: LinkConfig,
    /// To the gateway.
    pub back: LinkConfig,
}

/// The terminals of the ST's carriers, the ST first: what `config` adds to the profile is the same for each.
///
/// The return link has demand assignment, also where all rates are constant. The forward link has the gateway's classes if
/// its frames have tags.
#[must_use]
pub fn terminals(config: &Config, profile: &Profile) -> Vec<Terminal> {
    let seen = |id| Some((id, profile.of(id)?));
    let terminals = profile.terminals_of_carriers().filter_map(seen);
    let terminal = |((id, profile), index): ((u8, Profile), u64)| {
        let config = Config {
            // Each terminal has losses of its own.
            seed: config.seed.wrapping_add(index),
            others: Vec::new(),
            ..config.clone()
        };
        let [forward, back, ..] = links(&config, &profile);
        let demand = Some(demand::of_terminal(&profile, &forward));
        let classes = Some(&profile.gw_qos).filter(|it| it.is_tagged).map(classes);
        Terminal {
            id,
            forward: LinkConfig { classes, ..forward },
            back: LinkConfig { demand, ..back },
        }
    };
    terminals.zip(0..).map(terminal).collect()
}

/// The carriers at work, terminals by their index in [`terminals`], all of the same weight.
///
/// # Errors
/// The terminals cannot share carriers: with the timing of `OpenSAND`, or with different delays.
pub fn carriers(terminals: &[Terminal]) -> Result<(SharedForward, SharedReturn), LinkError> {
    let forward: Vec<_> = terminals.iter().map(|it| (it.forward.clone(), 1)).collect();
    let back: Vec<_> = terminals.iter().map(|it| it.back.clone()).collect();
    Ok((SharedForward::new(&forward)?, SharedReturn::new(&back)?))
}

fn classes(qos: &Qos) -> Classes {
    let packets = qos.fifos.iter().map(|fifo| fifo.capacity_packets.into());
    Classes {
        packets: packets.collect(),
        of_dscp: qos.fifo_of_dscp(),
    }
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
