// SPDX-License-Identifier: GPL-3.0-or-later
//! Watches a program until it ends: by itself, by a limit, or because somebody asks.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::cgroup::Groups;
use crate::output::Output;
use crate::program::FORKS;
use crate::spec::{Limits, Report, Spec};
use crate::{sys, usage};

const TICK: Duration = Duration::from_millis(50);
const DISK_TICKS: u32 = 4;

/// Who has been asked to end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Descendants,
    Program,
}

/// The state of one watch.
struct Watch<'a> {
    limits: &'a Limits,
    groups: &'a Groups,
    writable: Vec<PathBuf>,
    program: libc::pid_t,
    began: Instant,
    asked: Option<Instant>,
    stage: Stage,
    ticks: u32,
    runnable: u32,
    peak_bytes: u64,
}

/// Waits for the end of `program`, ends everything else in this PID namespace, and returns how it went.
pub fn until_end(spec: &Spec, groups: &Groups, program: libc::pid_t, mut output: Output) -> Report {
    let writable = spec
        .mounts
        .iter()
        .filter(|mount| mount.writable)
        .map(|mount| mount.target.clone());
    let mut watch = Watch {
        limits: &spec.limits,
        groups,
        writable: writable.collect(),
        program,
        began: Instant::now(),
        asked: None,
        stage: Stage::Running,
        ticks: 0,
        runnable: 0,
        peak_bytes: 0,
    };
    let mut log = io::stdout();
    let (mut status, mut why) = (None, String::new());
    let mut is_open = true;
    while status.is_none() && why.is_empty() {
        let next = TICK * (watch.ticks + 1);
        while watch.began.elapsed() < next && status.is_none() {
            let left = next.saturating_sub(watch.began.elapsed()).as_millis() as i32;
            if is_open {
                is_open = output.relay(left.max(1), &mut log);
            } else {
                std::thread::sleep(Duration::from_millis(left.max(1) as u64));
            }
            status = watch.reap();
        }
        if status.is_none() {
            why = watch.exceeded();
        }
    }
    sys::signal(-1, libc::SIGKILL);
    while let Some((pid, ended)) = sys::reap(true) {
        status = if pid == program { Some(ended) } else { status };
    }
    output.relay(0, &mut log);
    output.finish(&mut log);
    let _ = log.flush();
    watch.report(status.unwrap_or(-libc::SIGKILL), why)
}

impl Watch<'_> {
    /// Status of the program if it has ended; its orphans are reaped as well.
    fn reap(&self) -> Option<i32> {
        let mut found = None;
        while let Some((pid, status)) = sys::reap(false) {
            found = if pid == self.program {
                Some(status)
            } else {
                found
            };
        }
        found
    }

    /// The limit that is exceeded, in words; empty if none is.
    fn exceeded(&mut self) -> String {
        self.ticks += 1;
        let now = usage::now();
        self.runnable += u32::from(now.is_runnable);
        self.peak_bytes = self.peak_bytes.max(now.resident_bytes);
        let why = self.time();
        if !why.is_empty() {
            return why;
        }
        if now.threads > self.limits.processes
            || usage::started() >= FORKS * self.limits.processes.max(64)
        {
            return self.forks();
        }
        if now.resident_bytes > self.limits.memory_bytes {
            return self.memory();
        }
        if self.ticks % DISK_TICKS == 0 {
            self.disk()
        } else {
            String::new()
        }
    }

    fn time(&mut self) -> String {
        if sys::asked_to_end() {
            let asked = *self.asked.get_or_insert_with(Instant::now);
            let descendants = Duration::from_secs_f64(self.limits.descendants_grace_s);
            let grace = descendants + Duration::from_secs_f64(self.limits.grace_s);
            if asked.elapsed() > grace {
                return "it did not end when it was asked to".to_owned();
            }
            self.ask(asked.elapsed() < descendants);
        }
        match self.limits.seconds {
            Some(most) if self.began.elapsed().as_secs_f64() > most => {
                format!("it did not end within {most} s")
            }
            _ => String::new(),
        }
    }

    /// Asks once: the descendants of the program while there are some and their time lasts, then the program.
    fn ask(&mut self, is_their_time: bool) {
        let descendants: Vec<_> = usage::pids().filter(|&pid| pid != self.program).collect();
        if is_their_time && !descendants.is_empty() {
            if self.stage == Stage::Running {
                self.stage = Stage::Descendants;
                signal_all(&descendants, libc::SIGTERM);
            }
        } else if self.stage != Stage::Program {
            if self.stage == Stage::Descendants {
                signal_all(&descendants, libc::SIGKILL);
            }
            self.stage = Stage::Program;
            sys::signal(self.program, libc::SIGTERM);
        }
    }

    fn forks(&self) -> String {
        let most = self.limits.processes;
        format!(
            "it forks without end: more than {most} processes at a time, or {FORKS} times as many in all"
        )
    }

    fn memory(&self) -> String {
        format!(
            "it took more than {} MiB of memory",
            self.limits.memory_bytes >> 20
        )
    }

    fn disk(&self) -> String {
        let (bytes, files) = usage::disk(&self.writable, self.limits.disk_bytes, self.limits.files);
        if bytes > self.limits.disk_bytes {
            format!("it wrote {} MiB or more", self.limits.disk_bytes >> 20)
        } else if files > self.limits.files {
            format!("it made more than {} files", self.limits.files)
        } else {
            String::new()
        }
    }

    fn report(self, status: i32, mut why: String) -> Report {
        let (cpu_s, largest) = sys::children_usage();
        if why.is_empty() {
            let [memory, processes] = self.groups.exceeded();
            why = match (memory, processes) {
                (true, _) => self.memory(),
                (_, true) => self.forks(),
                _ if status != 0 => self.disk(),
                _ => why,
            };
        }
        let demand_s = self.began.elapsed().as_secs_f64() * f64::from(self.runnable)
            / f64::from(self.ticks.max(1));
        let milli = |seconds: f64| (seconds * 1e3).round() / 1e3;
        Report {
            status,
            why,
            cpu_s: milli(cpu_s),
            peak_bytes: self.peak_bytes.max(largest).max(self.groups.peak_bytes()),
            waited_s: milli((demand_s - cpu_s).max(0.0)),
            enforced_by: self.groups.enforced_by().to_owned(),
        }
    }
}

fn signal_all(pids: &[libc::pid_t], number: libc::c_int) {
    for &pid in pids {
        sys::signal(pid, number);
    }
}
