// SPDX-License-Identifier: GPL-3.0-or-later
//! The system calls of this program.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Set by SIGTERM.
static SIGTERM_CAME: AtomicBool = AtomicBool::new(false);
/// `mount_setattr(2)`: `AT_RECURSIVE` of <linux/fcntl.h>.
const AT_RECURSIVE: libc::c_int = 0x8000;
/// Which side of a fork this is.
#[derive(Debug, PartialEq, Eq)]
pub enum Fork {
    /// The new process.
    Child,
    /// The caller, with the number of the new process.
    Parent(libc::pid_t),
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// fork(2). This program has one thread.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: single-threaded, so the child may go on as any process.
    match check(libc::c_long::from(unsafe { libc::fork() }))? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid as libc::pid_t)),
    }
}

/// pipe2(2), close-on-exec: read end, write end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which nobody else owns.
    unsafe {
        check(libc::c_long::from(libc::pipe2(
            ends.as_mut_ptr(),
            libc::O_CLOEXEC,
        )))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// dup2(2), without close-on-exec.
pub fn duplicate(from: &OwnedFd, to: RawFd) -> io::Result<()> {
    // SAFETY: numbers only.
    check(libc::c_long::from(unsafe {
        libc::dup2(from.as_raw_fd(), to)
    }))
    .map(drop)
}

/// Makes reads of a descriptor return at once.
pub fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: numbers only.
    check(libc::c_long::from(unsafe {
        libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK)
    }))
    .map(drop)
}

/// Waits until one of them can be read, SIGTERM comes, or `longest` is over; `None`: no end.
pub fn readable<const N: usize>(
    fds: [Option<&OwnedFd>; N],
    longest: Option<Duration>,
) -> [bool; N] {
    let mut polls = fds.map(|fd| libc::pollfd {
        fd: fd.map_or(-1, AsRawFd::as_raw_fd), // poll(2): negative ones are left out
        events: libc::POLLIN,
        revents: 0,
    });
    let longest = longest.map(|time| libc::timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    });
    let longest = longest
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: N entries; while it waits, no signal is blocked.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::ppoll(
            polls.as_mut_ptr(),
            N as libc::nfds_t,
            longest,
            &raw const none,
        );
    }
    polls.map(|poll| poll.revents & libc::POLLIN != 0)
}

/// A call of socket(2) that waits for an answer.
pub struct SocketCall {
    id: u64,
    /// Address family.
    pub family: libc::c_int,
    /// Type, without flags.
    pub kind: libc::c_int,
    /// Protocol.
    pub protocol: libc::c_int,
}

/// Lets calls of socket(2) of this process and its descendants, but for `AF_UNIX`, wait for who
/// holds the handle returned; `no_new_privs` must be set.
pub fn ask_for_sockets() -> io::Result<OwnedFd> {
    /// Offsets in `struct seccomp_data`: number of the call; low half of the first argument.
    const NUMBER: u32 = 0;
    const FAMILY: u32 = if cfg!(target_endian = "little") {
        16
    } else {
        20
    };
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, NUMBER),
        step(IS, 0, 3, libc::SYS_socket as u32),
        step(LOAD, 0, 0, FAMILY),
        step(IS, 1, 0, libc::AF_UNIX as u32),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: steps.len() as u16,
        filter: steps.as_mut_ptr(),
    };
    // SAFETY: the program and its steps live through the call; the descriptor is new.
    unsafe {
        let handle = check(libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        ))?;
        Ok(OwnedFd::from_raw_fd(handle as RawFd))
    }
}

/// A descriptor of another process.
pub fn fetch(process: &OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the descriptor is new.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            number,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// The next call that waits; `None`: its process has ended.
pub fn next_socket_call(handle: &OwnedFd) -> Option<SocketCall> {
    // SAFETY: the kernel wants an all-zero struct, and fills it in.
    let call = unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        let result = libc::ioctl(
            handle.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut call,
        );
        check(libc::c_long::from(result)).ok()?;
        call
    };
    let [family, kind, protocol, ..] = call.data.args.map(|word| word as libc::c_int);
    Some(SocketCall {
        id: call.id,
        family,
        kind: kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
        protocol,
    })
}

/// Lets a call go on, or fail with an error other than 0. Its process may have ended.
pub fn answer_socket_call(handle: &OwnedFd, call: &SocketCall, error: libc::c_int) {
    let flags = if error == 0 {
        libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32
    } else {
        0
    };
    let answer = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: -error,
        flags,
    };
    // SAFETY: one struct that lives through the call.
    unsafe {
        libc::ioctl(
            handle.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_SEND,
            &raw const answer,
        )
    };
}

/// `pidfd_open(2)`: can be read when the process has ended.
pub fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the descriptor is new.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// unshare(2).
pub fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: numbers only; single-threaded.
    check(libc::c_long::from(unsafe { libc::unshare(flags) })).map(drop)
}

/// setns(2).
pub fn enter(namespace: &File, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: numbers only; single-threaded.
    check(libc::c_long::from(unsafe {
        libc::setns(namespace.as_raw_fd(), kind)
    }))
    .map(drop)
}

/// prctl(2) with one argument.
pub fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: options used here take numbers.
    check(libc::c_long::from(unsafe {
        libc::prctl(option, value, 0, 0, 0)
    }))
    .map(drop)
}

/// Adds a granted capability to the ambient set.
pub fn raise_ambient(capability: u8) -> io::Result<()> {
    let (raise, number) = (
        libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
        libc::c_ulong::from(capability),
    );
    // SAFETY: numbers only.
    check(libc::c_long::from(unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, raise, number, 0, 0)
    }))
    .map(drop)
}

/// Sets effective, permitted and inheritable capabilities to a mask.
pub fn set_capabilities(mask: u64) -> io::Result<()> {
    /// `_LINUX_CAPABILITY_VERSION_3` of <linux/capability.h>.
    const VERSION: u32 = 0x2008_0522;
    let header = [VERSION, 0];
    let (low, high) = (mask as u32, (mask >> 32) as u32);
    let data = [low, low, low, high, high, high];
    // SAFETY: header and data have the layout of version 3.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) }).map(drop)
}

/// Whether this process is root's.
pub fn is_root() -> bool {
    // SAFETY: no argument.
    unsafe { libc::geteuid() == 0 }
}

/// Effective user and group.
pub fn user() -> [u32; 2] {
    // SAFETY: no argument.
    unsafe { [libc::geteuid(), libc::getegid()] }
}

/// Becomes a user and group without supplementary groups; capabilities are kept if that was asked
/// for. A process that is this user already, the only one of its user namespace, keeps its groups:
/// the kernel refuses it to drop them.
pub fn become_user(uid: u32) -> io::Result<()> {
    // SAFETY: numbers only.
    unsafe {
        if libc::getuid() != uid {
            check(libc::c_long::from(libc::setgroups(0, std::ptr::null())))?;
        }
        check(libc::c_long::from(libc::setresgid(uid, uid, uid)))?;
        check(libc::c_long::from(libc::setresuid(uid, uid, uid))).map(drop)
    }
}

/// Lowers a resource limit; one that is lower stays.
pub fn limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let mut held = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `held` is one rlimit.
    let read = unsafe { libc::getrlimit(resource, &raw mut held) };
    check(libc::c_long::from(read))?;
    set_limit(resource, value.min(held.rlim_max))
}

/// Sets a resource limit. A higher one than this process has needs `CAP_SYS_RESOURCE` on the host.
pub fn set_limit(resource: libc::__rlimit_resource_t, value: u64) -> io::Result<()> {
    let new = libc::rlimit {
        rlim_cur: value,
        rlim_max: value,
    };
    // SAFETY: `new` is one rlimit.
    let result = unsafe { libc::setrlimit(resource, &raw const new) };
    check(libc::c_long::from(result)).map(drop)
}

/// A session keyring of its own, so that the caller's cannot be read.
pub fn new_keyring() -> io::Result<()> {
    /// `KEYCTL_JOIN_SESSION_KEYRING` of <linux/keyctl.h>.
    const JOIN: libc::c_int = 1;
    // SAFETY: a null name makes an anonymous keyring.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN, std::ptr::null::<libc::c_char>()) };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()), // a kernel without keyrings
        other => other.map(drop),
    }
}

/// A new session.
pub fn new_session() -> io::Result<()> {
    // SAFETY: no argument.
    check(libc::c_long::from(unsafe { libc::setsid() })).map(drop)
}

/// Sends a signal. It is not an error if the process has ended.
pub fn signal(pid: libc::pid_t, number: libc::c_int) {
    // SAFETY: numbers only.
    unsafe { libc::kill(pid, number) };
}

/// Notes SIGTERM for [`sigterm_came`]. It comes only while [`readable`] waits, and ends that wait.
pub fn note_sigterm() {
    extern "C" fn note(_: libc::c_int) {
        SIGTERM_CAME.store(true, Ordering::Relaxed);
    }
    mask(libc::SIG_BLOCK, libc::SIGTERM);
    // SAFETY: the handler only stores to an atomic; without SA_RESTART it interrupts waits.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as *const () as libc::sighandler_t;
        libc::sigaction(libc::SIGTERM, &raw const action, std::ptr::null_mut());
    }
}

/// Ends this process by a signal, as the program ended.
pub fn end_by(number: libc::c_int) {
    default_signal(number);
    // SAFETY: numbers only.
    unsafe { libc::raise(number) };
}

/// Whether SIGTERM came.
pub fn sigterm_came() -> bool {
    SIGTERM_CAME.load(Ordering::Relaxed)
}

/// Default action for a signal, which is not blocked any more.
pub fn default_signal(number: libc::c_int) {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(number, libc::SIG_DFL) };
    mask(libc::SIG_UNBLOCK, number);
}

fn mask(how: libc::c_int, number: libc::c_int) {
    // SAFETY: a set on the stack, filled before it is used.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, number);
        libc::sigprocmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// One ended child: its number and its status (-N: signal N). `None`: no child has ended, or there
/// is none.
pub fn reap(wait: bool) -> Option<(libc::pid_t, i32)> {
    let mut raw = 0;
    // SAFETY: `raw` is one int.
    let pid = unsafe { libc::waitpid(-1, &raw mut raw, if wait { 0 } else { libc::WNOHANG }) };
    let status = if libc::WIFSIGNALED(raw) {
        -libc::WTERMSIG(raw)
    } else {
        libc::WEXITSTATUS(raw)
    };
    (pid > 0).then_some((pid, status))
}

/// CPU time (s) and the largest resident set (bytes) of the children that were reaped.
pub fn children_usage() -> (f64, u64) {
    // SAFETY: an all-zero rusage is valid, and is filled in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (
        seconds(usage.ru_utime) + seconds(usage.ru_stime),
        usage.ru_maxrss as u64 * 1024,
    )
}

/// mount(2) of a new file system.
pub fn mount_new(
    kind: &CStr,
    target: &Path,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let (target, options) = (c_string(target)?, CString::new(options)?);
    // SAFETY: all are C strings that live through the call.
    let result = unsafe {
        libc::mount(
            kind.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    check(libc::c_long::from(result)).map(drop)
}

/// Keeps mounts of this namespace from reaching others.
pub fn make_private() -> io::Result<()> {
    let none = std::ptr::null();
    // SAFETY: a change of propagation takes no source, type or data.
    let result = unsafe {
        libc::mount(
            none,
            c"/".as_ptr(),
            none,
            libc::MS_REC | libc::MS_PRIVATE,
            none.cast(),
        )
    };
    check(libc::c_long::from(result)).map(drop)
}

/// Lets mounts below a mount point appear in other mount namespaces.
pub fn share(folder: &Path) -> io::Result<()> {
    let folder = c_string(folder)?;
    let none = std::ptr::null();
    // SAFETY: a change of propagation takes no source, type or data.
    let result = unsafe {
        libc::mount(
            none,
            folder.as_ptr(),
            none,
            libc::MS_REC | libc::MS_SHARED,
            none.cast(),
        )
    };
    check(libc::c_long::from(result)).map(drop)
}

/// Whether a file system has no block left, and no inode; `false` where that is unknown.
pub fn is_full(folder: &Path) -> [bool; 2] {
    let Ok(folder) = c_string(folder) else {
        return [false; 2];
    };
    // SAFETY: an all-zero statvfs is valid, and is filled in; a C string that lives through the
    // call.
    let (found, result) = unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        let result = libc::statvfs(folder.as_ptr(), &raw mut found);
        (found, result)
    };
    [found.f_bavail, found.f_favail].map(|left| result == 0 && left == 0)
}

/// Memory of the host, bytes.
pub fn host_memory() -> u64 {
    // SAFETY: numbers only.
    let [pages, page] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0));
    pages * page
}

/// Bytes and inodes of the file system that an open file is on.
pub fn file_system_size(file: &File) -> io::Result<(u64, u64)> {
    // SAFETY: an all-zero statvfs is valid, and is filled in.
    unsafe {
        let mut found: libc::statvfs = std::mem::zeroed();
        check(libc::c_long::from(libc::fstatvfs(
            file.as_raw_fd(),
            &raw mut found,
        )))?;
        Ok((found.f_blocks.saturating_mul(found.f_frsize), found.f_files))
    }
}

/// Opens an absolute path, itself (`O_PATH`), that leads over no symbolic link and is none.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    let root = File::open("/")?;
    open_below(&root, path.strip_prefix("/").unwrap_or(path), 0)
}

/// Opens an entry of an open folder, itself: a symbolic link, too, which is not followed.
pub fn open_entry(folder: &File, name: &OsStr) -> io::Result<File> {
    open_below(folder, Path::new(name), libc::O_NOFOLLOW)
}

/// Opens what lies below a folder. No symbolic link on the way is followed, nor `..` out of the
/// folder.
fn open_below(folder: &File, path: &Path, more: libc::c_int) -> io::Result<File> {
    let is_folder = path.as_os_str().is_empty();
    let path = c_string(if is_folder { Path::new(".") } else { path })?;
    // SAFETY: an all-zero open_how is valid; C string and struct live through the call.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC | more) as u64;
        how.resolve = libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_BENEATH;
        let file = check(libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        ))?;
        Ok(File::from_raw_fd(file as RawFd))
    }
}

/// A detached copy of a mount tree: no set-user-ID, read-only unless `writable`, no devices unless
/// it is one.
pub fn clone_tree(source: &File, writable: bool, device: bool) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (AT_RECURSIVE | libc::AT_EMPTY_PATH) as u32;
    let mut set = libc::MOUNT_ATTR_NOSUID;
    set |= if writable { 0 } else { libc::MOUNT_ATTR_RDONLY };
    set |= if device { 0 } else { libc::MOUNT_ATTR_NODEV };
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    // SAFETY: an empty path means the descriptor itself; `attributes` has the kernel's layout and
    // size.
    unsafe {
        let tree = check(libc::syscall(
            libc::SYS_open_tree,
            source.as_raw_fd(),
            c"".as_ptr(),
            flags,
        ))?;
        let tree = OwnedFd::from_raw_fd(tree as RawFd);
        check(libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        ))?;
        Ok(tree)
    }
}

/// Attaches a detached mount tree.
pub fn attach(tree: &OwnedFd, target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: an empty source path means the descriptor itself.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(result).map(drop)
}

/// Mounts a file on another, both by path.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let (source, target) = (c_string(source)?, c_string(target)?);
    let none = std::ptr::null();
    // SAFETY: C strings that live through the call; a bind takes neither type nor data.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            none,
            libc::MS_BIND,
            none.cast(),
        )
    };
    check(libc::c_long::from(result)).map(drop)
}

/// Makes the working directory, a mount point, the root, and lets go of the old one.
pub fn pivot_root() -> io::Result<()> {
    // SAFETY: C strings; the old root is stacked below the new one, then detached.
    unsafe {
        check(libc::syscall(
            libc::SYS_pivot_root,
            c".".as_ptr(),
            c".".as_ptr(),
        ))?;
        check(libc::c_long::from(libc::umount2(
            c".".as_ptr(),
            libc::MNT_DETACH,
        )))?;
        check(libc::c_long::from(libc::chdir(c"/".as_ptr()))).map(drop)
    }
}

/// sethostname(2).
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length of one string.
    check(libc::c_long::from(unsafe {
        libc::sethostname(name.as_ptr().cast(), name.len())
    }))
    .map(drop)
}

/// Detaches the mount on a file.
pub fn unmount(target: &Path) -> io::Result<()> {
    let target = c_string(target)?;
    // SAFETY: one C string.
    check(libc::c_long::from(unsafe {
        libc::umount2(target.as_ptr(), libc::MNT_DETACH)
    }))
    .map(drop)
}

/// What a symbolic link, opened itself, contains.
pub fn link_target(link: &File) -> io::Result<std::path::PathBuf> {
    let mut buffer = [0_u8; libc::PATH_MAX as usize];
    // SAFETY: an empty path means the descriptor itself; pointer and length of one buffer.
    let length = unsafe {
        libc::readlinkat(
            link.as_raw_fd(),
            c"".as_ptr(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
        )
    };
    let length = check(length as libc::c_long)? as usize;
    Ok(OsStr::from_bytes(&buffer[..length]).into())
}
