// SPDX-License-Identifier: GPL-3.0-or-later
//! Probes and logs of `OpenSAND` in a lab: from the namespaces of its entities to a collector
//! outside of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;

use emulator::config::Probes;

use crate::probes::reach;
use crate::sys;

const LONGEST_DATAGRAM: usize = 65_536;

/// Sends on what entities send to the collector's ports at 127.0.0.1 of their namespaces, until
/// this process ends.
///
/// # Errors
/// There is no such namespace, a port is taken there, or the collector cannot be reached.
pub(crate) fn start(probes: &Probes) -> io::Result<()> {
    for offset in [0, 1] {
        let port = probes.address.port().saturating_add(offset);
        let collector = reach(probes, SocketAddr::new(probes.address.ip(), port))?;
        for netns in &probes.from {
            let inside =
                sys::in_namespace(netns, move || UdpSocket::bind((Ipv4Addr::LOCALHOST, port)))?;
            let outside = collector.try_clone()?;
            thread::spawn(move || carry(&inside, &outside));
        }
    }
    Ok(())
}

/// Losses are ignored, as those of a collector that does not run.
fn carry(inside: &UdpSocket, outside: &UdpSocket) {
    let mut datagram = vec![0; LONGEST_DATAGRAM];
    while let Ok(length) = inside.recv(&mut datagram) {
        let _ = outside.send(&datagram[..length]);
    }
}
