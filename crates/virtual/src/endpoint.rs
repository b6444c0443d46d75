// SPDX-License-Identifier: GPL-3.0-or-later
//! One endpoint of the path: a QUIC stack at an address, and its packets.

use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Instant;

use bytes::BytesMut;
use link::Nanos;
use satperf::app::App;
use satperf::stack::{Datagram, Stack};

use crate::tunnel::Tunnel;
use crate::udp_ipv4;

/// A stack that is stepped with the virtual time.
pub struct Endpoint {
    /// The stack.
    pub stack: Box<dyn Stack>,
    address: SocketAddrV4,
    /// IP packets on their way out.
    pub out: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    /// Virtual time 0 of the tunnel.
    zero: Option<Instant>,
    /// What packets pass between stack and path.
    pub tunnel: Option<Tunnel>,
}

impl Endpoint {
    /// A stack at an address.
    #[must_use]
    pub fn new(stack: Box<dyn Stack>, address: SocketAddrV4) -> Self {
        Self {
            stack,
            address,
            out: VecDeque::new(),
            buffer: Vec::new(),
            zero: None,
            tunnel: None,
        }
    }

    /// The same with a tunnel, whose times count from `zero`.
    #[must_use]
    pub fn with_tunnel(self, zero: Instant, tunnel: Option<Tunnel>) -> Self {
        Self {
            zero: Some(zero),
            tunnel,
            ..self
        }
    }

    /// Sends from another address from now on.
    pub fn migrate(&mut self) {
        let [net, subnet, lan, host] = self.address.ip().octets();
        self.address.set_ip([net, subnet, lan, host ^ 128].into());
    }

    /// Takes an IP packet from the path.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) {
        let nanos = self.nanos(now);
        match &mut self.tunnel {
            None => self.deliver(now, packet),
            Some(tunnel) => {
                for packet in tunnel.receive(nanos, packet) {
                    self.deliver(now, &packet);
                }
            }
        }
    }

    /// When the tunnel has something to do.
    #[must_use]
    pub fn tunnel_timeout(&self) -> Option<Nanos> {
        self.tunnel.as_ref().and_then(Tunnel::next_timeout)
    }

    fn nanos(&self, at: Instant) -> Nanos {
        let since = |zero| at.saturating_duration_since(zero).as_nanos() as Nanos;
        self.zero.map_or(0, since)
    }

    fn deliver(&mut self, now: Instant, packet: &[u8]) {
        let Some(datagram) = udp_ipv4::decode(packet) else {
            return;
        };
        let datagram = Datagram {
            from: datagram.source.into(),
            to: self.address.into(),
            ecn: datagram.ecn,
            data: BytesMut::from(datagram.payload),
        };
        self.stack.receive(now, datagram);
    }

    /// Does all that can be done at `now`: timers, application, packets.
    pub fn work(&mut self, now: Instant, mut app: Option<&mut dyn App>) {
        let nanos = self.nanos(now);
        if let Some(tunnel) = &mut self.tunnel {
            for packet in tunnel.timeout(nanos, &mut self.out) {
                self.deliver(now, &packet);
            }
        }
        loop {
            if self.stack.timeout().is_some_and(|due| due <= now) {
                self.stack.handle_timeout(now);
            }
            if let Some(app) = &mut app {
                app.step(now, self.stack.as_mut());
            }
            let has_sent = self.send(now);
            let is_due = app
                .as_ref()
                .and_then(|app| app.wake())
                .is_some_and(|due| due <= now);
            if !has_sent && !is_due {
                return;
            }
        }
    }

    /// Sends what the stack has, datagram by datagram.
    fn send(&mut self, now: Instant) -> bool {
        let nanos = self.nanos(now);
        let mut has_sent = false;
        while let Some(transmit) = self.stack.transmit(now, 1, &mut self.buffer) {
            if let SocketAddr::V4(peer) = transmit.to {
                let packet = udp_ipv4::encode(self.address, peer, transmit.ecn, &self.buffer);
                match &mut self.tunnel {
                    None => self.out.push_back(packet),
                    Some(tunnel) => tunnel.push(nanos, &packet, &mut self.out),
                }
            }
            self.buffer.clear();
            has_sent = true;
        }
        has_sent
    }
}
