// SPDX-License-Identifier: GPL-3.0-or-later
//! The gateways of a platform: each has a spot, and may have a profile of its own.

use crate::encapsulation::{self, Encapsulation};
use crate::entities::{Entities, Host};
use crate::fault::Faults;
use crate::physical::{self, Physical};
use crate::qos::{self, Qos};
use crate::xml_file::Place;

/// A gateway of the platform.
#[derive(Debug, Clone, PartialEq)]
pub struct Gateway {
    /// Its id, which is also the number of its spot, and addresses.
    pub host: Host,
    /// Its own profile, or that of `profile_gw.xml`.
    pub profile: GwProfile,
}

/// Contents of a `profile_gw.xml`.
#[derive(Debug, Clone, PartialEq)]
pub struct GwProfile {
    /// Delay and `Es/N0`.
    pub physical: Physical,
    /// Classes and FIFOs.
    pub qos: Qos,
    /// Encapsulation.
    pub encapsulation: Encapsulation,
}

/// Reads the profile of a gateway; `None` after a fault.
pub(crate) fn read(root: &Place<'_>, faults: &mut Faults) -> Option<GwProfile> {
    let (qos, physical) = (
        qos::read(root, "gw_fifos", faults),
        physical::read(root, faults),
    );
    Some(GwProfile {
        physical: physical?,
        qos: qos?,
        encapsulation: encapsulation::encapsulation(root),
    })
}

/// A `profile_gw<id>.xml` is about another gateway of the platform.
pub(crate) fn check_further(further: &[(u8, Place<'_>)], entities: &Entities, faults: &mut Faults) {
    for (id, root) in further {
        if *id == entities.gw.id {
            let reason = format!("profile_gw.xml is the profile of GW {id}");
            root.fault(faults, reason, "keep one of them");
        } else if !entities.gateways.contains(id) {
            let reason = format!("the platform has no GW {id}");
            root.fault(faults, reason, "add it to infrastructure/gateways");
        }
    }
}

/// Every gateway of the platform, the one of `profile_gw.xml` first; `own` is the profile of those
/// without one.
pub(crate) fn gateways(
    entities: &Entities,
    own: &GwProfile,
    further: &[(u8, GwProfile)],
) -> Vec<Gateway> {
    let gateway = |host: Host| {
        let profile = further.iter().find(|(id, _)| *id == host.id);
        let profile = profile.map_or(own, |(_, profile)| profile).clone();
        Gateway { host, profile }
    };
    let hosts = entities.gateway_hosts.iter().copied();
    let others = hosts.filter(|it| it.id != entities.gw.id);
    let all = std::iter::once(entities.gw).chain(others);
    all.map(gateway).collect()
}
