// SPDX-License-Identifier: GPL-3.0-or-later
//! Further gateways of `link.json`: each serves a spot, whose terminals have carriers of their own.

use std::path::PathBuf;

use profile::Profile;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::port::Port;

/// A gateway in addition to the GW.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "Fields")]
pub struct Further {
    /// Device of the gateway.
    pub port: Port,
    /// Id of the gateway in the profile.
    pub id: u8,
}

/// A gateway in addition to the GW.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "gateway")]
pub(crate) struct Fields {
    /// path of the network namespace, e.g. /run/netns/NAME
    #[schemars(length(min = 1))]
    netns: PathBuf,
    #[schemars(length(min = 1, max = 15))]
    tun: String,
    /// id of the gateway in the profile
    #[schemars(range(min = 0, max = 30))]
    id: u8,
}

impl From<Fields> for Further {
    fn from(fields: Fields) -> Self {
        let (netns, tun) = (fields.netns, fields.tun);
        Self {
            port: Port { netns, tun },
            id: fields.id,
        }
    }
}

/// Ids of the gateways of a configuration, the GW first.
pub(crate) fn ids(further: &[Further], profile: &Profile) -> Vec<u8> {
    let further = further.iter().map(|it| it.id);
    std::iter::once(profile.gw.id).chain(further).collect()
}

/// Further gateways are those that the named terminals have, once each; one line per fault.
pub(crate) fn check(further: &[Further], named: &[u8], profile: &Profile) -> Vec<String> {
    let ids = ids(further, profile);
    let others = profile.others();
    let of_others: Vec<_> = others.filter(|it| named.contains(&it.id)).collect();
    let mut faults = Vec::new();
    for terminal in &of_others {
        let gateway = terminal.gateway_id;
        if !ids.contains(&gateway) {
            faults.push(format!(
                "gateways: ST {} belongs to GW {gateway}, which is not named (name each gateway of a spot once)",
                terminal.id
            ));
        }
    }
    for (index, id) in ids.iter().enumerate().skip(1) {
        let has_terminal = of_others.iter().any(|it| it.gateway_id == *id);
        if ids[..index].contains(id) || !has_terminal {
            faults.push(format!(
                "gateways: GW {id} is named twice, or has no terminal of those that are named (leave it out)"
            ));
        }
    }
    faults
}

#[cfg(test)]
#[path = "gateways_tests.rs"]
mod tests;
