// SPDX-License-Identifier: GPL-3.0-or-later
//! Loading a profile folder.

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::access::{self, Dama, Encapsulation, Settings};
use crate::advice::advice;
use crate::check::check_file;
use crate::document::{Place, Source};
use crate::entities::{self, Host, Infrastructures, Platform};
use crate::fault::{Fault, Faults, Severity};
use crate::physical::{self, Physical};
use crate::qos::{self, Qos};
use crate::radio::{self, Ends, Files, Forward, Return, combined_cn_db};
use crate::spots::{self, Spot, Terminal};
use crate::{schema, topology};

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

/// How forgiving loading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// What `OpenSAND` takes otherwise than written is a fault.
    #[default]
    Strict,
    /// It is a warning, and taken as `OpenSAND` 8.2.0 takes it where that is known.
    Lenient,
}

/// A satellite link as a profile folder describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// SHA-256 over names and contents of the six files and over the points of delay and attenuation files, hexadecimal.
    pub sha256: String,
    /// Terminal.
    pub st: Host,
    /// Gateway.
    pub gw: Host,
    /// Id of the satellite.
    pub sat_id: u8,
    /// What `OpenSAND` itself needs of its machines.
    pub platform: Platform,
    /// One-way propagation delay at the start, ns: every packet passes the delay of both ground entities.
    pub one_way_delay_ns: u64,
    /// Carrier from GW to ST.
    pub forward: Forward,
    /// Carrier from ST to GW.
    pub return_link: Return,
    /// All spots of the frequency plan.
    pub spots: Vec<Spot>,
    /// All terminals of the platform.
    pub terminals: Vec<Terminal>,
    /// Delay and C/N at the terminal.
    pub st_physical: Physical,
    /// Delay and C/N at the gateway.
    pub gw_physical: Physical,
    /// Classes and FIFOs of the terminal.
    pub st_qos: Qos,
    /// Classes and FIFOs of the gateway.
    pub gw_qos: Qos,
    /// Demand assignment of the terminal.
    pub dama: Dama,
    /// Encapsulation at the terminal.
    pub st_encapsulation: Encapsulation,
    /// Encapsulation at the gateway.
    pub gw_encapsulation: Encapsulation,
    /// Frames, margins and timers.
    pub settings: Settings,
    /// What a user should know when comparing with the real `OpenSAND` 8.2.0.
    pub advice: Vec<String>,
    /// What lenient loading let pass.
    pub warnings: Faults,
    unsupported: Faults,
}

impl Profile {
    /// One-way propagation delay in ns, `now` ns after the start.
    #[must_use]
    pub fn one_way_delay_at(&self, now: u64) -> u64 {
        self.gw_physical.delay.at(now) + self.st_physical.delay.at(now)
    }

    /// C/N from GW to ST in dB at a step of attenuation; steps last `acm_refresh_ms`, the first is step 1.
    #[must_use]
    pub fn forward_cn_db(&self, step: u64) -> f64 {
        let (up, down) = (&self.gw_physical.uplink, &self.st_physical.downlink);
        combined_cn_db(up.cn_db(step), down.cn_db(step))
    }

    /// C/N from ST to GW in dB at a step of attenuation.
    #[must_use]
    pub fn return_cn_db(&self, step: u64) -> f64 {
        let (up, down) = (&self.st_physical.uplink, &self.gw_physical.downlink);
        combined_cn_db(up.cn_db(step), down.cn_db(step))
    }
}

/// Loads the profile in `dir` if satlink carries all of it: [`read`], strict, and [`supported`].
///
/// # Errors
/// Every fault of all six files, ordered by file and line.
pub fn load(dir: &Path) -> Result<Profile, Faults> {
    load_as(dir, Mode::Strict)
}

/// Loads the profile in `dir` if satlink carries all of it.
///
/// # Errors
/// Every fault that counts in this mode, and everything that satlink does not carry.
pub fn load_as(dir: &Path, mode: Mode) -> Result<Profile, Faults> {
    accept(dir, |severity| {
        severity != Severity::Slip || mode == Mode::Strict
    })
}

/// Reads the profile in `dir`, whether satlink carries all of it or not.
///
/// # Errors
/// Every fault that counts in this mode, ordered by file and line.
pub fn read(dir: &Path, mode: Mode) -> Result<Profile, Faults> {
    accept(dir, |severity| match severity {
        Severity::Error => true,
        Severity::Slip => mode == Mode::Strict,
        Severity::Unsupported => false,
    })
}

/// What a profile holds beyond what satlink 0.1 carries, with file, line and element; empty: satlink runs it as written.
#[must_use]
pub fn supported(profile: &Profile) -> Faults {
    profile.unsupported.clone()
}

/// Reads a profile; fails with the faults that `counts` says.
fn accept(dir: &Path, counts: impl Fn(Severity) -> bool) -> Result<Profile, Faults> {
    let mut found = Faults::default();
    let profile = parse(dir, &mut found);
    let found = found.sorted();
    let faults = found.select(counts);
    match profile {
        Some(profile) if faults.is_empty() => Ok(Profile {
            advice: advice(&profile),
            warnings: found.select(|severity| severity == Severity::Slip),
            unsupported: found.select(|severity| severity == Severity::Unsupported),
            ..profile
        }),
        None if faults.is_empty() => {
            // Nothing to emulate came of it: what was let pass is what is wrong.
            let mut faults = found;
            if faults.is_empty() {
                faults.push(incomplete(dir));
            }
            Err(faults)
        }
        _ => Err(faults),
    }
}

fn parse(dir: &Path, faults: &mut Faults) -> Option<Profile> {
    let sources = FILES.map(|name| Source::read(dir, name, faults));
    let documents = sources
        .each_ref()
        .map(|source| source.as_ref()?.parse(faults));
    let mut roots =
        sources
            .iter()
            .zip(&documents)
            .zip(TABLES)
            .map(|((source, document), table)| {
                check_file(source.as_ref()?, document.as_ref()?, table, faults)
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
        faults,
    )?;
    Some(Profile {
        sha256: hash(&sources, &profile),
        ..profile
    })
}

/// The element table guards every value that `assemble` reads; this says so instead of passing silently, should it not.
fn incomplete(dir: &Path) -> Fault {
    Fault {
        file: dir.display().to_string(),
        line: 0,
        element: "model".into(),
        reason: "a value is missing that no check reported".into(),
        remedy: "this is a bug of satlink: please report it with the profile".into(),
        severity: Severity::Error,
    }
}

/// Checks every part, so that no fault hides another, and puts together what they give.
fn assemble(
    infrastructures: &Infrastructures<'_>,
    topology: Option<&Place<'_>>,
    gw: Option<&Place<'_>>,
    st: Option<&Place<'_>>,
    faults: &mut Faults,
) -> Option<Profile> {
    let entities = entities::check(infrastructures, faults);
    if let Some(topology) = topology {
        topology::check(topology, entities.as_ref(), faults);
    }
    let gw_qos = gw.and_then(|gw| qos::read(gw, "gw_fifos", faults));
    let st_qos = st.and_then(|st| qos::read(st, "st_fifos", faults));
    let gw_physical = gw.and_then(|gw| physical::read(gw, faults));
    let st_physical = st.and_then(|st| physical::read(st, faults));
    let (topology, gw, st) = (topology?, gw?, st?);
    let st_id = entities.as_ref().map(|entities| entities.st.id);
    if let Some(st_id) = st_id {
        topology::check_groups(topology, st, st_id, faults);
    }
    let dama = access::dama(topology, gw, st, faults);
    let (gw_physical, st_physical) = (gw_physical?, st_physical?);
    let settings = access::settings(topology)?;
    let files = Files {
        topology,
        gw,
        st,
        st_id,
    };
    let ends = Ends {
        gw: &gw_physical,
        st: &st_physical,
    };
    let forward = radio::forward(&files, ends, &settings, faults);
    let return_link = radio::return_link(&files, ends, &settings, faults);
    let entities = entities?;
    Some(Profile {
        sha256: String::new(),
        terminals: spots::terminals(topology, &entities)?,
        st: entities.st,
        gw: entities.gw,
        sat_id: entities.sat_id,
        platform: entities.platform,
        one_way_delay_ns: gw_physical.delay.at(0) + st_physical.delay.at(0),
        forward: forward?,
        return_link: return_link?,
        spots: spots::spots(topology),
        st_physical,
        gw_physical,
        st_qos: st_qos?,
        gw_qos: gw_qos?,
        dama: dama?,
        st_encapsulation: access::encapsulation(st),
        gw_encapsulation: access::encapsulation(gw),
        settings,
        advice: Vec::new(),
        warnings: Faults::default(),
        unsupported: Faults::default(),
    })
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

fn hash(sources: &[Option<Source>; 6], profile: &Profile) -> String {
    let mut data = String::new();
    for (name, source) in FILES.iter().zip(sources.iter().flatten()) {
        // The length keeps the border between two files apart from their contents.
        let _ = write!(data, "{name} {}\n{}", source.text.len(), source.text);
    }
    for physical in [&profile.gw_physical, &profile.st_physical] {
        for series in physical.series() {
            let _ = write!(data, "{series:?}");
        }
    }
    sha256_hex(data.as_bytes())
}
