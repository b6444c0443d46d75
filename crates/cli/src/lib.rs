// SPDX-License-Identifier: GPL-3.0-or-later
//! Code shared by the programs that use the emulator: failures with an exit status, and the loading
//! of configuration and profile.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use emulator::config::{self, Config, ConfigError};
use emulator::{demand, gateway_changes, links, network};
use profile::{Mode, Profile};

/// Largest configuration that is read, bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// Largest loss trace that is read, bytes.
const MAX_TRACE_BYTES: u64 = 64 << 20;
/// Hint on a faulty profile.
pub const PROFILE_HINT: &str = "correct the faults listed, then run: satlink validate PROFILE_DIR";

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

    /// Writes the failure to stderr.
    pub fn log(&self) {
        log(&format!("error: {}\nhint: {}", self.what, self.hint));
    }
}

/// Writes to stderr. A closed stderr is not an error: the emulator outlives its parent.
pub fn log(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Reads a configuration and its profile; every fault goes to stderr.
///
/// # Errors
/// Either has faults.
pub fn load(path: &Path) -> Result<(Config, Profile), Failure> {
    let refused = |faults: &[String], hint: &str| {
        for fault in faults {
            log(&format!("{}: {fault}", path.display()));
        }
        let what = format!("{} in {}", counted(faults.len()), path.display());
        Failure::usage(what, hint)
    };
    let text = read_text(path, MAX_CONFIG_BYTES).map_err(|reason| ConfigError(vec![reason]));
    let config = text.and_then(|text| config::parse(&text, &read_trace));
    let config = config.map_err(|error| {
        let hint = "fields and ranges: schemas/link-config.schema.json";
        refused(&error.0, hint)
    })?;
    let profile = match config.satellite {
        Some(_) => load_profile(&config.profile, Mode::of(config.lenient))?,
        // OpenSAND carries the satellite segment and judges the profile.
        None => profile::read(&config.profile, Mode::Lenient)
            .map_err(|faults| refused_profile(&config.profile, &faults))?,
    };
    let mut faults = demand::check(&config.others, &profile);
    faults.extend(gateway_changes::check(&config, &profile));
    faults.extend(links::check(&config, &profile));
    if faults.is_empty() {
        let profile = network::of_equals(&config, profile);
        Ok((config, profile))
    } else {
        Err(refused(&faults, "make configuration and profile agree"))
    }
}

/// Reads a profile; every fault goes to stderr.
///
/// # Errors
/// It has faults.
pub fn load_profile(dir: &Path, mode: Mode) -> Result<Profile, Failure> {
    profile::load_as(dir, mode).map_err(|faults| refused_profile(dir, &faults))
}

/// Logs the faults of a profile; returns the failure that they are.
#[must_use]
pub fn refused_profile(dir: &Path, faults: &profile::Faults) -> Failure {
    log(&faults.to_string());
    let count = counted(faults.as_slice().len());
    let what = format!("{count} in profile {}", dir.display());
    Failure::usage(what, PROFILE_HINT)
}

/// A number of faults in words.
#[must_use]
pub fn counted(faults: usize) -> String {
    match faults {
        1 => "1 fault".to_owned(),
        _ => format!("{faults} faults"),
    }
}

/// The text of a loss trace.
///
/// # Errors
/// The reason, where it cannot be read.
pub fn read_trace(path: &str) -> Result<String, String> {
    read_text(Path::new(path), MAX_TRACE_BYTES)
}

/// The text of a file of at most so many bytes.
///
/// # Errors
/// The reason, where it cannot be read.
pub fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let unreadable = |error: io::Error| format!("cannot be read: {error}");
    let meta = fs::metadata(path).map_err(unreadable)?;
    if !meta.is_file() || meta.len() > most {
        return Err(format!("is not a file of at most {most} bytes"));
    }
    fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
#[path = "../../emulator/src/testing.rs"]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_faults_end_with_status_2() {
        let failure = load(Path::new("/nonexistent/link.json")).unwrap_err();
        assert_eq!(failure.status, 2);
    }

    #[test]
    fn what_opensand_takes_is_taken_leniently_and_advised_of() {
        let dir = std::env::temp_dir().join(format!("satlink-lenient-{}", std::process::id()));
        let geo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../opensand-profiles/geo");
        fs::create_dir_all(dir.join("profile")).unwrap();
        for name in profile::FILES {
            let text = fs::read_to_string(geo.join(name)).unwrap();
            let slip = text.replace("<bandwidth>50000<", "<bandwidth>50000.7<");
            fs::write(dir.join("profile").join(name), slip).unwrap();
        }
        let file = dir.join("link.json");
        let mut value = testing::example("geo");
        value["profile"] = dir.join("profile").display().to_string().into();
        fs::write(&file, value.to_string()).unwrap();
        assert_eq!(load(&file).unwrap_err().status, 2);
        value["lenient"] = true.into();
        fs::write(&file, value.to_string()).unwrap();
        let (config, profile) = load(&file).unwrap();
        let plan = emulator::plan::plan(&config, &profile).unwrap();
        let plan = serde_json::to_value(plan).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let advice = plan["advice"].to_string();
        assert!(advice.contains("OpenSAND reads 50000"), "{advice}");
    }
}
