// SPDX-License-Identifier: GPL-3.0-or-later
//! Where the files of a profile are: in one folder, or as `OpenSAND`'s own tools lay them out.

use std::path::Path;

use crate::document::Source;
use crate::fault::{Fault, Faults, Severity};
use crate::schema::BROADCAST_ID;

/// The files of a profile in one folder. A transparent satellite has no profile of its own. Further terminals of the
/// platform may have a `profile_st<id>.xml` each, e.g. `profile_st11.xml`; without it they have that of `profile_st.xml`.
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
/// Most folders of entities that are looked at: ids are below 31, and a gateway may be two entities.
const MOST_ENTITIES: usize = 64;

/// The files of a profile, relative to its folder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In the order of [`FILES`].
    pub names: [String; FILES.len()],
    /// Profiles of further terminals, by id.
    pub further: Vec<(u8, String)>,
}

/// Finds the files: those of [`FILES`]; or a folder with `infrastructure.xml` and `profile.xml` for each entity, in the
/// folder itself or in `entities`, with `topology.xml` next to them or in one of them.
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
    of_entities(dir, &entities)
}

fn of_one_folder(dir: &Path) -> Layout {
    let ids = 0..BROADCAST_ID as u8;
    let further = ids.map(|id| (id, format!("profile_st{id}.xml")));
    Layout {
        names: FILES.map(str::to_owned),
        further: further.filter(|(_, name)| is_there(dir, name)).collect(),
    }
}

/// Folder of an entity, relative to the profile's.
#[derive(Debug)]
struct Entity {
    folder: String,
    kind: String,
    id: u8,
}

fn of_entities(dir: &Path, entities: &[Entity]) -> Layout {
    let of = |kind: &str| {
        let mut found: Vec<_> = entities
            .iter()
            .filter(|it| it.kind.starts_with(kind))
            .collect();
        found.sort_by_key(|entity| entity.id);
        found
    };
    let [satellites, gateways, terminals] = ["Satellite", "Gateway", "Terminal"].map(of);
    let file = |found: &[&Entity], role: &str, name: &str| {
        let folder = found.first().map_or(role, |entity| entity.folder.as_str());
        format!("{folder}/{name}")
    };
    let nested = entities
        .iter()
        .map(|entity| format!("{}/topology.xml", entity.folder));
    let topology = std::iter::once("topology.xml".to_owned()).chain(nested);
    let topology = topology.into_iter().find(|name| is_there(dir, name));
    let further = terminals
        .iter()
        .skip(1)
        .map(|entity| (entity.id, format!("{}/profile.xml", entity.folder)));
    Layout {
        names: [
            file(&satellites, "sat", "infrastructure.xml"),
            file(&gateways, "gw", "infrastructure.xml"),
            file(&terminals, "st", "infrastructure.xml"),
            topology.unwrap_or_else(|| "topology.xml".into()),
            file(&gateways, "gw", "profile.xml"),
            file(&terminals, "st", "profile.xml"),
        ],
        further: further.collect(),
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
    names.retain(|name| is_there(&parent.join(name), "infrastructure.xml"));
    names.truncate(MOST_ENTITIES);
    names
        .iter()
        .map(|name| entity(parent, prefix, name))
        .collect()
}

/// What cannot be read is reported when it is loaded: here it is taken by its folder's name.
fn entity(parent: &Path, prefix: &str, name: &str) -> Entity {
    let mut ignored = Faults::default();
    let source = Source::read(&parent.join(name), "infrastructure.xml", &mut ignored);
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
