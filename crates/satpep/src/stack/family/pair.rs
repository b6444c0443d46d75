// SPDX-License-Identifier: GPL-3.0-or-later
//! One proxied connection, from the `ClientHello` to its last record.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connector::{Connector, DialError, LegConnection, expected_name, negotiated_alpn};
use super::library::{ConnectionError, Endpoint, Incoming, ServerConfig, ZeroRttAccepted};
use super::splice::{Ending, Leg, PepCode, splice};
use crate::client_hello::ClientHello;
use crate::client_hello_inbox::Hellos;
use crate::memory::{Held, Lull};
use crate::options::{Mode, QuicOptions};
use crate::report::{Closed, Outcome, Record, Relayed, Report, Sample};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What all connections of a proxy share.
#[derive(Debug)]
pub struct Shared {
    /// Options of the proxy.
    pub options: QuicOptions,
    /// Makes connections.
    pub connector: Connector,
    /// Receives the lines.
    pub report: Report,
    /// Becomes true when remaining connections have to end.
    pub stop: watch::Receiver<bool>,
}

/// One address that the proxy listens on.
#[derive(Debug)]
pub struct Listener {
    /// Endpoint of the listening socket.
    pub endpoint: Endpoint,
    /// What clients have said there.
    pub hellos: Arc<Hellos>,
    /// Port of that socket.
    pub port: u16,
    /// Configuration that checks the tokens of clients. Connections must use it as well, so that
    /// their tokens are valid.
    pub config: ServerConfig,
}

/// A connection attempt.
struct Request {
    number: u64,
    client: SocketAddr,
    next_hop: SocketAddr,
    hello: ClientHello,
    server_name: String,
    since: Instant,
}

/// Serves one connection attempt; returns its last record, or why it was refused.
///
/// # Errors
/// No usable `ClientHello` arrived.
pub async fn serve(
    shared: &Shared,
    incoming: Incoming,
    listener: &Listener,
    number: u64,
) -> Result<Closed, String> {
    let since = Instant::now();
    let client = incoming.remote_address();
    let limit = Duration::from_millis(shared.options.handshake_timeout_ms);
    let dcid = incoming.orig_dst_cid();
    let again = (!incoming.may_retry()).then_some(client);
    let Ok(hello) = timeout(limit, listener.hellos.hello(&dcid, again)).await else {
        incoming.ignore();
        return Err(format!("no ClientHello within {limit:?}"));
    };
    let Some(destination) = incoming
        .local_ip()
        .map(|ip| SocketAddr::new(ip, listener.port))
    else {
        incoming.refuse();
        return Err("the client's destination is unknown".into());
    };
    let name = match expected_name(hello.server_name.as_deref(), destination) {
        Ok(name) => name.to_str().into_owned(),
        Err(error) => {
            incoming.refuse();
            return Err(error.to_string());
        }
    };
    let request = Request {
        number,
        client,
        next_hop: shared.options.next_hop.unwrap_or(destination),
        hello,
        server_name: name,
        since,
    };
    shared.report.record(&Record::Accepted {
        connection: number,
        client,
        destination,
        next_hop: request.next_hop,
        server_name: request.hello.server_name.clone(),
        alpn: (request.hello.alpn.iter())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
    });
    Ok(
        match shared.connect(&request, incoming, &listener.config).await {
            Ok((client, server)) => shared.join(&request, client, server).await,
            Err(error) => request.failed(&error),
        },
    )
}

impl Request {
    fn failed(&self, error: &DialError) -> Closed {
        Closed {
            connection: self.number,
            outcome: Outcome::Failed,
            reason: error.to_string(),
            alpn: None,
            zero_rtt: false,
            duration_s: self.since.elapsed().as_secs_f64(),
            from_client: (&Relayed::default()).into(),
            from_server: (&Relayed::default()).into(),
            client_side: None,
            server_side: None,
            qlog_fault: None,
        }
    }

    fn qlog_name(&self, side: &str) -> String {
        format!("satpep-{}-{:06}-{side}", std::process::id(), self.number)
    }
}

impl Shared {
    /// Brings up both legs in the order of the mode.
    async fn connect(
        &self,
        request: &Request,
        incoming: Incoming,
        config: &ServerConfig,
    ) -> Result<(LegConnection, LegConnection), DialError> {
        if self.options.mode == Mode::H3Capable {
            self.next_hop_first(request, incoming, config).await
        } else {
            self.both_at_once(request, incoming, config).await
        }
    }

    async fn next_hop_first(
        &self,
        request: &Request,
        incoming: Incoming,
        config: &ServerConfig,
    ) -> Result<(LegConnection, LegConnection), DialError> {
        let server = match self.dial(request, request.hello.alpn.clone()).await {
            Ok(server) => server,
            Err(error) => {
                incoming.refuse();
                return Err(error);
            }
        };
        let alpn = negotiated_alpn(&server.connection);
        let datagrams = server.connection.max_datagram_size().is_some();
        let accepted = self.accept(request, incoming, config, alpn, datagrams);
        match accepted {
            Ok(client) => Ok((client, server)),
            Err(error) => {
                (server.connection).close(PepCode::OtherLeg.into(), error.to_string().as_bytes());
                Err(error)
            }
        }
    }

    /// Accepts the client's first protocol, as the next hop has not answered yet.
    async fn both_at_once(
        &self,
        request: &Request,
        incoming: Incoming,
        config: &ServerConfig,
    ) -> Result<(LegConnection, LegConnection), DialError> {
        let alpn = request.hello.alpn.first().cloned();
        let client = self.accept(request, incoming, config, alpn.clone(), true)?;
        let dialled = tokio::select! {
            dialled = self.dial(request, alpn.into_iter().collect()) => dialled,
            error = client.connection.closed() => Err(DialError::Configuration(format!("client side: {error}"))),
        };
        match dialled {
            Ok(server) => Ok((client, server)),
            Err(error) => {
                (client.connection).close(PepCode::NextHop.into(), error.to_string().as_bytes());
                Err(error)
            }
        }
    }

    fn accept(
        &self,
        request: &Request,
        incoming: Incoming,
        config: &ServerConfig,
        alpn: Option<Vec<u8>>,
        datagrams: bool,
    ) -> Result<LegConnection, DialError> {
        let name = request.qlog_name("client-side");
        (self.connector).accept(
            incoming,
            config.clone(),
            request.since,
            alpn,
            datagrams,
            &name,
        )
    }

    async fn dial(
        &self,
        request: &Request,
        alpn: Vec<Vec<u8>>,
    ) -> Result<LegConnection, DialError> {
        let client = self.options.keep_client_address.then_some(request.client);
        let name = request.qlog_name("server-side");
        (self.connector)
            .dial(request.next_hop, client, &request.server_name, alpn, &name)
            .await
    }

    /// Relays until the end, and returns the last record.
    async fn join(
        &self,
        request: &Request,
        mut client: LegConnection,
        mut server: LegConnection,
    ) -> Closed {
        let zero_rtt = server.handshake.is_some();
        let handshakes = (client.handshake.take(), server.handshake.take());
        let legs = Legs {
            client: Leg::new(client.connection.clone(), &self.options.client_side.0),
            server: Leg::new(server.connection.clone(), &self.options.server_side.0),
            connections: (client, server),
            fault: OnceLock::new(),
        };
        let aside = async {
            tokio::join!(
                self.client_handshake(&legs, handshakes.0),
                self.early_data(request, &legs, handshakes.1),
                self.sample(request, &legs),
                self.stop(&legs),
            );
            pending::<Infallible>().await
        };
        let ending = tokio::select! {
            ending = splice(&legs.client, &legs.server) => ending,
            never = aside => match never {},
        };
        legs.closed(request, &ending, zero_rtt)
    }

    /// Notes when the client's handshake is done, and ends the connection if it never is.
    async fn client_handshake(&self, legs: &Legs, handshake: Option<ZeroRttAccepted>) {
        let Some(handshake) = handshake else { return };
        let client = &legs.connections.0;
        match timeout(self.handshake_limit(), handshake).await {
            // The value has a meaning at the dialling end alone. A failed handshake closes the
            // connection.
            Ok(_) if client.connection.close_reason().is_none() => client.note_handshake(),
            Ok(_) => {}
            Err(_) => legs.break_off(PepCode::OtherLeg, "client side: handshake overdue"),
        }
    }

    /// Notes when the next hop has answered early data. If it refused them, the connection cannot
    /// go on: what the client sent is gone. Its tickets are worth nothing then.
    async fn early_data(&self, request: &Request, legs: &Legs, handshake: Option<ZeroRttAccepted>) {
        let Some(handshake) = handshake else { return };
        let server = &legs.connections.1;
        match timeout(self.handshake_limit(), handshake).await {
            Ok(true) => return server.note_handshake(),
            Ok(false) if server.connection.close_reason().is_some() => {}
            Ok(false) => legs.break_off(PepCode::ZeroRttRejected, "next hop: early data refused"),
            Err(_) => legs.break_off(PepCode::NextHop, "next hop: no answer to early data"),
        }
        if let Ok(name) = ServerName::try_from(request.server_name.clone()) {
            self.connector.tickets.forget(&name);
        }
    }

    async fn sample(&self, request: &Request, legs: &Legs) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lull = Lull::default();
        let held = || [&legs.connections.0, &legs.connections.1].map(|leg| leg.held.as_ref());
        while self.report.wants_samples() || held().iter().any(Option::is_some) {
            ticks.tick().await;
            held().into_iter().flatten().for_each(Held::note);
            if lull.begins(Instant::now(), legs.carried_bytes()) {
                held().into_iter().flatten().for_each(Held::release);
            }
            if self.report.wants_samples() {
                self.report.sample(&legs.sample(request.number));
            }
        }
    }

    async fn stop(&self, legs: &Legs) {
        // Fails only when the proxy is gone.
        let _ = self.stop.clone().wait_for(|stop| *stop).await;
        legs.close(PepCode::Shutdown, "satpep ends");
    }

    fn handshake_limit(&self) -> Duration {
        Duration::from_millis(self.options.handshake_timeout_ms)
    }
}

/// Both legs of a connection.
struct Legs {
    client: Leg,
    server: Leg,
    connections: (LegConnection, LegConnection),
    /// Reason why the proxy ended the connection.
    fault: OnceLock<&'static str>,
}

impl Legs {
    fn break_off(&self, code: PepCode, fault: &'static str) {
        let _ = self.fault.set(fault);
        self.close(code, fault);
    }

    fn close(&self, code: PepCode, reason: &str) {
        for leg in [&self.client, &self.server] {
            leg.connection.close(code.into(), reason.as_bytes());
        }
    }

    fn carried_bytes(&self) -> u64 {
        let bytes = |leg: &Leg| leg.relayed.bytes.load(Relaxed);
        bytes(&self.client) + bytes(&self.server)
    }

    fn sample(&self, connection: u64) -> Sample {
        Sample {
            connection,
            from_client: (&*self.client.relayed).into(),
            from_server: (&*self.server.relayed).into(),
            client_side: self.connections.0.state(),
            server_side: self.connections.1.state(),
        }
    }

    fn closed(&self, request: &Request, ending: &Ending, zero_rtt: bool) -> Closed {
        let (client, server) = &self.connections;
        let mut qlogs = [client, server].into_iter();
        let alpn = negotiated_alpn(&server.connection).or(negotiated_alpn(&client.connection));
        let fault = self.fault.get();
        Closed {
            connection: request.number,
            outcome: if fault.is_some() {
                Outcome::Lost
            } else {
                outcome(ending)
            },
            reason: fault.map_or_else(|| ending.to_string(), ToString::to_string),
            alpn: alpn.map(|name| String::from_utf8_lossy(&name).into_owned()),
            zero_rtt,
            duration_s: request.since.elapsed().as_secs_f64(),
            from_client: (&*self.client.relayed).into(),
            from_server: (&*self.server.relayed).into(),
            client_side: Some(client.state()),
            server_side: Some(server.state()),
            qlog_fault: qlogs.find_map(|it| it.qlog.as_ref()?.fault().map(str::to_owned)),
        }
    }
}

fn outcome(ending: &Ending) -> Outcome {
    match (&ending.error, ending.cut) {
        (ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed, false) => {
            Outcome::Closed
        }
        _ => Outcome::Lost,
    }
}
