// SPDX-License-Identifier: GPL-3.0-or-later
//! Loading a profile folder.

use std::fmt::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::access;
use crate::advice::advice;
use crate::check::check_file;
use crate::document::{Place, Source};
use crate::entities::{self, Infrastructures};
use crate::fault::{Fault, Faults, Severity};
use crate::layout;
use crate::physical;
use crate::profile::Profile;
use crate::qos;
use crate::radio::{self, Ends, Files};
use crate::scpc;
use crate::spots;
use crate::terminal;
use crate::{schema, topology};

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

impl Mode {
    /// The mode of a `lenient` switch.
    #[must_use]
    pub const fn of(lenient: bool) -> Self {
        if lenient { Self::Lenient } else { Self::Strict }
    }
}

/// Loads the profile in `dir` if satlink carries all of it: [`read`], strict, and [`crate::supported`].
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
    accept(dir, |severity| counts(severity, mode))
}

/// Reads the profile in `dir`, whether satlink carries all of it or not.
///
/// # Errors
/// Every fault that counts in this mode, ordered by file and line.
pub fn read(dir: &Path, mode: Mode) -> Result<Profile, Faults> {
    accept(dir, |severity| match severity {
        Severity::Error => true,
        Severity::Slip => mode == Mode::Strict,
        Severity::Note | Severity::Unsupported => false,
    })
}

/// Whether this is a fault of a profile that satlink is to carry.
fn counts(severity: Severity, mode: Mode) -> bool {
    match severity {
        Severity::Error | Severity::Unsupported => true,
        Severity::Slip => mode == Mode::Strict,
        Severity::Note => false,
    }
}

/// Reads a profile; fails with the faults for which `counts` holds.
fn accept(dir: &Path, counts: impl Fn(Severity) -> bool) -> Result<Profile, Faults> {
    let mut found = Faults::default();
    let profile = parse(dir, &mut found);
    let found = found.sorted();
    let faults = found.select(counts);
    match profile {
        Some(profile) if faults.is_empty() => Ok(Profile {
            advice: advice(&profile),
            warnings: found.select(|it| matches!(it, Severity::Slip | Severity::Note)),
            unsupported: found.select(|severity| severity == Severity::Unsupported),
            ..profile
        }),
        None if faults.is_empty() => {
            // No profile resulted, so the tolerated faults are the cause.
            let mut faults = found;
            if faults.is_empty() {
                faults.push(incomplete(dir));
            }
            Err(faults)
        }
        _ => Err(faults),
    }
}

/// Checks one file of a profile by itself: which one it is follows from its elements. References to other files are not.
///
/// # Errors
/// Every fault that counts in this mode, and everything that satlink does not carry.
pub fn check_single(file: &Path, mode: Mode) -> Result<Faults, Faults> {
    let mut faults = Faults::default();
    let dir = file.parent().unwrap_or(Path::new(""));
    let name = file.file_name().and_then(|name| name.to_str());
    if let Some(source) = Source::read(dir, name.unwrap_or_default(), &mut faults) {
        if let Some(document) = source.parse(&mut faults) {
            let root = source.checked_root(&document, &mut faults);
            let table = root.as_ref().map(|root| table_of(root, &mut faults));
            if let Some(table) = table.flatten() {
                let root = check_file(&source, &document, table, &mut faults);
                root.inspect(|root| access::check_buffer(root, &mut faults));
            }
        }
    }
    let found = faults.sorted();
    let refused = found.select(|it| counts(it, mode));
    if refused.is_empty() {
        Ok(found)
    } else {
        Err(refused)
    }
}

/// The table of a file by what is in it.
fn table_of(root: &Place<'_>, faults: &mut Faults) -> Option<&'static [schema::Element]> {
    let marks: [(&str, &[schema::Element]); 4] = [
        ("entity", schema::INFRASTRUCTURE),
        ("frequency_plan", schema::TOPOLOGY),
        ("network/gw_fifos", schema::PROFILE_GW),
        ("network/st_fifos", schema::PROFILE_ST),
    ];
    let found = marks.iter().find(|(mark, _)| root.get(mark).is_some());
    if found.is_none() {
        let names = marks.map(|(mark, _)| mark).join(", ");
        root.fault(
            faults,
            "is none of OpenSAND's files",
            format!("one of {names} is needed"),
        );
    }
    found.map(|(_, table)| *table)
}

fn parse(dir: &Path, faults: &mut Faults) -> Option<Profile> {
    let layout = layout::find(dir, faults);
    let sources = layout
        .names
        .each_ref()
        .map(|name| Source::read(dir, name, faults));
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
    let further: Vec<_> = layout
        .further
        .iter()
        .filter_map(|(id, name)| Some((*id, Source::read(dir, name, faults)?)))
        .collect();
    let further_documents: Vec<_> = further
        .iter()
        .map(|(_, source)| source.parse(faults))
        .collect();
    let further_roots: Vec<_> = further
        .iter()
        .zip(&further_documents)
        .filter_map(|((id, source), document)| {
            let root = check_file(source, document.as_ref()?, schema::PROFILE_ST, faults)?;
            Some((*id, root))
        })
        .collect();
    let roots = Roots {
        infrastructures,
        topology,
        gw,
        st,
        further: further_roots,
    };
    let profile = assemble(&roots, faults)?;
    let all = sources
        .iter()
        .flatten()
        .chain(further.iter().map(|it| &it.1));
    Some(Profile {
        sha256: hash(all, &profile),
        ..profile
    })
}

/// Places of `root` in every file that could be parsed.
struct Roots<'a> {
    infrastructures: Infrastructures<'a>,
    topology: Option<Place<'a>>,
    gw: Option<Place<'a>>,
    st: Option<Place<'a>>,
    /// Profiles of further terminals, by id.
    further: Vec<(u8, Place<'a>)>,
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

/// Every profile, the further terminals' included.
fn check_buffers(roots: &Roots<'_>, faults: &mut Faults) {
    let further = roots.further.iter().map(|(_, root)| root);
    let profiles = roots.gw.iter().chain(&roots.st).chain(further);
    profiles.for_each(|root| access::check_buffer(root, faults));
}

/// Checks every part, so that no fault hides another, and assembles the profile.
fn assemble(roots: &Roots<'_>, faults: &mut Faults) -> Option<Profile> {
    let (topology, gw) = (roots.topology.as_ref(), roots.gw.as_ref());
    let entities = entities::check(&roots.infrastructures, faults);
    if let Some(topology) = topology {
        topology::check(topology, entities.as_ref(), faults);
    }
    let gw_qos = gw.and_then(|gw| qos::read(gw, "gw_fifos", faults));
    check_buffers(roots, faults);
    let gw_physical = gw.and_then(|gw| physical::read(gw, faults));
    let mut st_profile = |root: &Place<'_>| terminal::read(root, topology, gw, faults);
    let own = roots.st.as_ref().and_then(&mut st_profile);
    let further = roots.further.iter();
    let further: Vec<_> = further
        .filter_map(|(id, root)| Some((*id, st_profile(root)?)))
        .collect();
    let (topology, gw, st) = (topology?, gw?, roots.st.as_ref()?);
    let st_id = entities.as_ref().map(|entities| entities.st.id);
    if let Some(entities) = &entities {
        topology::check_category(topology, st, entities.st.id, faults);
        scpc::check(topology, st, entities, faults);
        let ids = entities.terminals.iter().map(|terminal| terminal.id);
        ids.for_each(|id| topology::check_carriers(topology, id, faults));
        terminal::check_further(&roots.further, topology, entities, faults);
    }
    let (gw_physical, st_profile) = (gw_physical?, own?);
    let settings = access::settings(topology)?;
    let files = Files {
        topology,
        gw,
        st,
        st_id,
    };
    let ends = Ends {
        gw: &gw_physical,
        st: &st_profile.physical,
    };
    let forward = radio::forward(&files, ends, &settings, faults);
    let return_link = radio::return_link(&files, ends, &settings, faults);
    let (entities, return_link) = (entities?, return_link?);
    let (profiles, radio) = ((&st_profile, &further[..]), (&gw_physical, &settings));
    let terminals = terminal::terminals(topology, &entities, profiles, radio)?;
    terminal::check_sums(st, &terminals, entities.st.id, &return_link, faults);
    Some(Profile {
        sha256: String::new(),
        terminals,
        st: entities.st,
        gw: entities.gw,
        sat_id: entities.sat_id,
        one_way_delay_ns: gw_physical.delay.at(0) + st_profile.physical.delay.at(0),
        forward: forward?,
        return_link,
        spots: spots::spots(topology),
        st_profile,
        gw_physical,
        gw_qos: gw_qos?,
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

fn hash<'a>(sources: impl Iterator<Item = &'a Source>, profile: &Profile) -> String {
    let mut data = String::new();
    for source in sources {
        // With the length, the boundary between two files cannot be mistaken for content.
        let _ = write!(
            data,
            "{} {}\n{}",
            source.name,
            source.text.len(),
            source.text
        );
    }
    let terminals = profile.terminals.iter().map(|it| &it.profile.physical);
    for physical in terminals.chain([&profile.st_profile.physical, &profile.gw_physical]) {
        for series in physical.series() {
            let _ = write!(data, "{series:?}");
        }
    }
    sha256_hex(data.as_bytes())
}
