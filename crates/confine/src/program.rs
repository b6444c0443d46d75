// SPDX-License-Identifier: GPL-3.0-or-later
//! From root of the host to the program: limits, user, capabilities, filter, exec.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use seccompiler::BpfProgram;

use crate::cgroup::Groups;
use crate::spec::Spec;
use crate::{filter, sockets, sys};

/// Processes of the user, who may have several sandboxes, as a multiple of those in one.
const SANDBOXES: u64 = 4;
const LAST_CAPABILITY: u8 = 63;
const LOCKED_BYTES: u64 = 64 << 20;

/// The program, and what is opened before the root changes.
pub struct Prepared {
    /// Its argument vector, not empty.
    pub argv: Vec<String>,
    /// The user namespace of the lab.
    pub user_namespace: Option<File>,
    /// The compiled system-call filters.
    pub filters: [BpfProgram; 2],
}

/// Becomes the program. Returns only with an error.
pub fn become_it(
    spec: &Spec,
    prepared: &Prepared,
    groups: &Groups,
    output: &OwnedFd,
    first: &UnixStream,
) -> io::Error {
    let name = &prepared.argv[0];
    let ready = confine(spec, prepared, groups, output)
        .and_then(|()| sockets::ask(first))
        .and_then(|()| filter::apply(&prepared.filters))
        .and_then(|()| if spec.held { await_release() } else { Ok(()) });
    let error = match ready {
        Ok(()) => Command::new(name)
            .args(&prepared.argv[1..])
            .env_clear()
            .envs(&spec.variables)
            .exec(), // by execvp(3): looked up in the program's own PATH
        Err(error) => io::Error::new(error.kind(), format!("sandbox: {error}")),
    };
    let _ = writeln!(io::stderr(), "error: {name}: {error}");
    error
}

fn confine(spec: &Spec, prepared: &Prepared, groups: &Groups, output: &OwnedFd) -> io::Result<()> {
    sys::duplicate(output, 1)?;
    sys::duplicate(output, 2)?;
    sys::new_session()?;
    groups.join()?;
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000"); // the first to go when the host runs out of memory
    std::env::set_current_dir(&spec.directory)?;
    limit(spec)?;
    sys::new_keyring()?;
    if let Some(namespace) = &prepared.user_namespace {
        sys::enter(namespace, libc::CLONE_NEWUSER)?;
    }
    drop_privileges(spec)?;
    for number in [libc::SIGTERM, libc::SIGPIPE, libc::SIGXFSZ] {
        sys::default_signal(number);
    }
    Ok(())
}

/// Says that all is ready and waits for the caller's word; the program itself has no standard
/// input.
fn await_release() -> io::Result<()> {
    let mut caller = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    caller.write_all(b"+")?;
    caller.read_exact(&mut [0])?;
    sys::duplicate(&File::open("/dev/null")?.into(), 0)
}

fn limit(spec: &Spec) -> io::Result<()> {
    let limits = &spec.limits;
    for (resource, value) in [
        (libc::RLIMIT_NPROC, SANDBOXES * limits.processes),
        (libc::RLIMIT_FSIZE, limits.disk_bytes),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_MEMLOCK, LOCKED_BYTES),
    ] {
        sys::limit(resource, value)?;
    }
    // More than this process may open only where the host lets its root allow it.
    sys::set_limit(libc::RLIMIT_NOFILE, limits.open_files)
        .or_else(|_| sys::limit(libc::RLIMIT_NOFILE, limits.open_files))
}

/// Leaves this process with the granted capabilities, which count in the lab's user namespace only,
/// and no way to more.
fn drop_privileges(spec: &Spec) -> io::Result<()> {
    let granted = &spec.capabilities;
    for number in (0..=LAST_CAPABILITY).filter(|number| !granted.contains(number)) {
        // Numbers above the kernel's last answer EINVAL.
        let _ = sys::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number));
    }
    sys::prctl(libc::PR_SET_KEEPCAPS, 1)?;
    sys::become_user(spec.uid)?;
    sys::set_capabilities(granted.iter().map(|number| 1_u64 << number).sum())?;
    granted
        .iter()
        .try_for_each(|&number| sys::raise_ambient(number))?;
    sys::prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}
