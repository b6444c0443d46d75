// SPDX-License-Identifier: GPL-3.0-or-later
//! Linux calls: UDP sockets, transparent on request, and the namespace of this process. The only
//! module with `unsafe`.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use socket2::{Domain, Protocol, Socket, Type};

/// Socket buffers, bytes: 100 ms of 400 Mbit/s, so that a busy host loses no packet between two
/// wakes.
const BUFFER_BYTES: libc::c_int = 5_000_000;

/// A UDP socket bound to `address`. With `transparent` the address may be another host's
/// (`IP_TRANSPARENT`, ip(7)).
///
/// # Errors
/// The address is taken or not this host's, or the caller may not (`CAP_NET_ADMIN`).
pub fn udp_socket(address: SocketAddr, transparent: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if transparent {
        match address {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
        }
    }
    enlarge(&socket, libc::SO_RCVBUFFORCE, Socket::set_recv_buffer_size)?;
    enlarge(&socket, libc::SO_SNDBUFFORCE, Socket::set_send_buffer_size)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets a buffer beyond `net.core.[rw]mem_max`; without `CAP_NET_ADMIN`, up to them.
fn enlarge(
    socket: &Socket,
    forced: libc::c_int,
    polite: fn(&Socket, usize) -> io::Result<()>,
) -> io::Result<()> {
    let value = BUFFER_BYTES;
    // SAFETY: the option takes one int, which `value` is; it lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            forced,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        polite(socket, BUFFER_BYTES as usize)
    }
}

/// Whether this process is in a network namespace whose name below /run/netns begins with `prefix`.
#[must_use]
pub fn in_namespace_named(prefix: &str) -> bool {
    let identity = |path: &Path| {
        let meta = fs::metadata(path).ok()?;
        Some((meta.dev(), meta.ino()))
    };
    let Some(own) = identity(Path::new("/proc/self/ns/net")) else {
        return false;
    };
    let Ok(named) = fs::read_dir("/run/netns") else {
        return false;
    };
    named.flatten().any(|entry| {
        entry.file_name().to_string_lossy().starts_with(prefix)
            && identity(&entry.path()) == Some(own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_can_be_taken_but_once() {
        let first = udp_socket("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let error = udp_socket(first.local_addr().unwrap(), false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_host_is_not_a_lab() {
        assert!(!in_namespace_named("no-such-lab-"));
    }
}
