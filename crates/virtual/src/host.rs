// SPDX-License-Identifier: GPL-3.0-or-later
//! One end of the path: a QUIC endpoint that is stepped with the virtual time, and its packets.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use link::Nanos;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, ConnectionId, ConnectionIdGenerator,
    ConnectionStats, DatagramEvent, Endpoint, EndpointConfig, Event, ServerConfig, StreamEvent,
    Transmit, VarInt,
};

use crate::flow::{Flow, Habits};
use crate::packet;

/// Length of connection ids, bytes: what quinn takes by itself.
const ID_BYTES: usize = 8;

/// What a connection has seen, at its own end.
#[derive(Debug, Default)]
pub struct Seen {
    /// When the handshake was complete.
    pub connected: Option<Nanos>,
    /// When the first byte on a stream arrived.
    pub first_byte: Option<Nanos>,
    /// Why the connection is over, if the peer or an error ended it.
    pub lost: Option<String>,
}

/// A connection with its streams.
pub struct Session {
    /// The stack's part.
    pub connection: Connection,
    /// The application's part.
    pub flow: Flow,
    /// When what happened.
    pub seen: Seen,
}

/// An endpoint at an address.
pub struct Host {
    endpoint: Endpoint,
    address: SocketAddrV4,
    peer: SocketAddrV4,
    habits: Habits,
    /// The stack speaks in `Instant`: virtual time 0.
    zero: Instant,
    sessions: BTreeMap<ConnectionHandle, Session>,
    newest: Option<ConnectionHandle>,
    /// IP packets on their way out.
    pub out: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
}

impl Host {
    /// An endpoint; a server with `server`.
    #[must_use]
    pub fn new(
        address: SocketAddrV4,
        peer: SocketAddrV4,
        habits: Habits,
        server: Option<ServerConfig>,
        seed: u64,
        zero: Instant,
    ) -> Self {
        let mut config = EndpointConfig::default();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8..10].copy_from_slice(&address.port().to_be_bytes());
        config.rng_seed(Some(bytes));
        let ids = Arc::new(AtomicU64::new(seed << 32));
        config.cid_generator(move || Box::new(CountedIds(Arc::clone(&ids))));
        Self {
            endpoint: Endpoint::new(Arc::new(config), server.map(Arc::new), true, None),
            address,
            peer,
            habits,
            zero,
            sessions: BTreeMap::new(),
            newest: None,
            out: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    /// Starts a connection to the peer.
    ///
    /// # Errors
    /// The stack refuses.
    pub fn connect(&mut self, now: Nanos, config: ClientConfig, name: &str) -> Result<(), String> {
        let (handle, connection) = self
            .endpoint
            .connect(self.instant(now), config, SocketAddr::V4(self.peer), name)
            .map_err(|error| error.to_string())?;
        self.keep(handle, connection);
        Ok(())
    }

    /// The newest connection, also when it is over.
    pub fn newest(&mut self) -> Option<&mut Session> {
        self.sessions.get_mut(&self.newest?)
    }

    /// No connection is the newest one until the next begins.
    pub fn forget(&mut self) {
        self.newest = None;
    }

    fn keep(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.sessions
            .insert(handle, Session::of(connection, self.habits));
        self.newest = Some(handle);
    }

    /// Drops all connections but tells their peers.
    pub fn close(&mut self, now: Nanos) {
        let instant = self.instant(now);
        for session in self.sessions.values_mut() {
            session
                .connection
                .close(instant, VarInt::from_u32(0), "done".into());
        }
        self.work(now);
    }

    /// Takes an IP packet from the path.
    pub fn receive(&mut self, now: Nanos, packet: &[u8]) {
        let Some(datagram) = packet::decode(packet) else {
            return;
        };
        let instant = self.instant(now);
        let mut answer = Vec::new();
        let event = self.endpoint.handle(
            instant,
            SocketAddr::V4(datagram.source),
            Some(IpAddr::V4(*self.address.ip())),
            datagram.ecn,
            BytesMut::from(datagram.payload),
            &mut answer,
        );
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(session) = self.sessions.get_mut(&handle) {
                    session.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                match self.endpoint.accept(incoming, instant, &mut answer, None) {
                    Ok((handle, connection)) => {
                        self.keep(handle, connection);
                    }
                    Err(error) => {
                        if let Some(transmit) = error.response {
                            self.send(&transmit, &answer);
                        }
                    }
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.send(&transmit, &answer),
            None => {}
        }
    }

    /// When stack or application want to be stepped without input.
    pub fn deadline(&mut self, now: Nanos) -> Option<Nanos> {
        let zero = self.zero;
        self.sessions
            .values_mut()
            .flat_map(|session| {
                let timeout = session.connection.poll_timeout();
                let timer =
                    timeout.map(|at| at.saturating_duration_since(zero).as_nanos() as Nanos);
                [timer, session.flow.due(now)]
            })
            .flatten()
            .min()
    }

    /// Does all that can be done at `now`: timers, events, streams, packets.
    pub fn work(&mut self, now: Nanos) {
        let instant = self.instant(now);
        let handles: Vec<_> = self.sessions.keys().copied().collect();
        for handle in handles {
            while self.step(handle, now, instant) {}
            // What the newest one has seen is still asked for.
            let is_over = |session: &Session| session.connection.is_drained();
            if self.newest != Some(handle) && self.sessions.get(&handle).is_some_and(is_over) {
                self.sessions.remove(&handle);
            }
        }
    }

    /// One round over a connection; `false` when nothing was left to do.
    fn step(&mut self, handle: ConnectionHandle, now: Nanos, instant: Instant) -> bool {
        let Some(session) = self.sessions.get_mut(&handle) else {
            return false;
        };
        let connection = &mut session.connection;
        if connection.poll_timeout().is_some_and(|at| at <= instant) {
            connection.handle_timeout(instant);
        }
        let mut is_busy = false;
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(handle, event) {
                connection.handle_event(event);
            }
            is_busy = true;
        }
        is_busy |= session.events(now);
        session.flow.pump(&mut session.connection, now);
        self.buffer.clear();
        let sent = session
            .connection
            .poll_transmit(instant, 1, &mut self.buffer);
        if let Some(transmit) = sent {
            let packet = std::mem::take(&mut self.buffer);
            self.send(&transmit, &packet);
            self.buffer = packet;
            is_busy = true;
        }
        is_busy
    }

    fn send(&mut self, transmit: &Transmit, payload: &[u8]) {
        let payload = &payload[..transmit.size];
        let packet = packet::encode(self.address, self.peer, transmit.ecn, payload);
        self.out.push_back(packet);
    }

    fn instant(&self, now: Nanos) -> Instant {
        self.zero + Duration::from_nanos(now)
    }
}

impl Session {
    fn of(connection: Connection, habits: Habits) -> Self {
        Self {
            connection,
            flow: Flow::new(habits),
            seen: Seen::default(),
        }
    }

    /// Counters of the stack.
    #[must_use]
    pub fn stats(&self) -> ConnectionStats {
        self.connection.stats()
    }

    /// Takes the stack's events; `false` without any.
    fn events(&mut self, now: Nanos) -> bool {
        let mut is_busy = false;
        while let Some(event) = self.connection.poll() {
            is_busy = true;
            match event {
                Event::Connected => self.seen.connected = Some(now),
                Event::ConnectionLost { reason } => self.seen.lost = Some(reason.to_string()),
                Event::Stream(StreamEvent::Opened { .. }) => self.accept(now),
                Event::Stream(StreamEvent::Readable { id }) => self.read(now, id),
                _ => {}
            }
        }
        is_busy
    }

    /// A stream that is opened may hold data already.
    fn accept(&mut self, now: Nanos) {
        let known = self.flow.accepted.len();
        self.flow.accept(&mut self.connection);
        for id in self.flow.accepted.split_off(known) {
            self.flow.accepted.push(id);
            self.read(now, id);
        }
    }

    fn read(&mut self, now: Nanos, id: quinn_proto::StreamId) {
        if let Err(overfull) = self.flow.read(&mut self.connection, id) {
            self.seen.lost = Some(overfull.to_string());
        }
        if self.flow.received > 0 {
            self.seen.first_byte.get_or_insert(now);
        }
    }
}

/// Connection ids that are the same in every run. Unpredictability protects against strangers; here are none.
struct CountedIds(Arc<AtomicU64>);

impl ConnectionIdGenerator for CountedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}
