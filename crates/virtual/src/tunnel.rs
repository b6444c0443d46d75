// SPDX-License-Identifier: GPL-3.0-or-later
//! satfec's tunnel between a stack and the path: the same sender and receiver, without greetings.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use fec::{Counters, Delivery, Frame, Nanos, Protection, Receiver, Sender};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::udp_ipv4;

/// UDP port of both ends.
const PORT: u16 = 5800;
/// Longest packet, bytes, as satfec's default; longer ones are lost.
const MTU: usize = 1400;

/// A tunnel with this protection in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelOptions {
    /// none; K,Z: after K packets one repair packet over the last Z; or adaptive: of S(50,100) to
    /// S(2,100) what the losses need that the other end reports.
    #[schemars(length(min = 1, max = 16))]
    pub code: String,
    /// Longest wait for a missing packet, ms; 0: packets leave as soon as they are known.
    #[schemars(range(min = 0, max = 10_000))]
    pub hold_ms: u64,
}

impl TunnelOptions {
    /// What is added to packets.
    ///
    /// # Errors
    /// The text is not a code, or the wait is above 10 s.
    pub fn protection(&self) -> Result<Protection, String> {
        if self.hold_ms > 10_000 {
            return Err("hold_ms: 0 to 10000".into());
        }
        self.code.parse().map_err(|it| format!("code: {it}"))
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
        let protection = options.protection().unwrap_or_default();
        let hold = options.hold_ms * 1_000_000;
        let delivery = match hold {
            0 => Delivery::Immediate,
            _ => Delivery::InOrder { hold },
        };
        let window = 2 * usize::from(protection.window().max(1));
        let receiver = Receiver::new(window, delivery);
        let at = |address: SocketAddrV4| SocketAddrV4::new(*address.ip(), PORT);
        Self {
            sender: Sender::new(protection),
            receiver: match protection {
                Protection::Adaptive => receiver.with_reports(0),
                _ => receiver,
            },
            own: at(own),
            peer: at(peer),
        }
    }

    /// What this end has received.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.receiver.counters()
    }

    /// What this end has sent, and how often its code has changed.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Takes a packet of the stack; its datagrams go to `out` as IP packets.
    pub fn push(&mut self, now: Nanos, packet: &[u8], out: &mut VecDeque<Vec<u8>>) {
        let (own, peer) = (self.own, self.peer);
        if packet.len() <= MTU {
            let send = |frame: &[u8]| out.push_back(udp_ipv4::encode(own, peer, None, frame));
            self.sender.push(now, packet, send);
        }
    }

    /// Takes an IP packet of the path, and returns the packets that are due for the stack.
    pub fn receive(&mut self, now: Nanos, packet: &[u8]) -> Vec<Vec<u8>> {
        let mut due = Vec::new();
        if let Some(datagram) = udp_ipv4::decode(packet) {
            let payload = datagram.payload;
            let frame = (self.receiver).receive(now, payload, |it| due.push(it.to_vec()));
            // Anything but a frame is counted.
            if let Ok(Frame::Report(report)) = frame {
                self.sender.report(now, report);
            }
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
        let send = |frame: &[u8]| out.push_back(udp_ipv4::encode(own, peer, None, frame));
        self.sender.timeout(now, send);
        let report = self.receiver.report(now);
        out.extend(report.map(|frame| udp_ipv4::encode(own, peer, None, &frame)));
        self.receiver
            .timeout(now, |packet| due.push(packet.to_vec()));
        due
    }
}
