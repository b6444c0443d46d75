// SPDX-License-Identifier: GPL-3.0-or-later
//! quiche. It reads the clock itself; the `now` of the interface is used for pacing only.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use ::quic::{CongestionControl, Fault, Faults, LegOptions, client_crypto, server_crypto};
use ::quiche::{
    Config, CongestionControlAlgorithm, ConnectionId, Header, RecvInfo, SendInfo, Shutdown,
};
use bytes::{Buf, Bytes};
use ring::rand::{SecureRandom, SystemRandom};

use super::{
    ALPN, Close, Conn, Datagram, Event, MAX_STREAMS, MOST_ANSWERS, Qlogs, Read, Setup, Stack,
    StackError, Stats, TlsFiles, Transmit, ZeroRtt,
};

/// As in Cargo.lock.
pub const NAME: &str = "quiche 0.28.0";

/// UDP payload per datagram: fits an IPv6 packet of 1,400 bytes, as path MTU discovery is off.
const DATAGRAM: usize = 1350;

/// Packets that are due this soon leave together: waking up for each would cost more than it
/// shapes.
const SLACK: Duration = Duration::from_micros(500);

/// quiche's BBR takes the initial RTT for a measured one until it is 10 s old: on a longer path it
/// believes in half the bandwidth-delay product and stays there.
const BBR_INITIAL_RTT_MS: u32 = 1000;

/// `ssl_early_data_accepted` of `BoringSSL`.
const EARLY_DATA_ACCEPTED: u32 = 2;

/// A connection that the application has not dropped, or that still has packets to send.
struct Entry {
    connection: ::quiche::Connection,
    /// A packet that quiche has made, but that is not due yet or did not fit its burst.
    waiting: Option<(Vec<u8>, SendInfo)>,
    connected: bool,
    closed: bool,
    /// The application has dropped it.
    forgotten: bool,
    /// Streams opened: unidirectional, bidirectional.
    opened: [u64; 2],
}

/// See the module.
pub struct Quiche {
    setup: Setup,
    config: Config,
    is_server: bool,
    connections: BTreeMap<Conn, Entry>,
    routes: HashMap<ConnectionId<'static>, Conn>,
    next: Conn,
    events: VecDeque<(Conn, Event)>,
    responses: VecDeque<(SocketAddr, Vec<u8>)>,
    qlogs: Qlogs,
    scratch: Vec<u8>,
}

impl Quiche {
    /// A client's or server's endpoint.
    ///
    /// # Errors
    /// Options that quiche has not, certificates that cannot be used.
    pub fn new(mut setup: Setup, tls: &TlsFiles) -> Result<Self, StackError> {
        check(&setup.options)?;
        if setup.options.congestion_control == CongestionControl::Bbr {
            let initial_rtt_ms = &mut setup.options.initial_rtt_ms;
            *initial_rtt_ms = BBR_INITIAL_RTT_MS.max(*initial_rtt_ms);
        }
        Ok(Self {
            config: config(&setup.options, tls)?,
            is_server: matches!(tls, TlsFiles::Server { .. }),
            qlogs: Qlogs::new(&setup),
            setup,
            connections: BTreeMap::new(),
            routes: HashMap::new(),
            next: 0,
            events: VecDeque::new(),
            responses: VecDeque::new(),
            scratch: vec![0; 64 << 10],
        })
    }

    fn add(
        &mut self,
        mut connection: ::quiche::Connection,
        side: &str,
    ) -> Result<Conn, StackError> {
        let conn = self.next;
        self.next += 1;
        let name = format!("quiche-{side}-{conn}");
        if let Some(file) = self.qlogs.create(&name)? {
            connection.set_qlog(Box::new(file), name, format!("satperf {side}"));
        }
        let entry = Entry {
            connection,
            waiting: None,
            connected: false,
            closed: false,
            forgotten: false,
            opened: [0; 2],
        };
        self.connections.insert(conn, entry);
        Ok(conn)
    }

    /// Starts a connection for a first packet, or answers it.
    fn accept(&mut self, header: &Header<'_>, from: SocketAddr, to: SocketAddr) -> Option<Conn> {
        if !self.is_server || header.ty != ::quiche::Type::Initial {
            return None;
        }
        if !::quiche::version_is_supported(header.version) {
            let mut answer = vec![0; DATAGRAM];
            let len = ::quiche::negotiate_version(&header.scid, &header.dcid, &mut answer).ok()?;
            answer.truncate(len);
            if self.responses.len() < MOST_ANSWERS {
                self.responses.push_back((from, answer));
            }
            return None;
        }
        let id = random_id()?;
        let connection = ::quiche::accept(&id, None, to, from, &mut self.config).ok()?;
        let conn = self.add(connection, "server").ok()?;
        self.routes.insert(id, conn);
        // The client uses the connection id that it chose until it has seen ours.
        self.routes.insert(header.dcid.clone().into_owned(), conn);
        self.events.push_back((conn, Event::Accepted(from)));
        Some(conn)
    }

    /// Queues the connection's events for the application.
    fn process_events(&mut self, conn: Conn) {
        let Some(entry) = self.connections.get_mut(&conn) else {
            return;
        };
        if entry.connection.is_established() && !entry.connected {
            entry.connected = true;
            self.events.push_back((conn, Event::Connected));
        }
        if let Some(close) = ending(&entry.connection).filter(|_| !entry.closed) {
            entry.closed = true;
            self.events.push_back((conn, Event::Closed(close)));
        }
        // A connection that was closed here has its last packet to send.
        if entry.forgotten && (entry.connection.is_draining() || entry.connection.is_closed()) {
            self.connections.remove(&conn);
            self.routes.retain(|_, known| *known != conn);
        }
    }

    fn connection(&mut self, conn: Conn) -> Option<&mut ::quiche::Connection> {
        self.connections
            .get_mut(&conn)
            .map(|entry| &mut entry.connection)
    }
}

impl Entry {
    /// Returns the next packet, which may not be due yet.
    fn packet(&mut self) -> Option<(Vec<u8>, SendInfo)> {
        self.waiting.take().or_else(|| {
            let mut packet = vec![0; DATAGRAM];
            let (len, info) = self.connection.send(&mut packet).ok()?;
            packet.truncate(len);
            Some((packet, info))
        })
    }

    /// Joins packets of one size that are due by `now`; a shorter one ends the burst. Pacing ends
    /// with the connection: the application does not wait for it, and the peer needs the
    /// `CONNECTION_CLOSE`.
    fn burst(&mut self, now: Instant, segments: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let mut burst: Option<(SendInfo, usize)> = None;
        for _ in 0..segments {
            let Some((packet, info)) = self.packet() else {
                break;
            };
            let fits =
                burst.is_none_or(|(first, segment)| packet.len() <= segment && info.to == first.to);
            let is_early = info.at > now + SLACK && self.connection.local_error().is_none();
            if is_early || !fits {
                self.waiting = Some((packet, info));
                break;
            }
            buffer.extend_from_slice(&packet);
            let (_, segment) = *burst.get_or_insert((info, packet.len()));
            if packet.len() < segment {
                break;
            }
        }
        let (info, segment) = burst?;
        let segment = (buffer.len() > segment).then_some(segment);
        Some(Transmit {
            to: info.to,
            from: Some(info.from.ip()),
            ecn: None,
            segment,
        })
    }

    fn due(&self) -> Option<Instant> {
        let paced = self.waiting.as_ref().map(|(_, info)| info.at);
        [paced, self.connection.timeout_instant()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl Stack for Quiche {
    fn connect(
        &mut self,
        _: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Conn, StackError> {
        let id = random_id().ok_or_else(|| failed("connect", &"no random numbers"))?;
        let connection = ::quiche::connect(Some(name), &id, local, remote, &mut self.config)
            .map_err(|error| failed("connect", &error))?;
        let conn = self.add(connection, "client")?;
        self.routes.insert(id, conn);
        if let (Some(session), Some(entry)) =
            (self.setup.session.as_ref(), self.connections.get_mut(&conn))
        {
            if !session.is_empty() {
                let why = "not a session of quiche; delete the file and make a new one";
                entry
                    .connection
                    .set_session(session)
                    .map_err(|error| failed("0-RTT", &format!("{error}: {why}")))?;
            }
        }
        Ok(conn)
    }

    fn receive(&mut self, _: Instant, mut datagram: Datagram) {
        let Datagram {
            from,
            to,
            ref mut data,
            ..
        } = datagram;
        let Ok(header) = Header::from_slice(data, ::quiche::MAX_CONN_ID_LEN.min(ID)) else {
            return;
        };
        let known = self.routes.get(&header.dcid).copied();
        let Some(conn) = known.or_else(|| self.accept(&header, from, to)) else {
            return;
        };
        if let Some(connection) = self.connection(conn) {
            // A fault of a packet is the connection's, which then ends with it, or the packet is
            // ignored.
            let _ = connection.recv(data, RecvInfo { from, to });
        }
        self.process_events(conn);
    }

    fn transmit(
        &mut self,
        now: Instant,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((to, bytes)) = self.responses.pop_front() {
            buffer.extend_from_slice(&bytes);
            return Some(Transmit {
                to,
                from: None,
                ecn: None,
                segment: None,
            });
        }
        self.connections
            .values_mut()
            .find_map(|entry| entry.burst(now, segments, buffer))
    }

    fn timeout(&mut self) -> Option<Instant> {
        self.connections.values().filter_map(Entry::due).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        for conn in self.connections.keys().copied().collect::<Vec<_>>() {
            if let Some(connection) = self.connection(conn) {
                if connection.timeout_instant().is_some_and(|due| due <= now) {
                    connection.on_timeout();
                }
            }
            self.process_events(conn);
        }
    }

    fn poll(&mut self) -> Option<(Conn, Event)> {
        self.events.pop_front()
    }

    fn may_write(&self, conn: Conn) -> bool {
        self.connections
            .get(&conn)
            .is_some_and(|Entry { connection, .. }| {
                (connection.is_established() || connection.is_in_early_data())
                    && !connection.is_closed()
            })
    }

    fn open(&mut self, conn: Conn, both: bool) -> Option<u64> {
        let entry = self.connections.get_mut(&conn)?;
        let left = if both {
            entry.connection.peer_streams_left_bidi()
        } else {
            entry.connection.peer_streams_left_uni()
        };
        // quiche creates a stream on first use, so streams are numbered here.
        let number = &mut entry.opened[usize::from(both)];
        if left == 0 {
            return None;
        }
        let id = *number * 4 + u64::from(entry.connection.is_server()) + if both { 0 } else { 2 };
        *number += 1;
        // The default priority. Setting it creates the stream now and uses up the peer's credit.
        entry.connection.stream_priority(id, 127, true).ok()?;
        Some(id)
    }

    fn write(&mut self, conn: Conn, stream: u64, data: &mut Bytes) {
        if let Some(connection) = self.connection(conn) {
            // Blocked, stopped or gone: the data stays where it is; the end of the session follows.
            data.advance(connection.stream_send(stream, data, false).unwrap_or(0));
        }
    }

    fn finish(&mut self, conn: Conn, stream: u64) {
        if let Some(connection) = self.connection(conn) {
            let _ = connection.stream_send(stream, &[], true);
        }
    }

    fn reset(&mut self, conn: Conn, stream: u64) {
        if let Some(connection) = self.connection(conn) {
            let _ = connection.stream_shutdown(stream, Shutdown::Write, 0);
        }
    }

    fn readable(&mut self, conn: Conn) -> Option<u64> {
        self.connection(conn)?.stream_readable_next()
    }

    fn read(&mut self, conn: Conn, stream: u64, sink: &mut dyn FnMut(&[u8])) -> Read {
        let Some(entry) = self.connections.get_mut(&conn) else {
            return Read::Reset;
        };
        loop {
            match entry.connection.stream_recv(stream, &mut self.scratch) {
                Ok((len, end)) => {
                    sink(&self.scratch[..len]);
                    if end {
                        return Read::Finished;
                    }
                }
                Err(::quiche::Error::StreamReset(_)) => return Read::Reset,
                // Nothing more now, or read to its end before.
                Err(_) => return Read::Open,
            }
        }
    }

    fn close(&mut self, _: Instant, conn: Conn, code: u32, reason: &str) {
        if let Some(entry) = self.connections.get_mut(&conn) {
            entry.closed = true;
            let _ = entry.connection.close(true, code.into(), reason.as_bytes());
        }
    }

    fn forget(&mut self, _: Instant, conn: Conn) {
        if let Some(entry) = self.connections.get_mut(&conn) {
            entry.forgotten = true;
            self.process_events(conn);
        }
    }

    fn stats(&mut self, conn: Conn) -> Stats {
        let Some(entry) = self.connections.get(&conn) else {
            return Stats::default();
        };
        let (all, path) = (
            entry.connection.stats(),
            entry.connection.path_stats().next(),
        );
        Stats {
            cwnd_bytes: path.as_ref().map_or(0, |path| path.cwnd as u64),
            rtt: path.map_or(Duration::ZERO, |path| path.rtt),
            sent_packets: all.sent as u64,
            received_packets: all.recv as u64,
            received_bytes: all.recv_bytes,
            lost_packets: all.lost as u64,
            sent_bytes: all.sent_bytes,
            lost_bytes: all.lost_bytes,
            blocked_frames: Some(all.data_blocked_sent_count + all.stream_data_blocked_sent_count),
            ..Stats::default()
        }
    }

    fn zero_rtt(&self, conn: Conn) -> ZeroRtt {
        match self.connections.get(&conn) {
            Some(entry) if entry.connection.early_data_reason() == EARLY_DATA_ACCEPTED => {
                ZeroRtt::Accepted
            }
            Some(_)
                if self
                    .setup
                    .session
                    .as_ref()
                    .is_some_and(|session| !session.is_empty()) =>
            {
                ZeroRtt::Refused
            }
            _ => ZeroRtt::NotAsked,
        }
    }

    fn session(&self, conn: Conn) -> Option<Vec<u8>> {
        self.connections
            .get(&conn)?
            .connection
            .session()
            .map(<[u8]>::to_vec)
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

/// Length of own connection ids, bytes.
const ID: usize = 16;

fn random_id() -> Option<ConnectionId<'static>> {
    let mut id = vec![0; ID];
    SystemRandom::new().fill(&mut id).ok()?;
    Some(ConnectionId::from_vec(id))
}

fn failed(what: &'static str, why: &dyn Display) -> StackError {
    StackError::Library {
        what,
        why: why.to_string(),
    }
}

/// Refuses options that quiche does not support.
fn check(options: &LegOptions) -> Result<(), Faults> {
    options.check()?;
    let asked = [
        ("ack-threshold", options.ack_threshold),
        ("max-ack-delay-ms", options.max_ack_delay_ms),
    ];
    let faults: Vec<_> = asked
        .into_iter()
        .filter(|(_, value)| value.is_some())
        .map(|(option, _)| Fault {
            option,
            why: "quiche has no ACK frequency extension; use --stack quinn".into(),
        })
        .chain(options.packet_threshold.map(|_| Fault {
            option: "packet-threshold",
            why: "quiche sets its own; use --stack quinn".into(),
        }))
        .chain(options.careful_resume_fault("with quiche"))
        .chain(options.slow_start_fault("with quiche"))
        .chain(why_not(options.congestion_control).map(|why| Fault {
            option: "congestion-control",
            why: why.into(),
        }))
        .collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Faults(faults))
    }
}

fn why_not(control: CongestionControl) -> Option<&'static str> {
    match control {
        CongestionControl::Bbr3 => Some("bbr3 is not offered with quiche; use bbr, or --stack noq"),
        CongestionControl::RenoQuicly => {
            Some("reno-quicly is not offered with quiche; use reno, or --stack quinn")
        }
        CongestionControl::Reno | CongestionControl::Cubic | CongestionControl::Bbr => None,
    }
}

fn config(options: &LegOptions, tls: &TlsFiles) -> Result<Config, StackError> {
    let library = |error| failed("quiche", &error);
    let mut config = Config::new(::quiche::PROTOCOL_VERSION).map_err(library)?;
    load(&mut config, tls)?;
    config.set_application_protos(&[ALPN]).map_err(library)?;
    config.enable_early_data();
    config.set_cc_algorithm(match options.congestion_control {
        // `check` refuses reno-quicly and BBRv3.
        CongestionControl::Reno | CongestionControl::RenoQuicly => CongestionControlAlgorithm::Reno,
        CongestionControl::Cubic => CongestionControlAlgorithm::CUBIC,
        CongestionControl::Bbr | CongestionControl::Bbr3 => {
            CongestionControlAlgorithm::Bbr2Gcongestion
        }
    });
    config.set_initial_congestion_window_packets(options.initial_window as usize);
    config.set_initial_rtt(Duration::from_millis(options.initial_rtt_ms.into()));
    config.set_max_idle_timeout(options.max_idle_ms.into());
    config.set_max_send_udp_payload_size(DATAGRAM);
    config.set_use_initial_max_data_as_flow_control_win(true);
    config.set_max_connection_window(options.receive_window);
    config.set_max_stream_window(options.stream_receive_window);
    config.set_initial_max_data(options.receive_window);
    config.set_initial_max_stream_data_bidi_local(options.stream_receive_window);
    config.set_initial_max_stream_data_bidi_remote(options.stream_receive_window);
    config.set_initial_max_stream_data_uni(options.stream_receive_window);
    config.set_initial_max_streams_bidi(MAX_STREAMS.into());
    config.set_initial_max_streams_uni(MAX_STREAMS.into());
    config.set_disable_active_migration(true);
    Ok(config)
}

/// Loads certificates. rustls reads them first, as its messages on a faulty file are clearer.
fn load(config: &mut Config, tls: &TlsFiles) -> Result<(), StackError> {
    match tls {
        TlsFiles::Server { cert, key } => {
            server_crypto(cert, key, &[ALPN], true)?;
            config
                .load_cert_chain_from_pem_file(text(cert)?)
                .map_err(|error| failed("certificate", &error))?;
            config
                .load_priv_key_from_pem_file(text(key)?)
                .map_err(|error| failed("private key", &error))
        }
        TlsFiles::Client { ca } => {
            client_crypto(ca, &[ALPN], true)?;
            config
                .load_verify_locations_from_file(text(ca)?)
                .map_err(|error| failed("CA", &error))?;
            config.verify_peer(true);
            Ok(())
        }
    }
}

fn text(path: &Path) -> Result<&str, StackError> {
    path.to_str()
        .ok_or_else(|| failed("path", &format!("{} is not UTF-8", path.display())))
}

/// Why a connection ended, if it did.
fn ending(connection: &::quiche::Connection) -> Option<Close> {
    let by = |who: &str, error: &::quiche::ConnectionError| Close {
        clean: error.is_app && error.error_code == 0,
        reason: format!(
            "closed by {who}: {} ({} code {})",
            String::from_utf8_lossy(&error.reason),
            if error.is_app {
                "application"
            } else {
                "transport"
            },
            error.error_code
        ),
    };
    if let Some(error) = connection.peer_error() {
        return Some(by("peer", error));
    }
    if let Some(error) = connection.local_error() {
        return Some(by("itself", error));
    }
    if !connection.is_closed() {
        return None;
    }
    let reason = if connection.is_timed_out() {
        "timed out"
    } else {
        "ended"
    };
    Some(Close {
        clean: false,
        reason: reason.into(),
    })
}
