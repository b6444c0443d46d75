// SPDX-License-Identifier: GPL-3.0-or-later
//! Random access: a return carrier of type ALOHA, whose terminals send in slots that they draw.

use dvb::aloha::{Algorithm, Receiver};

use crate::air_interface::own_carrier;
use crate::element_check::UNSUPPORTED;
use crate::fault::Faults;
use crate::spots::is_random;
use crate::xml_file::Place;

/// Random access as one terminal has it (`access/random_access` of both sides,
/// `schedulers/crdsa_frame`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomAccess {
    /// Superframes of an SA frame, above 0.
    pub superframes: u16,
    /// Replicas of each burst, above 0.
    pub replicas: u16,
    /// Bursts that a terminal sends in an SA frame at most; above 0.
    pub max_packets: u16,
    /// Retransmissions of a burst.
    pub max_retries: u16,
    /// SA frames until a burst counts as lost.
    pub timeout: u16,
    /// Change of the window.
    pub algorithm: Algorithm,
    /// Largest window, SA frames.
    pub most_window: u16,
    /// Factor by which a window grows.
    pub multiple: u16,
    /// What the gateway makes of an SA frame.
    pub receiver: Receiver,
}

/// Reads it where the terminal has it switched on; `None` where it is off, or after a fault.
pub(crate) fn read(
    topology: &Place<'_>,
    gw: &Place<'_>,
    st: &Place<'_>,
    faults: &mut Faults,
) -> Option<RandomAccess> {
    if st.text_at("access/settings/ra_enabled") != Some("true") {
        return None;
    }
    st.nearest("access/settings/ra_enabled").note(
        faults,
        "OpenSAND 8.2.0 looks for it in access/random_access, where it refuses it: none of its terminals has random access",
        "use satlink, or dama_enabled and a carrier of type DAMA",
    );
    let algo = "access/random_access/saloha_algo";
    if gw.text_at(algo).is_none() {
        let remedy = "write CRDSA or DSA";
        gw.fault_at(
            algo,
            faults,
            "saloha_algo is missing, and a terminal has random access",
            remedy,
        );
    }
    let place = st.get("access/random_access")?;
    let frame = "advanced_settings/schedulers/crdsa_frame";
    for (place, name) in [
        (&place, "replicas"),
        (&place, "max_packets"),
        (topology, frame),
    ] {
        if place.value::<u16>(name) == Some(0) {
            place.fault_at(
                name,
                faults,
                "with 0 there is no random access",
                "1 or more",
            );
        }
    }
    Some(RandomAccess {
        superframes: topology.value(frame)?,
        replicas: place.value("replicas")?,
        max_packets: place.value("max_packets")?,
        max_retries: place.value("max_retry")?,
        timeout: place.value("timeout")?,
        algorithm: match place.text_at("backoff_algo")? {
            "EIED" => Algorithm::Eied,
            "MIMD" => Algorithm::Mimd,
            _ => Algorithm::Beb,
        },
        most_window: place.value("max_cw")?,
        multiple: place.value("backoff_multiple")?,
        receiver: match gw.text_at(algo)? {
            "DSA" => Receiver::Diversity,
            _ => Receiver::Cancelling,
        },
    })
}

/// FIFOs of a terminal have random access where its return carrier has it, all of them, and nowhere
/// else.
pub(crate) fn check_fifos(topology: &Place<'_>, st: &Place<'_>, id: u8, faults: &mut Faults) {
    let Some((_, carrier)) = own_carrier(topology, Some(id), "return_band") else {
        return;
    };
    let kind = carrier.text_at("type").unwrap_or_default();
    for fifo in st.items("network/st_fifos") {
        let Some(access) = fifo.get("access_type") else {
            continue;
        };
        let text = access.text().unwrap_or_default();
        if !text.is_empty() && (text == "SALOHA") != is_random(&carrier) {
            let reason =
                format!("{text} is {UNSUPPORTED} where the return carrier of ST {id} is {kind}");
            let remedy = if is_random(&carrier) {
                "write SALOHA"
            } else {
                "write an access type of DAMA, or a carrier of type ALOHA"
            };
            access.refuse(faults, reason, remedy);
        }
    }
}
