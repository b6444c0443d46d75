// SPDX-License-Identifier: GPL-3.0-or-later
//! Watches a program until it ends: by itself, by a limit, or because somebody asks.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::Groups;
use crate::output::Output;
use crate::spec::{Limits, Report, Spec};
use crate::{sockets, sys, usage};

/// Between two looks at the program's processes.
const TICK: Duration = Duration::from_millis(50);
/// Where the kernel limits memory and processes, the time between two looks grows after this many
/// of them: waits of a short life are sampled well, and the watch of a long one costs little, 0.3
/// ms for each look.
const LOOKS: u32 = 40;
const LONGEST_TICK: Duration = Duration::from_millis(500);
/// Processes started in a tick: a shell script's.
const MOST_FORKS: u64 = 64;

/// Who has had SIGTERM.
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
    /// When SIGTERM was seen here, which is passed on.
    sigterm_seen: Option<Instant>,
    stage: Stage,
    /// From the start to the last look.
    looked: Duration,
    /// For how long a thread ran or could run.
    demand: Duration,
    peak_bytes: u64,
    started: u64,
    /// Usage of processes is sampled where the kernel does not limit it, and where a report wants
    /// it.
    samples: bool,
}

/// Waits for the end of `program`, ends everything else in this PID namespace, and returns how it
/// went.
///
/// `from_program`: where its process says how to hear of sockets.
pub fn until_end(
    spec: &Spec,
    groups: &Groups,
    program: libc::pid_t,
    mut output: Output,
    from_program: &UnixStream,
) -> Report {
    let pidfd = sys::pidfd(program).ok();
    let socket_requests = pidfd
        .as_ref()
        .and_then(|pidfd| sockets::fetch(from_program, pidfd));
    let writable = spec
        .mounts
        .iter()
        .filter(|mount| mount.writable && mount.target.is_dir())
        .map(|mount| mount.target.clone());
    let mut watch = Watch {
        limits: &spec.limits,
        groups,
        writable: writable.collect(),
        program,
        began: Instant::now(),
        sigterm_seen: None,
        stage: Stage::Running,
        looked: Duration::ZERO,
        demand: Duration::ZERO,
        peak_bytes: 0,
        started: usage::started(),
        samples: !groups.are_limits() || spec.report.is_some(),
    };
    let most_sockets = sockets::most(spec.limits.memory_bytes);
    let mut log = io::stdout();
    let (mut status, mut why) = (None, String::new());
    let mut is_output_open = true;
    while status.is_none() && why.is_empty() {
        let next = watch.looked + watch.tick();
        while watch.began.elapsed() < next && status.is_none() && !watch.is_sigterm_new() {
            let left = next.saturating_sub(watch.began.elapsed());
            let text = is_output_open.then_some(output.handle());
            let waiting = [text, pidfd.as_ref(), socket_requests.as_ref()];
            let [_, _, has_request] = sys::readable(waiting, Some(left));
            if let Some(handle) = socket_requests.as_ref().filter(|_| has_request) {
                sockets::answer(handle, most_sockets);
            }
            is_output_open = is_output_open && output.relay(&mut log);
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
    output.relay(&mut log);
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

    fn tick(&self) -> Duration {
        if self.groups.are_limits() && self.sigterm_seen.is_none() {
            (self.looked / LOOKS).clamp(TICK, LONGEST_TICK)
        } else {
            TICK
        }
    }

    /// Whether SIGTERM has come since the last look.
    fn is_sigterm_new(&self) -> bool {
        self.sigterm_seen.is_none() && sys::sigterm_came()
    }

    /// The limit that is exceeded, in words; empty if none is.
    fn exceeded(&mut self) -> String {
        let before = std::mem::replace(&mut self.looked, self.began.elapsed());
        let why = self.time();
        if !why.is_empty() {
            return why;
        }
        let [memory, processes] = self.groups.exceeded();
        let [more_memory, more_processes] = self.sample(self.looked.saturating_sub(before));
        if processes || more_processes {
            return self.forks();
        }
        if memory || more_memory {
            return self.memory();
        }
        self.disk()
    }

    /// Whether the processes together exceed the limits of memory and processes, by a look at each,
    /// `since` the last one.
    fn sample(&mut self, since: Duration) -> [bool; 2] {
        if !self.samples {
            return [false, false];
        }
        let now = usage::now();
        if now.is_runnable {
            self.demand += since;
        }
        self.peak_bytes = self.peak_bytes.max(now.resident_bytes);
        if self.groups.are_limits() {
            return [false, false]; // the kernel counts shared pages once
        }
        // Those of a fork bomb may have ended before they are seen.
        let started = usage::started();
        let forked = started.saturating_sub(self.started);
        self.started = started;
        let most = self.limits.processes;
        let memory = now.resident_bytes + usage::memory_files(&self.writable);
        [
            memory > self.limits.memory_bytes,
            now.threads > most || forked > most.max(MOST_FORKS),
        ]
    }

    fn time(&mut self) -> String {
        if sys::sigterm_came() {
            let seen = *self.sigterm_seen.get_or_insert_with(Instant::now);
            let descendants = Duration::from_secs_f64(self.limits.descendants_grace_s);
            let grace = descendants + Duration::from_secs_f64(self.limits.grace_s);
            if seen.elapsed() > grace {
                return format!("it did not end within {} s of SIGTERM", grace.as_secs_f64());
            }
            self.pass_sigterm_on(seen.elapsed() < descendants);
        }
        match self.limits.seconds {
            Some(most) if self.began.elapsed().as_secs_f64() > most => {
                format!("it did not end within {most} s")
            }
            _ => String::new(),
        }
    }

    /// Sends SIGTERM once: to the descendants of the program while there are some and their time
    /// lasts, then to the program.
    fn pass_sigterm_on(&mut self, is_their_time: bool) {
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
        format!("fork bomb: it has more than {most} processes")
    }

    fn memory(&self) -> String {
        format!(
            "it took more than {} MiB of memory",
            self.limits.memory_bytes >> 20
        )
    }

    /// Says that a file system which the program may write is full. Its size is the limit, which
    /// the kernel keeps.
    fn disk(&self) -> String {
        let own = std::iter::once(Path::new("/tmp"));
        let folders = own.chain(self.writable.iter().map(PathBuf::as_path));
        for [no_bytes, no_files] in folders.map(sys::is_full) {
            if no_bytes {
                return format!("it wrote {} MiB or more", self.limits.disk_bytes >> 20);
            }
            if no_files {
                return format!("it made more than {} files", self.limits.files);
            }
        }
        String::new()
    }

    fn report(self, status: i32, mut why: String) -> Report {
        let (cpu_s, largest) = sys::children_usage();
        if why.is_empty() {
            let [memory, processes] = self.groups.exceeded();
            why = match (memory, processes) {
                (true, _) => self.memory(),
                (_, true) => self.forks(),
                _ => self.disk(),
            };
        }
        let lasted_s = self.began.elapsed().as_secs_f64();
        let demand_s = self.demand.as_secs_f64();
        let milli = |seconds: f64| (seconds * 1e3).round() / 1e3;
        Report {
            status,
            why,
            lasted_s: milli(lasted_s),
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
