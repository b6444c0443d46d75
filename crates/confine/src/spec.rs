// SPDX-License-Identifier: GPL-3.0-or-later
//! What a sandboxed program sees and may do, read from a JSON file (schemas/sandbox.schema.json).

use std::path::PathBuf;

use schema::Schemas;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../schemas/sandbox.schema.json");

/// A sandbox.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// User and group.
    pub uid: u32,
    /// Capability numbers of capabilities(7), granted inside `user_namespace`.
    #[serde(default)]
    pub capabilities: Vec<u8>,
    /// File of the user namespace that owns the network; `None`: the initial one, and no capability
    /// is granted.
    #[serde(default)]
    pub user_namespace: Option<PathBuf>,
    /// File of the network namespace; `None`: a new one, without a network.
    #[serde(default)]
    pub network: Option<PathBuf>,
    /// An empty folder that becomes the root.
    pub root: PathBuf,
    /// Whose programs are visible: `/`, or an unpacked root file system.
    pub base: PathBuf,
    /// Further files and folders.
    pub mounts: Vec<Mount>,
    /// Host name inside.
    pub name: String,
    /// Working directory inside; `None`: the caller's.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// Text of `/etc/hosts`; `None`: the base's.
    #[serde(default)]
    pub hosts: Option<String>,
    /// New file that the report goes to, as one JSON object; there is none if the file exists.
    #[serde(default)]
    pub report: Option<PathBuf>,
    /// The program is started only when the caller, whose socket is standard input, sends a byte.
    #[serde(default)]
    pub held: bool,
    /// What the program may use.
    pub limits: Limits,
}

/// A file or folder of the host, visible inside.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Path on the host, without symbolic links.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// May be written.
    #[serde(default)]
    pub writable: bool,
}

/// Limits; the program is ended when it exceeds one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Wall-clock time, s; `None`: no limit.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Memory of all its processes with tmpfs, shared and locked memory, bytes.
    pub memory_bytes: u64,
    /// Processes and threads at a time.
    pub processes: u64,
    /// What it may write: in writable mounts together, in `/tmp`, and to one file, bytes.
    pub disk_bytes: u64,
    /// Files and folders in writable mounts.
    pub files: u64,
    /// Between SIGTERM and SIGKILL, s.
    pub grace_s: f64,
    /// First its descendants are ended, within this time, s, then the program.
    #[serde(default)]
    pub descendants_grace_s: f64,
}

/// Limits of a group that no process joins.
pub const TRIAL: Limits = Limits {
    seconds: None,
    memory_bytes: 1 << 20,
    processes: 1,
    disk_bytes: 1,
    files: 1,
    grace_s: 0.0,
    descendants_grace_s: 0.0,
};

/// How the program ended.
#[derive(Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Report {
    /// Exit status; -N for signal N.
    pub status: i32,
    /// The limit that ended it, in words; empty otherwise.
    pub why: String,
    /// From the start of the program to its end, s.
    pub lasted_s: f64,
    /// CPU time of all its processes, s.
    pub cpu_s: f64,
    /// Peak memory, bytes.
    pub peak_bytes: u64,
    /// Time in which a thread was runnable and had no core, s, from samples.
    pub waited_s: f64,
    /// Which kernel interface enforced memory and processes: `cgroup2`, `cgroup1` or `watch`.
    pub enforced_by: String,
}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// The text is not JSON that fits the schema (all faults), a path inside leads out, or a
    /// capability would be the host's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let schemas = Schemas::parse(&[SCHEMA])?;
        let faults = schemas.check("satlab/sandbox", "", &value, &mut |_, _, _, _| {});
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let spec: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let inside = |path: &PathBuf| {
            path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..")
        };
        let targets = spec.mounts.iter().map(|mount| &mount.target);
        if let Some(path) = targets.chain(&spec.directory).find(|path| !inside(path)) {
            return Err(format!("{} is not absolute", path.display()));
        }
        if spec.user_namespace.is_none() && !spec.capabilities.is_empty() {
            return Err(
                "capabilities count in a user namespace only, and none is named".to_owned(),
            );
        }
        Ok(spec)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A spec as text, with `more` members.
    pub fn text(more: &str) -> String {
        format!(
            r#"{{"uid": 1, "root": "/r", "base": "/",
            "mounts": [{{"source": "/a", "target": "/b"}}], "name": "x", "limits":
            {{"memory_bytes": 1, "processes": 1, "disk_bytes": 1, "files": 1, "grace_s": 1}}{more}}}"#
        )
    }

    #[test]
    fn a_spec_is_read_and_unknown_fields_are_refused() {
        let spec = Spec::parse(&text("")).unwrap();
        assert_eq!(
            (spec.limits.seconds, spec.mounts[0].writable),
            (None, false)
        );
        assert!(
            Spec::parse(&text(r#", "shell": true"#))
                .unwrap_err()
                .contains("shell")
        );
    }

    #[test]
    fn capabilities_of_the_host_are_refused() {
        assert!(Spec::parse(&text(r#", "capabilities": [12]"#)).is_err());
        let inside = r#", "capabilities": [12], "user_namespace": "/u""#;
        assert_eq!(Spec::parse(&text(inside)).unwrap().capabilities, [12]);
    }

    #[test]
    fn targets_stay_inside() {
        for bad in ["b", "/../etc", "/a/../../b"] {
            let spec = text("").replace("\"/b\"", &format!("\"{bad}\""));
            assert!(Spec::parse(&spec).is_err(), "{bad}");
            let spec = text(&format!(r#", "directory": "{bad}""#));
            assert!(Spec::parse(&spec).is_err(), "{bad}");
        }
    }
}
