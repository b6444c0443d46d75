// SPDX-License-Identifier: GPL-3.0-or-later
//! How many sockets a network namespace may have: what some kinds hold counts as nobody's memory
//! (0008-confinement.md).
//!
//! The kernel asks this process before a program makes a socket (`seccomp_unotify(2)`). The answer
//! follows from the kernel's own lists, so a socket without a descriptor counts, too. Sockets of
//! `AF_UNIX` are not asked for: their buffers are memory of the sandbox. The arguments are numbers
//! in registers, which nobody changes between answer and call.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use crate::sys::{self, SocketCall};

/// Sockets of all kinds in the namespace. Each may hold 64 KiB of a datagram that is not complete
/// (`MSG_MORE`).
const MOST: usize = 4096;
/// Netlink sockets, packet sockets, and raw and ping sockets: as many of each, which hold up to
/// twice `net.core.rmem_max`.
const MOST_OF_A_KIND: usize = 128;

/// In the process that becomes the program: has its sockets asked for, and lets process 1 fetch the
/// handle.
///
/// A kernel that asks somebody else already, as for some containers, asks nobody here.
pub fn ask(mut to_first: &UnixStream) -> std::io::Result<()> {
    let handle = sys::ask_for_sockets().ok();
    let number = handle.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    to_first.write_all(&number.to_ne_bytes())?;
    to_first.read_exact(&mut [0])
}

/// In process 1: fetches the handle of the program's process; `None`: it has none, or has ended.
pub fn fetch(mut from_program: &UnixStream, program: &OwnedFd) -> Option<OwnedFd> {
    let mut number = [0; 4];
    from_program.read_exact(&mut number).ok()?;
    let handle = sys::fetch(program, i32::from_ne_bytes(number)).ok();
    from_program.write_all(b"+").ok()?;
    handle
}

/// Answers one call that waits.
pub fn answer(handle: &OwnedFd) {
    if let Some(call) = sys::next_socket_call(handle) {
        let error = if is_allowed(&call) { 0 } else { libc::ENOBUFS };
        sys::answer_socket_call(handle, &call, error);
    }
}

fn is_allowed(call: &SocketCall) -> bool {
    let is_raw = call.kind == libc::SOCK_RAW
        || [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&call.protocol);
    let kinds: &[&str] = match call.family {
        libc::AF_NETLINK => &["NETLINK"],
        libc::AF_PACKET => &["PACKET"],
        _ if is_raw => &["RAW", "RAWv6", "PING", "PINGv6"],
        _ => &[],
    };
    used(&text("sockstat")) < MOST
        && (kinds.is_empty() || of_kinds(&text("protocols"), kinds) < MOST_OF_A_KIND)
}

fn text(name: &str) -> String {
    fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default()
}

/// Sockets of the namespace whose protocol is one of `kinds`, from `protocols`: name, size,
/// sockets.
fn of_kinds(text: &str, kinds: &[&str]) -> usize {
    let number = |line: &str| -> Option<usize> {
        let mut words = line.split_ascii_whitespace();
        kinds.contains(&words.next()?).then_some(())?;
        words.nth(1)?.parse().ok()
    };
    text.lines().filter_map(number).sum()
}

/// All sockets of the namespace, from `sockstat`.
fn used(text: &str) -> usize {
    text.strip_prefix("sockets: used ")
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted() {
        assert_eq!(used("sockets: used 4096\nTCP: inuse 1\n"), MOST);
        assert_eq!(used(""), 0);
        let text = "protocol  size sockets  memory\nPACKET  1472      7   -1\nRAWv6  1272 2 -1\nRAW 1000 1 -1\n";
        assert_eq!(of_kinds(text, &["RAW", "RAWv6"]), 3);
    }
}
