// SPDX-License-Identifier: GPL-3.0-or-later
//! satfec's tunnel between a stack and the path: the same sender and receiver, without greetings.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use fec::{Code, Counters, Delivery, Nanos, Receiver, Sender};
use serde::{Deserialize, Serialize};

use crate::packet;

/// UDP port of both ends.
const PORT: u16 = 5800;
/// Longest packet, bytes, as satfec's default; longer ones are lost.
const MTU: usize = 1400;

/// A tunnel with this code in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelOptions {
    /// `none`, or K,Z: one repair packet after K packets over the last Z.
    pub code: String,
    /// Longest wait for a missing packet, ms; 0: packets leave as soon as they are known.
    pub hold_ms: u64,
}

impl TunnelOptions {
    /// The code.
    ///
    /// # Errors
    /// The text is not a code, or the wait is above 10 s.
    pub fn code(&self) -> Result<Option<Code>, String> {
        if self.hold_ms > 10_000 {
            return Err("hold_ms: 0 to 10000".into());
        }
        match self.code.as_str() {
            "none" => Ok(None),
            text => text.parse().map(Some).map_err(|it| format!("code: {it}")),
        }
    }
}

/// One end.
#[derive(Debug)]
pub struct Tunnel {
    sender: Sender,
    receiver: Receiver,
    own: SocketAddrV4,
    peer: SocketAddrV4,
}

impl Tunnel {
    /// The end at `own`; an invalid code is none.
    #[must_use]
    pub fn new(options: &TunnelOptions, own: SocketAddrV4, peer: SocketAddrV4) -> Self {
        let code = options.code().unwrap_or_default();
        let hold = options.hold_ms * 1_000_000;
        let delivery = match hold {
            0 => Delivery::Immediate,
            _ => Delivery::InOrder { hold },
        };
        let window = 2 * usize::from(code.map_or(1, Code::window));
        let at = |address: SocketAddrV4| SocketAddrV4::new(*address.ip(), PORT);
        Self {
            sender: Sender::new(code),
            receiver: Receiver::new(window, delivery),
            own: at(own),
            peer: at(peer),
        }
    }

    /// What this end has received.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.receiver.counters()
    }

    /// Takes a packet of the stack; its datagrams go to `out` as IP packets.
    pub fn push(&mut self, now: Nanos, packet: &[u8], out: &mut VecDeque<Vec<u8>>) {
        let (own, peer) = (self.own, self.peer);
        if packet.len() <= MTU {
            let send = |frame: &[u8]| out.push_back(packet::encode(own, peer, None, frame));
            self.sender.push(now, packet, send);
        }
    }

    /// Takes an IP packet of the path, and returns the packets that are due for the stack.
    pub fn receive(&mut self, now: Nanos, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        if let Some(datagram) = packet::decode(packet) {
            // Anything but a frame is counted.
            let _ = (self.receiver).receive(now, datagram.payload, |it| due.push(it.to_vec()));
        }
        due
    }

    /// When [`Self::timeout`] has something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Nanos> {
        let halves = [self.sender.next_timeout(), self.receiver.next_timeout()];
        halves.into_iter().flatten().min()
    }

    /// Does what is due at `now`; returns packets for the stack.
    pub fn timeout(&mut self, now: Nanos, out: &mut VecDeque<Vec<u8>>) -> Vec<Vec<u8>> {
        let (own, peer) = (self.own, self.peer);
        let mut due = Vec::new();
        let send = |frame: &[u8]| out.push_back(packet::encode(own, peer, None, frame));
        self.sender.timeout(now, send);
        self.receiver
            .timeout(now, |packet| due.push(packet.to_vec()));
        due
    }
}
