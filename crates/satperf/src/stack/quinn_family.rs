// SPDX-License-Identifier: GPL-3.0-or-later
//! A stack on the protocol core of quinn, or of a library that has its interface (`super::proto`),
//! without its runtime. What differs between them is in the parent module.
//!
//! Streams are read unordered and put in order here: these libraries close a connection once it
//! buffers more than 1,024 separate spans of one stream, and a lossy or overrun 250 Mbit/s
//! satellite link leaves ten times as many.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::quic::{CarefulResume, KnownPaths, LegOptions, Reassembly, Resumed};
use bytes::Bytes;
use resume::{Jump, PathKey, PhaseUpdate};

use super::proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use super::proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, ConnectionId,
    ConnectionIdGenerator, DatagramEvent, Dir, EcnCodepoint, Endpoint, EndpointConfig,
    Event as LibraryEvent, Incoming, ReadError, ServerConfig, StreamEvent, StreamId,
    Transmit as LibraryTransmit, TransportConfig, VarInt,
};
use super::{NAME, differences};
use crate::stack::{
    Close, Conn, Datagram, Event, MAX_STREAMS, MOST_ANSWERS, Qlogs, Read, Setup, Stack, StackError,
    Stats, TlsFiles, Transmit, ZeroRtt,
};

/// Checks options without making anything.
///
/// # Errors
/// All that are out of range or that this library has not.
pub fn check(options: &LegOptions) -> Result<(), String> {
    let setup = Setup {
        options: options.clone(),
        ..Setup::default()
    };
    let made = differences::transport(&setup);
    made.map(drop).map_err(|faults| faults.to_string())
}

/// TLS of an endpoint.
pub enum Crypto {
    /// Its clones share session tickets; 0-RTT is used if it is enabled in there.
    Client(Arc<QuicClientConfig>),
    /// Its clones share session tickets, too.
    Server(Arc<QuicServerConfig>),
}

/// A connection that the application has not dropped, or that still has packets to send.
struct Entry {
    handle: ConnectionHandle,
    connection: Connection,
    /// A client's session allowed early data.
    is_early: bool,
    readable: VecDeque<StreamId>,
    streams: HashMap<StreamId, Reassembly>,
    /// The endpoint has dropped it.
    drained: bool,
    /// The application has dropped it.
    forgotten: bool,
    resumed: Option<Resumed>,
}

/// See the module.
pub struct Family {
    setup: Setup,
    crypto: Crypto,
    /// With a seed: the client's first destination connection ids.
    first_ids: Option<Arc<AtomicU64>>,
    endpoint: Endpoint,
    connections: BTreeMap<Conn, Entry>,
    /// The library reuses its handles.
    conns: HashMap<ConnectionHandle, Conn>,
    next: Conn,
    events: VecDeque<(Conn, Event)>,
    responses: VecDeque<(Transmit, Vec<u8>)>,
    qlogs: Qlogs,
    /// With Careful Resume.
    paths: Option<KnownPaths>,
}

/// What is known of paths; `None`: Careful Resume is off.
fn known_paths(setup: &Setup) -> Result<Option<KnownPaths>, StackError> {
    let epoch = setup
        .epoch
        .filter(|_| setup.options.careful_resume != CarefulResume::Off);
    let parse = |epoch| KnownPaths::parse(&setup.resume_state, epoch);
    epoch
        .map(parse)
        .transpose()
        .map_err(StackError::ResumeState)
}

impl Family {
    /// A client's or server's endpoint with certificates from files.
    ///
    /// # Errors
    /// Options that the library has not, certificates that cannot be used.
    pub fn new(setup: Setup, tls: &TlsFiles) -> Result<Self, StackError> {
        differences::transport(&setup)?;
        if setup.session.is_some() {
            return Err(StackError::Library {
                what: "0-RTT with this stack",
                why: "rustls keeps sessions in memory only; use --stack quiche".into(),
            });
        }
        let crypto = differences::crypto(tls)?;
        Self::with_crypto(setup, crypto)
    }

    /// An endpoint with TLS made by the caller.
    ///
    /// # Errors
    /// A state of Careful Resume that cannot be used.
    pub fn with_crypto(setup: Setup, crypto: Crypto) -> Result<Self, StackError> {
        let paths = known_paths(&setup)?;
        let server = match &crypto {
            Crypto::Client(_) => None,
            Crypto::Server(crypto) => Some(Arc::new(ServerConfig::with_crypto(crypto.clone()))),
        };
        let mut config = EndpointConfig::default();
        if let Some(seed) = setup.seed {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            bytes[8] = server.is_some().into();
            config.rng_seed(Some(bytes));
            let ids = counted_ids(seed, 0);
            differences::set_ids(&mut config, move || Box::new(CountedIds(Arc::clone(&ids))));
        }
        Ok(Self {
            endpoint: differences::endpoint(config, server),
            first_ids: setup.seed.map(|seed| counted_ids(seed, FIRST_IDS)),
            qlogs: Qlogs::new(&setup),
            paths,
            setup,
            crypto,
            connections: BTreeMap::new(),
            conns: HashMap::new(),
            next: 0,
            events: VecDeque::new(),
            responses: VecDeque::new(),
        })
    }

    /// Transport configuration of the next connection, with a qlog file of its own, between two
    /// addresses.
    fn transport(
        &mut self,
        now: Instant,
        side: &str,
        local: Option<IpAddr>,
        remote: IpAddr,
    ) -> Result<(Arc<TransportConfig>, Option<Resumed>), StackError> {
        let mut config = differences::transport(&self.setup)?;
        config
            .max_concurrent_uni_streams(MAX_STREAMS.into())
            .max_concurrent_bidi_streams(MAX_STREAMS.into());
        if let Some(bytes) = self.setup.datagram_bytes {
            config.initial_mtu(bytes).mtu_discovery_config(None);
        }
        let library = NAME.split('-').next().unwrap_or(NAME);
        let name = format!("{library}-{side}-{}", self.next);
        let file = self.qlogs.create(&name)?;
        let mut resumed = None;
        if let (Some(paths), Some(local)) = (&mut self.paths, local) {
            let key = PathKey { local, remote };
            resumed = paths.start(now, key, &self.setup.options, file.clone());
        }
        if let Some(connection) = &resumed {
            differences::set_controllers(&mut config, &connection.resumption);
        }
        if let Some(file) = file {
            differences::set_qlog(&mut config, file, name, now);
        }
        Ok((Arc::new(config), resumed))
    }

    fn add(
        &mut self,
        handle: ConnectionHandle,
        connection: Connection,
        resumed: Option<Resumed>,
    ) -> Conn {
        let conn = self.next;
        self.next += 1;
        let entry = Entry {
            handle,
            is_early: connection.side().is_client() && connection.has_0rtt(),
            connection,
            readable: VecDeque::new(),
            streams: HashMap::new(),
            drained: false,
            forgotten: false,
            resumed,
        };
        self.connections.insert(conn, entry);
        self.conns.insert(handle, conn);
        conn
    }

    fn accept(&mut self, now: Instant, incoming: Incoming) {
        let Crypto::Server(crypto) = &self.crypto else {
            return self.endpoint.ignore(incoming);
        };
        let mut config = ServerConfig::with_crypto(crypto.clone());
        let peer = incoming.remote_address();
        let mut buffer = Vec::new();
        let local = incoming.local_ip();
        let answer = match self.transport(now, "server", local, peer.ip()) {
            Ok((transport, resumed)) => {
                config.transport_config(transport);
                match self
                    .endpoint
                    .accept(incoming, now, &mut buffer, Some(Arc::new(config)))
                {
                    Ok((handle, connection)) => {
                        let conn = self.add(handle, connection, resumed);
                        self.events.push_back((conn, Event::Accepted(peer)));
                        self.process_events(conn);
                        None
                    }
                    Err(error) => {
                        self.end_resumed(now, resumed);
                        error.response
                    }
                }
            }
            // A qlog file cannot be made.
            Err(_) => Some(self.endpoint.refuse(incoming, &mut buffer)),
        };
        if let Some(answer) = answer {
            self.respond(burst(&answer), buffer);
        }
    }

    fn respond(&mut self, transmit: Transmit, bytes: Vec<u8>) {
        if self.responses.len() < MOST_ANSWERS {
            self.responses.push_back((transmit, bytes));
        }
    }

    fn end_resumed(&mut self, now: Instant, resumed: Option<Resumed>) {
        if let (Some(paths), Some(resumed)) = (&mut self.paths, resumed) {
            paths.end(now, resumed);
        }
    }

    /// Passes events between connection and endpoint, and queues those for the application.
    fn process_events(&mut self, conn: Conn) {
        let Some(entry) = self.connections.get_mut(&conn) else {
            return;
        };
        while let Some(event) = entry.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(entry.handle, event) {
                entry.connection.handle_event(event);
            }
        }
        while let Some(event) = entry.connection.poll() {
            match event {
                LibraryEvent::Connected => {
                    self.events.push_back((conn, Event::Connected));
                    if entry.is_early && !entry.connection.accepted_0rtt() {
                        self.events.push_back((conn, Event::EarlyDataRejected));
                    }
                }
                LibraryEvent::ConnectionLost { reason } => {
                    self.events.push_back((conn, Event::Closed(close(&reason))));
                }
                LibraryEvent::Stream(StreamEvent::Opened { dir }) => {
                    while let Some(id) = entry.connection.streams().accept(dir) {
                        entry.readable.push_back(id);
                    }
                }
                LibraryEvent::Stream(StreamEvent::Readable { id }) => {
                    entry.readable.push_back(id);
                }
                _ => {}
            }
        }
        if let Some(resumed) = &mut entry.resumed {
            resumed.note();
        }
        if entry.connection.is_drained() && !entry.drained {
            entry.drained = true;
            self.conns.remove(&entry.handle);
        }
        if entry.drained && entry.forgotten {
            self.connections.remove(&conn);
        }
    }

    fn connection(&mut self, conn: Conn) -> Option<&mut Connection> {
        self.connections
            .get_mut(&conn)
            .map(|entry| &mut entry.connection)
    }
}

impl Stack for Family {
    fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Conn, StackError> {
        let failed = |why: String| StackError::Library {
            what: "connect",
            why,
        };
        let Crypto::Client(crypto) = &self.crypto else {
            return Err(failed("this is a server".into()));
        };
        let mut config = ClientConfig::new(crypto.clone());
        let (transport, resumed) = self.transport(now, "client", Some(local.ip()), remote.ip())?;
        config.transport_config(transport);
        if let Some(ids) = &self.first_ids {
            let mut ids = CountedIds(Arc::clone(ids));
            let id = ids.generate_cid();
            config.initial_dst_cid_provider(Arc::new(move || id));
        }
        match self.endpoint.connect(now, config, remote, name) {
            Ok((handle, connection)) => Ok(self.add(handle, connection, resumed)),
            Err(error) => {
                self.end_resumed(now, resumed);
                Err(failed(error.to_string()))
            }
        }
    }

    fn receive(&mut self, now: Instant, datagram: Datagram) {
        let Datagram {
            from,
            to,
            ecn,
            data,
        } = datagram;
        let ecn = ecn.and_then(EcnCodepoint::from_bits);
        let mut buffer = Vec::new();
        let path = (from, to.ip());
        match differences::handle(&mut self.endpoint, now, path, ecn, data, &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let Some(&conn) = self.conns.get(&handle) else {
                    return;
                };
                if let Some(connection) = self.connection(conn) {
                    connection.handle_event(event);
                }
                self.process_events(conn);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.accept(now, incoming),
            Some(DatagramEvent::Response(answer)) => {
                self.respond(burst(&answer), buffer);
            }
            None => {}
        }
    }

    fn transmit(
        &mut self,
        now: Instant,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((transmit, bytes)) = self.responses.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(transmit);
        }
        self.connections
            .values_mut()
            .find_map(|entry| differences::transmit(&mut entry.connection, now, segments, buffer))
            .map(|it| burst(&it))
    }

    fn migrated(&mut self, now: Instant) {
        for entry in self.connections.values_mut() {
            differences::migrated(&mut entry.connection, now);
        }
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.connections
            .values_mut()
            .filter_map(|entry| entry.connection.poll_timeout())
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (&conn, entry) in &mut self.connections {
            let timeout = entry.connection.poll_timeout();
            if timeout.is_some_and(|at| at <= now) {
                due.push(conn);
            }
        }
        for conn in due {
            if let Some(connection) = self.connection(conn) {
                connection.handle_timeout(now);
            }
            self.process_events(conn);
        }
    }

    fn poll(&mut self) -> Option<(Conn, Event)> {
        self.events.pop_front()
    }

    fn may_write(&self, conn: Conn) -> bool {
        self.connections.get(&conn).is_some_and(|entry| {
            (entry.is_early || !entry.connection.is_handshaking()) && !entry.connection.is_closed()
        })
    }

    fn open(&mut self, conn: Conn, both: bool) -> Option<u64> {
        let dir = if both { Dir::Bi } else { Dir::Uni };
        let id = self.connection(conn)?.streams().open(dir)?;
        Some(VarInt::from(id).into_inner())
    }

    fn write(&mut self, conn: Conn, stream: u64, data: &mut Bytes) {
        if let Some(connection) = self.connection(conn) {
            // Blocked, stopped or gone: the data stays where it is; the end of the session follows.
            differences::write(connection, id(stream), data);
        }
    }

    fn finish(&mut self, conn: Conn, stream: u64) {
        if let Some(connection) = self.connection(conn) {
            let _ = connection.send_stream(id(stream)).finish();
        }
    }

    fn reset(&mut self, conn: Conn, stream: u64) {
        if let Some(connection) = self.connection(conn) {
            let _ = connection
                .send_stream(id(stream))
                .reset(VarInt::from_u32(0));
        }
    }

    fn readable(&mut self, conn: Conn) -> Option<u64> {
        let id = self.connections.get_mut(&conn)?.readable.pop_front()?;
        Some(VarInt::from(id).into_inner())
    }

    fn read(&mut self, conn: Conn, stream: u64, sink: &mut dyn FnMut(&[u8])) -> Read {
        let Some(entry) = self.connections.get_mut(&conn) else {
            return Read::Reset;
        };
        let window = self.setup.options.stream_receive_window;
        let order = entry
            .streams
            .entry(id(stream))
            .or_insert_with(|| Reassembly::behind(window));
        let mut receiving = entry.connection.recv_stream(id(stream));
        // A stream that was read to its end before is not reported again.
        let Ok(mut chunks) = receiving.read(false) else {
            return Read::Open;
        };
        let end = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => {
                    if let Err(error) = order.insert(chunk.offset, chunk.bytes) {
                        self.events.push_back((
                            conn,
                            Event::Closed(Close {
                                clean: false,
                                reason: error.to_string(),
                            }),
                        ));
                        break Read::Reset;
                    }
                    while let Some(bytes) = order.pop() {
                        sink(&bytes);
                    }
                }
                Ok(None) => break Read::Finished,
                Err(ReadError::Blocked) => break Read::Open,
                Err(ReadError::Reset(_)) => break Read::Reset,
            }
        };
        // The caller transmits after each step in any case.
        let _ = chunks.finalize();
        if end != Read::Open {
            entry.streams.remove(&id(stream));
        }
        end
    }

    fn close(&mut self, now: Instant, conn: Conn, code: u32, reason: &str) {
        if let Some(connection) = self.connection(conn) {
            connection.close(
                now,
                VarInt::from_u32(code),
                Bytes::copy_from_slice(reason.as_bytes()),
            );
        }
    }

    fn forget(&mut self, now: Instant, conn: Conn) {
        if let Some(entry) = self.connections.get_mut(&conn) {
            entry.forgotten = true;
            let resumed = entry.resumed.take();
            self.end_resumed(now, resumed);
            self.process_events(conn);
        }
    }

    fn stats(&mut self, conn: Conn) -> Stats {
        self.connection(conn)
            .map_or_else(Stats::default, differences::stats)
    }

    fn zero_rtt(&self, conn: Conn) -> ZeroRtt {
        match self.connections.get(&conn) {
            Some(entry) if entry.is_early && entry.connection.accepted_0rtt() => ZeroRtt::Accepted,
            Some(entry) if entry.is_early => ZeroRtt::Refused,
            _ => ZeroRtt::NotAsked,
        }
    }

    fn resumed(&self, conn: Conn) -> Option<(&[PhaseUpdate], Option<Jump>)> {
        let resumed = self.connections.get(&conn)?.resumed.as_ref()?;
        Some((&resumed.phases, resumed.jump()))
    }

    fn resume_state(&self) -> Option<String> {
        self.paths.as_ref().map(KnownPaths::to_text)
    }

    fn session(&self, _: Conn) -> Option<Vec<u8>> {
        None
    }

    fn qlog_fault(&self) -> Option<String> {
        self.qlogs.fault()
    }

    fn options(&self) -> &LegOptions {
        &self.setup.options
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

/// Distinguishes first destination connection ids from an endpoint's own.
const FIRST_IDS: u64 = 1 << 31;

fn counted_ids(seed: u64, kind: u64) -> Arc<AtomicU64> {
    Arc::new(AtomicU64::new(seed << 32 | kind))
}

/// Connection ids that are the same in every run. Unpredictable ones protect against off-path
/// attackers, which a simulation does not have.
struct CountedIds(Arc<AtomicU64>);

impl ConnectionIdGenerator for CountedIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        size_of::<u64>()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Stream numbers come from the library, or follow from one.
fn id(stream: u64) -> StreamId {
    VarInt::from_u64(stream).unwrap_or(VarInt::MAX).into()
}

fn burst(transmit: &LibraryTransmit) -> Transmit {
    Transmit {
        to: transmit.destination,
        from: transmit.src_ip,
        ecn: transmit.ecn.map(|ecn| ecn as u8),
        segment: transmit.segment_size,
    }
}

fn close(error: &ConnectionError) -> Close {
    let clean = matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == VarInt::from_u32(0));
    Close {
        clean,
        reason: error.to_string(),
    }
}
