// SPDX-License-Identifier: GPL-3.0-or-later
//! Memory and process limits by control groups (cgroups(7)): version 2, else version 1, else none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::spec::Limits;
use crate::sys;

const PARENT: &str = "satlab";

/// What all sandboxes may have together, with the files in memory of programs that have ended:
/// three quarters of the host's.
fn all_together() -> String {
    (sys::host_memory() / 4 * 3).to_string()
}

/// The groups of one sandbox: one (version 2), one for each controller (version 1), or none.
#[derive(Debug)]
pub struct Groups {
    version: u8,
    folders: Vec<PathBuf>,
    /// Where a process writes "0" to join, opened before the root changes.
    joins: Vec<File>,
    /// Counters of exceeded limits, opened before the root changes: memory, processes.
    events: [Option<File>; 2],
    peak: Option<File>,
}

impl Groups {
    /// Makes groups named `name` with the limits, where the host has controllers that can be used.
    pub fn make(name: &str, limits: &Limits) -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        second(&mounts, name, limits)
            .or_else(|_| first(&mounts, name, limits))
            .unwrap_or(Self {
                version: 0,
                folders: Vec::new(),
                joins: Vec::new(),
                events: [None, None],
                peak: None,
            })
    }

    /// The interface that enforces the limits.
    pub fn enforced_by(&self) -> &'static str {
        match self.version {
            2 => "cgroup2",
            1 => "cgroup1",
            _ => "watch",
        }
    }

    /// Whether the kernel enforces the limits.
    pub fn are_limits(&self) -> bool {
        self.version > 0
    }

    /// Moves the calling process in.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn join(&self) -> io::Result<()> {
        self.joins
            .iter()
            .try_for_each(|mut file| file.write_all(b"0"))
    }

    /// Whether a process was killed for memory, and whether one was refused.
    pub fn exceeded(&self) -> [bool; 2] {
        let names = ["oom_kill", "max"];
        [0, 1].map(|at| {
            self.events[at]
                .as_ref()
                .is_some_and(|file| counter(&text_of(file), names[at]) > 0)
        })
    }

    /// Peak memory, bytes; 0 if it is not known.
    pub fn peak_bytes(&self) -> u64 {
        self.peak
            .as_ref()
            .and_then(|file| text_of(file).trim().parse().ok())
            .unwrap_or(0)
    }

    /// Removes the groups; their processes must have ended.
    pub fn remove(&self) {
        for folder in &self.folders {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Where a hierarchy is mounted: version 2 (`controller` `None`) or the version-1 hierarchy of a
/// controller.
fn mount_point(mounts: &str, controller: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (fields, rest) = line.split_once(" - ")?;
        let (kind, options) = rest.split_once(' ')?;
        let is_it = match controller {
            None => kind == "cgroup2",
            Some(name) => {
                kind == "cgroup"
                    && options
                        .rsplit(' ')
                        .next()?
                        .split(',')
                        .any(|word| word == name)
            }
        };
        is_it.then(|| PathBuf::from(fields.split(' ').nth(4).unwrap_or_default()))
    })
}

fn second(mounts: &str, name: &str, limits: &Limits) -> io::Result<Groups> {
    let top = mount_point(mounts, None).ok_or(io::ErrorKind::NotFound)?;
    let parent = top.join(PARENT);
    remove_left(&parent);
    for folder in [&top, &parent] {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("cgroup.subtree_control"), "+memory +pids")?;
    }
    fs::write(parent.join("memory.max"), all_together())?;
    limited(fresh(&parent.join(name))?, limits)
}

/// Writes the limits of version 2 to a new group.
fn limited(folder: PathBuf, limits: &Limits) -> io::Result<Groups> {
    fs::write(folder.join("memory.max"), limits.memory_bytes.to_string())?;
    let _ = fs::write(folder.join("memory.swap.max"), "0"); // a kernel without swap accounting
    fs::write(folder.join("pids.max"), limits.processes.to_string())?;
    Ok(Groups {
        version: 2,
        joins: vec![write_only(&folder.join("cgroup.procs"))?],
        events: [
            File::open(folder.join("memory.events")).ok(),
            File::open(folder.join("pids.events")).ok(),
        ],
        peak: File::open(folder.join("memory.peak")).ok(),
        folders: vec![folder],
    })
}

fn first(mounts: &str, name: &str, limits: &Limits) -> io::Result<Groups> {
    let make = |controller: &str| {
        let top = mount_point(mounts, Some(controller)).ok_or(io::ErrorKind::NotFound)?;
        let parent = top.join(PARENT);
        fs::create_dir_all(&parent)?;
        remove_left(&parent);
        fresh(&parent.join(name))
    };
    let (memory, pids) = (make("memory")?, make("pids")?);
    if let Some(parent) = memory.parent() {
        let _ = fs::write(parent.join("memory.limit_in_bytes"), all_together()); // refused while more is in use
    }
    fs::write(
        memory.join("memory.limit_in_bytes"),
        limits.memory_bytes.to_string(),
    )?;
    let _ = fs::write(
        memory.join("memory.memsw.limit_in_bytes"),
        limits.memory_bytes.to_string(),
    );
    // Buffers of TCP and what UDP has received: version 1 counts them apart, and only in a group
    // that has this limit when the socket is made. A kernel without it does not count them at all.
    let _ = fs::write(
        memory.join("memory.kmem.tcp.limit_in_bytes"),
        limits.memory_bytes.to_string(),
    );
    fs::write(pids.join("pids.max"), limits.processes.to_string())?;
    Ok(Groups {
        version: 1,
        joins: vec![
            write_only(&memory.join("cgroup.procs"))?,
            write_only(&pids.join("cgroup.procs"))?,
        ],
        events: [
            File::open(memory.join("memory.oom_control")).ok(),
            File::open(pids.join("pids.events")).ok(),
        ],
        peak: File::open(memory.join("memory.max_usage_in_bytes")).ok(),
        folders: vec![memory, pids],
    })
}

/// Removes groups of sandboxes that were killed: their names end with the number of a process that
/// is gone.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_process = |pid: &str| Path::new("/proc").join(pid).exists();
        if name
            .rsplit_once('-')
            .is_some_and(|(_, pid)| !is_process(pid))
        {
            let _ = fs::remove_dir(entry.path()); // refused while it has processes
        }
    }
}

/// A new group: one that a killed sandbox left is removed first.
fn fresh(folder: &Path) -> io::Result<PathBuf> {
    let _ = fs::remove_dir(folder);
    fs::create_dir(folder)?;
    Ok(folder.to_owned())
}

fn write_only(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn text_of(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut buffer = [0; 4096];
    let length = file.read_at(&mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(&buffer[..length]).into_owned()
}

/// A number of a flat keyed file.
fn counter(text: &str, name: &str) -> u64 {
    let value = |line: &str| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    };
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn hierarchies_are_found() {
        assert_eq!(
            mount_point(HYBRID, None),
            Some("/sys/fs/cgroup/unified".into())
        );
        assert_eq!(
            mount_point(HYBRID, Some("memory")),
            Some("/sys/fs/cgroup/memory".into())
        );
        assert_eq!(mount_point(HYBRID, Some("pids")), None);
    }

    const LIMITS: Limits = Limits {
        memory_bytes: 1000,
        processes: 7,
        ..crate::spec::TRIAL
    };

    fn new_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("satbox-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_group_of_version_2_has_the_limits_and_reports_what_was_exceeded() {
        let folder = new_folder("cgroup2");
        for (name, text) in [
            ("cgroup.procs", ""),
            ("memory.events", "max 3\noom_kill 1\n"),
            ("pids.events", "max 0\n"),
            ("memory.peak", "998\n"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let groups = limited(folder.clone(), &LIMITS).unwrap();
        groups.join().unwrap();
        let text = |name| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            ["memory.max", "memory.swap.max", "pids.max", "cgroup.procs"].map(text),
            ["1000", "0", "7", "0"]
        );
        assert_eq!(
            (groups.exceeded(), groups.peak_bytes(), groups.enforced_by()),
            ([true, false], 998, "cgroup2")
        );
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_hierarchy_of_version_2_without_delegated_controllers_is_not_used() {
        let folder = new_folder("undelegated");
        fs::create_dir(folder.join("cgroup.subtree_control")).unwrap(); // cannot be written
        let mounts = format!(
            "30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n",
            folder.display()
        );
        assert!(second(&mounts, "x-1", &LIMITS).is_err());
        assert!(!folder.join(PARENT).join("x-1").exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn counters_of_events_are_read() {
        let text = "low 0\noom 2\noom_kill 1\n";
        assert_eq!(
            (
                counter(text, "oom_kill"),
                counter(text, "oom"),
                counter(text, "max")
            ),
            (1, 2, 0)
        );
    }
}
