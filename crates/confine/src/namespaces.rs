// SPDX-License-Identifier: GPL-3.0-or-later
//! Network namespaces that belong to a user namespace of their own: a capability inside counts
//! nowhere else.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::sys::{self, Fork};

/// What is made, and from which users.
pub struct Request {
    /// File that the user namespace is mounted on.
    pub user: PathBuf,
    /// First user and group that exist inside, under the same number as outside.
    pub first_uid: u32,
    /// How many.
    pub uids: u32,
    /// Files that the network namespaces are mounted on.
    pub networks: Vec<PathBuf>,
}

/// Makes a user namespace without further ones inside, and network namespaces that it owns.
///
/// # Errors
/// The kernel allows no user namespace, or a file exists or cannot be made. What was made is
/// removed again.
pub fn make(request: &Request) -> io::Result<()> {
    let (child_in, to_child) = sys::pipe()?;
    let (from_child, child_out) = sys::pipe()?;
    match sys::fork()? {
        Fork::Child => {
            drop((to_child, from_child));
            let steps = 1 + request.networks.len();
            let ended = unshare_in_turn(File::from(child_in), File::from(child_out), steps);
            std::process::exit(i32::from(ended.is_err()));
        }
        Fork::Parent(pid) => {
            drop((child_in, child_out));
            let mut kept = Vec::new();
            let result = keep(
                request,
                pid,
                File::from(to_child),
                File::from(from_child),
                &mut kept,
            );
            sys::signal(pid, libc::SIGKILL);
            sys::reap(true);
            if result.is_err() {
                for path in &kept {
                    forget(path);
                }
            }
            result
        }
    }
}

/// Makes the calling process of an ordinary user the owner of a user namespace, in which this user
/// has the number `uid` and no other one exists. What it may do there counts nowhere else.
///
/// # Errors
/// The kernel allows ordinary users no user namespace.
pub fn own(uid: u32) -> io::Result<()> {
    let [user, group] = sys::user();
    sys::unshare(libc::CLONE_NEWUSER).map_err(|_| refused())?;
    fs::write("/proc/self/setgroups", "deny")?;
    for (name, outside) in [("uid_map", user), ("gid_map", group)] {
        fs::write(format!("/proc/self/{name}"), format!("{uid} {outside} 1\n"))?;
    }
    Ok(())
}

fn refused() -> io::Error {
    let why = "the kernel allows no user namespace (user.max_user_namespaces, or a rule of its security module)";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// The child: one unshare(2) for each byte that comes, answered by a byte.
fn unshare_in_turn(mut commands: File, mut answers: File, steps: usize) -> io::Result<()> {
    for step in 0..steps {
        if step == 0 {
            sys::unshare(libc::CLONE_NEWUSER)?;
        } else {
            sys::unshare(libc::CLONE_NEWNET)?;
        }
        answers.write_all(&[1])?;
        commands.read_exact(&mut [0])?;
    }
    Ok(())
}

/// The parent: keeps each namespace by a mount before the child makes the next one.
fn keep(
    request: &Request,
    pid: libc::pid_t,
    mut commands: File,
    mut answers: File,
    kept: &mut Vec<PathBuf>,
) -> io::Result<()> {
    answers.read_exact(&mut [0]).map_err(|_| refused())?;
    let map = format!("{0} {0} {1}\n", request.first_uid, request.uids);
    for name in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{name}"), &map)?;
    }
    mount(&request.user, pid, "user", kept)?;
    for file in &request.networks {
        share_folder_of(file)?;
        commands.write_all(&[1])?;
        answers.read_exact(&mut [0])?;
        mount(file, pid, "net", kept)?;
    }
    Ok(())
}

/// Makes the folder of network namespaces a mount that other mount namespaces share, as ip-netns(8)
/// does.
fn share_folder_of(file: &Path) -> io::Result<()> {
    let folder = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    sys::share(folder).or_else(|_| {
        sys::bind(folder, folder)?;
        sys::share(folder)
    })
}

fn mount(file: &Path, pid: libc::pid_t, kind: &str, kept: &mut Vec<PathBuf>) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(named)?;
    kept.push(file.to_owned());
    sys::bind(Path::new(&format!("/proc/{pid}/ns/{kind}")), file).map_err(named)
}

/// Removes a kept namespace; it ends with its last process.
pub fn forget(file: &Path) {
    let _ = sys::unmount(file);
    let _ = fs::remove_file(file);
}
