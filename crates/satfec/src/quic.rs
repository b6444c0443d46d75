// SPDX-License-Identifier: GPL-3.0-or-later
//! The tunnel's frames in QUIC DATAGRAM frames (RFC 9221) of one connection between both ends,
//! without I/O.
//!
//! The client dials again when its connection is lost. The server takes a new connection in place
//! of the one it has once the handshake is complete, so an end that was started anew is heard.
//! Sessions outlive connections.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::ControllerFactory;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Endpoint,
    EndpointConfig, Event, IdleTimeout, Incoming, ServerConfig, TransportConfig, VarInt,
};

/// Around a frame in a UDP datagram: flags, connection identifier, packet number and tag, type and
/// length of the frame.
pub const OVERHEAD: u16 = 1 + 8 + 4 + 16 + 9;
/// Least UDP payload that a path of QUIC takes (RFC 9000 section 14).
pub const LEAST_PAYLOAD: u16 = 1200;
/// Protocol of the connection (ALPN).
pub const ALPN: &[u8] = b"satfec";
/// Bytes that wait for the congestion window: twice the bandwidth-delay product of 12 Mbit/s and
/// 0.5 s, with some overhead.
const QUEUE: usize = 2_000_000;
/// A connection is lost after this silence; greetings come each second.
const MAX_IDLE: VarInt = VarInt::from_u32(3000);
const REDIAL: Duration = Duration::from_secs(1);
/// The one in use, one in its handshake, and some that are being closed.
const MOST_CONNECTIONS: usize = 4;

/// The end of the connection.
#[derive(Clone)]
pub enum Role {
    /// The client dials, and checks the server's certificate for this name.
    Client(Arc<QuicClientConfig>, String),
    /// The server shows a certificate.
    Server(Arc<QuicServerConfig>),
}

/// What a carrier is made of.
pub struct Setup {
    /// The end of the connection, with its TLS configuration.
    pub role: Role,
    /// The only address that datagrams come from and go to.
    pub peer: SocketAddr,
    /// Congestion control of this end.
    pub control: Arc<dyn ControllerFactory + Send + Sync>,
    /// Longest frame, bytes.
    pub longest: u16,
}

struct Entry {
    handle: ConnectionHandle,
    connection: Connection,
    is_connected: bool,
}

impl Entry {
    fn is_usable(&self) -> bool {
        self.is_connected && !self.connection.is_closed()
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Connections that were established.
    pub connections: u64,
    /// Frames that were dropped as the queue was full, or as there was no connection any more.
    pub dropped: u64,
}

/// One end of the connection. Memory: 2 MB of frames to send, those that arrived, four connections.
pub struct Carrier {
    endpoint: Endpoint,
    role: Role,
    transport: Arc<TransportConfig>,
    peer: SocketAddr,
    /// The newest last.
    connections: Vec<Entry>,
    /// Datagrams that belong to no connection.
    answers: VecDeque<Vec<u8>>,
    arrived: VecDeque<Bytes>,
    next_dial: Instant,
    carried: Carried,
    refusal: Option<String>,
}

impl Carrier {
    /// An end that begins now.
    #[must_use]
    pub fn new(setup: Setup, now: Instant) -> Self {
        let payload = setup
            .longest
            .saturating_add(OVERHEAD)
            .clamp(LEAST_PAYLOAD, 65_527);
        let mut transport = TransportConfig::default();
        transport
            .max_idle_timeout(Some(IdleTimeout::from(MAX_IDLE)))
            .congestion_controller_factory(setup.control)
            .datagram_send_buffer_size(QUEUE)
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .initial_mtu(payload)
            .min_mtu(payload)
            .mtu_discovery_config(None);
        let transport = Arc::new(transport);
        let mut config = EndpointConfig::default();
        // Within its bounds: it cannot fail.
        let _ = config.max_udp_payload_size(payload);
        let server = match &setup.role {
            Role::Client(..) => None,
            Role::Server(crypto) => {
                let mut server = ServerConfig::with_crypto(crypto.clone());
                server
                    .transport_config(Arc::clone(&transport))
                    .migration(false);
                Some(Arc::new(server))
            }
        };
        Self {
            endpoint: Endpoint::new(Arc::new(config), server, false, None),
            role: setup.role,
            transport,
            peer: setup.peer,
            connections: Vec::new(),
            answers: VecDeque::new(),
            arrived: VecDeque::new(),
            next_dial: now,
            carried: Carried::default(),
            refusal: None,
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.carried
    }

    /// Reason why this client can never connect to the peer: TLS failed, or there is no common
    /// version.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Takes a UDP datagram of the peer.
    pub fn receive(&mut self, now: Instant, datagram: &[u8]) {
        let mut buffer = Vec::new();
        let data = BytesMut::from(datagram);
        let event = (self.endpoint).handle(now, self.peer, None, None, data, &mut buffer);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let found = self.connections.iter_mut().find(|it| it.handle == handle);
                if let Some(entry) = found {
                    entry.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::Response(_)) => self.answers.push_back(buffer),
            None => {}
        }
        self.settle(now);
    }

    /// The next frame that has arrived.
    pub fn arrived(&mut self) -> Option<Bytes> {
        self.arrived.pop_front()
    }

    /// Queues a frame. Without a connection, or in a full queue, it is dropped; counted, once there
    /// was a connection.
    pub fn send(&mut self, frame: &[u8]) {
        let entry = self.connections.iter_mut().rfind(|it| it.is_usable());
        let is_queued = entry.is_some_and(|entry| {
            let frame = Bytes::copy_from_slice(frame);
            entry.connection.datagrams().send(frame, false).is_ok()
        });
        self.carried.dropped += u64::from(!is_queued && self.carried.connections > 0);
    }

    /// Puts the next UDP datagram to the peer into `buffer`. Returns false if there is none.
    pub fn transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        if let Some(answer) = self.answers.pop_front() {
            *buffer = answer;
            return true;
        }
        let mut connections = self.connections.iter_mut();
        let is_there = connections.any(|it| it.connection.poll_transmit(now, 1, buffer).is_some());
        if !is_there {
            self.settle(now);
        }
        is_there
    }

    /// Time at which [`Self::timeout`] must be called.
    #[must_use]
    pub fn next_timeout(&mut self) -> Option<Instant> {
        let dial = self.is_alone().then_some(self.next_dial);
        let connections = self.connections.iter_mut();
        let timers = connections.filter_map(|it| it.connection.poll_timeout());
        timers.chain(dial).min()
    }

    /// Runs the timers that are due.
    pub fn timeout(&mut self, now: Instant) {
        for entry in &mut self.connections {
            if entry
                .connection
                .poll_timeout()
                .is_some_and(|due| due <= now)
            {
                entry.connection.handle_timeout(now);
            }
        }
        self.settle(now);
        if self.is_alone() && self.next_dial <= now {
            self.next_dial = now + REDIAL;
            self.dial(now);
        }
    }

    /// Whether this end is a client without a connection, which has to dial.
    fn is_alone(&self) -> bool {
        matches!(self.role, Role::Client(..))
            && self.refusal.is_none()
            && self.connections.iter().all(|it| it.connection.is_closed())
    }

    fn dial(&mut self, now: Instant) {
        let Role::Client(crypto, name) = &self.role else {
            return;
        };
        let mut config = ClientConfig::new(crypto.clone());
        config.transport_config(Arc::clone(&self.transport));
        match self.endpoint.connect(now, config, self.peer, name) {
            Ok((handle, connection)) => self.add(handle, connection),
            Err(error) => self.refusal = Some(error.to_string()),
        }
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let mut handshakes = self.connections.iter();
        let is_busy = handshakes.any(|it| it.connection.is_handshaking());
        if is_busy || self.connections.len() >= MOST_CONNECTIONS {
            // Its client sends the datagram again.
            self.endpoint.ignore(incoming);
            return;
        }
        let mut buffer = Vec::new();
        match self.endpoint.accept(incoming, now, &mut buffer, None) {
            Ok((handle, connection)) => self.add(handle, connection),
            Err(error) => self.answers.extend(error.response.map(|_| buffer)),
        }
    }

    fn add(&mut self, handle: ConnectionHandle, connection: Connection) {
        self.connections.push(Entry {
            handle,
            connection,
            is_connected: false,
        });
    }

    /// Handles the events of all connections, and takes the frames that arrived.
    fn settle(&mut self, now: Instant) {
        let mut connected = None;
        for entry in &mut self.connections {
            while let Some(event) = entry.connection.poll_endpoint_events() {
                if let Some(event) = self.endpoint.handle_event(entry.handle, event) {
                    entry.connection.handle_event(event);
                }
            }
            while let Some(event) = entry.connection.poll() {
                match event {
                    Event::Connected => {
                        entry.is_connected = true;
                        self.carried.connections += 1;
                        connected = Some(entry.handle);
                    }
                    Event::ConnectionLost { reason } if is_final(&reason) => {
                        let is_client = matches!(self.role, Role::Client(..));
                        self.refusal = is_client.then(|| reason.to_string());
                    }
                    _ => {}
                }
            }
            while let Some(frame) = entry.connection.datagrams().recv() {
                self.arrived.push_back(frame);
            }
        }
        if connected.is_some() {
            let others = self.connections.iter_mut();
            for entry in others.filter(|it| Some(it.handle) != connected && it.is_usable()) {
                entry
                    .connection
                    .close(now, VarInt::from_u32(0), Bytes::new());
            }
        }
        self.connections.retain(|it| !it.connection.is_drained());
    }
}

/// Whether another attempt would fail for the same reason.
fn is_final(reason: &ConnectionError) -> bool {
    matches!(
        reason,
        ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
    )
}

#[cfg(test)]
#[path = "quic_tests.rs"]
mod tests;
