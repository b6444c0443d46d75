// SPDX-License-Identifier: GPL-3.0-or-later
//! What a sandboxed program sees and may do, read from a JSON file (schemas/sandbox.schema.json).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Variables of a program.
const MOST_VARIABLES: usize = 1000;
/// Their names and values together, bytes.
const MOST_VARIABLE_BYTES: usize = 1 << 20;
const MOST_NAME_BYTES: usize = 256;
/// Linux's limit of one word, `MAX_ARG_STRLEN` of `execve(2)`, less a name.
const MOST_VALUE_BYTES: usize = (128 << 10) - MOST_NAME_BYTES - 2;

/// A sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// User and group.
    #[schemars(range(min = 1, max = 4_294_967_294_u32))]
    pub uid: u32,
    /// Capability numbers of capabilities(7), granted inside `user_namespace`.
    #[serde(default)]
    #[schemars(length(max = 64), inner(range(min = 0, max = 63)))]
    pub capabilities: Vec<u8>,
    /// File of the user namespace that owns the network; null: the initial one, and no capability
    /// is granted.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub user_namespace: Option<PathBuf>,
    /// File of the network namespace; null: a new one, without a network.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub network: Option<PathBuf>,
    /// An empty folder that becomes the root.
    #[schemars(length(min = 1, max = 4096))]
    pub root: PathBuf,
    /// Whose programs are visible: `/`, or an unpacked root file system, a path as a mount's
    /// source.
    #[schemars(length(min = 1, max = 4096))]
    pub base: PathBuf,
    /// Further files and folders.
    #[schemars(length(max = 1000))]
    pub mounts: Vec<Mount>,
    /// Host name inside.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Working directory inside.
    #[schemars(length(min = 1, max = 4096))]
    pub directory: PathBuf,
    /// All environment variables of the program, at most 1000: name (letters, digits, _ . and -, no
    /// digit first, at most 256 bytes) to value (no NUL, at most 130814 bytes); at most 1 MiB
    /// together.
    pub variables: BTreeMap<String, String>,
    /// Text of `/etc/hosts`; null: the base's.
    #[serde(default)]
    #[schemars(length(max = 1_048_576))]
    pub hosts: Option<String>,
    /// New file that the report goes to, as one JSON object; there is none if the file exists.
    #[serde(default)]
    pub report: Option<PathBuf>,
    /// The program is started only when the caller, whose socket is standard input, sends a byte.
    #[serde(default)]
    pub held: bool,
    /// Packet sockets may have rings, which are memory that nothing limits.
    #[serde(default)]
    pub packet_rings: bool,
    /// What the program may use.
    pub limits: Limits,
}

/// A file or folder of the host, visible inside.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Absolute path on the host; it is refused if it is or leads over a symbolic link.
    #[schemars(length(min = 1, max = 4096))]
    pub source: PathBuf,
    /// Absolute path inside.
    #[schemars(length(min = 1, max = 4096))]
    pub target: PathBuf,
    /// May be written.
    #[serde(default)]
    pub writable: bool,
}

/// Limits; the program is ended when it exceeds one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Wall-clock time, s; null: no limit.
    #[serde(default)]
    #[schemars(range(min = 0.001, max = 1_000_000))]
    pub seconds: Option<f64>,
    /// Memory of all its processes with tmpfs, shared and locked memory, bytes.
    #[schemars(range(min = 1, max = 1_152_921_504_606_846_976_u64))]
    pub memory_bytes: u64,
    /// Processes and threads at a time.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub processes: u64,
    /// What it may write: in writable mounts together, in `/tmp`, and to one file, bytes.
    #[schemars(range(min = 1, max = 1_152_921_504_606_846_976_u64))]
    pub disk_bytes: u64,
    /// Files and folders in writable mounts.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub files: u64,
    /// Files that a process may open at a time, as far as the host allows.
    #[serde(default = "open_files")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub open_files: u64,
    /// Between SIGTERM and SIGKILL, s.
    #[schemars(range(min = 0, max = 3600))]
    pub grace_s: f64,
    /// First its descendants are ended, within this time, s, then the program.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub descendants_grace_s: f64,
}

const fn open_files() -> u64 {
    4096
}

/// Limits of a group that no process joins.
pub const TRIAL: Limits = Limits {
    seconds: None,
    memory_bytes: 1 << 20,
    processes: 1,
    disk_bytes: 1,
    files: 1,
    open_files: open_files(),
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

/// The schema of a spec.
fn schema() -> Value {
    let title = "A sandbox: what a program sees, may do and may use (satbox run). Made by satlab.lab.sandbox";
    schema::read::<Spec>("sandbox", title)
}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// The text is not JSON that fits the schema (all faults), a path inside leads out, a variable
    /// is none, or a capability would be the host's.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let faults = schema::check(&schema(), "", &value, &[]);
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let spec: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        let inside = |path: &PathBuf| {
            path.is_absolute() && !path.components().any(|part| part.as_os_str() == "..")
        };
        if let Some(mount) = spec.mounts.iter().find(|it| it.target == Path::new("/")) {
            let source = mount.source.display();
            return Err(format!("{source} would be all that the program sees"));
        }
        let sources = spec.mounts.iter().map(|mount| &mount.source);
        if let Some(path) = sources.chain([&spec.base]).find(|path| !inside(path)) {
            return Err(format!("{} is not absolute", path.display()));
        }
        let targets = spec.mounts.iter().map(|mount| &mount.target);
        if let Some(path) = targets.chain([&spec.directory]).find(|path| !inside(path)) {
            return Err(format!("{} is not absolute", path.display()));
        }
        check_variables(&spec.variables)?;
        if spec.user_namespace.is_none() && !spec.capabilities.is_empty() {
            return Err(
                "capabilities count in a user namespace only, and none is named".to_owned(),
            );
        }
        Ok(spec)
    }
}

fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), String> {
    let bytes: usize = variables
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if variables.len() > MOST_VARIABLES || bytes > MOST_VARIABLE_BYTES {
        let most = format!("{MOST_VARIABLES} variables of {MOST_VARIABLE_BYTES} bytes");
        return Err(format!("variables: more than {most}"));
    }
    let is_value = |value: &str| value.len() <= MOST_VALUE_BYTES && !value.contains('\0');
    if let Some((name, _)) = variables.iter().find(|(_, value)| !is_value(value)) {
        return Err(format!(
            "variables: {name:?} has a NUL or more than {MOST_VALUE_BYTES} bytes"
        ));
    }
    match variables.keys().find(|name| !is_name(name)) {
        Some(name) => Err(format!("variables: {name:?} is not the name of a variable")),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    let may_be_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    name.len() <= MOST_NAME_BYTES
        && name.bytes().next().is_some_and(is_first)
        && name.bytes().all(may_be_inside)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A spec as text, with `more` members.
    pub fn text(more: &str) -> String {
        format!(
            r#"{{"uid": 1, "root": "/r", "base": "/",
            "mounts": [{{"source": "/a", "target": "/b"}}], "name": "x",
            "directory": "/tmp", "variables": {{"A": "b"}}, "limits":
            {{"memory_bytes": 1, "processes": 1, "disk_bytes": 1, "files": 1, "grace_s": 1}}{more}}}"#
        )
    }

    #[test]
    fn schema_file_is_that_of_the_types() {
        schema::compare_with_file(&schema());
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
    fn sources_and_targets_are_absolute_and_targets_stay_inside() {
        assert!(Spec::parse(&text("").replace("\"/b\"", "\"/\"")).is_err());
        for bad in ["b", "/../etc", "/a/../../b"] {
            let spec = text("").replace("\"/b\"", &format!("\"{bad}\""));
            assert!(Spec::parse(&spec).is_err(), "{bad}");
            let spec = text("").replace("\"/a\"", &format!("\"{bad}\""));
            assert!(Spec::parse(&spec).is_err(), "{bad}");
            let spec = text("").replace("\"/tmp\"", &format!("\"{bad}\""));
            assert!(Spec::parse(&spec).is_err(), "{bad}");
        }
    }

    #[test]
    fn variables_are_bounded_and_have_names() {
        let of = |variables: &str| {
            Spec::parse(&text("").replace(r#"{"A": "b"}"#, variables)).map(|spec| spec.variables)
        };
        assert_eq!(of(r#"{"A.b-1": ""}"#).unwrap().len(), 1);
        for bad in ["", "1A", "A=B", "A B", "\\u0000", "Ä", &"A".repeat(257)] {
            let refusal = of(&format!(r#"{{"{bad}": ""}}"#)).unwrap_err();
            assert!(refusal.contains("not the name of a variable"), "{refusal}");
        }
        assert!(of(r#"{"A": "a\u0000b"}"#).is_err());
        assert!(of(&format!(r#"{{"A": "{}"}}"#, "a".repeat(131_073))).is_err());
        let several = |count: usize, value: &str| {
            let each: Vec<_> = (0..count)
                .map(|n| format!(r#""A{n}": "{value}""#))
                .collect();
            of(&format!("{{{}}}", each.join(",")))
        };
        assert!(several(1000, "").is_ok() && several(1001, "").is_err());
        assert!(
            several(10, &"a".repeat(110_000))
                .unwrap_err()
                .contains("more than")
        );
    }
}
