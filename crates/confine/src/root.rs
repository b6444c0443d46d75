// SPDX-License-Identifier: GPL-3.0-or-later
//! The root that a program finds: programs read-only, what the spec shows, everything else new and
//! small.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::spec::{Limits, Spec};
use crate::sys;

/// Folders of a host's root that hold programs; the others hold people's and services' data.
const HOST_PLACES: [&str; 10] = [
    "bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix",
];
/// Folders that are new in every sandbox.
const OWN_PLACES: [&str; 5] = ["proc", "sys", "dev", "tmp", "run"];
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// `/dev/shm`, bytes.
const SHARED_MEMORY: u64 = 256 << 20;

/// A file system in memory has whole pages.
const PAGE: u64 = 4096;

/// A host path that is held open while the root is made, as it may lie below it.
struct Held {
    file: File,
    target: PathBuf,
    writable: bool,
}

/// Builds the root at `spec.root` and makes it this process's. The mount namespace must be new.
///
/// # Errors
/// The kernel refuses a mount, or a source does not exist.
pub fn build(spec: &Spec) -> io::Result<()> {
    sys::make_private()?;
    let held = hold(spec)?;
    check_sizes(&held, &spec.limits)?;
    let root = &spec.root;
    scratch(root, "mode=0755,size=4m")?;
    std::env::set_current_dir(root)?;
    let inside = |name: &str| root.join(name);
    scratch(
        &inside("tmp"),
        &format!(
            "mode=1777,size={},nr_inodes={}",
            spec.limits.disk_bytes, spec.limits.files
        ),
    )?;
    scratch(&inside("run"), "mode=0755,size=1m")?;
    devices(&inside("dev"))?;
    for each in &held {
        show(each, root)?;
    }
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    for (name, kind, more) in [("proc", c"proc", 0), ("sys", c"sysfs", libc::MS_RDONLY)] {
        fs::create_dir(inside(name))?;
        sys::mount_new(kind, &inside(name), flags | more, "")?;
    }
    if let Some(hosts) = &spec.hosts {
        let target = inside("etc/hosts");
        if refuse_links(root, &target).is_ok() {
            cover(&target, hosts, &inside("run/hosts"))?;
        }
    }
    sys::set_host_name(&spec.name)?;
    sys::pivot_root()
}

fn hold(spec: &Spec) -> io::Result<Vec<Held>> {
    let base = open_source(&spec.base)?;
    let names: Vec<OsString> = if spec.base == Path::new("/") {
        HOST_PLACES.map(OsString::from).to_vec()
    } else {
        let own = OWN_PLACES.map(OsStr::new);
        let entries = fs::read_dir(format!("/proc/self/fd/{}", base.as_raw_fd()))?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
        names
            .filter(|name| !matches!(name, Ok(name) if own.contains(&name.as_os_str())))
            .collect::<Result<_, _>>()?
    };
    let mut held = Vec::new();
    for name in names {
        let target = Path::new("/").join(&name);
        match sys::open_entry(&base, &name) {
            Ok(file) => held.push(Held {
                file,
                target,
                writable: false,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // a host has not all of them
            Err(error) => return Err(named(&target, &error)),
        }
    }
    for mount in &spec.mounts {
        let file = open_source(&mount.source)?;
        held.push(Held {
            file,
            target: mount.target.clone(),
            writable: mount.writable,
        });
    }
    Ok(held)
}

/// Opens what the spec names. Who can write a folder on the way cannot lead elsewhere by a link, at
/// no time.
fn open_source(path: &Path) -> io::Result<File> {
    sys::open_without_links(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => named(
            path,
            &io::Error::other("it is or leads over a symbolic link, which is not followed"),
        ),
        _ => named(path, &error),
    })
}

/// Refuses writable folders on file systems that together hold more than the limits: then the
/// kernel keeps these, also for unlinked files that no descriptor shows. A single file has
/// `RLIMIT_FSIZE`.
fn check_sizes(held: &[Held], limits: &Limits) -> io::Result<()> {
    let mut sizes = BTreeMap::new();
    let mut last = Path::new("/");
    for each in held.iter().filter(|each| each.writable) {
        let found = each.file.metadata()?;
        if found.is_dir() {
            sizes.insert(found.dev(), sys::file_system_size(&each.file)?);
            last = &each.target;
        }
    }
    let (bytes, files) = sizes.values().fold((0_u64, 0_u64), |(bytes, files), more| {
        (bytes.saturating_add(more.0), files.saturating_add(more.1))
    });
    if bytes > limits.disk_bytes.saturating_add(PAGE * sizes.len() as u64) || files > limits.files {
        let why = format!(
            "may be written, and its file system holds {bytes} bytes and {files} files: more than the limits"
        );
        return Err(named(last, &io::Error::other(why)));
    }
    Ok(())
}

fn scratch(folder: &Path, options: &str) -> io::Result<()> {
    if !folder.is_dir() {
        fs::create_dir(folder)?;
    }
    sys::mount_new(c"tmpfs", folder, libc::MS_NOSUID | libc::MS_NODEV, options)
}

fn devices(folder: &Path) -> io::Result<()> {
    fs::create_dir(folder)?;
    for name in DEVICES {
        let file = sys::open_without_links(&Path::new("/dev").join(name))?;
        show(
            &Held {
                file,
                target: Path::new("/").join(name),
                writable: true,
            },
            folder,
        )?;
    }
    scratch(
        &folder.join("shm"),
        &format!("mode=1777,size={SHARED_MEMORY}"),
    )?;
    symlink("/proc/self/fd", folder.join("fd"))?;
    for (number, name) in ["stdin", "stdout", "stderr"].iter().enumerate() {
        symlink(format!("/proc/self/fd/{number}"), folder.join(name))?;
    }
    Ok(())
}

/// Makes a held path visible below `root`; a symbolic link is copied.
fn show(held: &Held, root: &Path) -> io::Result<()> {
    let kind = held.file.metadata()?.file_type();
    let target = root.join(held.target.strip_prefix("/").unwrap_or(&held.target));
    refuse_links(root, &target)?;
    if let Some(parent) = target.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    if kind.is_symlink() {
        return symlink(sys::link_target(&held.file)?, &target);
    }
    if kind.is_dir() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&target)?;
    } else if target.symlink_metadata().is_err() {
        File::create(&target)?;
    }
    let tree = sys::clone_tree(&held.file, held.writable, kind.is_char_device())
        .map_err(|error| named(&held.target, &error))?;
    sys::attach(&tree, &target).map_err(|error| named(&held.target, &error))
}

/// A target that leads over a symbolic link would be outside `root`, which is not this process's
/// yet.
fn refuse_links(root: &Path, target: &Path) -> io::Result<()> {
    let is_link = |path: &Path| {
        path.symlink_metadata()
            .is_ok_and(|found| found.is_symlink())
    };
    let mut parts = target.ancestors().take_while(|part| *part != root);
    match parts.find(|part| is_link(part)) {
        Some(link) => {
            let why = io::Error::other("the target of a mount leads over a symbolic link");
            Err(named(link.strip_prefix(root).unwrap_or(link), &why))
        }
        None => Ok(()),
    }
}

/// Mounts a new file over one that exists; without one there, nothing reads it.
fn cover(target: &Path, text: &str, own: &Path) -> io::Result<()> {
    fs::write(own, text)?;
    match target.symlink_metadata() {
        Ok(found) if found.is_file() => sys::bind(own, target),
        _ => Ok(()),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_leads_over_a_link() {
        let root = std::env::temp_dir().join(format!("satbox-root-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("/etc", root.join("a/link")).unwrap();
        assert!(refuse_links(&root, &root.join("a/b/c")).is_ok());
        assert!(refuse_links(&root, &root.join("a/link/c")).is_err());
        assert!(refuse_links(&root, &root.join("a/link")).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn no_source_leads_over_a_link_or_out() {
        let own = std::env::temp_dir().canonicalize().unwrap();
        let own = own.join(format!("satbox-source-{}", std::process::id()));
        fs::create_dir_all(own.join("real/below")).unwrap();
        symlink(own.join("real"), own.join("link")).unwrap();
        assert!(open_source(&own.join("real/below")).is_ok());
        for bad in ["link", "link/below", "real/../link/below"] {
            let refusal = open_source(&own.join(bad)).unwrap_err().to_string();
            assert!(refusal.contains("symbolic link"), "{refusal}");
        }
        assert!(open_source(Path::new("/../etc")).is_err());
        assert!(open_source(Path::new("/proc/self/root")).is_err());
        let folder = open_source(&own).unwrap();
        let link = sys::open_entry(&folder, OsStr::new("link")).unwrap();
        assert_eq!(sys::link_target(&link).unwrap(), own.join("real"));
        fs::remove_dir_all(own).unwrap();
    }
}
