// SPDX-License-Identifier: GPL-3.0-or-later
//! One end of a tunnel without I/O: greetings, frames and packets, stepped by (now, bytes).
//!
//! An end that has heard its peer makes a receiver for the peer's stream and names the peer's
//! session in its greetings. An end that hears its own session sends packets. So no frame comes
//! before there is a receiver for it, and an end that was started anew begins with a new stream in
//! both directions. A connected end changes to another session only when that session has named it:
//! its number is random, so who has not heard this end cannot.

use fec::{Code, Delivery, Frame, Nanos, Protection, Receiver, Report, Sender};

use crate::hello::{self, Hello, HelloError};

const MS: Nanos = 1_000_000;
/// Time between two greetings, before and after the ends have heard each other.
const GREETING: [Nanos; 2] = [100 * MS, 1000 * MS];

/// Receives the datagrams and packets of a session.
pub trait Output {
    /// Sends a datagram to the peer.
    fn send(&mut self, datagram: &[u8]);
    /// Hands a packet to the device.
    fn deliver(&mut self, packet: &[u8]);
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An adaptive end has changed its code.
    Code {
        /// Code of the next packets.
        code: Code,
        /// What the peer reported; `None`: reports are missing.
        report: Option<Report>,
    },
    /// Both ends have heard each other; the peer's repair frames cover so many packets, 0: it has
    /// no code.
    Connected {
        /// Packets.
        peer_window: u16,
    },
    /// The peer was silent for too long, so the tunnel ends. If this end refused a greeting from
    /// the peer's address, the value is the reason.
    Silent(Option<Misfit>),
}

/// Reason why a greeting was refused. Anyone can send a greeting with the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The greeting has this MTU.
    Mtu(u16),
    /// The greeting has this version.
    Version(u8),
}

/// Parameters of an end.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Random, not 0.
    pub session: u64,
    /// What this end adds to its packets.
    pub protection: Protection,
    /// Order in which packets leave the tunnel at this end.
    pub delivery: Delivery,
    /// Longest packet, bytes.
    pub mtu: u16,
    /// Longest silence of the peer.
    pub peer_timeout: Nanos,
}

/// Counters of packets and datagrams that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Packets from the device while the ends had not heard each other.
    pub unconnected: u64,
    /// Datagrams of data from a peer that has not greeted, and reports that were not asked for.
    pub unexpected: u64,
    /// Datagrams that do not belong to a tunnel; greetings with another version or MTU; and
    /// greetings of a session that does not name this session while another session is connected.
    pub foreign: u64,
}

/// An end of a tunnel. Memory: that of its sender and receiver.
#[derive(Debug)]
pub struct Session {
    parameters: Parameters,
    sender: Sender,
    receiver: Option<Receiver>,
    /// The peer's session.
    peer: u64,
    is_connected: bool,
    /// Reports heard.
    reports: u64,
    next_greeting: Nanos,
    /// Time at which the peer was last heard, or the session began.
    heard: Nanos,
    /// Why the last greeting was refused; `None` once a later greeting was accepted.
    misfit: Option<Misfit>,
    dropped: Dropped,
    events: Vec<Event>,
}

impl Session {
    /// An end that begins now.
    #[must_use]
    pub fn new(parameters: Parameters, now: Nanos) -> Self {
        Self {
            sender: Sender::new(parameters.protection),
            parameters,
            receiver: None,
            peer: 0,
            is_connected: false,
            reports: 0,
            next_greeting: now,
            heard: now,
            misfit: None,
            dropped: Dropped::default(),
            events: Vec::new(),
        }
    }

    /// What has happened since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Whether both ends have heard each other.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Counters of packets and datagrams that were dropped.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }

    /// Reports of the peer so far.
    #[must_use]
    pub fn reports(&self) -> u64 {
        self.reports
    }

    /// The sending half.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The receiving half, once the peer was heard.
    #[must_use]
    pub fn receiver(&self) -> Option<&Receiver> {
        self.receiver.as_ref()
    }

    /// Takes a packet from the device. Without a connected peer it is dropped and counted: it never
    /// goes another way.
    pub fn push(&mut self, now: Nanos, packet: &[u8], output: &mut impl Output) {
        if !self.is_connected || packet.is_empty() {
            self.dropped.unconnected += 1;
            return;
        }
        self.sender.push(now, packet, |frame| output.send(frame));
    }

    /// Takes a datagram of the peer.
    pub fn receive(&mut self, now: Nanos, datagram: &[u8], output: &mut impl Output) {
        let is_adaptive = self.is_adaptive();
        match (fec::parse(datagram), &mut self.receiver) {
            (Ok(Frame::Foreign(hello::KIND, content)), _) => match Hello::parse(content) {
                Ok(hello) => self.greeted(now, &hello, output),
                Err(HelloError::Version(theirs)) => self.misfits(Misfit::Version(theirs)),
                Err(HelloError::Foreign) => self.dropped.foreign += 1,
            },
            (Ok(Frame::Report(report)), Some(_)) if is_adaptive => {
                self.reports += 1;
                self.adapt(Some(report), |it| it.report(now, report));
            }
            (Ok(Frame::Foreign(..)) | Err(_), _) => self.dropped.foreign += 1,
            (Ok(Frame::Report(_)), _) | (Ok(_), None) => self.dropped.unexpected += 1,
            (Ok(_), Some(receiver)) => {
                // Greetings may wait behind data.
                self.heard = now;
                // Its frames are frames: this was just seen.
                let _ = receiver.receive(now, datagram, |packet| output.deliver(packet));
            }
        }
    }

    /// Time at which [`Self::timeout`] must be called.
    #[must_use]
    pub fn next_timeout(&self) -> Nanos {
        let receiver = self.receiver.as_ref().and_then(Receiver::next_timeout);
        let halves = [self.sender.next_timeout(), receiver];
        let silent = self.heard + self.parameters.peer_timeout;
        let own = self.next_greeting.min(silent);
        halves.into_iter().flatten().fold(own, Nanos::min)
    }

    /// Runs the timers that are due.
    pub fn timeout(&mut self, now: Nanos, output: &mut impl Output) {
        if now >= self.heard + self.parameters.peer_timeout {
            self.heard = now;
            self.events.push(Event::Silent(self.misfit));
        }
        if now >= self.next_greeting {
            self.greet(now, output);
        }
        self.adapt(None, |it| it.timeout(now, |frame| output.send(frame)));
        if let Some(receiver) = &mut self.receiver {
            if let Some(report) = receiver.report(now) {
                output.send(&report);
            }
            receiver.timeout(now, |packet| output.deliver(packet));
        }
    }

    fn is_adaptive(&self) -> bool {
        self.parameters.protection == Protection::Adaptive
    }

    /// Lets the sender process a report (`hears`), and logs an event if it has changed its code.
    fn adapt(&mut self, report: Option<Report>, hears: impl FnOnce(&mut Sender)) {
        let before = self.sender.code();
        hears(&mut self.sender);
        if let Some(code) = self.sender.code().filter(|code| Some(*code) != before) {
            self.events.push(Event::Code { code, report });
        }
    }

    fn greet(&mut self, now: Nanos, output: &mut impl Output) {
        output.send(&self.hello(self.peer).frame());
        self.next_greeting = now + GREETING[usize::from(self.is_connected)];
    }

    /// The greeting of this end that names `peer` as the session that it has heard.
    fn hello(&self, peer: u64) -> Hello {
        let Parameters {
            session,
            protection,
            mtu,
            ..
        } = self.parameters;
        Hello {
            session,
            peer,
            window: protection.window(),
            mtu,
            wants_reports: self.is_adaptive(),
        }
    }

    /// Counts a greeting with another version or MTU. This end does not answer it: the other end
    /// finds the same difference in this end's own greetings.
    fn misfits(&mut self, why: Misfit) {
        self.misfit = Some(why);
        self.dropped.foreign += 1;
    }

    fn receiver_of(&self, now: Nanos, hello: &Hello) -> Receiver {
        let window = 2 * usize::from(hello.window.max(1));
        let receiver = Receiver::new(window, self.parameters.delivery);
        if hello.wants_reports {
            receiver.with_reports(now)
        } else {
            receiver
        }
    }

    fn greeted(&mut self, now: Nanos, hello: &Hello, output: &mut impl Output) {
        if hello.mtu != self.parameters.mtu {
            self.misfits(Misfit::Mtu(hello.mtu));
            return;
        }
        let names_this_end = hello.peer == self.parameters.session;
        if self.is_connected && hello.session != self.peer && !names_this_end {
            // A peer that was started anew, or anyone: only the peer's address hears the answer,
            // with this end's session.
            self.dropped.foreign += 1;
            output.send(&self.hello(hello.session).frame());
            return;
        }
        self.heard = now;
        self.misfit = None;
        if hello.session != self.peer {
            self.peer = hello.session;
            self.is_connected = false;
            self.sender = Sender::new(self.parameters.protection);
            self.receiver = Some(self.receiver_of(now, hello));
            self.greet(now, output);
        }
        if names_this_end && !self.is_connected {
            self.is_connected = true;
            // The peer's stream to this end begins: what came before was to the one before it.
            self.receiver = Some(self.receiver_of(now, hello));
            let peer_window = hello.window;
            self.events.push(Event::Connected { peer_window });
            // The peer hears at once that it may send.
            self.greet(now, output);
        }
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
