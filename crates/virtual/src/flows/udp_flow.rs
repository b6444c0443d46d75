// SPDX-License-Identifier: GPL-3.0-or-later
//! Datagrams at a constant rate.

use std::net::SocketAddrV4;

use link::Nanos;

use super::record::Counts;
use crate::udp_ipv4;

/// UDP payload where none is given, bytes.
const PAYLOAD: u16 = 1200;

/// A sender and a receiver.
pub struct UdpFlow {
    packet: Vec<u8>,
    interval: Nanos,
    /// When the next datagram leaves.
    pub next: Nanos,
    sent: u64,
    counts: Counts,
}

impl UdpFlow {
    /// A flow between two addresses that sends from `start` on, Mbit/s of IP packets.
    pub fn new(
        from: SocketAddrV4,
        to: SocketAddrV4,
        rate_mbps: f64,
        payload: Option<u16>,
        start: Nanos,
    ) -> Self {
        let payload = vec![0; payload.unwrap_or(PAYLOAD).into()];
        let packet = udp_ipv4::encode(from, to, None, &payload);
        Self {
            interval: ((packet.len() as f64 * 8e3 / rate_mbps) as Nanos).max(1),
            packet,
            next: start,
            sent: 0,
            counts: Counts::default(),
        }
    }

    /// Sends what is due.
    pub fn work(&mut self, now: Nanos, out: &mut impl Extend<Vec<u8>>) {
        while self.next <= now {
            out.extend([self.packet.clone()]);
            self.sent += 1;
            self.next += self.interval;
        }
    }

    /// Counts a datagram that came.
    pub fn receive(&mut self, packet: &[u8]) {
        let bytes = (packet.len() - udp_ipv4::HEADER) as u64;
        self.counts.payload_bytes += bytes;
        self.counts.received_bytes += bytes;
        self.counts.received_packets += 1;
    }

    /// Totals so far. What is on its way is not yet lost, so losses are known at the end alone.
    pub fn counts(&self) -> Counts {
        Counts {
            sent_packets: self.sent,
            ..self.counts
        }
    }
}
