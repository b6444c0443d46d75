// SPDX-License-Identifier: GPL-3.0-or-later
//! Loading a profile folder.

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::check::check_file;
use crate::document::{Place, Source};
use crate::entities::{self, Host, Infrastructures, Platform};
use crate::fault::{Fault, Faults};
use crate::radio::{self, Files, Forward, Return};
use crate::{qos, schema};

/// The files of a profile folder. A transparent satellite has no profile of its own.
pub const FILES: [&str; 6] = [
    "infrastructure_sat.xml",
    "infrastructure_gw.xml",
    "infrastructure_st.xml",
    "topology.xml",
    "profile_gw.xml",
    "profile_st.xml",
];

const TABLES: [&[schema::Element]; 6] = [
    schema::INFRASTRUCTURE,
    schema::INFRASTRUCTURE,
    schema::INFRASTRUCTURE,
    schema::TOPOLOGY,
    schema::PROFILE_GW,
    schema::PROFILE_ST,
];

/// A satellite link as a profile folder describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// SHA-256 over names and contents of the six files, hexadecimal.
    pub sha256: String,
    /// Terminal.
    pub st: Host,
    /// Gateway.
    pub gw: Host,
    /// Id of the satellite.
    pub sat_id: u8,
    /// What `OpenSAND` itself needs of its machines.
    pub platform: Platform,
    /// One-way propagation delay, ns: every packet passes the delay of both ground entities.
    pub one_way_delay_ns: u64,
    /// Carrier from GW to ST.
    pub forward: Forward,
    /// Carrier from ST to GW.
    pub return_link: Return,
    /// What a user should know when comparing with the real `OpenSAND` 8.2.0.
    pub advice: Vec<String>,
}

/// Loads and checks the profile in `dir`.
///
/// # Errors
/// Every fault of all six files, ordered by file and line.
pub fn load(dir: &Path) -> Result<Profile, Faults> {
    let mut faults = Faults::default();
    let sources = FILES.map(|name| Source::read(dir, name, &mut faults));
    let documents = sources
        .each_ref()
        .map(|source| source.as_ref()?.parse(&mut faults));
    let mut roots =
        sources
            .iter()
            .zip(&documents)
            .zip(TABLES)
            .map(|((source, document), table)| {
                check_file(source.as_ref()?, document.as_ref()?, table, &mut faults)
            });
    let mut next = || roots.next().flatten();
    let infrastructures = Infrastructures {
        sat: next(),
        gw: next(),
        st: next(),
    };
    let (topology, gw, st) = (next(), next(), next());
    drop(roots);
    let profile = assemble(
        &infrastructures,
        topology.as_ref(),
        gw.as_ref(),
        st.as_ref(),
        &mut faults,
    );
    match profile {
        Some(profile) if faults.is_empty() => Ok(Profile {
            sha256: hash(&sources),
            ..profile
        }),
        _ => {
            if faults.is_empty() {
                faults.push(incomplete(dir));
            }
            Err(faults.sorted())
        }
    }
}

/// The element table guards every value that `assemble` reads; this says so instead of passing silently, should it not.
fn incomplete(dir: &Path) -> Fault {
    Fault {
        file: dir.display().to_string(),
        line: 0,
        element: "model".into(),
        reason: "a value is missing that no check reported".into(),
        remedy: "this is a bug of satlink: please report it with the profile".into(),
    }
}

fn assemble(
    infrastructures: &Infrastructures<'_>,
    topology: Option<&Place<'_>>,
    gw: Option<&Place<'_>>,
    st: Option<&Place<'_>>,
    faults: &mut Faults,
) -> Option<Profile> {
    let entities = entities::check(infrastructures, faults);
    if let Some(topology) = topology {
        radio::check_topology(topology, entities.as_ref(), faults);
    }
    if let Some(gw) = gw {
        qos::check(gw, "gw_fifos", faults);
    }
    if let Some(st) = st {
        qos::check(st, "st_fifos", faults);
    }
    let files = Files {
        topology: topology?,
        gw: gw?,
        st: st?,
    };
    let forward = radio::forward(&files, faults);
    let return_link = radio::return_link(&files, faults);
    let entities = entities?;
    radio::check_groups(&files, entities.st.id, faults);
    let (forward, return_link) = (forward?, return_link?);
    let delay_ms = |place: &Place<'_>| place.value::<u64>("physical_layer/delay/delay_value");
    Some(Profile {
        sha256: String::new(),
        st: entities.st,
        gw: entities.gw,
        sat_id: entities.sat_id,
        platform: entities.platform,
        one_way_delay_ns: (delay_ms(files.gw)? + delay_ms(files.st)?) * 1_000_000,
        forward,
        return_link,
        advice: advice(&files, &return_link),
    })
}

/// Differences to `OpenSAND` 8.2.0 that matter when figures are compared.
fn advice(files: &Files<'_>, return_link: &Return) -> Vec<String> {
    let mut advice = vec![
        "FIFO capacities and classes are used by OpenSAND alone; satlink has one drop-tail queue per direction".to_owned(),
    ];
    if let Some(frame_ms) = files
        .topology
        .value::<f64>("advanced_settings/links/forward_duration")
    {
        // Half a tick of each direction, and 4 ms that were measured as processing and delay polls.
        let extra_ms = frame_ms / 2.0 + return_link.superframe_ns as f64 / 2e6 + 4.0;
        advice.push(format!(
            "OpenSAND 8.2.0 adds about {extra_ms:.0} ms to the mean RTT by releasing on frame ticks; timing \"standard\" does not"
        ));
    }
    if return_link.waveform.id == 3 {
        advice.push(
            "OpenSAND 8.2.0 loses some packet sizes with return id 3 alone; satlink does not"
                .to_owned(),
        );
    }
    advice
}

/// Lower-case hexadecimal SHA-256.
#[must_use]
pub fn sha256_hex(data: &[u8]) -> String {
    let mut hex = String::new();
    for byte in Sha256::digest(data) {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn hash(sources: &[Option<Source>; 6]) -> String {
    let mut data = String::new();
    for (name, source) in FILES.iter().zip(sources.iter().flatten()) {
        // The length keeps the border between two files apart from their contents.
        let _ = write!(data, "{name} {}\n{}", source.text.len(), source.text);
    }
    sha256_hex(data.as_bytes())
}
