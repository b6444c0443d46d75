// SPDX-License-Identifier: GPL-3.0-or-later
//! Linux calls: network namespaces, TUN devices, timers, real-time scheduling.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use linux::check;

/// Stack that is touched before a real-time loop starts, bytes; its frames need far less.
const PREFAULT_BYTES: usize = 128 * 1024;

/// A raw descriptor that a call has just returned.
pub(crate) fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just created `fd` for this call, it has no other owner.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Leaves checksums and segmentation of TCP, and of UDP where Linux is 6.2 or later, to the caller.
/// True with UDP.
///
/// # Errors
/// The kernel refuses TCP, too.
pub fn set_offload(tun: &File) -> io::Result<bool> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // SAFETY: TUNSETOFFLOAD takes a number.
    let set = |flags: libc::c_uint| {
        let flags = libc::c_ulong::from(flags);
        check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, flags) })
    };
    let has_udp = set(tcp | udp).is_ok();
    if !has_udp {
        set(tcp)?;
    }
    Ok(has_udp)
}

/// Does something that belongs into the network namespace at `netns`: what is opened there stays
/// there.
///
/// # Errors
/// There is no such namespace, the caller may not enter it, or `work` fails.
pub fn in_namespace<T: Send + 'static>(
    netns: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = File::open(netns)?;
    // A thread of its own: setns() moves the calling thread, and it would stay there.
    let entered = move || {
        // SAFETY: setns() takes a descriptor, which `namespace` keeps open.
        check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })?;
        work()
    };
    thread::spawn(entered)
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace ended")))
}

/// Attaches to the existing TUN device `name` of this thread's namespace, without blocking.
///
/// # Errors
/// There is no such device, it is attached elsewhere, or the caller may not.
pub fn attach_tun(name: &CString) -> io::Result<File> {
    // TUNSETIFF would create a missing device, down and without address, and no packet would ever
    // come. SAFETY: `name` is a NUL-terminated string that outlives the call.
    if unsafe { libc::if_nametoindex(name.as_ptr()) } == 0 {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "there is no such device in the namespace",
        ));
    }
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    // SAFETY: ifreq is plain data, all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    let bytes = name.as_bytes_with_nul();
    if bytes.len() > request.ifr_name.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the device name is longer than 15 bytes",
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which `request` is.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(file)
}

/// An event that stays signalled once it is set, until it is taken back.
#[derive(Debug)]
pub struct Event(File);

impl Event {
    /// An event that is not set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd() takes no pointers.
        owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
            .map(|fd| Self(fd.into()))
    }

    /// Sets the event; setting it again changes nothing.
    pub fn set(&self) {
        // Fails only when the counter is full, and then the event is set.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Takes the event back; nothing happens where it is not set.
    pub fn reset(&self) {
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A timer that stays set: waiting again for the same moment does not set it again.
#[derive(Debug)]
pub struct Timer(File);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: timerfd_create() takes no pointers.
        owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) })
            .map(|fd| Self(fd.into()))
    }

    /// Sets the timer to a time from now; it is readable from then on, until it is set again.
    ///
    /// # Errors
    /// What `timerfd_settime` says.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        // SAFETY: itimerspec is plain data, all zeros is a valid value.
        let mut new: libc::itimerspec = unsafe { MaybeUninit::zeroed().assume_init() };
        new.it_value = libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            // Zero would switch the timer off.
            tv_nsec: time.max(Duration::from_nanos(1)).subsec_nanos().into(),
        };
        // SAFETY: `new` lives through the call, and the old value is not asked for.
        check(unsafe {
            libc::timerfd_settime(self.as_raw_fd(), 0, &raw const new, std::ptr::null_mut())
        })
        .map(drop)
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Descriptors that are waited for together: registered once, for each wait of a real-time loop
/// counts.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    found: Vec<libc::epoll_event>,
    count: usize,
}

impl Poll {
    /// Waits for input on `fds`, numbered from 0. A descriptor that is closed is no longer waited
    /// for.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new<'a>(fds: impl IntoIterator<Item = &'a dyn AsRawFd>) -> io::Result<Self> {
        // SAFETY: epoll_create1() takes no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let mut found = Vec::new();
        for (number, fd) in fds.into_iter().enumerate() {
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: number as u64,
            };
            // SAFETY: `event` lives through the call, which copies it.
            check(unsafe {
                libc::epoll_ctl(
                    epoll.as_raw_fd(),
                    libc::EPOLL_CTL_ADD,
                    fd.as_raw_fd(),
                    &raw mut event,
                )
            })?;
            found.push(event);
        }
        Ok(Self {
            epoll,
            found,
            count: 0,
        })
    }

    /// Waits until a descriptor is readable or broken, or the time is over.
    ///
    /// # Errors
    /// What `epoll_pwait2` says.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        self.wait_until(&raw const timeout)
    }

    /// Waits until a descriptor is readable or broken.
    ///
    /// # Errors
    /// What `epoll_pwait2` says.
    pub fn wait_for_input(&mut self) -> io::Result<()> {
        self.wait_until(std::ptr::null())
    }

    #[expect(clippy::cast_possible_wrap, reason = "a handful of descriptors")]
    fn wait_until(&mut self, timeout: *const libc::timespec) -> io::Result<()> {
        // SAFETY: `found` holds as many entries as it says, `timeout` is null or a caller's local,
        // and there is no mask.
        let result = unsafe {
            libc::epoll_pwait2(
                self.epoll.as_raw_fd(),
                self.found.as_mut_ptr(),
                self.found.len() as libc::c_int,
                timeout,
                std::ptr::null(),
            )
        };
        self.count = match check(result) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            other => other? as usize,
        };
        Ok(())
    }

    /// Whether the last wait found input at descriptor `number`.
    #[must_use]
    pub fn is_readable(&self, number: usize) -> bool {
        self.has(libc::EPOLLIN).any(|found| found == number)
    }

    /// A descriptor whose device is gone.
    #[must_use]
    pub fn broken(&self) -> Option<usize> {
        self.has(libc::EPOLLERR | libc::EPOLLHUP).next()
    }

    fn has(&self, flags: libc::c_int) -> impl Iterator<Item = usize> {
        self.found[..self.count]
            .iter()
            .filter(move |event| event.events & flags as u32 != 0)
            .map(|event| event.u64 as usize)
    }
}

impl AsRawFd for Poll {
    /// Readable while one of its descriptors is.
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

/// Puts the calling thread into `SCHED_FIFO`; children of it would start without.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE` or a sufficient `RLIMIT_RTPRIO`.
pub fn set_fifo(priority: i32) -> io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` lives through the call; 0 names the calling thread.
    check(unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) }).map(drop)
}

/// Lets timers of the calling thread fire on time where `SCHED_FIFO` is refused: the default slack
/// is 50 µs.
pub fn set_least_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one number. It cannot fail for 1.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
}

/// Touches the stack that a real-time loop will use, so that its first packets do not fault it in.
#[expect(
    clippy::large_stack_arrays,
    reason = "touching the stack is the purpose"
)]
pub fn prefault_stack() {
    std::hint::black_box([1u8; PREFAULT_BYTES]);
}

/// Locks all memory, now and later. Pages are locked as they are touched: locking whole thread
/// stacks and reserves at once would cost megabytes per thread.
///
/// # Errors
/// `EPERM` or `ENOMEM` without `CAP_IPC_LOCK` and with a small `RLIMIT_MEMLOCK`.
pub fn lock_memory() -> io::Result<()> {
    // SAFETY: mlockall() takes no pointers.
    check(unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT) })
        .map(drop)
}

/// User id of the process at the other end of a Unix socket, when it connected.
///
/// # Errors
/// What `getsockopt` says.
pub fn peer_uid(stream: &UnixStream) -> io::Result<libc::uid_t> {
    // SAFETY: ucred is plain data, all zeros is a valid value.
    let mut peer: libc::ucred = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: SO_PEERCRED writes one ucred of `length` bytes, which `peer` is; both live through
    // the call.
    check(unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    })?;
    Ok(peer.uid)
}

/// User id that this process acts as.
#[must_use]
pub fn own_uid() -> libc::uid_t {
    // SAFETY: geteuid() takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// `CLOCK_MONOTONIC`, ns.
#[must_use]
pub fn monotonic_ns() -> u64 {
    // SAFETY: timespec is plain data, and clock_gettime() fills it; it cannot fail for this clock.
    let now = unsafe {
        let mut now: libc::timespec = MaybeUninit::zeroed().assume_init();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        now
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sleeps until a time of `CLOCK_MONOTONIC`, or returns early after a signal.
///
/// # Errors
/// What `clock_nanosleep` says.
pub fn sleep_until(time: Duration) -> io::Result<()> {
    let time = libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    // SAFETY: `time` lives through the call, and the time left is not asked for.
    let error = unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            std::ptr::null_mut(),
        )
    };
    match error {
        0 | libc::EINTR => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Identity of a namespace: device and inode of its file. `None` when it is gone.
#[must_use]
pub fn namespace_id(netns: &Path) -> Option<(u64, u64)> {
    fs::metadata(netns)
        .ok()
        .map(|meta| (meta.dev(), meta.ino()))
}

/// Asks for a receive buffer of so many bytes; beyond the host's limit where the caller may.
///
/// # Errors
/// What `setsockopt` says.
#[expect(clippy::cast_possible_wrap, reason = "a few megabytes")]
pub fn set_receive_buffer(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = bytes as libc::c_int;
    let set = |option: libc::c_int| {
        // SAFETY: the option is an integer of this size, which lives through the call.
        check(unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        })
        .map(drop)
    };
    set(libc::SO_RCVBUFFORCE).or_else(|_| set(libc::SO_RCVBUF))
}
