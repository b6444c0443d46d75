// SPDX-License-Identifier: GPL-3.0-or-later
//! Terminal, satellite and gateway as processes of their own, joined by UDP datagrams
//! ([`link::datagram`]).
//!
//! Each direction has a port: forward has the first, return the next. On each, an entity accepts
//! datagrams only from the neighbour before it, and sends the neighbour after it a heartbeat in
//! every metrics interval.
//! Capacity requests travel with the bursts of the return link, plans from the forward link's
//! socket.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use emulator::config::{Config, Emulation, Port};
use emulator::drive::Heard;
use emulator::scheduled::{Origin, Scheduled};
use link::Change;
use link::datagram::{Datagram, HEADER, MAX_PAYLOAD};

use crate::mailbox::Mailbox;
use crate::sys;

/// Datagrams that are read in one turn at most: a flood from other hosts must not delay packets.
const BATCH: usize = 64;
/// Receive buffer, bytes: 0.1 s of a fast link.
const BUFFER: usize = 4 << 20;

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Entity {
    /// The whole path in one process.
    All,
    /// Terminal.
    St,
    /// Satellite.
    Sat,
    /// Gateway.
    Gw,
}

/// What an entity does with a direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sends,
    Relays,
    Receives,
}

impl Entity {
    /// Its name in metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::St => "st",
            Self::Sat => "sat",
            Self::Gw => "gw",
        }
    }

    /// Its devices: terrestrial segment, then satellite segment.
    #[must_use]
    pub fn ports(self, config: &Config) -> Vec<&Port> {
        let [st, gw] = [0, 1].map(|index| config.satellite.as_ref().map(|ends| &ends[index]));
        match self {
            Self::All => config.ports().collect(),
            Self::St => st.into_iter().collect(),
            Self::Sat => Vec::new(),
            Self::Gw => config.terrestrial.iter().flatten().chain(gw).collect(),
        }
    }

    /// Its role in the forward (0) or return (1) direction; `None` for a direction that is in one
    /// process.
    pub(crate) const fn role(self, direction: usize) -> Option<Role> {
        match (self, direction) {
            (Self::All, _) | (_, 2..) => None,
            (Self::Sat, _) => Some(Role::Relays),
            (Self::Gw, 0) | (Self::St, 1) => Some(Role::Sends),
            (Self::Gw | Self::St, _) => Some(Role::Receives),
        }
    }
}

/// The socket of an entity for one direction.
#[derive(Debug)]
pub struct Air {
    socket: UdpSocket,
    /// Where datagrams come from.
    from: SocketAddrV4,
    /// Where they go.
    to: SocketAddrV4,
    heard: Heard,
    last: Option<Instant>,
    buffer: Vec<u8>,
    /// At the terminal: mailbox for received plans.
    return_link: Option<Arc<Mailbox>>,
    /// At the gateway: the path of plans to the terminal.
    plans: Option<(UdpSocket, SocketAddrV4)>,
}

impl Air {
    /// The socket of `entity` for a direction, in the network namespace of this process.
    ///
    /// # Errors
    /// The address is not the host's, or the port is in use.
    pub fn open(entity: Entity, direction: usize, emulation: &Emulation) -> io::Result<Self> {
        let port = emulation.port + direction as u16;
        let [st, sat, gw] =
            [emulation.st, emulation.sat, emulation.gw].map(|it| SocketAddrV4::new(it, port));
        let (own, from, to) = match (entity, direction) {
            (Entity::St, _) => (st, sat, sat),
            (Entity::Gw, _) => (gw, sat, sat),
            (_, 0) => (sat, gw, st),
            (_, _) => (sat, st, gw),
        };
        let socket = UdpSocket::bind(own)?;
        socket.set_nonblocking(true)?;
        // The kernel caps the size at its own limit.
        let _ = sys::set_receive_buffer(&socket, BUFFER);
        Ok(Self {
            socket,
            from,
            to,
            heard: Heard::default(),
            last: None,
            buffer: vec![0; HEADER + MAX_PAYLOAD + 1],
            return_link: None,
            plans: None,
        })
    }

    /// The socket itself, to be waited for.
    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// A second handle to the socket, with counts of its own.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            socket: self.socket.try_clone()?,
            from: self.from,
            to: self.to,
            heard: Heard::default(),
            last: None,
            buffer: self.buffer.clone(),
            return_link: None,
            plans: None,
        })
    }

    /// Passes received plans to the return link with this `mailbox`.
    pub fn post_plans(&mut self, mailbox: &Arc<Mailbox>) {
        self.return_link = Some(Arc::clone(mailbox));
    }

    /// Plans that are sent here leave by the socket of the forward link.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn send_plans_by(&mut self, forward: &Self) -> io::Result<()> {
        self.plans = Some((forward.socket.try_clone()?, forward.to));
        Ok(())
    }

    /// Sends a plan to the terminal.
    pub fn send_plan(&self, datagram: &[u8]) {
        if let Some((socket, to)) = &self.plans {
            let _ = socket.send_to(datagram, to);
        }
    }

    /// Posts a plan where plans are for this process.
    fn take_plan(&self, datagram: &Datagram<'_>) -> bool {
        let (
            Some(mailbox),
            &Datagram::Plan {
                grant,
                free,
                signalling,
            },
        ) = (&self.return_link, datagram)
        else {
            return false;
        };
        let change = Change::Plan {
            grant,
            free,
            signalling,
        };
        // At once. Where there is no room, the terminal has missed a plan.
        let _ = mailbox.post(std::iter::once(Scheduled::new(0, change, Origin::Control)));
        true
    }

    /// The next frame of the neighbour; everything else is counted and dropped.
    pub fn read(&mut self, out: &mut [u8]) -> Option<usize> {
        for _ in 0..BATCH {
            // An error is one of the network's, e.g. no listener at the neighbour: there is no
            // datagram.
            let (length, from) = self.socket.recv_from(&mut self.buffer).ok()?;
            if from != self.from.into() {
                self.heard.strangers += 1;
                continue;
            }
            let bytes = &self.buffer[..length];
            let Ok(datagram) = Datagram::parse(bytes) else {
                self.heard.malformed += 1;
                continue;
            };
            self.heard.datagrams += 1;
            self.last = Some(Instant::now());
            if datagram != Datagram::Hello && !self.take_plan(&datagram) {
                out.get_mut(..length)?.copy_from_slice(bytes);
                return Some(length);
            }
        }
        None
    }

    /// Sends a datagram. What the network does not take is lost.
    pub fn write(&self, datagram: &[u8]) {
        let _ = self.socket.send_to(datagram, self.to);
    }

    /// Sends a heartbeat to the next entity.
    pub fn heartbeat(&self) {
        let mut hello = Vec::with_capacity(HEADER);
        Datagram::Hello.write(&mut hello);
        self.write(&hello);
    }

    /// What came in so far.
    #[must_use]
    pub fn heard(&self) -> Heard {
        let since = |last: Instant| Duration::as_nanos(&last.elapsed()) as u64;
        Heard {
            silent: self.last.map(since),
            ..self.heard
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOCAL: Emulation = Emulation {
        st: Ipv4Addr::new(127, 99, 0, 3),
        sat: Ipv4Addr::new(127, 99, 0, 1),
        gw: Ipv4Addr::new(127, 99, 0, 2),
        port: 41_733,
    };

    fn frame(sequence: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let payload = &[7; 100];
        Datagram::Frame {
            session: 1,
            sequence,
            payload,
        }
        .write(&mut bytes);
        bytes
    }

    /// Loopback delivers at once, but another thread may have to run first.
    fn read(air: &mut Air) -> Option<Vec<u8>> {
        let mut buffer = [0; 1000];
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if let Some(length) = air.read(&mut buffer) {
                return Some(buffer[..length].to_vec());
            }
        }
        None
    }

    #[test]
    fn neighbours_are_heard_and_strangers_are_not() {
        let [gw, mut sat] =
            [Entity::Gw, Entity::Sat].map(|entity| Air::open(entity, 0, &LOCAL).unwrap());
        let stranger = UdpSocket::bind("127.99.0.9:0").unwrap();
        stranger.send_to(&frame(1), "127.99.0.1:41733").unwrap();
        gw.write(b"nonsense");
        gw.heartbeat();
        gw.write(&frame(2));
        assert_eq!(read(&mut sat), Some(frame(2)));
        let heard = sat.heard();
        let counts = (heard.datagrams, heard.strangers, heard.malformed);
        assert_eq!(counts, (2, 1, 1));
        assert!(heard.silent.is_some() && gw.heard().silent.is_none());
    }

    #[test]
    fn the_satellite_segment_alone_is_taken_apart() {
        let roles = |entity: Entity| [0, 1, 2, 3].map(|direction| entity.role(direction));
        let (sends, receives) = (Some(Role::Sends), Some(Role::Receives));
        assert_eq!(roles(Entity::Gw), [sends, receives, None, None]);
        assert_eq!(roles(Entity::St), [receives, sends, None, None]);
        assert_eq!(roles(Entity::All), [None; 4]);
    }

    #[test]
    fn plans_go_from_the_gateway_s_return_link_to_the_terminal_s() {
        let local = Emulation {
            port: 41_753,
            ..LOCAL
        };
        let open = |entity, direction| Air::open(entity, direction, &local).unwrap();
        let (forward, mut back) = (open(Entity::Gw, 0), open(Entity::Gw, 1));
        let (mut sat, mut st) = (open(Entity::Sat, 0), open(Entity::St, 0));
        let mailbox = Arc::new(Mailbox::new().unwrap());
        st.post_plans(&mailbox);
        back.send_plans_by(&forward).unwrap();
        let mut plan = Vec::new();
        let (grant, free, signalling) = (dvb::dama::Grant::default(), 7, 1);
        Datagram::Plan {
            grant,
            free,
            signalling,
        }
        .write(&mut plan);
        back.send_plan(&plan);
        let passed = read(&mut sat).unwrap();
        assert_eq!(passed, plan);
        sat.write(&passed);
        let end = Instant::now() + Duration::from_secs(2);
        let change = loop {
            assert_eq!(st.read(&mut [0; 100]), None);
            if let Some(change) = mailbox.take() {
                break change;
            }
            assert!(Instant::now() < end);
        };
        assert_eq!(
            change.change,
            Change::Plan {
                grant,
                free,
                signalling
            }
        );
    }

    #[test]
    fn an_absent_neighbour_is_not_an_error() {
        let emulation = Emulation {
            port: 41_743,
            ..LOCAL
        };
        let mut st = Air::open(Entity::St, 1, &emulation).unwrap();
        for index in 0..10 {
            st.write(&frame(index));
            assert_eq!(st.read(&mut [0; 100]), None);
        }
    }
}
