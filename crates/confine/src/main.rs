// SPDX-License-Identifier: GPL-3.0-or-later
//! `satbox`: runs one program in a sandbox, or makes the namespaces of a lab. Started by root;
//! `run` without a lab also by an ordinary user, where the kernel allows user namespaces.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod cgroup;
mod filter;
mod namespaces;
mod output;
mod program;
mod root;
mod sockets;
mod spec;
mod sys;
mod usage;
mod watch;

use cgroup::Groups;
use output::Output;
use program::Prepared;
use spec::{Report, Spec};
use sys::Fork;

const USAGE: &str = "usage: satbox run SPEC-FILE -- COMMAND...     the command's variables and working directory are the file's
       satbox enforces     prints as JSON what enforces limits on this host
       satbox namespaces USER-FILE FIRST-UID COUNT NETWORK-FILE...
It starts with no variable but HOME, LANG and PATH: env -i satbox ...";
/// Variables that this program may have; it uses none. Others would be a program's that its caller
/// did not put into the spec.
const VARIABLES: [&str; 3] = ["HOME", "LANG", "PATH"];
/// Exit status of `namespaces` where the kernel allows no user namespace.
const NO_USER_NAMESPACES: u8 = 5;
/// Largest spec, bytes.
const MOST_SPEC: u64 = 4 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = check_variables().and_then(|()| match words.as_slice() {
        ["run", spec, "--", program @ ..] if !program.is_empty() => {
            read(spec).and_then(|spec| run(&spec, program))
        }
        ["enforces"] => enforces(),
        ["namespaces", user, first, count, networks @ ..] => make(user, first, count, networks),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, USAGE)),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::from(match error.kind() {
                io::ErrorKind::InvalidInput => 2,
                io::ErrorKind::Unsupported => NO_USER_NAMESPACES,
                _ => 3,
            })
        }
    }
}

fn invalid(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why.to_string())
}

fn check_variables() -> io::Result<()> {
    let mut names = std::env::vars_os().map(|(name, _)| name);
    match names.find(|name| VARIABLES.iter().all(|known| name != known)) {
        Some(name) => Err(invalid(format!(
            "the variable {}: satbox takes {} alone; a program's go into its spec",
            name.to_string_lossy(),
            VARIABLES.join(", ")
        ))),
        None => Ok(()),
    }
}

/// Tries groups and a user namespace, and prints what there is.
fn enforces() -> io::Result<ExitCode> {
    let groups = Groups::make(&format!("trial-{}", std::process::id()), &spec::TRIAL);
    groups.remove();
    let by = groups.enforced_by();
    let has_users = sys::unshare(libc::CLONE_NEWUSER).is_ok();
    let found = serde_json::json!({
        "memory": by,
        "processes": by,
        "disk": "file system",
        "capabilities": if has_users { "user namespace" } else { "not granted" },
    });
    writeln!(io::stdout(), "{found}")?;
    Ok(ExitCode::SUCCESS)
}

fn make(user: &str, first: &str, count: &str, networks: &[&str]) -> io::Result<ExitCode> {
    namespaces::make(&namespaces::Request {
        user: user.into(),
        first_uid: first.parse().map_err(invalid)?,
        uids: count.parse().map_err(invalid)?,
        networks: networks.iter().map(PathBuf::from).collect(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &str) -> io::Result<Spec> {
    let mut text = String::new();
    File::open(path)?
        .take(MOST_SPEC)
        .read_to_string(&mut text)?;
    Spec::parse(&text).map_err(invalid)
}

/// Starts the first process of new namespaces, waits for it and ends as the program did; SIGTERM is
/// passed on.
fn run(spec: &Spec, program: &[&str]) -> io::Result<ExitCode> {
    if !sys::is_root() {
        if spec.network.is_some() || spec.user_namespace.is_some() {
            return Err(invalid("only root runs programs in a lab"));
        }
        namespaces::own(spec.uid)?;
    }
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    let report = spec.report.as_deref().and_then(|path| new_file(path).ok());
    let network = match &spec.network {
        Some(path) => {
            sys::enter(&File::open(path)?, libc::CLONE_NEWNET)?;
            0
        }
        None => libc::CLONE_NEWNET,
    };
    let argv = program.iter().map(ToString::to_string).collect();
    let groups = Groups::make(
        &format!("{}-{}", spec.name, std::process::id()),
        &spec.limits,
    );
    sys::unshare(NAMESPACES | network)?;
    sys::note_sigterm();
    let (read, write) = sys::pipe()?;
    match sys::fork()? {
        Fork::Child => {
            drop((read, report));
            let ended = first(spec, argv, &groups).unwrap_or_else(|error| Report {
                status: -libc::SIGKILL,
                why: format!("the sandbox cannot be built: {error}"),
                enforced_by: groups.enforced_by().to_owned(),
                ..Report::default()
            });
            serde_json::to_writer(File::from(write), &ended)?;
            std::process::exit(0);
        }
        Fork::Parent(first) => {
            drop(write);
            wait(first)?;
            groups.remove();
            finish(File::from(read), report)
        }
    }
}

/// Namespaces of a sandbox, all of the caller's user namespace (root's: the initial one): nothing
/// inside may change them.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Passes SIGTERM on until the first process has ended.
fn wait(first: libc::pid_t) -> io::Result<()> {
    let ended = sys::pidfd(first)?;
    let mut is_passed_on = false;
    while sys::reap(false).is_none() {
        if sys::sigterm_came() && !is_passed_on {
            sys::signal(first, libc::SIGTERM);
            is_passed_on = true;
        }
        sys::readable([Some(&ended), None], None);
    }
    Ok(())
}

fn new_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).open(path)
}

/// Hands the report on and ends with the program's status or signal; an exceeded limit is an error
/// line in the log.
fn finish(mut from_first: File, to: Option<File>) -> io::Result<ExitCode> {
    let mut text = String::new();
    from_first.read_to_string(&mut text)?;
    let ended: Report =
        serde_json::from_str(&text).map_err(|_| io::Error::other("the sandbox was killed"))?;
    if let Some(mut to) = to {
        to.write_all(text.as_bytes())?;
    }
    if !ended.why.is_empty() {
        return Err(io::Error::other(ended.why));
    }
    if ended.status < 0 {
        sys::end_by(-ended.status);
    }
    Ok(ExitCode::from(u8::try_from(ended.status).unwrap_or(1)))
}

/// Process 1 of the PID namespace: everything in it ends with this one.
fn first(spec: &Spec, argv: Vec<String>, groups: &Groups) -> io::Result<Report> {
    sys::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong)?;
    let user_namespace = spec.user_namespace.as_ref().map(File::open).transpose()?;
    let prepared = Prepared {
        argv,
        user_namespace,
        filters: filter::compile(spec.packet_rings)?,
    };
    root::build(spec)?;
    let (read, write) = sys::pipe()?;
    let (ours, theirs) = UnixStream::pair()?;
    match sys::fork()? {
        Fork::Child => {
            drop((read, ours));
            program::become_it(spec, &prepared, groups, &write, &theirs);
            std::process::exit(126);
        }
        Fork::Parent(program) => {
            drop((write, theirs));
            let output = Output::new(read)?;
            Ok(watch::until_end(spec, groups, program, output, &ours))
        }
    }
}
