// SPDX-License-Identifier: GPL-3.0-or-later
//! The life of one proxied connection, from the client's hello to the last line about it.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use quinn::{ConnectionError, Incoming, ZeroRttAccepted};
use rustls::pki_types::ServerName;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::doorway::Doorway;
use crate::ends::{Begun, DialError, Ends, expected_name, negotiated_alpn};
use crate::hello::ClientHello;
use crate::options::{Mode, QuicOptions};
use crate::report::{Closed, Outcome, Record, Report, Sample};
use crate::splice::{Crossed, Ending, Leg, PepCode, splice};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// What all connections of a proxy share.
#[derive(Debug)]
pub struct Shared {
    /// Options in force.
    pub options: QuicOptions,
    /// Makes connections.
    pub ends: Ends,
    /// Where lines go.
    pub report: Report,
    /// Turns true when the proxy's patience is over.
    pub stop: watch::Receiver<bool>,
}

/// A connection attempt and what it wants.
struct Wish {
    number: u64,
    client: SocketAddr,
    next_hop: SocketAddr,
    hello: ClientHello,
    server_name: String,
    since: Instant,
}

/// Serves one connection attempt; gives its last line, or why it was turned away.
///
/// # Errors
/// No usable hello came: there is nothing to proxy.
pub async fn serve(
    shared: &Shared,
    incoming: Incoming,
    door: &Doorway,
    port: u16,
    number: u64,
) -> Result<Closed, String> {
    let since = Instant::now();
    let client = incoming.remote_address();
    let limit = Duration::from_millis(shared.options.handshake_timeout_ms);
    let dcid = incoming.orig_dst_cid();
    let Ok(hello) = timeout(limit, door.hello(&dcid)).await else {
        incoming.ignore();
        return Err(format!("no ClientHello within {limit:?}"));
    };
    let Some(destination) = incoming.local_ip().map(|ip| SocketAddr::new(ip, port)) else {
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
    let wish = Wish {
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
        next_hop: wish.next_hop,
        server_name: wish.hello.server_name.clone(),
        alpn: (wish.hello.alpn.iter())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect(),
    });
    Ok(match shared.connect(&wish, incoming).await {
        Ok((client, server)) => shared.join(&wish, client, server).await,
        Err(error) => wish.failed(&error),
    })
}

impl Wish {
    fn failed(&self, error: &DialError) -> Closed {
        Closed {
            connection: self.number,
            outcome: Outcome::Failed,
            reason: error.to_string(),
            alpn: None,
            zero_rtt: false,
            duration_s: self.since.elapsed().as_secs_f64(),
            from_client: (&Crossed::default()).into(),
            from_server: (&Crossed::default()).into(),
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
    async fn connect(&self, wish: &Wish, incoming: Incoming) -> Result<(Begun, Begun), DialError> {
        if self.options.mode == Mode::H3Capable {
            self.next_hop_first(wish, incoming).await
        } else {
            self.both_at_once(wish, incoming).await
        }
    }

    async fn next_hop_first(
        &self,
        wish: &Wish,
        incoming: Incoming,
    ) -> Result<(Begun, Begun), DialError> {
        let server = match self.dial(wish, wish.hello.alpn.clone()).await {
            Ok(server) => server,
            Err(error) => {
                incoming.refuse();
                return Err(error);
            }
        };
        let alpn = negotiated_alpn(&server.connection);
        let datagrams = server.connection.max_datagram_size().is_some();
        let accepted = self.accept(wish, incoming, alpn, datagrams);
        match accepted {
            Ok(client) => Ok((client, server)),
            Err(error) => {
                (server.connection).close(PepCode::OtherLeg.into(), error.to_string().as_bytes());
                Err(error)
            }
        }
    }

    /// The client's first choice of protocol is taken, as there is no time to ask the next hop.
    async fn both_at_once(
        &self,
        wish: &Wish,
        incoming: Incoming,
    ) -> Result<(Begun, Begun), DialError> {
        let alpn = wish.hello.alpn.first().cloned();
        let client = self.accept(wish, incoming, alpn.clone(), true)?;
        let dialled = tokio::select! {
            dialled = self.dial(wish, alpn.into_iter().collect()) => dialled,
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
        wish: &Wish,
        incoming: Incoming,
        alpn: Option<Vec<u8>>,
        datagrams: bool,
    ) -> Result<Begun, DialError> {
        let name = wish.qlog_name("client-side");
        (self.ends).accept(incoming, wish.since, alpn, datagrams, &name)
    }

    async fn dial(&self, wish: &Wish, alpn: Vec<Vec<u8>>) -> Result<Begun, DialError> {
        let client = self.options.keep_client_address.then_some(wish.client);
        let name = wish.qlog_name("server-side");
        (self.ends)
            .dial(wish.next_hop, client, &wish.server_name, alpn, &name)
            .await
    }

    /// Passes on until the end, and tells of it.
    async fn join(&self, wish: &Wish, mut client: Begun, mut server: Begun) -> Closed {
        let zero_rtt = server.handshake.is_some();
        let handshakes = (client.handshake.take(), server.handshake.take());
        let windows = [&self.options.client_side.0, &self.options.server_side.0]
            .map(|options| options.receive_window);
        let legs = Legs {
            client: Leg::new(client.connection.clone(), windows[0]),
            server: Leg::new(server.connection.clone(), windows[1]),
            begun: (client, server),
            fault: OnceLock::new(),
        };
        let aside = async {
            tokio::join!(
                self.client_handshake(&legs, handshakes.0),
                self.early_data(wish, &legs, handshakes.1),
                self.sample(wish, &legs),
                self.stop(&legs),
            );
            pending::<Infallible>().await
        };
        let ending = tokio::select! {
            ending = splice(&legs.client, &legs.server) => ending,
            never = aside => match never {},
        };
        legs.closed(wish, &ending, zero_rtt)
    }

    /// Notes when the client's handshake is done, and ends the connection if it never is.
    async fn client_handshake(&self, legs: &Legs, handshake: Option<ZeroRttAccepted>) {
        let Some(handshake) = handshake else { return };
        let client = &legs.begun.0;
        match timeout(self.handshake_limit(), handshake).await {
            // The value means something to who dialled alone. What failed is closed.
            Ok(_) if client.connection.close_reason().is_none() => client.note_handshake(),
            Ok(_) => {}
            Err(_) => legs.break_off(PepCode::OtherLeg, "client side: handshake overdue"),
        }
    }

    /// Notes when the next hop has answered early data. If it refused them, the connection cannot go on: what the client
    /// sent is gone. Its tickets are worth nothing then.
    async fn early_data(&self, wish: &Wish, legs: &Legs, handshake: Option<ZeroRttAccepted>) {
        let Some(handshake) = handshake else { return };
        let server = &legs.begun.1;
        match timeout(self.handshake_limit(), handshake).await {
            Ok(true) => return server.note_handshake(),
            Ok(false) if server.connection.close_reason().is_some() => {}
            Ok(false) => legs.break_off(PepCode::ZeroRttRejected, "next hop: early data refused"),
            Err(_) => legs.break_off(PepCode::NextHop, "next hop: no answer to early data"),
        }
        if let Ok(name) = ServerName::try_from(wish.server_name.clone()) {
            self.ends.tickets.forget(&name);
        }
    }

    async fn sample(&self, wish: &Wish, legs: &Legs) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.report.wants_samples() {
            ticks.tick().await;
            self.report.sample(&legs.sample(wish.number));
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
    begun: (Begun, Begun),
    /// Why the proxy itself ended the connection.
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

    fn sample(&self, connection: u64) -> Sample {
        Sample {
            connection,
            from_client: (&*self.client.crossed).into(),
            from_server: (&*self.server.crossed).into(),
            client_side: self.begun.0.state(),
            server_side: self.begun.1.state(),
        }
    }

    fn closed(&self, wish: &Wish, ending: &Ending, zero_rtt: bool) -> Closed {
        let (client, server) = &self.begun;
        let mut qlogs = [client, server].into_iter();
        let alpn = negotiated_alpn(&server.connection).or(negotiated_alpn(&client.connection));
        let fault = self.fault.get();
        Closed {
            connection: wish.number,
            outcome: if fault.is_some() {
                Outcome::Lost
            } else {
                outcome(ending)
            },
            reason: fault.map_or_else(|| ending.to_string(), ToString::to_string),
            alpn: alpn.map(|name| String::from_utf8_lossy(&name).into_owned()),
            zero_rtt,
            duration_s: wish.since.elapsed().as_secs_f64(),
            from_client: (&*self.client.crossed).into(),
            from_server: (&*self.server.crossed).into(),
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
