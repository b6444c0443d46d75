// SPDX-License-Identifier: GPL-3.0-or-later
//! What the processes of this PID namespace use, from proc(5). This process has number 1 and does
//! not count.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Threads, resident bytes, and whether a thread is runnable (state R).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Threads of all processes.
    pub threads: u64,
    /// Resident memory; pages that processes share count once each.
    pub resident_bytes: u64,
    /// A thread runs or could run.
    pub is_runnable: bool,
}

const PAGE: u64 = 4096;

fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_one = |name: &str| name != "1" && name.bytes().all(|byte| byte.is_ascii_digit());
    entries
        .filter(move |entry| entry.file_name().to_str().is_some_and(is_one))
        .map(|entry| entry.path())
}

/// Numbers of all processes.
pub fn pids() -> impl Iterator<Item = libc::pid_t> {
    processes().filter_map(|path| path.file_name()?.to_str()?.parse().ok())
}

/// Usage at this moment. Processes that end meanwhile do not count.
pub fn now() -> Usage {
    let mut usage = Usage::default();
    for process in processes() {
        let Some(found) = stat(&process.join("stat")) else {
            continue;
        };
        usage.threads += found.threads;
        usage.resident_bytes += PAGE * found.resident_pages;
        usage.is_runnable = usage.is_runnable
            || found.is_runnable
            || (found.threads > 1 && has_runnable_thread(&process));
    }
    usage
}

fn has_runnable_thread(process: &Path) -> bool {
    let tasks = fs::read_dir(process.join("task"));
    let mut found = tasks.into_iter().flatten().flatten();
    found.any(|task| stat(&task.path().join("stat")).is_some_and(|found| found.is_runnable))
}

/// What a `stat` file says of a process, or of one of its threads.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    is_runnable: bool,
    threads: u64,
    resident_pages: u64,
}

fn stat(path: &Path) -> Option<Stat> {
    let mut text = [0; 1024]; // one read: these files are short, and read often
    let length = File::open(path).ok()?.read(&mut text).ok()?;
    let text = &text[..length];
    let end = text.iter().rposition(|&byte| byte == b')')?; // a program chooses its name: any bytes
    let mut fields = std::str::from_utf8(&text[end + 1..])
        .ok()?
        .split_ascii_whitespace();
    Some(Stat {
        is_runnable: fields.next()? == "R",
        threads: fields.nth(16)?.parse().ok()?,
        resident_pages: fields.nth(3)?.parse().ok()?,
    })
}

/// Processes and threads that were started so far: the last number given (`/proc/loadavg`).
pub fn started() -> u64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace()
        .last()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// Bytes of open files without a name that are on none of the file systems of `folders`:
/// `memfd_create(2)`.
pub fn memory_files(folders: &[PathBuf]) -> u64 {
    let devices = devices(folders);
    nameless_bytes(|device| !devices.contains(&device))
}

fn devices(folders: &[PathBuf]) -> Vec<u64> {
    let found = folders.iter().filter_map(|folder| folder.metadata().ok());
    found.map(|found| found.dev()).collect()
}

fn nameless_bytes(is_on: impl Fn(u64) -> bool) -> u64 {
    let mut seen = std::collections::BTreeSet::new();
    let mut bytes = 0;
    let folders = processes().filter_map(|process| fs::read_dir(process.join("fd")).ok());
    for entry in folders.flatten().flatten() {
        let Ok(found) = fs::metadata(entry.path()) else {
            continue;
        };
        let is_nameless = found.is_file() && found.nlink() == 0 && is_on(found.dev());
        if is_nameless && seen.insert((found.dev(), found.ino())) {
            bytes += found.blocks() * 512;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_hold_any_bytes() {
        let path = std::env::temp_dir().join(format!("satbox-stat-{}", std::process::id()));
        let rest = format!(") R {} 3 {} 9 0\n", "1 ".repeat(16), "2 ".repeat(3));
        fs::write(&path, [b"7 (a) \xff", rest.as_bytes()].concat()).unwrap();
        let expected = Stat {
            is_runnable: true,
            threads: 3,
            resident_pages: 9,
        };
        assert_eq!(stat(&path), Some(expected));
        fs::remove_file(path).unwrap();
    }
}
