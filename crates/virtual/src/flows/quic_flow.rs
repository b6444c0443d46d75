// SPDX-License-Identifier: GPL-3.0-or-later
//! One connection of satperf's client and server.

use std::error::Error;
use std::net::SocketAddrV4;
use std::rc::Rc;
use std::time::{Duration, Instant};

use quic::LegOptions;
use resume::Jump;
use satperf::app::App;
use satperf::client::Client;
use satperf::connection_log::Context;
use satperf::record::{Direction, Request, Side as Role, Socket};
use satperf::server::Server;
use satperf::stack::{Conn, Setup, StackError};
use serde_json::json;

use super::record::Counts;
use super::spec::{Flow, SavedPath};
use crate::endpoint::Endpoint;
use crate::stacks::Library;
use crate::tls;

/// Longer than any simulation: the simulation closes the flow.
const WITHOUT_END: Duration = Duration::from_secs(1_000_000);

/// Both ends of a flow.
pub struct QuicFlow {
    request: Request,
    /// The client's end and the server's.
    pub ends: [Endpoint; 2],
    addresses: [SocketAddrV4; 2],
    context: Rc<Context>,
    client: Option<(Client, Conn)>,
    server: Server,
    last: Counts,
    /// The jump of the sender, once it was made.
    pub jump: Option<Jump>,
}

/// Puts what an earlier connection learned of the path into the state of the sender.
fn known(sender: &mut Setup, flow: &Flow, [client, server]: [SocketAddrV4; 2], zero: Instant) {
    let Some(SavedPath { cwnd_bytes, rtt_ms }) = flow.saved else {
        return;
    };
    let [local, remote] = if flow.is_forward() {
        [server, client]
    } else {
        [client, server]
    };
    let path = json!({"local": local.ip(), "remote": remote.ip(), "cwnd_bytes": cwnd_bytes,
                      "rtt_ms": rtt_ms, "saved_unix_s": 0});
    sender.epoch = Some((zero, 0.0));
    sender.resume_state = json!({"schema": resume::SCHEMA, "paths": [path]}).to_string();
}

impl QuicFlow {
    /// A flow that has not begun; `addresses` are those of client and server.
    ///
    /// # Errors
    /// The library refuses its options.
    pub fn new(
        flow: &Flow,
        library: Library,
        addresses: [SocketAddrV4; 2],
        (seed, send_window): (u64, u64),
        zero: Instant,
    ) -> Result<Self, Box<dyn Error>> {
        let setup = |options: LegOptions| Setup {
            options,
            seed: Some(seed),
            datagram_bytes: flow.datagram_bytes,
            ..Setup::default()
        };
        let sender = LegOptions {
            send_window,
            ..flow.sender()
        };
        let (mut sender, receiver) = (setup(sender), setup(flow.receiver()));
        known(&mut sender, flow, addresses, zero);
        let (setups, direction) = if flow.is_forward() {
            ([receiver, sender], Direction::Download)
        } else {
            ([sender, receiver], Direction::Upload)
        };
        let context = |side, options: &LegOptions| {
            Rc::new(Context {
                side,
                stack: library.name(),
                options: options.clone(),
                socket: Socket::default(),
                epoch: (zero, 0.0),
                cpu_s: || 0.0,
                // A client that has all bytes may still get the server's lines.
                omits_intervals: flow.bytes.is_none(),
            })
        };
        let contexts = [
            context(Role::Client, &setups[0].options),
            context(Role::Server, &setups[1].options),
        ];
        let [client, server] = library.pair(setups, false)?;
        let [of_client, of_server] = contexts;
        Ok(Self {
            request: Request {
                direction,
                bytes: flow.bytes,
                // A request has one or the other; the flow is closed before this is over.
                duration_ms: flow
                    .bytes
                    .is_none()
                    .then_some(WITHOUT_END.as_millis() as u64),
                streams: 1,
                source_mbps: None,
            },
            ends: [
                Endpoint::new(client, addresses[0]),
                Endpoint::new(server, addresses[1]),
            ],
            addresses,
            context: of_client,
            client: None,
            server: Server::new(of_server, false),
            last: Counts::default(),
            jump: None,
        })
    }

    /// Opens the connection.
    ///
    /// # Errors
    /// The library refuses.
    pub fn start(&mut self, now: Instant) -> Result<(), StackError> {
        let [local, remote] = self.addresses;
        let stack = &mut self.ends[0].stack;
        let conn = stack.connect(now, local.into(), remote.into(), tls::NAME)?;
        let context = Rc::clone(&self.context);
        let peer = remote.to_string();
        let client = Client::new(context, conn, peer, self.request, now, WITHOUT_END);
        self.client = Some((client, conn));
        Ok(())
    }

    /// Does all that can be done now.
    pub fn work(&mut self, now: Instant) {
        let [client, server] = &mut self.ends;
        let app = self.client.as_mut().map(|(app, _)| app as &mut dyn App);
        client.work(now, app);
        server.work(now, Some(&mut self.server));
    }

    /// The next moment at which something happens without a packet.
    pub fn due(&mut self) -> Option<Instant> {
        let [client, server] = &mut self.ends;
        let wake = self.client.as_ref().and_then(|(app, _)| app.wake());
        let timers = [
            client.stack.timeout(),
            server.stack.timeout(),
            wake,
            self.server.wake(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Payload that has arrived in order, bytes.
    pub fn payload(&self) -> u64 {
        let Some((app, _)) = &self.client else {
            return 0;
        };
        match self.request.direction {
            Direction::Download => app.progress().bytes,
            Direction::Upload => self.server.progress().map_or(0, |it| it.bytes),
        }
    }

    /// Why the connection is over, if it is.
    pub fn failure(&self) -> Option<String> {
        let (app, _) = self.client.as_ref()?;
        app.outcome()?.err()
    }

    /// Closes the connection, if it began.
    pub fn stop(&mut self, now: Instant) {
        self.counts();
        if let Some((app, _)) = &mut self.client {
            app.interrupt(now, self.ends[0].stack.as_mut(), "stopped");
        }
        self.work(now);
    }

    /// Totals so far; those of the last call once the connection is over. satperf's own lines are
    /// dropped.
    pub fn counts(&mut self) -> Counts {
        self.server.lines();
        let Some((app, conn)) = &mut self.client else {
            return self.last;
        };
        app.lines();
        if app.outcome().is_some() {
            return self.last;
        }
        let progress = (Some(app.progress()), self.server.progress());
        let [client, server] = &mut self.ends;
        let of_sender = match self.request.direction {
            Direction::Download => progress.1.and_then(|it| server.stack.resumed(it.conn)),
            Direction::Upload => client.stack.resumed(*conn),
        };
        self.jump = of_sender.and_then(|it| it.1).or(self.jump);
        let stats = (
            Some(client.stack.stats(*conn)),
            self.server.stats(server.stack.as_mut()),
        );
        let is_download = self.request.direction == Direction::Download;
        let (arrived, receiver, sender) = if is_download {
            (progress.0, stats.0, stats.1)
        } else {
            (progress.1, stats.1, stats.0)
        };
        let at_receiver = receiver.unwrap_or_default();
        let sender = sender.unwrap_or_default();
        self.last = Counts {
            payload_bytes: arrived.map_or(0, |it| it.bytes),
            differing_bytes: arrived.map_or(0, |it| it.differing),
            received_bytes: at_receiver.received_bytes,
            received_packets: at_receiver.received_packets,
            sent_packets: sender.sent_packets,
            lost_packets: sender.lost_packets,
            sent_bytes: sender.sent_bytes,
            lost_bytes: sender.lost_bytes,
            cwnd_bytes: sender.cwnd_bytes,
            rtt_ms: sender.rtt.as_secs_f64() * 1e3,
            acks: at_receiver.acks_sent.unwrap_or(0),
            is_connected: progress.0.is_some_and(|it| it.connected.is_some()),
        };
        self.last
    }
}
