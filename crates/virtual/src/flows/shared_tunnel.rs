// SPDX-License-Identifier: GPL-3.0-or-later
//! One tunnel between both sides of the path, which all flows share.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use link::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use crate::path::Side;
use crate::tunnel::{Tunnel, TunnelOptions};

/// Addresses of the ends, RFC 2544: client side, server side.
const ENDS: [SocketAddrV4; 2] = [
    SocketAddrV4::new(Ipv4Addr::new(198, 18, 1, 2), 0),
    SocketAddrV4::new(Ipv4Addr::new(198, 18, 4, 2), 0),
];

/// Counters of one end of the tunnel, packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TunnelTotals {
    sources_sent: u64,
    repairs_sent: u64,
    /// Changes of the code by adaptive redundancy.
    code_changes: u64,
    sources_received: u64,
    recovered: u64,
    /// Packets that left the decoding window without being received or recovered.
    lost: u64,
}

/// Both ends of the tunnel, and their frames on the way out.
pub struct SharedTunnel {
    ends: [Tunnel; 2],
    frames: [VecDeque<Vec<u8>>; 2],
}

impl SharedTunnel {
    /// Both ends of a tunnel.
    pub fn new(options: &TunnelOptions) -> Self {
        let [client, server] = ENDS;
        Self {
            ends: [
                Tunnel::new(options, client, server),
                Tunnel::new(options, server, client),
            ],
            frames: Default::default(),
        }
    }

    /// Takes the next frame of a side, made of its packets as needed.
    pub fn take(
        &mut self,
        now: Nanos,
        side: Side,
        packets: &mut VecDeque<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let frames = &mut self.frames[side as usize];
        while frames.is_empty() {
            let packet = packets.pop_front()?;
            self.ends[side as usize].push(now, &packet, frames);
        }
        frames.pop_front()
    }

    /// A frame arrives at a side; returns the packets that are due there.
    pub fn receive(&mut self, now: Nanos, side: Side, frame: &[u8]) -> Vec<Vec<u8>> {
        self.ends[side as usize].receive(now, frame)
    }

    /// Does what is due at a side; returns the packets that are due there.
    pub fn timeout(&mut self, now: Nanos, side: Side) -> Vec<Vec<u8>> {
        let end = &mut self.ends[side as usize];
        if end.next_timeout().is_none_or(|at| at > now) {
            return Vec::new();
        }
        end.timeout(now, &mut self.frames[side as usize])
    }

    /// When something is due at either side.
    pub fn next_timeout(&self) -> Option<Nanos> {
        self.ends.iter().filter_map(Tunnel::next_timeout).min()
    }

    /// What both ends have sent and seen.
    pub fn totals(&self) -> [TunnelTotals; 2] {
        self.ends.each_ref().map(|end| {
            let (sent, seen) = (end.sender().sent(), end.counters());
            TunnelTotals {
                sources_sent: sent.sources,
                repairs_sent: sent.repairs,
                code_changes: end.sender().code_changes(),
                sources_received: seen.sources,
                recovered: seen.recovered,
                lost: seen.lost,
            }
        })
    }

    /// Whether a frame is on its way out.
    pub fn has_frames(&self) -> bool {
        self.frames.iter().any(|queue| !queue.is_empty())
    }
}
