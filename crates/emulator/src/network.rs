// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminals of a profile with packets of their own: their links, and the carriers that they share.

use dvb::dama::Arithmetic;
use link::{Classes, LinkConfig, LinkError, SharedForward, SharedReturn};
use profile::{Profile, Qos};

use crate::config::Config;
use crate::demand;
use crate::links::links;
use crate::served::Served;
use crate::terminals::Subnets;

/// A terminal, and its links as if it had the carriers for itself.
#[derive(Debug, Clone)]
pub struct Terminal {
    /// Id in the profile; of equal terminals their index.
    pub id: u8,
    /// From the gateway.
    pub forward: LinkConfig,
    /// To the gateway.
    pub back: LinkConfig,
}

/// What a profile has that further terminals cannot share, one line each.
#[must_use]
pub fn check(config: &Config, profile: &Profile) -> Vec<String> {
    let delays = [
        &profile.gw_physical.delay,
        &profile.st_profile.physical.delay,
    ];
    let varies = delays.iter().any(|it| it.step_ns().is_some());
    let refused = varies && !config.terminals.is_empty();
    let fault = "terminals: the delay of the profile varies, and a shared return carrier keeps its own (set a constant delay)";
    refused.then(|| fault.to_owned()).into_iter().collect()
}

/// The profile of a terminal among as many equal ones as `config` has, without the other terminals of the platform.
///
/// Its constant rate is that of the profile, or an equal part of what the carrier holds beyond requests where that is less.
#[must_use]
pub fn of_equals(config: &Config, mut profile: Profile) -> Profile {
    if config.terminals.is_empty() {
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

/// The terminals of the ST's carriers, the ST first: what `config` adds to the profile is the same for each. Where `config`
/// has further terminals, these and no others, equal to the ST.
///
/// The return link has demand assignment, also where all rates are constant. The forward link has the gateway's classes if
/// its frames have tags.
#[must_use]
pub fn terminals(config: &Config, profile: &Profile) -> Vec<Terminal> {
    let seen = |id| Some((id, profile.of(id)?));
    let mut platform: Vec<_> = profile.terminals_of_carriers().filter_map(seen).collect();
    if !config.terminals.is_empty() {
        let equals = 0..config.terminal_count() as u8;
        platform = equals.map(|index| (index, equal(profile, index))).collect();
    }
    let terminals = platform.into_iter();
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

/// The same terminal under another label; the ST itself is the first.
fn equal(profile: &Profile, index: u8) -> Profile {
    let mut profile = profile.clone();
    let [.., group, last] = &mut profile.st.mac;
    if index > 0 {
        *group = group.wrapping_add(1);
        *last = index;
    }
    profile
}

/// Forward and return carrier of a configuration with further terminals, at work.
///
/// # Errors
/// The terminals cannot share carriers.
pub fn served(config: &Config, profile: &Profile) -> Result<[Served; 2], LinkError> {
    let terminals = terminals(config, profile);
    let (forward, back) = carriers(&terminals)?;
    let subnets = Subnets::new(&config.terminals);
    Ok([
        Served::Forward(Box::new(forward), terminals.len(), subnets),
        Served::Return(Box::new(back), terminals.len()),
    ])
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
