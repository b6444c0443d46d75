// SPDX-License-Identifier: GPL-3.0-or-later
//! Two stacks that exchange datagrams directly: no socket, no delay.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a failed unwrap is a failed test"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quic::LegOptions;
use satperf::app::App;
use satperf::client::Client;
use satperf::connection_log::Context;
use satperf::record::{Direction, Request, Side, Socket};
use satperf::server::Server;
use satperf::stack::quinn::{Crypto, Quinn};
use satperf::stack::{ALPN, Datagram, Setup, Stack, TlsFiles, ZeroRtt};

const NAME: &str = "perf.test";

/// A certificate and its key, as files.
struct Pki(PathBuf);

impl Pki {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("satperf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Self(dir)
    }

    fn cert(&self) -> PathBuf {
        self.0.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    fn server(&self) -> TlsFiles {
        TlsFiles::Server {
            cert: self.cert(),
            key: self.key(),
        }
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2);

/// Passes on what `from` sends at `now`; returns whether there was anything.
fn deliver(now: Instant, from: &mut dyn Stack, to: &mut dyn Stack, at: [SocketAddr; 2]) -> bool {
    let (mut buffer, mut is_busy) = (Vec::new(), false);
    while let Some(transmit) = from.transmit(now, 10, &mut buffer) {
        for data in buffer.chunks(transmit.segment.unwrap_or(usize::MAX)) {
            let datagram = Datagram {
                from: at[0],
                to: at[1],
                ecn: None,
                data: BytesMut::from(data),
            };
            to.receive(now, datagram);
        }
        buffer.clear();
        is_busy = true;
    }
    is_busy
}

/// Passes on what both send at `now`, until there is no more.
fn exchange(now: Instant, client: &mut dyn Stack, server: &mut dyn Stack) {
    while deliver(now, client, server, [CLIENT, SERVER])
        | deliver(now, server, client, [SERVER, CLIENT])
    {}
}

fn context(side: Side, stack: &dyn Stack, now: Instant) -> Rc<Context> {
    Rc::new(Context {
        side,
        stack: stack.name(),
        options: LegOptions::default(),
        socket: Socket::default(),
        epoch: (now, 0.0),
        cpu_s: || 0.0,
        omits_intervals: false,
    })
}

/// Downloads some bytes with satperf's own client and server; returns the result of early data.
fn download(client: &mut Quinn, server: &mut Quinn) -> ZeroRtt {
    let begin = Instant::now();
    let request = Request {
        direction: Direction::Download,
        bytes: Some(100_000),
        duration_ms: None,
        streams: 2,
        source_mbps: None,
    };
    let conn = client.connect(begin, CLIENT, SERVER, NAME).unwrap();
    let (here, there) = (
        context(Side::Client, client, begin),
        context(Side::Server, server, begin),
    );
    let timeout = Duration::from_secs(10);
    let mut asking = Client::new(here, conn, "server".into(), request, begin, timeout);
    let mut serving = Server::new(there, true);
    let mut now = begin;
    while asking.outcome().is_none() || serving.outcome().is_none() {
        now += Duration::from_millis(1);
        for stack in [&mut *client, &mut *server] {
            if stack.timeout().is_some_and(|due| due <= now) {
                stack.handle_timeout(now);
            }
        }
        asking.step(now, client);
        serving.step(now, server);
        exchange(now, client, server);
    }
    assert_eq!(asking.outcome(), Some(Ok(())));
    client.zero_rtt(conn)
}

#[test]
fn a_server_that_shall_connect_refuses_before_it_makes_anything() {
    let pki = Pki::new("server-connects");
    let qlog = pki.0.join("qlog");
    std::fs::create_dir(&qlog).unwrap();
    let setup = Setup {
        qlog: Some(qlog.clone()),
        ..Setup::default()
    };
    let mut server = Quinn::new(setup, &pki.server()).unwrap();
    let refused = server.connect(Instant::now(), SERVER, CLIENT, NAME);
    assert!(refused.unwrap_err().to_string().contains("a server"));
    assert_eq!(std::fs::read_dir(&qlog).unwrap().count(), 0);
}

#[test]
fn a_request_whose_early_data_is_rejected_is_repeated() {
    let pki = Pki::new("early");
    let server = || Quinn::new(Setup::default(), &pki.server()).unwrap();
    let tls = quic::client_crypto(&pki.cert(), &[ALPN], true).unwrap();
    let mut client = Quinn::with_crypto(Setup::default(), Crypto::Client(Arc::new(tls))).unwrap();
    let mut first = server();
    assert_eq!(download(&mut client, &mut first), ZeroRtt::NotAsked);
    assert_eq!(download(&mut client, &mut first), ZeroRtt::Accepted);
    // Another server of the same name does not know the session.
    assert_eq!(download(&mut client, &mut server()), ZeroRtt::Refused);
}

#[cfg(feature = "quiche")]
mod quiche {
    use bytes::Bytes;
    use satperf::stack::Event;
    use satperf::stack::quiche::Quiche;

    use super::*;

    /// quiche stamps each packet with the time at which it may leave, by its own clock.
    #[test]
    fn a_close_does_not_wait_behind_paced_packets() {
        let pki = Pki::new("close");
        let client = TlsFiles::Client { ca: pki.cert() };
        let mut client = Quiche::new(Setup::default(), &client).unwrap();
        let mut server = Quiche::new(Setup::default(), &pki.server()).unwrap();
        // An hour from now all packets are due; before the start none was.
        let start = Instant::now();
        let due = start + Duration::from_secs(3600);
        let early = start.checked_sub(Duration::from_secs(1)).unwrap();
        let conn = client.connect(due, CLIENT, SERVER, NAME).unwrap();
        exchange(due, &mut client, &mut server);
        assert!(client.may_write(conn));
        let stream = client.open(conn, false).unwrap();
        client.write(conn, stream, &mut Bytes::from_static(&[0; 5_000]));
        let at = [CLIENT, SERVER];
        assert!(!deliver(early, &mut client, &mut server, at));
        client.close(early, conn, 0, "done");
        exchange(early, &mut client, &mut server);
        let events = std::iter::from_fn(|| server.poll());
        let closed: Vec<_> = events
            .filter_map(|(_, event)| match event {
                Event::Closed(close) => Some(close),
                _ => None,
            })
            .collect();
        assert!(closed.len() == 1 && closed[0].clean, "{closed:?}");
    }
}
