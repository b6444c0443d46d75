// SPDX-License-Identifier: GPL-3.0-or-later
//! One endpoint of the path: a QUIC stack at an address, and its packets.

use std::collections::VecDeque;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Instant;

use bytes::BytesMut;
use satperf::app::App;
use satperf::stack::{Datagram, Stack};

use crate::packet;

/// A stack that is stepped with the virtual time.
pub struct Endpoint {
    /// The stack.
    pub stack: Box<dyn Stack>,
    address: SocketAddrV4,
    /// IP packets on their way out.
    pub out: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
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
        }
    }

    /// Takes an IP packet from the path.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) {
        let Some(datagram) = packet::decode(packet) else {
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
        let mut has_sent = false;
        while let Some(transmit) = self.stack.transmit(now, 1, &mut self.buffer) {
            if let SocketAddr::V4(peer) = transmit.to {
                let packet = packet::encode(self.address, peer, transmit.ecn, &self.buffer);
                self.out.push_back(packet);
            }
            self.buffer.clear();
            has_sent = true;
        }
        has_sent
    }
}
