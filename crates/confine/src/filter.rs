// SPDX-License-Identifier: GPL-3.0-or-later
//! The system calls that a program may make (seccomp(2)): an allow-list, and a few that are refused
//! by name.
//!
//! A call that is not listed answers ENOSYS, as on a kernel without it, so libraries fall back:
//! `clone3` to `clone`, `io_uring` to `epoll`. The list follows what network programs, Python and
//! Chromium use.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Socket families that may be opened. Not `AF_VSOCK`, `AF_ALG`, `AF_XDP` and other rarely reviewed
/// ones.
const FAMILIES: [libc::c_int; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_PACKET,
];
/// Protocols of `AF_NETLINK`. Not `NETLINK_USERSOCK`: messages between its sockets are memory that
/// no control group counts, and anybody may send them.
const NETLINK: [libc::c_int; 6] = [
    libc::NETLINK_ROUTE,
    libc::NETLINK_SOCK_DIAG,
    libc::NETLINK_XFRM,
    libc::NETLINK_NETFILTER,
    libc::NETLINK_KOBJECT_UEVENT,
    libc::NETLINK_GENERIC,
];
/// Options of `SOL_PACKET` that make a ring: as many bytes as the program says, which no control
/// group counts.
const RINGS: [libc::c_int; 2] = [libc::PACKET_RX_RING, libc::PACKET_TX_RING];
/// Flags of clone(2) that make namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
/// Calls that answer EPERM: what would leave the sandbox.
const REFUSED: [i64; 9] = [
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
];

/// Compiles the filters. Both apply; the stricter answer wins, among errors that of the last.
/// `packet_rings`: packet sockets may have rings.
///
/// # Errors
/// The library refuses the rules or this machine's architecture.
pub fn compile(packet_rings: bool) -> io::Result<[BpfProgram; 2]> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let allowed = SeccompFilter::new(
        rules_of_allowed().map_err(io::Error::other)?,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        arch,
    );
    let refused = SeccompFilter::new(
        rules_of_refused(packet_rings).map_err(io::Error::other)?,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    );
    let program = |filter: Result<SeccompFilter, _>| -> io::Result<BpfProgram> {
        filter
            .and_then(TryInto::try_into)
            .map_err(|error: seccompiler::BackendError| io::Error::other(error))
    };
    Ok([program(allowed)?, program(refused)?])
}

/// Applies compiled filters to this process and its descendants; `no_new_privs` must be set.
///
/// # Errors
/// The kernel refuses.
pub fn apply(programs: &[BpfProgram]) -> io::Result<()> {
    programs
        .iter()
        .try_for_each(|program| apply_filter(program).map_err(io::Error::other))
}

fn rules_of_allowed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED
        .iter()
        .chain(OLDER)
        .map(|&call| (call, Vec::new()))
        .collect();
    rules.extend(REFUSED.iter().map(|&call| (call, Vec::new())));
    let family = |family: libc::c_int| SeccompRule::new(vec![equal(0, family)?]);
    let netlink = |protocol: libc::c_int| {
        SeccompRule::new(vec![equal(0, libc::AF_NETLINK)?, equal(2, protocol)?])
    };
    let families = FAMILIES.into_iter().map(family);
    rules.insert(
        libc::SYS_socket,
        families
            .chain(NETLINK.into_iter().map(netlink))
            .collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// Whether an argument, of which the kernel takes 32 bits, has a value.
fn equal(argument: u8, value: libc::c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        value as u64,
    )
}

fn rules_of_refused(
    packet_rings: bool,
) -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|&call| (call, Vec::new())).collect();
    let makes = |flag: libc::c_int| {
        let flag = flag as u64;
        let has = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(flag),
            flag,
        )?;
        SeccompRule::new(vec![has])
    };
    rules.insert(
        libc::SYS_clone,
        NAMESPACES
            .into_iter()
            .map(makes)
            .collect::<Result<_, _>>()?,
    );
    if !packet_rings {
        let ring = |option: libc::c_int| {
            SeccompRule::new(vec![equal(1, libc::SOL_PACKET)?, equal(2, option)?])
        };
        rules.insert(
            libc::SYS_setsockopt,
            RINGS.into_iter().map(ring).collect::<Result<_, _>>()?,
        );
    }
    Ok(rules)
}

macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Calls that are allowed whatever their arguments.
#[rustfmt::skip]
const ALLOWED: &[i64] = calls![
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
    SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek SYS_dup SYS_dup3 SYS_pipe2 SYS_fcntl SYS_ioctl SYS_flock
    SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_truncate SYS_ftruncate SYS_fallocate SYS_fadvise64 SYS_readahead
    SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_statx SYS_newfstatat SYS_fstat SYS_statfs SYS_fstatfs
    SYS_getdents64 SYS_readlinkat SYS_faccessat SYS_faccessat2 SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat
    SYS_mkdirat SYS_unlinkat SYS_renameat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_mknodat SYS_chdir SYS_fchdir SYS_getcwd
    SYS_umask SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
    SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_mincore SYS_msync SYS_brk SYS_mlock SYS_mlock2 SYS_munlock
    SYS_mlockall SYS_munlockall SYS_memfd_create SYS_membarrier SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect
    SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semtimedop SYS_semctl
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl
    SYS_clone SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_kill SYS_tkill SYS_tgkill
    SYS_pidfd_open SYS_pidfd_send_signal SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid
    SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_futex SYS_futex_waitv
    SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam SYS_sched_getscheduler
    SYS_sched_setscheduler SYS_sched_getattr SYS_sched_setattr SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_getcpu SYS_get_mempolicy SYS_prctl SYS_seccomp
    SYS_getrlimit SYS_setrlimit SYS_prlimit64 SYS_getrusage SYS_times SYS_sysinfo SYS_uname SYS_getrandom
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigsuspend
    SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack SYS_signalfd4 SYS_restart_syscall
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_gettimeofday SYS_nanosleep SYS_getitimer SYS_setitimer
    SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_ppoll SYS_pselect6 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2
    SYS_socketpair SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_connect SYS_shutdown SYS_getsockname SYS_getpeername
    SYS_getsockopt SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid SYS_getresgid SYS_setuid SYS_setgid
    SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset
    SYS_ptrace SYS_process_vm_readv SYS_kcmp
];

/// Calls of older libraries, which only some architectures have.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[i64] = calls![
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_mkdir SYS_rmdir SYS_unlink SYS_rename SYS_link
    SYS_symlink SYS_chmod SYS_chown SYS_lchown SYS_mknod SYS_utime SYS_utimes SYS_futimesat SYS_getdents SYS_dup2 SYS_pipe
    SYS_poll SYS_select SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_inotify_init SYS_fork SYS_vfork
    SYS_getpgrp SYS_time SYS_alarm SYS_pause SYS_arch_prctl
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_compile() {
        assert!(
            compile(false)
                .unwrap()
                .iter()
                .all(|program| !program.is_empty())
        );
    }

    #[test]
    fn what_leaves_the_sandbox_is_not_on_the_list() {
        for call in [
            libc::SYS_io_uring_setup,
            libc::SYS_add_key,
            libc::SYS_userfaultfd,
            libc::SYS_clone3,
            libc::SYS_open_tree,
        ] {
            assert!(!ALLOWED.contains(&call) && !OLDER.contains(&call), "{call}");
        }
        assert!(REFUSED.iter().all(|call| !ALLOWED.contains(call)));
    }
}
