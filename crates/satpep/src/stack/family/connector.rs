// SPDX-License-Identifier: GPL-3.0-or-later
//! Both legs of a proxied connection: accepts the client and dials the next hop.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use quic::{LegOptions, QlogFile, QlogHealth, TlsError};
use resume::PathKey;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;

use super::differences;
use super::library::crypto::rustls::{HandshakeData, QuicServerConfig};
use super::library::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, ServerConfig,
    TokioRuntime, TransportConfig, VarInt, ZeroRttAccepted,
};
use crate::client_hello_inbox::Hellos;
use crate::memory::{Held, Memory};
use crate::options::{Mode, QuicOptions};
use crate::report::{LegState, millis};
use crate::start_error::StartError;
use crate::subdomain_verifier;
use crate::sys;
use crate::tickets::Tickets;

use super::validation::Tokens;

/// Interval of PING frames to the next hop, which stays connected while the client does.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// What a peer may send before both legs are there. So little cannot come in more separate spans
/// than the library allows, though no stream is read yet; [`super::window::Window`] opens the
/// window to its full size.
const EARLY_BYTES: u64 = 1 << 20;

/// Makes connections from certificates, tickets and options.
#[derive(Debug)]
pub struct Connector {
    options: QuicOptions,
    server_tls: rustls::ServerConfig,
    client_tls: rustls::ClientConfig,
    /// Tickets of next hops.
    pub tickets: Arc<Tickets>,
    /// Tokens by which next hops know this proxy's address.
    validation: Arc<Tokens>,
    /// With Careful Resume.
    pub memory: Option<Arc<Memory>>,
}

/// A connection and its handshake.
pub struct LegConnection {
    /// Streams can be opened and accepted.
    pub connection: Connection,
    /// Completes with the handshake, if that is still running; the value of the dialling end is
    /// whether early data was accepted.
    pub handshake: Option<ZeroRttAccepted>,
    /// Time from `ClientHello` or dialling to the end of the handshake.
    pub handshake_time: OnceLock<Duration>,
    /// Time at which dialling began.
    pub since: Instant,
    /// State of its qlog file.
    pub qlog: Option<QlogHealth>,
    /// With Careful Resume.
    pub held: Option<Held>,
}

impl LegConnection {
    /// Notes that the handshake is done now.
    pub fn note_handshake(&self) {
        // Noted before only if it ended before the first stream.
        let _ = self.handshake_time.set(self.since.elapsed());
    }

    /// Current counters of the connection.
    #[must_use]
    pub fn state(&self) -> LegState {
        LegState {
            handshake_ms: self.handshake_time.get().copied().map(millis),
            counters: differences::counters(&self.connection),
            jump: self.held.as_ref().and_then(Held::jump),
        }
    }
}

/// What a leg's connection is made from.
struct Parts {
    transport: TransportConfig,
    qlog: Option<QlogHealth>,
    held: Option<Held>,
}

/// Reason why the next hop was not reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No socket: address taken, or not allowed.
    #[error("socket for the next hop: {0}")]
    Socket(std::io::Error),
    /// The library refuses TLS or addresses.
    #[error("{0}")]
    Configuration(String),
    /// The handshake failed.
    #[error("next hop: {0}")]
    Handshake(#[from] ConnectionError),
    /// The handshake took too long.
    #[error("next hop: no answer within {0:?}")]
    Overdue(Duration),
}

impl Connector {
    /// Reads the certificates and the state file.
    ///
    /// # Errors
    /// A file cannot be used.
    pub fn new(options: QuicOptions) -> Result<Self, StartError> {
        let tickets = Arc::new(Tickets::default());
        let server_tls = quic::server_tls(&options.cert, &options.key, true)?;
        let zero_rtt = options.mode == Mode::Warm;
        let mut client_tls =
            subdomain_verifier::client_tls(&options.ca, zero_rtt, &options.domains_of)?;
        client_tls.resumption = Resumption::store(Arc::clone(&tickets) as _);
        Ok(Self {
            memory: Memory::open(&options)?,
            options,
            server_tls,
            client_tls,
            tickets,
            validation: Arc::default(),
        })
    }

    /// TLS of a listening endpoint, which also has the keys of Initial packets.
    ///
    /// # Errors
    /// Certificate and key do not fit.
    pub fn server_crypto(&self, alpn: Vec<Vec<u8>>) -> Result<Arc<QuicServerConfig>, TlsError> {
        let mut tls = self.server_tls.clone();
        tls.alpn_protocols = alpn;
        Ok(Arc::new(differences::server_crypto(tls)?))
    }

    /// What reads `ClientHello`s.
    ///
    /// # Errors
    /// As for [`Self::server_crypto`].
    pub fn hellos(&self) -> Result<Hellos, TlsError> {
        Hellos::new(self.server_tls.clone())
    }

    /// Accepts a client with the protocol `alpn`, and the rest as in its listener's `config`; its
    /// streams are there before the handshake ends.
    ///
    /// # Errors
    /// The library refuses, or the qlog file cannot be made.
    pub fn accept(
        &self,
        incoming: Incoming,
        mut config: ServerConfig,
        since: Instant,
        alpn: Option<Vec<u8>>,
        datagrams: bool,
        name: &str,
    ) -> Result<LegConnection, DialError> {
        let crypto = self
            .server_crypto(alpn.into_iter().collect())
            .map_err(|error| DialError::Configuration(error.to_string()))?;
        let remote = incoming.remote_address().ip();
        let key = incoming.local_ip().map(|local| PathKey { local, remote });
        let Parts {
            mut transport,
            qlog,
            held,
        } = self.parts(&self.options.client_side.0, name, key)?;
        if !datagrams {
            transport.datagram_receive_buffer_size(None);
        }
        config.crypto = crypto;
        config.transport_config(Arc::new(transport));
        let connecting = incoming.accept_with(Arc::new(config))?;
        // quinn: "for incoming connections, conversion to 0.5-RTT will always fully succeed".
        let (connection, handshake) = connecting
            .into_0rtt()
            .map_err(|_| DialError::Configuration("the client cannot be accepted".into()))?;
        Ok(LegConnection {
            connection,
            handshake: Some(handshake),
            handshake_time: OnceLock::new(),
            since,
            qlog,
            held,
        })
    }

    /// Connects to `target` on behalf of a client; waits for the handshake unless early data can be
    /// sent.
    ///
    /// # Errors
    /// No connection in time.
    pub async fn dial(
        &self,
        target: SocketAddr,
        client: Option<SocketAddr>,
        server_name: &str,
        alpn: Vec<Vec<u8>>,
        name: &str,
    ) -> Result<LegConnection, DialError> {
        let mut tls = self.client_tls.clone();
        tls.alpn_protocols = alpn;
        let refused = |error: &dyn std::fmt::Display| DialError::Configuration(error.to_string());
        let crypto = differences::client_crypto(tls).map_err(|error| refused(&error))?;
        let endpoint = outward(target, client)?;
        // An address of any interface stands for itself: the host has one way to the next hop.
        let local = endpoint.local_addr().map_err(DialError::Socket)?.ip();
        let remote = target.ip();
        let Parts {
            mut transport,
            qlog,
            held,
        } = self.parts(
            &self.options.server_side.0,
            name,
            Some(PathKey { local, remote }),
        )?;
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        config.token_store(Arc::clone(&self.validation) as _);
        let since = Instant::now();
        let connecting = endpoint
            .connect_with(config, target, server_name)
            .map_err(|error| refused(&error))?;
        let handshake_time = OnceLock::new();
        let (connection, handshake) = match connecting.into_0rtt() {
            Ok((connection, handshake)) => (connection, Some(handshake)),
            Err(connecting) => {
                let limit = Duration::from_millis(self.options.handshake_timeout_ms);
                let connection = tokio::time::timeout(limit, connecting)
                    .await
                    .map_err(|_| DialError::Overdue(limit))??;
                let _ = handshake_time.set(since.elapsed());
                (connection, None)
            }
        };
        Ok(LegConnection {
            connection,
            handshake,
            handshake_time,
            since,
            qlog,
            held,
        })
    }

    /// Returns the library's configuration of a leg with a qlog file of its own; `key` is its path,
    /// if that is known.
    fn parts(
        &self,
        leg: &LegOptions,
        name: &str,
        key: Option<PathKey>,
    ) -> Result<Parts, DialError> {
        let leg = LegOptions {
            receive_window: leg.receive_window.min(EARLY_BYTES),
            ..leg.clone()
        };
        let mut transport = differences::transport(&leg)
            .map_err(|faults| DialError::Configuration(faults.to_string()))?;
        let streams = VarInt::from_u32(self.options.max_streams);
        transport
            .max_concurrent_bidi_streams(streams)
            .max_concurrent_uni_streams(streams);
        let (file, qlog) = match &self.options.qlog {
            None => (None, None),
            Some(dir) => {
                let (file, health) = QlogFile::create(dir, name).map_err(|error| {
                    DialError::Configuration(format!("{}: {error}", dir.display()))
                })?;
                (Some(file), Some(health))
            }
        };
        let memory = self.memory.as_ref().zip(key);
        let held = memory.and_then(|(memory, key)| memory.start(key, &leg, file.clone()));
        if let Some(held) = &held {
            differences::set_controllers(&mut transport, &held.resumption);
        }
        if let Some(file) = file {
            differences::set_qlog(&mut transport, file, name.into());
        }
        Ok(Parts {
            transport,
            qlog,
            held,
        })
    }
}

/// Opens a socket for one connection to a next hop, bound to the client's address if it is given.
fn outward(target: SocketAddr, client: Option<SocketAddr>) -> Result<Endpoint, DialError> {
    let any: SocketAddr = match target.ip() {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = match client {
        None => sys::udp_socket(any, false),
        // A client may use one port for two servers.
        Some(client) => sys::udp_socket(client, true).or_else(|error| match error.kind() {
            std::io::ErrorKind::AddrInUse => sys::udp_socket((client.ip(), 0).into(), true),
            _ => Err(error),
        }),
    }
    .map_err(DialError::Socket)?;
    Endpoint::new(
        EndpointConfig::default(),
        None,
        socket,
        Arc::new(TokioRuntime),
    )
    .map_err(DialError::Socket)
}

/// Protocol that was negotiated, once it is known.
#[must_use]
pub fn negotiated_alpn(connection: &Connection) -> Option<Vec<u8>> {
    let data: Box<dyn Any> = connection.handshake_data()?;
    data.downcast::<HandshakeData>().ok()?.protocol
}

/// Returns the name that a certificate must have: the client's server name, or its destination
/// address without one.
///
/// # Errors
/// The client's server name is invalid.
pub fn expected_name(
    server_name: Option<&str>,
    destination: SocketAddr,
) -> Result<ServerName<'static>, DialError> {
    match server_name {
        None => Ok(destination.ip().into()),
        Some(name) => ServerName::try_from(name.to_owned())
            .map_err(|error| DialError::Configuration(format!("server name {name:?}: {error}"))),
    }
}
