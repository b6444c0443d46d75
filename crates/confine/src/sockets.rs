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

/// Sockets of all kinds in the namespace, where the kernel's buffers have their usual size.
const MOST: u64 = 4096;
/// Sockets other than those of `AF_UNIX` that a sandbox with little memory may have.
const FEWEST: u64 = 64;
/// Netlink sockets, packet sockets, and raw and ping sockets: as many of each, which hold up to
/// twice `net.core.rmem_max`.
const MOST_OF_A_KIND: u64 = 128;

/// How many sockets other than those of `AF_UNIX` the namespace may have.
///
/// Each may hold twice `net.core.rmem_max` of copies of what it sent (the queue of errors, with
/// `SO_TIMESTAMPING`), which no control group counts: all together hold no more than the sandbox's
/// memory. (A datagram that is not complete, `MSG_MORE`, has 64 KiB.)
pub fn most(memory_bytes: u64) -> u64 {
    let largest = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    fitting(
        memory_bytes,
        largest.trim().parse().unwrap_or(USUAL_LARGEST),
    )
}

/// `net.core.rmem_max` where nobody has changed it, bytes.
const USUAL_LARGEST: u64 = 212_992;

fn fitting(memory_bytes: u64, largest: u64) -> u64 {
    (memory_bytes / (2 * largest.max(1))).clamp(FEWEST, MOST)
}

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

/// Answers one call that waits, where there may be so many sockets (`most`).
pub fn answer(handle: &OwnedFd, most: u64) {
    if let Some(call) = sys::next_socket_call(handle) {
        let error = if is_allowed(&call, most) {
            0
        } else {
            libc::ENOBUFS
        };
        sys::answer_socket_call(handle, &call, error);
    }
}

fn is_allowed(call: &SocketCall, most: u64) -> bool {
    let is_raw = call.kind == libc::SOCK_RAW
        || [libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6].contains(&call.protocol);
    let kinds: &[&str] = match call.family {
        libc::AF_NETLINK => &["NETLINK"],
        libc::AF_PACKET => &["PACKET"],
        _ if is_raw => &["RAW", "RAWv6", "PING", "PINGv6"],
        _ => &[],
    };
    let protocols = text("protocols");
    let unix = of_kinds(&protocols, &["UNIX", "UNIX-STREAM"]);
    used(&text("sockstat")).saturating_sub(unix) < most
        && (kinds.is_empty() || of_kinds(&protocols, kinds) < MOST_OF_A_KIND)
}

fn text(name: &str) -> String {
    fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default()
}

/// Sockets of the namespace whose protocol is one of `kinds`, from `protocols`: name, size,
/// sockets.
fn of_kinds(text: &str, kinds: &[&str]) -> u64 {
    let number = |line: &str| -> Option<u64> {
        let mut words = line.split_ascii_whitespace();
        kinds.contains(&words.next()?).then_some(())?;
        words.nth(1)?.parse().ok()
    };
    text.lines().filter_map(number).sum()
}

/// All sockets of the namespace, from `sockstat`.
fn used(text: &str) -> u64 {
    text.strip_prefix("sockets: used ")
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sockets_hold_fits_into_the_memory_of_the_sandbox() {
        assert_eq!(fitting(2 << 30, USUAL_LARGEST), MOST);
        assert_eq!(fitting(2 << 30, 4 << 20), 256);
        assert_eq!(fitting(1 << 20, 4 << 20), FEWEST);
        assert_eq!(fitting(1 << 30, 0), MOST);
    }

    #[test]
    fn sockets_are_counted() {
        assert_eq!(used("sockets: used 4096\nTCP: inuse 1\n"), MOST);
        assert_eq!(used(""), 0);
        let text = "protocol  size sockets  memory\nPACKET  1472      7   -1\nRAWv6  1272 2 -1\nRAW 1000 1 -1\n";
        assert_eq!(of_kinds(text, &["RAW", "RAWv6"]), 3);
    }
}
