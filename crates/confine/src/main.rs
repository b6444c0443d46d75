// SPDX-License-Identifier: GPL-3.0-or-later
//! `satbox`: runs one program in a sandbox, or makes the namespaces of a lab. Started by root.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

mod cgroup;
mod filter;
mod namespaces;
mod output;
mod program;
mod root;
mod spec;
mod sys;
mod usage;
mod watch;

use cgroup::Groups;
use output::Output;
use program::Prepared;
use spec::{Report, Spec};
use sys::Fork;

const USAGE: &str = "usage: satbox run FD            spec (JSON, schemas/sandbox.schema.json) is read from descriptor FD
       satbox namespaces USER-FILE FIRST-UID COUNT NETWORK-FILE...";
/// Largest spec, bytes.
const MOST_SPEC: u64 = 4 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["run", number] => read(number).and_then(|spec| run(&spec)),
        ["namespaces", user, first, count, networks @ ..] => make(user, first, count, networks),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(if error.kind() == io::ErrorKind::InvalidInput {
                2
            } else {
                3
            })
        }
    }
}

fn invalid(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

fn make(user: &str, first: &str, count: &str, networks: &[&str]) -> io::Result<()> {
    namespaces::make(&namespaces::Request {
        user: user.into(),
        first_uid: first.parse().map_err(invalid)?,
        uids: count.parse().map_err(invalid)?,
        networks: networks.iter().map(PathBuf::from).collect(),
    })
}

fn read(number: &str) -> io::Result<Spec> {
    let mut text = String::new();
    let file = sys::inherited(number.parse().map_err(invalid)?)?;
    file.take(MOST_SPEC).read_to_string(&mut text)?;
    Spec::parse(&text).map_err(invalid)
}

/// Starts the first process of new namespaces and waits for it; SIGTERM is passed on.
fn run(spec: &Spec) -> io::Result<()> {
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    let mut report = sys::inherited(spec.report)?;
    if let Some(path) = &spec.network {
        sys::enter(&File::open(path)?, libc::CLONE_NEWNET)?;
    }
    let groups = Groups::make(
        &format!("{}-{}", spec.name, std::process::id()),
        &spec.limits,
    );
    sys::unshare(
        libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP,
    )?;
    sys::note_sigterm();
    match sys::fork()? {
        Fork::Child => {
            let ended = first(spec, &groups).unwrap_or_else(|error| Report {
                status: -libc::SIGKILL,
                why: format!("the sandbox cannot be built: {error}"),
                enforced_by: groups.enforced_by(),
                ..Report::default()
            });
            let text = serde_json::to_vec(&ended).map_err(io::Error::other)?;
            let _ = report.write_all(&text);
            std::process::exit(0);
        }
        Fork::Parent(first) => {
            drop(report);
            wait(first);
            groups.remove();
            Ok(())
        }
    }
}

/// Passes SIGTERM on until the first process has ended.
fn wait(first: libc::pid_t) {
    let mut is_passed_on = false;
    loop {
        if sys::reap(true).is_some() {
            return;
        }
        if sys::asked_to_end() && !is_passed_on {
            sys::signal(first, libc::SIGTERM);
            is_passed_on = true;
        }
    }
}

/// Process 1 of the PID namespace: everything in it ends with this one.
fn first(spec: &Spec, groups: &Groups) -> io::Result<Report> {
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    let user_namespace = spec.user_namespace.as_ref().map(File::open).transpose()?;
    let prepared = Prepared {
        user_namespace,
        filters: filter::compile()?,
    };
    root::build(spec)?;
    let (read, write) = sys::pipe()?;
    match sys::fork()? {
        Fork::Child => {
            drop(read);
            program::become_it(spec, &prepared, groups, &write);
            std::process::exit(126);
        }
        Fork::Parent(program) => {
            drop(write);
            Ok(watch::until_end(spec, groups, program, Output::new(read)?))
        }
    }
}
