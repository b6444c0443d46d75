// SPDX-License-Identifier: GPL-3.0-or-later
//! Where the files of a profile are: in one folder, or as `OpenSAND`'s own tools lay them out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::element_check::UNSUPPORTED;
use crate::fault::{Fault, Faults, Severity};
use crate::schema::BROADCAST_ID;
use crate::spots::membership;
use crate::xml_file::Source;

/// The files of a profile in one folder. A transparent satellite has no profile of its own. Further
/// terminals of the platform may have a `profile_st<id>.xml` each, e.g. `profile_st11.xml`; without
/// it they have that of `profile_st.xml`. So may the gateways of other spots: `profile_gw<id>.xml`.
/// A profile may also have a folder for each entity, as `OpenSAND`'s own tools write it.
pub const FILES: [&str; 6] = [
    "infrastructure_sat.xml",
    "infrastructure_gw.xml",
    "infrastructure_st.xml",
    "topology.xml",
    "profile_gw.xml",
    "profile_st.xml",
];

/// Configurations of `OpenSAND` 5.x and earlier, none of which 8.2 loads.
const FILES_OF_5: [&str; 2] = ["core_global.conf", "core.conf"];
/// Most folders of entities that are looked at: ids are below 31, and a gateway may be two
/// entities.
const MOST_ENTITIES: usize = 64;

/// The files of a profile, relative to its folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In the order of [`FILES`].
    pub names: [String; FILES.len()],
    /// Profiles of further terminals, by id.
    pub further: Vec<(u8, String)>,
    /// The same of gateways.
    pub further_gateways: Vec<(u8, String)>,
}

/// Finds the files: those of [`FILES`]; or a folder with `infrastructure.xml` and `profile.xml` for
/// each entity, in the folder itself or in `entities`, with `topology.xml` next to them or in one
/// of them. Files that the command line tool has filled in are taken instead of their templates.
pub(crate) fn find(dir: &Path, faults: &mut Faults) -> Layout {
    if let Some(old) = FILES_OF_5.iter().find(|name| is_there(dir, name)) {
        faults.push(Fault {
            file: dir.join(old).display().to_string(),
            line: 0,
            element: "model".into(),
            reason: "is a configuration of OpenSAND 5.x or earlier, which 8.2 does not load".into(),
            remedy: "write infrastructure.xml, topology.xml and profile.xml of 8.2".into(),
            severity: Severity::Error,
        });
    }
    let flat = FILES
        .iter()
        .any(|name| *name != "topology.xml" && is_there(dir, name));
    let parents = [dir.to_path_buf(), dir.join("entities")];
    let entities = parents
        .iter()
        .zip(["", "entities/"])
        .flat_map(|(parent, prefix)| entities(parent, prefix));
    let entities: Vec<_> = if flat { Vec::new() } else { entities.collect() };
    if entities.is_empty() {
        return of_one_folder(dir);
    }
    of_entities(dir, &entities, faults)
}

fn of_one_folder(dir: &Path) -> Layout {
    let of = |kind: &str| {
        let ids = 0..BROADCAST_ID as u8;
        let names = ids.map(|id| (id, format!("profile_{kind}{id}.xml")));
        names.filter(|(_, name)| is_there(dir, name)).collect()
    };
    Layout {
        names: FILES.map(str::to_owned),
        further: of("st"),
        further_gateways: of("gw"),
    }
}

/// Folder of an entity, relative to the profile's.
#[derive(Debug)]
struct Entity {
    folder: String,
    kind: String,
    id: u8,
}

fn of_entities(dir: &Path, entities: &[Entity], faults: &mut Faults) -> Layout {
    let of = |kind: &str| {
        let mut found: Vec<_> = entities
            .iter()
            .filter(|it| it.kind.starts_with(kind))
            .collect();
        found.sort_by_key(|entity| entity.id);
        found
    };
    let [satellites, mut gateways, terminals] = ["Satellite", "Gateway", "Terminal"].map(of);
    let file = |found: &[&Entity], role: &str, name: &str| {
        let folder = found.first().map_or(role, |entity| entity.folder.as_str());
        newest(dir, &format!("{folder}/{name}"))
    };
    let nested = entities
        .iter()
        .map(|entity| format!("{}/topology.xml", entity.folder));
    let topology = std::iter::once("topology.xml".to_owned()).chain(nested);
    let mut topology = topology.map(|name| newest(dir, &name));
    let topology = topology.find(|name| is_there(dir, name));
    let topology = topology.unwrap_or_else(|| "topology.xml".into());
    // The first terminal's gateway comes first.
    let own = terminals.first().map(|it| it.id);
    let own = own.and_then(|id| gateways_of(dir, &topology, &[id]).remove(&id));
    gateways.sort_by_key(|it| Some(it.id) != own);
    refuse_split(dir, &gateways, faults);
    let further = |found: &[&Entity]| {
        let others = found.iter().skip(1);
        let file = |it: &&Entity| {
            let profile = format!("{}/profile.xml", it.folder);
            (it.id, newest(dir, &profile))
        };
        others.map(file).collect()
    };
    Layout {
        names: [
            file(&satellites, "sat", "infrastructure.xml"),
            file(&gateways, "gw", "infrastructure.xml"),
            file(&terminals, "st", "infrastructure.xml"),
            topology,
            file(&gateways, "gw", "profile.xml"),
            file(&terminals, "st", "profile.xml"),
        ],
        further: further(&terminals),
        further_gateways: further(&gateways),
    }
}

/// The gateways that a topology assigns terminals to, by terminal; what cannot be read is reported
/// when it is loaded. The file is read once, and each id looked up once, however often it occurs.
pub(crate) fn gateways_of(dir: &Path, topology: &str, terminals: &[u8]) -> BTreeMap<u8, u8> {
    let mut ignored = Faults::default();
    let mut found = || {
        let source = Source::read(dir, topology, &mut ignored)?;
        let document = source.parse(&mut ignored)?;
        let root = source.root(&document)?;
        let ids = terminals.iter().copied();
        let ids: BTreeSet<u8> = ids.filter(|&id| id < BROADCAST_ID as u8).collect();
        let gateway = |id: u8| Some((id, membership(&root, Some(id))?.gateway_id));
        Some(ids.into_iter().filter_map(gateway).collect())
    };
    found().unwrap_or_default()
}

/// Of a further gateway the infrastructure file is not read: that it is split is seen here.
fn refuse_split(dir: &Path, gateways: &[&Entity], faults: &mut Faults) {
    for split in gateways.iter().skip(1).filter(|it| it.kind != "Gateway") {
        faults.push(Fault {
            file: dir
                .join(newest(dir, &infrastructure(&split.folder)))
                .display()
                .to_string(),
            line: 0,
            element: "entity/entity_type".into(),
            reason: format!("{} is {UNSUPPORTED}", split.kind),
            remedy: "write Gateway".into(),
            severity: Severity::Unsupported,
        });
    }
}

/// Folders of `parent` that hold an `infrastructure.xml` which says what it is about.
#[expect(clippy::disallowed_methods, reason = "files of the profile")]
fn entities(parent: &Path, prefix: &str) -> Vec<Entity> {
    let inside = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut names: Vec<_> = inside
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names.retain(|name| is_there(parent, &newest(parent, &infrastructure(name))));
    names.truncate(MOST_ENTITIES);
    names
        .iter()
        .map(|name| entity(parent, prefix, name))
        .collect()
}

fn infrastructure(folder: &str) -> String {
    format!("{folder}/infrastructure.xml")
}

/// The file that `OpenSAND`'s command line tool has filled in, next to its template: of
/// `topology.xml` it is `topology_updated.xml`. The template, where there is none.
pub(crate) fn newest(dir: &Path, template: &str) -> String {
    let filled = template.replace(".xml", "_updated.xml");
    if is_there(dir, &filled) {
        filled
    } else {
        template.to_owned()
    }
}

/// What cannot be read is reported when it is loaded: here it is taken by its folder's name.
fn entity(parent: &Path, prefix: &str, name: &str) -> Entity {
    let mut ignored = Faults::default();
    let file = newest(parent, &infrastructure(name));
    let source = Source::read(parent, &file, &mut ignored);
    let read = source.and_then(|source| {
        let document = source.parse(&mut ignored)?;
        let place = source.root(&document)?.get("entity")?;
        let entity_type = place.text_at("entity_type")?.to_owned();
        let section = match entity_type.as_str() {
            "Satellite" => "entity_sat",
            "Terminal" => "entity_st",
            _ => "entity_gw",
        };
        let id = place.get(section).and_then(|own| own.value("entity_id"));
        Some((entity_type, id.unwrap_or(u8::MAX)))
    });
    let by_name = || {
        let kinds = [("sat", "Satellite"), ("gw", "Gateway"), ("st", "Terminal")];
        let kind = kinds.iter().find(|(short, _)| name.starts_with(short));
        (kind.map_or("", |(_, kind)| kind).to_owned(), u8::MAX)
    };
    let (kind, id) = read.unwrap_or_else(by_name);
    Entity {
        folder: format!("{prefix}{name}"),
        kind,
        id,
    }
}

#[expect(clippy::disallowed_methods, reason = "files of the profile")]
fn is_there(dir: &Path, name: &str) -> bool {
    dir.join(name).symlink_metadata().is_ok()
}
