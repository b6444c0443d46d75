// SPDX-License-Identifier: GPL-3.0-or-later
//! The emulator's parts: configuration, plan, the loop over clock and devices, and what makes them a process.
//! `plan` and `drive` own no clock, socket or thread.

mod adapt;
mod awake;
pub mod bundle;
pub mod config;
mod control;
mod course;
pub mod demand;
pub mod describe;
mod devices;
pub mod direction;
pub mod drive;
mod ends;
pub mod entity;
mod metrics;
pub mod offload;
pub mod order;
pub mod plan;
mod probes;
pub mod run;
pub mod set;
mod stamp;
mod sys;
pub mod timeline;

pub use control::answer;

use std::io::{self, Write};
use std::path::Path;

use profile::{Mode, Profile};

use crate::config::Config;

/// What to do about a faulty profile.
pub const MEND: &str = "mend what the list says, then: satlink validate PROFILE_DIR";

/// An error that ends the program: status, one line, and what to do next.
#[derive(Debug)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// What, where, why; one line.
    pub what: String,
    /// What to do next.
    pub hint: String,
}

impl Failure {
    /// Usage, configuration or profile: status 2.
    #[must_use]
    pub fn usage(what: String, hint: impl Into<String>) -> Self {
        Self {
            status: 2,
            what,
            hint: hint.into(),
        }
    }

    /// The host cannot do it: status 3.
    #[must_use]
    pub fn host(what: String, hint: impl Into<String>) -> Self {
        Self {
            status: 3,
            what,
            hint: hint.into(),
        }
    }
}

/// Says something on stderr. The reader may be gone, as the emulator outlives its parent; that is no error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Reads a configuration and its profile; every fault goes to stderr.
///
/// # Errors
/// Either has faults.
pub fn load(path: &Path) -> Result<(Config, Profile), Failure> {
    let config = config::load(path).map_err(|faults| {
        note(&faults.to_string());
        let what = format!("{} faults in {}", faults.0.len(), path.display());
        Failure::usage(what, "fields and ranges: schemas/link-config.schema.json")
    })?;
    let profile = load_profile(&config.profile, Mode::of(config.lenient))?;
    let faults = demand::check(&config.others, &profile);
    if faults.is_empty() {
        return Ok((config, profile));
    }
    for fault in &faults {
        note(&format!("{}: {fault}", path.display()));
    }
    let what = format!("{} faults in {}", faults.len(), path.display());
    Err(Failure::usage(what, "make configuration and profile agree"))
}

/// Reads a profile; every fault goes to stderr.
///
/// # Errors
/// It has faults.
pub fn load_profile(dir: &Path, mode: Mode) -> Result<Profile, Failure> {
    profile::load_as(dir, mode).map_err(|faults| {
        note(&faults.to_string());
        let count = faults.as_slice().len();
        Failure::usage(format!("{count} faults in profile {}", dir.display()), MEND)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Asserts that `value` has every required field of a JSON schema and none that it does not know, at every depth.
    pub(crate) fn assert_fields(schema: &Value, value: &Value, place: &str) {
        let is_nothing = value.is_null() && schema["type"].to_string().contains("null");
        if is_nothing {
            return;
        }
        let Some(properties) = schema["properties"].as_object() else {
            let kinds = &schema["type"];
            let kind = match value {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_f64() => "number",
                Value::Number(_) => "integer",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            let known = kinds.is_null()
                || kinds.to_string().contains(kind)
                || (kind == "integer" && kinds.to_string().contains("number"));
            assert!(known, "{place}: {value} is no {kinds}");
            assert!(
                schema["const"].is_null() || schema["const"] == *value,
                "{place}: {value}"
            );
            return;
        };
        let fields = value
            .as_object()
            .unwrap_or_else(|| panic!("{place} is no object"));
        for name in schema["required"].as_array().unwrap() {
            assert!(
                fields.contains_key(name.as_str().unwrap()),
                "{place}: {name} is missing"
            );
        }
        for (name, field) in fields {
            let inner = properties
                .get(name)
                .unwrap_or_else(|| panic!("{place}: {name} is unknown"));
            assert_fields(inner, field, &format!("{place}.{name}"));
        }
    }

    #[test]
    fn configuration_faults_end_with_status_2() {
        let failure = load(Path::new("/nonexistent/link.json")).unwrap_err();
        assert_eq!(failure.status, 2);
    }

    #[test]
    fn what_opensand_takes_is_taken_leniently_and_advised_of() {
        let dir = std::env::temp_dir().join(format!("satlink-lenient-{}", std::process::id()));
        let geo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        std::fs::create_dir_all(dir.join("profile")).unwrap();
        for name in profile::FILES {
            let text = std::fs::read_to_string(geo.join(name)).unwrap();
            let slip = text.replace("<bandwidth>50000<", "<bandwidth>50000.7<");
            std::fs::write(dir.join("profile").join(name), slip).unwrap();
        }
        let file = dir.join("link.json");
        let mut value = config::tests::example("geo");
        value["profile"] = dir.join("profile").display().to_string().into();
        std::fs::write(&file, value.to_string()).unwrap();
        assert_eq!(load(&file).unwrap_err().status, 2);
        value["lenient"] = true.into();
        std::fs::write(&file, value.to_string()).unwrap();
        let (config, profile) = load(&file).unwrap();
        let plan = serde_json::to_value(plan::plan(&config, &profile).unwrap()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let advice = plan["advice"].to_string();
        assert!(advice.contains("OpenSAND reads 50000"), "{advice}");
    }
}
