// SPDX-License-Identifier: GPL-3.0-or-later
//! The terminals of a platform: their spots and profiles.

use std::net::Ipv4Addr;

use crate::advanced_settings::Settings;
use crate::air_interface::{self, Forward, Return, cra_slots, slot_limit};
use crate::demand_assignment::{self, Dama};
use crate::encapsulation::{self, Encapsulation};
use crate::entities::{Entities, Host};
use crate::fault::Faults;
use crate::gateway::Gateway;
use crate::physical::{self, Physical};
use crate::qos::{self, Qos};
use crate::random_access::{self, RandomAccess};
use crate::scpc;
use crate::spots::membership;
use crate::topology;
use crate::xml_file::Place;

/// Contents of a `profile_st.xml`.
#[derive(Debug, Clone, PartialEq)]
pub struct StProfile {
    /// Delay and `Es/N0`.
    pub physical: Physical,
    /// Classes and FIFOs.
    pub qos: Qos,
    /// Demand assignment.
    pub dama: Dama,
    /// Random access; `None`: it is off.
    pub random_access: Option<RandomAccess>,
    /// Encapsulation.
    pub encapsulation: Encapsulation,
}

/// A terminal of the platform.
#[derive(Debug, Clone, PartialEq)]
pub struct Terminal {
    /// Id.
    pub id: u8,
    /// Address on the emulation network.
    pub emu_address: Ipv4Addr,
    /// MAC address; the label of GSE packets to it.
    pub mac: [u8; 6],
    /// Gateway, which is also the number of its spot.
    pub gateway_id: u8,
    /// Group of terminals.
    pub group: String,
    /// Its own profile, or the one of `profile_st.xml`.
    pub profile: StProfile,
    /// The carriers of its group, tuned to its own `Es/N0`; `None`: its spot has none that can be
    /// read.
    pub carriers: Option<(Forward, Return)>,
}

impl Terminal {
    /// Its id and addresses.
    #[must_use]
    pub const fn host(&self) -> Host {
        Host {
            id: self.id,
            emu_address: self.emu_address,
            mac: self.mac,
        }
    }
}

/// Reads the profile of an ST; `None` after a fault.
pub(crate) fn read(
    root: &Place<'_>,
    topology: Option<&Place<'_>>,
    gw: Option<&Place<'_>>,
    faults: &mut Faults,
) -> Option<StProfile> {
    let qos = qos::read(root, "st_fifos", faults);
    let physical = physical::read(root, faults);
    let dama = demand_assignment::dama(topology?, gw?, root, faults);
    let random_access = random_access::read(topology?, gw?, root, faults);
    Some(StProfile {
        physical: physical?,
        qos: qos?,
        dama: dama?,
        random_access,
        encapsulation: encapsulation::encapsulation(root),
    })
}

/// A `profile_st<id>.xml` is about another terminal of the platform, in the group that it is
/// assigned to.
pub(crate) fn check_further(
    further: &[(u8, Place<'_>)],
    topology: &Place<'_>,
    entities: &Entities,
    faults: &mut Faults,
) {
    for (id, root) in further {
        if *id == entities.st.id {
            let reason = format!("profile_st.xml is the profile of ST {id}");
            root.fault(faults, reason, "keep one of them");
        } else if entities.terminals.iter().all(|host| host.id != *id) {
            let reason = format!("the platform has no ST {id}");
            root.fault(faults, reason, "add it to infrastructure/terminals");
        } else {
            topology::check_category(topology, root, *id, faults);
            scpc::check_access(topology, root, *id, faults);
            random_access::check_fifos(topology, root, *id, faults);
        }
    }
}

/// Every terminal of the platform with its spot and group; `own` is the profile of those without
/// one.
pub(crate) fn terminals(
    topology: &Place<'_>,
    entities: &Entities,
    (own, further): (&StProfile, &[(u8, StProfile)]),
    (gateways, settings): (&[Gateway], &Settings),
) -> Option<Vec<Terminal>> {
    let terminal = |host: &Host| {
        let membership = membership(topology, Some(host.id))?;
        let profile = further.iter().find(|(id, _)| *id == host.id);
        let profile = profile.map_or(own, |(_, profile)| profile).clone();
        let (id, cra_kbps) = (membership.gateway_id, profile.dama.cra_kbps);
        // A gateway that is not there is a fault already.
        let gateway = gateways.iter().find(|it| it.host.id == id);
        let gateway = gateway.or(gateways.first())?;
        let physical = [&gateway.profile.physical, &profile.physical];
        let carriers = air_interface::of_terminal(topology, host.id, physical, settings, cra_kbps);
        Some(Terminal {
            id: host.id,
            emu_address: host.emu_address,
            mac: host.mac,
            gateway_id: membership.gateway_id,
            group: membership.group.text()?.to_owned(),
            profile,
            carriers,
        })
    };
    entities.terminals.iter().map(terminal).collect()
}

/// The constant rates of the terminals of each carrier are within what it holds, counted in the
/// waveform of the ST, and of another group in that of its first terminal.
pub(crate) fn check_sums(
    st: &Place<'_>,
    terminals: &[Terminal],
    st_id: u8,
    carrier: &Return,
    faults: &mut Faults,
) {
    let Some(own) = terminals.iter().find(|it| it.id == st_id) else {
        return;
    };
    check_sum(st, terminals, own, carrier, faults);
    let place = |it: &Terminal| (it.gateway_id, it.group.clone());
    let mut seen = vec![place(own)];
    for other in terminals {
        if let (false, Some((_, back))) = (seen.contains(&place(other)), &other.carriers) {
            check_sum(st, terminals, other, back, faults);
            seen.push(place(other));
        }
    }
}

fn check_sum(
    st: &Place<'_>,
    terminals: &[Terminal],
    own: &Terminal,
    carrier: &Return,
    faults: &mut Faults,
) {
    if carrier.scpc.is_some() {
        return;
    }
    let sharing = terminals
        .iter()
        .filter(|it| it.gateway_id == own.gateway_id && it.group == own.group);
    let (superframe_ns, waveform) = (carrier.superframe_ns, carrier.waveform);
    let slots = |it: &Terminal| cra_slots(it.profile.dama.cra_kbps.into(), superframe_ns, waveform);
    let sum: u64 = sharing.map(slots).sum();
    let limit = slot_limit(carrier.symbol_rate, superframe_ns, waveform);
    if sum > limit {
        let reason = format!(
            "all terminals of {} need {sum} bursts per superframe, the carrier holds {limit} of waveform {}",
            own.group, waveform.id
        );
        st.fault_at(
            "access/dama/cra",
            faults,
            reason,
            "lower CRAs, or a wider return_band",
        );
    }
}
