// SPDX-License-Identifier: GPL-3.0-or-later
//! `satlink`: emulates one satellite path between TUN devices from an `OpenSAND` 8.2 profile.

mod config;
mod control;
mod demand;
mod direction;
mod drive;
mod metrics;
mod order;
mod plan;
mod run;
mod set;
mod sys;
mod timeline;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use profile::{Fault, Faults, Mode, Profile};
use serde::Serialize;

use crate::config::{Config, Timing};

/// Emulates one satellite path: DVB-S2 forward link, DVB-RCS2 return link, terrestrial delay.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUSES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUSES: &str = "Exit status: 0 done, 2 usage, configuration or profile, 3 the host cannot do it.\n\
Units: rates in bit/s, delays in ms, queues in bytes of IP packets; profiles keep OpenSAND's units (kHz, kbit/s, dB, ms).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Check profile folders; every fault is reported with file, line, element and remedy
    Validate {
        /// Profile folders, six XML files each
        #[arg(required = true, value_name = "PROFILE_DIR")]
        profiles: Vec<PathBuf>,
        /// Only warn of what the loader of 8.2.0 takes although it is wrong
        #[arg(long)]
        lenient: bool,
        /// Print the result as JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Print what the entities of a platform need of their machines, as JSON: addresses, TAPs, MACs, folders
    Describe {
        /// Profile folder
        #[arg(value_name = "PROFILE_DIR")]
        profile: PathBuf,
    },
    /// Print what the frame arithmetic says: rates (bit/s), delays (ms), queues (bytes), goodput (bit/s)
    Plan {
        /// Link configuration, schemas/link-config.schema.json
        #[arg(value_name = "CONFIG.json")]
        config: PathBuf,
    },
    /// Emulate until SIGTERM or SIGINT; prints {"ready":true,"pid":N} once packets flow (root)
    Run {
        /// Link configuration, schemas/link-config.schema.json
        #[arg(value_name = "CONFIG.json")]
        config: PathBuf,
    },
}

/// What to do about a faulty profile.
const MEND: &str = "mend what the list says, then: satlink validate PROFILE_DIR";

/// An error that ends the program: status, one line, and what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    status: u8,
    what: String,
    hint: String,
}

impl Failure {
    /// Usage, configuration or profile: status 2.
    fn usage(what: String, hint: impl Into<String>) -> Self {
        Self {
            status: 2,
            what,
            hint: hint.into(),
        }
    }

    /// The host cannot do it: status 3.
    fn host(what: String, hint: impl Into<String>) -> Self {
        Self {
            status: 3,
            what,
            hint: hint.into(),
        }
    }
}

/// Says something on stderr. The reader may be gone, as the emulator outlives its parent; that is no error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Validate {
            profiles,
            lenient,
            json,
        } => {
            let mode = if lenient { Mode::Lenient } else { Mode::Strict };
            validate(&profiles, mode, json)
        }
        Command::Describe { profile } => load_profile(&profile).and_then(|it| describe(&it)),
        Command::Plan { config } => {
            load(&config).and_then(|(config, profile)| print_plan(&config, &profile))
        }
        Command::Run { config } => {
            load(&config).and_then(|(config, profile)| run::run(&config, &profile))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note(&format!("error: {}\nhint: {}", failure.what, failure.hint));
            ExitCode::from(failure.status)
        }
    }
}

fn load(path: &Path) -> Result<(Config, Profile), Failure> {
    let config = config::load(path).map_err(|faults| {
        note(&faults.to_string());
        let what = format!("{} faults in {}", faults.0.len(), path.display());
        Failure::usage(what, "fields and ranges: schemas/link-config.schema.json")
    })?;
    let profile = load_profile(&config.profile)?;
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

fn load_profile(dir: &Path) -> Result<Profile, Failure> {
    profile::load(dir).map_err(|faults| {
        note(&faults.to_string());
        let count = faults.as_slice().len();
        Failure::usage(format!("{count} faults in profile {}", dir.display()), MEND)
    })
}

/// What `describe` prints, schemas/profile-description.schema.json.
#[derive(Serialize)]
struct Description<'a> {
    schema: &'static str,
    profile_sha256: &'a str,
    #[serde(flatten)]
    platform: &'a profile::Platform,
}

fn describe(profile: &Profile) -> Result<(), Failure> {
    print_json(&description(profile))
}

fn description(profile: &Profile) -> Description<'_> {
    Description {
        schema: "satlab/profile-description/1",
        profile_sha256: &profile.sha256,
        platform: &profile.platform,
    }
}

/// Result of checking one profile, for `--json`.
#[derive(Serialize)]
struct Checked<'a> {
    profile: String,
    valid: bool,
    faults: &'a [Fault],
    warnings: &'a [Fault],
}

fn validate(dirs: &[PathBuf], mode: Mode, json: bool) -> Result<(), Failure> {
    let results: Vec<_> = dirs
        .iter()
        .map(|dir| (dir.display().to_string(), profile::load_as(dir, mode)))
        .collect();
    if json {
        let checked = results.iter().map(|(dir, result)| Checked {
            profile: dir.clone(),
            valid: result.is_ok(),
            faults: result.as_ref().err().map_or(&[], Faults::as_slice),
            warnings: (result.as_ref()).map_or(&[], |profile| profile.warnings.as_slice()),
        });
        print_json(&checked.collect::<Vec<_>>())?;
    } else {
        for (dir, result) in &results {
            match result {
                Ok(profile) => {
                    for warning in profile.warnings.as_slice() {
                        note(&format!("warning: {warning}"));
                    }
                    print(&summary(dir, profile))?;
                }
                Err(faults) => note(&faults.to_string()),
            }
        }
    }
    match results.iter().filter(|(_, result)| result.is_err()).count() {
        0 => Ok(()),
        bad => Err(Failure::usage(
            format!("{bad} of {} profiles have faults", dirs.len()),
            MEND,
        )),
    }
}

fn summary(dir: &str, profile: &Profile) -> String {
    let (forward, back) = (&profile.forward, &profile.return_link);
    format!(
        "{dir}: forward {} at {:.3} Mbaud, return {} in {}{} slots per {} ms, {} ms one way",
        forward.modcod,
        forward.symbol_rate as f64 / 1e6,
        back.waveform,
        if profile.is_on_demand() { "up to " } else { "" },
        demand::slots(Timing::Standard, profile).most,
        back.superframe_ns as f64 / 1e6,
        profile.one_way_delay_ns as f64 / 1e6,
    )
}

fn print_plan(config: &Config, profile: &Profile) -> Result<(), Failure> {
    let plan = plan::plan(config, profile).map_err(|error| {
        Failure::usage(error.to_string(), "check the profile and the configuration")
    })?;
    print_json(&plan)
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(io::Error::from)
        .map_err(|error| unprinted(&error))?;
    print(&text)
}

fn print(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|error| unprinted(&error))
}

fn unprinted(error: &io::Error) -> Failure {
    Failure::host(format!("stdout: {error}"), "give stdout a place to go")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use serde_json::Value;

    /// Asserts that `value` has every required field of a JSON schema and none that it does not know, at every depth.
    pub(crate) fn assert_fields(schema: &Value, value: &Value, place: &str) {
        if value.is_null() && schema["type"].to_string().contains("null") {
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
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn description_has_exactly_the_fields_of_its_schema() {
        let schema: Value = serde_json::from_str(include_str!(
            "../../../schemas/profile-description.schema.json"
        ))
        .unwrap();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        let described = serde_json::to_value(description(&load_profile(&dir).unwrap())).unwrap();
        assert_fields(&schema, &described, "description");
        assert_eq!(described["st"]["tap_iface"], "tap");
        assert_eq!(described["gw"]["mac_address"], "00:00:00:00:00:01");
        assert_eq!(described["sat"]["emu_address"], "10.77.0.1");
        assert_eq!(described["st"]["path_local"], "/var/log/opensand/st");
    }

    #[test]
    fn configuration_faults_end_with_status_2() {
        let failure = load(Path::new("/nonexistent/link.json")).unwrap_err();
        assert_eq!(failure.status, 2);
        let failure = validate(&[PathBuf::from("/nonexistent")], Mode::Lenient, false).unwrap_err();
        assert_eq!(failure.status, 2);
        assert!(failure.what.contains("1 of 1"));
    }
}
