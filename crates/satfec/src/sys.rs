// SPDX-License-Identifier: GPL-3.0-or-later
//! Linux calls: the TUN device, the socket's options, waiting, privileges. The only module with
//! `unsafe`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use linux::check;

/// Packets that wait in the device: the link's queue is to be the only one that drops.
const DEVICE_QUEUE: u32 = 10_000;
/// Buffers of the socket: 150 ms of 250 Mbit/s.
const SOCKET_BUFFER: libc::c_int = 5_000_000;
/// `PR_CAP_AMBIENT_CLEAR_ALL` has no constant in libc for every target.
const CLEAR_ALL: libc::c_ulong = 4;
/// `_LINUX_CAPABILITY_VERSION_3`, two sets of 32 bits (capset(2)).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Makes a TUN device, assigns `addresses` to its two sides if given, and turns it on. The device
/// is removed when its descriptor is closed.
///
/// # Errors
/// The name is taken, or the caller lacks `CAP_NET_ADMIN`.
pub fn make_tun(name: &str, addresses: Option<(Ipv4Addr, Ipv4Addr)>, mtu: u16) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL;
    request(file.as_raw_fd(), libc::TUNSETIFF, name, |request| {
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
    })?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let set = |code, fill: &dyn Fn(&mut libc::__c_anonymous_ifr_ifru)| {
        request(socket.as_raw_fd(), code, name, |it| fill(&mut it.ifr_ifru))
    };
    set(libc::SIOCSIFMTU, &|it| it.ifru_mtu = mtu.into())?;
    set_queue(name, DEVICE_QUEUE)?;
    if let Some((own, peer)) = addresses {
        set(libc::SIOCSIFADDR, &|it| it.ifru_addr = inet(own))?;
        set(libc::SIOCSIFDSTADDR, &|it| it.ifru_dstaddr = inet(peer))?;
        let alone = inet(Ipv4Addr::BROADCAST);
        set(libc::SIOCSIFNETMASK, &|it| it.ifru_netmask = alone)?;
    }
    let up = (libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_POINTOPOINT) as libc::c_short;
    set(libc::SIOCSIFFLAGS, &|it| it.ifru_flags = up)?;
    Ok(file)
}

fn request(
    fd: RawFd,
    code: libc::c_ulong,
    name: &str,
    fill: impl FnOnce(&mut libc::ifreq),
) -> io::Result<()> {
    // SAFETY: ifreq is plain data, all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last byte stays NUL.
    for (to, from) in request.ifr_name[..15].iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    fill(&mut request);
    // SAFETY: each of these requests reads, and may write, one ifreq, which `request` is.
    check(unsafe { libc::ioctl(fd, code as _, &raw mut request) }).map(|_| ())
}

/// Sets how many packets may wait in a device, by rtnetlink(7): the ioctl needs a capability of the
/// host, this one of the namespace alone.
fn set_queue(name: &str, packets: u32) -> io::Result<()> {
    const BYTES: usize = 40;
    let name = CString::new(name)?;
    // SAFETY: the name ends with a NUL byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    // Header, struct ifinfomsg, one attribute: <linux/rtnetlink.h>.
    let kind = u32::from(libc::RTM_NEWLINK)
        | u32::from((libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16) << 16;
    let attribute = 8 | u32::from(libc::IFLA_TXQLEN) << 16;
    let words = [BYTES as u32, kind, 1, 0, 0, index, 0, 0, attribute, packets];
    let request: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut answer = [0u8; 256];
    // SAFETY: a new descriptor is owned once; both buffers are as long as said.
    let length = unsafe {
        let socket = check(libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::NETLINK_ROUTE,
        ))?;
        let socket = OwnedFd::from_raw_fd(socket);
        check(libc::send(socket.as_raw_fd(), request.as_ptr().cast(), BYTES, 0) as libc::c_int)?;
        let room = answer.len();
        check(libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), room, 0) as libc::c_int)?
    };
    // The acknowledgement: a header of 16 bytes, then the error, negative, or 0.
    let error = answer[16..20]
        .first_chunk()
        .copied()
        .map_or(0, i32::from_ne_bytes);
    match error {
        0 if length >= 20 => Ok(()),
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn inet(address: Ipv4Addr) -> libc::sockaddr {
    let value = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from(address).to_be(),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: both types are 16 bytes of plain data, the kernel reads the one as the other.
    unsafe { std::mem::transmute(value) }
}

/// Large buffers, beyond the host's limit where the caller may; a mark; and datagrams are never
/// fragmented (RFC 1191).
///
/// # Errors
/// The kernel refuses the mark, which needs `CAP_NET_ADMIN`, or the flag "do not fragment".
pub fn prepare(socket: &UdpSocket, mark: u32) -> io::Result<()> {
    if mark != 0 {
        let mark = libc::c_int::from_ne_bytes(mark.to_ne_bytes());
        set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, mark)?;
    }
    for (forced, polite) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if set_option(socket, libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
            set_option(socket, libc::SOL_SOCKET, polite, SOCKET_BUFFER)?;
        }
    }
    let never = libc::IP_PMTUDISC_DO;
    set_option(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, never)
}

fn set_option(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option takes one int, which `value` is.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, size)
    };
    check(result).map(|_| ())
}

/// The path MTU that the kernel knows for a connected socket, bytes.
///
/// # Errors
/// The socket is not connected.
pub fn path_mtu(socket: &UdpSocket) -> io::Result<u16> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option fills one int, which `value` is.
    check(unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_MTU,
            value,
            &raw mut size,
        )
    })?;
    Ok(u16::try_from(value).unwrap_or(u16::MAX))
}

/// Drops all capabilities, and every way to get some.
///
/// # Errors
/// The kernel refuses.
pub fn drop_privileges() -> io::Result<()> {
    let header = [CAPABILITY_VERSION, 0];
    let none = [0_u32; 6];
    // SAFETY: prctl() takes numbers here; capset() reads a header of two and a set of six words.
    unsafe {
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        check(libc::prctl(libc::PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0))?;
        let result = libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr());
        check(result as libc::c_int).map(|_| ())
    }
}

/// Waits until one of the descriptors can be read, or `timeout` is over.
///
/// # Errors
/// A descriptor is broken.
pub fn wait(descriptors: [&dyn AsRawFd; 3], timeout: Duration) -> io::Result<()> {
    let mut polled = descriptors.map(|it| libc::pollfd {
        fd: it.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: all pointers live through the call; a null signal mask leaves the mask as it is.
    let result = check(unsafe {
        let count = polled.len() as libc::nfds_t;
        libc::ppoll(
            polled.as_mut_ptr(),
            count,
            &raw const timeout,
            std::ptr::null(),
        )
    });
    match result {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}
