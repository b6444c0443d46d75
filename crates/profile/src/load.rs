// SPDX-License-Identifier: GPL-3.0-or-later
//! Loading a profile folder.

use std::fmt::Write;
use std::path::Path;

use roxmltree::Document;
use sha2::{Digest, Sha256};

use crate::advanced_settings;
use crate::advice::advice;
use crate::air_interface::{self, Ends, Files};
use crate::element_check::check_file;
use crate::encapsulation;
use crate::entities::{self, Entities, Infrastructures};
use crate::fault::{Fault, Faults, Severity};
use crate::gateway;
use crate::layout;
use crate::profile::Profile;
use crate::scpc;
use crate::spots::{self, membership};
use crate::terminal::{self, StProfile};
use crate::xml_file::{Place, Source};
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

/// Loads the profile in `dir` if satlink carries all of it: [`read`], strict, and
/// [`crate::supported`].
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

/// Checks one file of a profile by itself: which one it is follows from its elements. References to
/// other files are not.
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
                root.inspect(|root| encapsulation::check_buffer(root, &mut faults));
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
    let sts = further_sources(dir, &layout.further, faults);
    let gws = further_sources(dir, &layout.further_gateways, faults);
    let [st_documents, gw_documents] = [&sts, &gws].map(|all| further_documents(all, faults));
    let roots = Roots {
        infrastructures,
        topology,
        gw,
        st,
        further: further_roots(&sts, &st_documents, schema::PROFILE_ST, faults),
        further_gateways: further_roots(&gws, &gw_documents, schema::PROFILE_GW, faults),
    };
    let profile = assemble(&roots, faults)?;
    let further = sts.iter().chain(&gws).map(|it| &it.1);
    let all = sources.iter().flatten().chain(further);
    Some(Profile {
        sha256: hash(all, &profile),
        ..profile
    })
}

/// The profiles of further entities of one kind that can be read, by id.
fn further_sources(dir: &Path, files: &[(u8, String)], faults: &mut Faults) -> Vec<(u8, Source)> {
    let files = files.iter();
    files
        .filter_map(|(id, name)| Some((*id, Source::read(dir, name, faults)?)))
        .collect()
}

fn further_documents<'a>(
    sources: &'a [(u8, Source)],
    faults: &mut Faults,
) -> Vec<Option<Document<'a>>> {
    let sources = sources.iter();
    sources.map(|(_, source)| source.parse(faults)).collect()
}

fn further_roots<'a>(
    sources: &'a [(u8, Source)],
    documents: &'a [Option<Document<'a>>],
    table: &'static [schema::Element],
    faults: &mut Faults,
) -> Vec<(u8, Place<'a>)> {
    let all = sources.iter().zip(documents);
    all.filter_map(|((id, source), document)| {
        let root = check_file(source, document.as_ref()?, table, faults)?;
        Some((*id, root))
    })
    .collect()
}

/// Places of `root` in every file that could be parsed.
struct Roots<'a> {
    infrastructures: Infrastructures<'a>,
    topology: Option<Place<'a>>,
    gw: Option<Place<'a>>,
    st: Option<Place<'a>>,
    /// Profiles of further terminals, by id.
    further: Vec<(u8, Place<'a>)>,
    /// The same of gateways.
    further_gateways: Vec<(u8, Place<'a>)>,
}

impl<'a> Roots<'a> {
    /// The profile of a terminal's gateway.
    fn gateway_of(&self, terminal: u8) -> Option<&Place<'a>> {
        let id = membership(self.topology.as_ref()?, Some(terminal))?.gateway_id;
        let further = self.further_gateways.iter().find(|it| it.0 == id);
        further.map(|it| &it.1).or(self.gw.as_ref())
    }
}

/// The element table guards every value that `assemble` reads; this says so instead of passing
/// silently, should it not.
pub(crate) fn incomplete(dir: &Path) -> Fault {
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
    let further = roots.further.iter().chain(&roots.further_gateways);
    let further = further.map(|(_, root)| root);
    let profiles = roots.gw.iter().chain(&roots.st).chain(further);
    profiles.for_each(|root| encapsulation::check_buffer(root, faults));
}

/// What topology and profiles say of the entities that are there.
fn check_entities(
    roots: &Roots<'_>,
    (topology, st): (&Place<'_>, &Place<'_>),
    entities: &Entities,
    faults: &mut Faults,
) {
    topology::check_category(topology, st, entities.st.id, faults);
    scpc::check(topology, st, entities, faults);
    let ids = entities.terminals.iter().map(|terminal| terminal.id);
    ids.for_each(|id| topology::check_carriers(topology, id, faults));
    terminal::check_further(&roots.further, topology, entities, faults);
    gateway::check_further(&roots.further_gateways, entities, faults);
}

/// Checks every part, so that no fault hides another, and assembles the profile.
fn assemble(roots: &Roots<'_>, faults: &mut Faults) -> Option<Profile> {
    let (topology, gw) = (roots.topology.as_ref(), roots.gw.as_ref());
    let entities = entities::check(&roots.infrastructures, faults);
    if let Some(topology) = topology {
        topology::check(topology, entities.as_ref(), faults);
    }
    check_buffers(roots, faults);
    let gw_profile = gw.and_then(|gw| gateway::read(gw, faults));
    let gateways = roots.further_gateways.iter();
    let gateways: Vec<_> = gateways
        .filter_map(|(id, root)| Some((*id, gateway::read(root, faults)?)))
        .collect();
    let st = roots.st.as_ref();
    let own = st.and_then(|root| terminal::read(root, topology, gw, faults));
    let further = further_profiles(roots, entities.as_ref(), faults);
    let (topology, gw, st) = (topology?, gw?, st?);
    let st_id = entities.as_ref().map(|entities| entities.st.id);
    if let Some(entities) = &entities {
        check_entities(roots, (topology, st), entities, faults);
    }
    let (gw_profile, st_profile) = (gw_profile?, own?);
    let settings = advanced_settings::settings(topology)?;
    let files = Files {
        topology,
        gw,
        st,
        st_id,
    };
    let ends = Ends {
        gw: &gw_profile.physical,
        st: &st_profile.physical,
    };
    let forward = air_interface::forward(&files, ends, &settings, faults);
    let return_link = air_interface::return_link(&files, ends, &settings, faults);
    let (entities, return_link) = (entities?, return_link?);
    let gateways = gateway::gateways(&entities, &gw_profile, &gateways);
    let (profiles, radio) = ((&st_profile, &further[..]), (&gateways[..], &settings));
    let terminals = terminal::terminals(topology, &entities, profiles, radio)?;
    terminal::check_sums(st, &terminals, entities.st.id, &return_link, faults);
    Some(Profile {
        sha256: String::new(),
        terminals,
        st: entities.st,
        gw: entities.gw,
        sat_id: entities.sat_id,
        one_way_delay_ns: gw_profile.physical.delay.at(0) + st_profile.physical.delay.at(0),
        forward: forward?,
        return_link,
        spots: spots::spots(topology),
        st_profile,
        gw_physical: gw_profile.physical,
        gw_qos: gw_profile.qos,
        gw_encapsulation: gw_profile.encapsulation,
        gateways,
        settings,
        advice: Vec::new(),
        warnings: Faults::default(),
        unsupported: Faults::default(),
    })
}

/// The profiles of the terminals that have one of their own, or that of the ST at another gateway.
fn further_profiles(
    roots: &Roots<'_>,
    entities: Option<&Entities>,
    faults: &mut Faults,
) -> Vec<(u8, StProfile)> {
    let topology = roots.topology.as_ref();
    let own = roots.further.iter();
    let mut found: Vec<_> = own
        .filter_map(|(id, root)| {
            let gw = roots.gateway_of(*id);
            Some((*id, terminal::read(root, topology, gw, faults)?))
        })
        .collect();
    let (Some(entities), Some(st)) = (entities, &roots.st) else {
        return found;
    };
    if roots.further_gateways.is_empty() {
        return found;
    }
    for id in entities.terminals.iter().map(|it| it.id) {
        let has_own = id == entities.st.id || roots.further.iter().any(|it| it.0 == id);
        let gw = roots.gateway_of(id).filter(|_| !has_own);
        // What is wrong with the file was reported when it was read for the ST.
        let profile = gw.and_then(|_| terminal::read(st, topology, gw, &mut Faults::default()));
        found.extend(profile.map(|it| (id, it)));
    }
    found
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
    let further = profile.gateways.iter().skip(1);
    let further = further.map(|it| &it.profile.physical);
    let own = [&profile.st_profile.physical, &profile.gw_physical];
    for physical in terminals.chain(own).chain(further) {
        for series in physical.series() {
            let _ = write!(data, "{series:?}");
        }
    }
    sha256_hex(data.as_bytes())
}
