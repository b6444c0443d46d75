// SPDX-License-Identifier: GPL-3.0-or-later
//! `satlink`: emulates one satellite path between TUN devices from an `OpenSAND` 8.2 profile.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use profile::{Fault, Faults, Mode, Profile};
use serde::Serialize;

use cli::{Failure, PROFILE_HINT, load, log, refused_profile};
use emulator::config::Config;
use emulator::plan;
use satlink::describe::{description, inspection, summary, terminals};
use satlink::entity::Entity;
use satlink::run;

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
    /// Check profile folders or single files; every fault is reported with file, line, element and
    /// remedy
    Validate {
        /// Profile folders, in any layout of `OpenSAND`'s tools, or single XML files
        #[arg(required = true, value_name = "PROFILE_DIR")]
        profiles: Vec<PathBuf>,
        /// Only warn of what the loader of 8.2.0 takes although it is wrong
        #[arg(long)]
        lenient: bool,
        /// Print the result as JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Print what the entities of a platform need of their machines, as JSON: addresses, TAPs,
    /// MACs, folders
    Describe {
        /// Profile folder
        #[arg(value_name = "PROFILE_DIR")]
        profile: PathBuf,
    },
    /// Print what satlink makes of a profile, as JSON: link, warnings, what it does not carry,
    /// faults
    Inspect {
        /// Profile folder, in any layout of `OpenSAND`'s tools
        #[arg(value_name = "PROFILE_DIR")]
        profile: PathBuf,
    },
    /// Print what the frame arithmetic says: rates (bit/s), delays (ms), queues (bytes), goodput
    /// (bit/s)
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
        /// What of the path this process is; all but `all` need `emulation` in the configuration
        #[arg(long, value_enum, default_value_t = Entity::All)]
        entity: Entity,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Validate {
            profiles,
            lenient,
            json,
        } => validate(&profiles, Mode::of(lenient), json),
        Command::Describe { profile } => describe(&profile),
        Command::Inspect { profile } => {
            print_json(&inspection(&profile::read(&profile, Mode::Lenient)))
        }
        Command::Plan { config } => {
            load(&config).and_then(|(config, profile)| print_plan(&config, &profile))
        }
        Command::Run { config, entity } => {
            load(&config).and_then(|(config, profile)| run::run(&config, &profile, entity))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.log();
            ExitCode::from(failure.status)
        }
    }
}

/// Of a profile that satlink cannot carry as well: `OpenSAND` judges the rest.
fn describe(dir: &Path) -> Result<(), Failure> {
    let platform = profile::platform(dir).map_err(|faults| refused_profile(dir, &faults))?;
    print_json(&description(&platform))
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
        .map(|dir| (dir.display().to_string(), checked(dir, mode)))
        .collect();
    if json {
        let checked = results.iter().map(|(dir, result)| Checked {
            profile: dir.clone(),
            valid: result.is_ok(),
            faults: result.as_ref().err().map_or(&[], Faults::as_slice),
            warnings: (result.as_ref()).map_or(&[], |(warnings, _)| warnings.as_slice()),
        });
        print_json(&checked.collect::<Vec<_>>())?;
    } else {
        for (dir, result) in &results {
            match result {
                Ok((warnings, lines)) => {
                    for warning in warnings.as_slice() {
                        log(&format!("warning: {warning}"));
                    }
                    for line in lines {
                        print(&format!("{dir}: {line}"))?;
                    }
                }
                Err(faults) => log(&faults.to_string()),
            }
        }
    }
    match results.iter().filter(|(_, result)| result.is_err()).count() {
        0 => Ok(()),
        bad => Err(Failure::usage(
            format!("{bad} of {} profiles have faults", dirs.len()),
            PROFILE_HINT,
        )),
    }
}

/// Warnings and a summary of a profile folder, or of a single file, in lines.
fn checked(path: &Path, mode: Mode) -> Result<(Faults, Vec<String>), Faults> {
    if path.is_file() {
        let warnings = profile::check_single(path, mode)?;
        return Ok((warnings, vec!["valid by itself".into()]));
    }
    let profile = profile::load_as(path, mode)?;
    let lines = [summary(&profile)].into_iter().chain(terminals(&profile));
    Ok((profile.warnings.clone(), lines.collect()))
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
    Failure::host(
        format!("stdout: {error}"),
        "redirect stdout to a file or program that can be written",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn faulty_profiles_end_with_status_2() {
        let failure = validate(&[PathBuf::from("/nonexistent")], Mode::Lenient, false).unwrap_err();
        assert_eq!(failure.status, 2);
        assert!(failure.what.contains("1 of 1"));
    }
}
