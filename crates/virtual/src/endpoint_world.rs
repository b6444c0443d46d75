// SPDX-License-Identifier: GPL-3.0-or-later
//! Both endpoints, their applications and the time between them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::time::{Duration, Instant};

use link::Nanos;
use quic::LegOptions;
use satperf::app::{App, Progress};
use satperf::client::Client;
use satperf::connection_log::Context;
use satperf::record::{Direction, Request, Resumed, Side, Socket};
use satperf::server::Server;
use satperf::stack::{Conn, Setup, StackError, Stats, ZeroRtt};
use satperf::streams::SourceState;

use crate::endpoint::Endpoint;
use crate::outcome::{Mark, Sample, TransferResult, seconds};
use crate::path::{Ends, SAMPLE, Side as PathSide};
use crate::tls;
use crate::transfer::Transfer;
use crate::tunnel::Tunnel;
use crate::udp_ipv4::destination_port;

/// RFC 2544 addresses, as in `vagrant/lab.yml`.
pub(crate) const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 1, 2), 50_000);
/// The second client behind the same address.
const NEIGHBOUR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 1, 2), 50_001);
pub(crate) const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 4, 2), 4433);

/// A transfer that runs.
struct Running {
    started: Nanos,
    client: Client,
    conn: Conn,
    /// The server's connection before this one.
    previous: Option<Conn>,
    marks: Vec<Option<Nanos>>,
    /// When all payload had arrived; the client then fetches the server's report.
    completed: Option<Nanos>,
}

/// A second client behind the same address, which transfers together with the last transfer.
struct Neighbour {
    endpoint: Endpoint,
    client: Option<Client>,
}

impl Neighbour {
    fn work(&mut self, now: Instant) {
        let client = self.client.as_mut();
        self.endpoint.work(now, client.map(|it| it as &mut dyn App));
    }
}

/// Endpoints and clock.
pub struct World {
    now: Nanos,
    /// Virtual time 0, as stacks and applications take times as `Instant`.
    zero: Instant,
    transfer: Transfer,
    request: Request,
    /// The client's end.
    pub client: Endpoint,
    /// The server's end.
    pub server: Endpoint,
    neighbour: Option<Neighbour>,
    /// What all clients have in common.
    context: Rc<Context>,
    server_app: Server,
    running: Option<Running>,
    /// When the next transfer starts.
    next_start: Option<Nanos>,
    next_sample: Nanos,
    /// Transfers that are over.
    pub done: Vec<TransferResult>,
    /// Every [`SAMPLE`] until the payload has arrived; queues are not known here.
    pub samples: Vec<Sample>,
    /// The sender's statistics at the last of them.
    sampled: Stats,
    /// satperf's lines of output, if requested: client's, server's.
    pub lines: [Vec<String>; 2],
    wants_lines: bool,
    /// A connection could not be started: the simulation ended.
    pub error: Option<StackError>,
}

/// The origin of virtual time. Any moment serves, as only differences count.
#[expect(
    clippy::disallowed_methods,
    reason = "std has no other way to make one"
)]
pub(crate) fn origin() -> Instant {
    Instant::now()
}

pub(crate) fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

impl World {
    /// Two idle endpoints at time 0. With `wants_lines` the last client fetches its report, too;
    /// else the simulation ends when its payload has arrived.
    ///
    /// # Errors
    /// The libraries refuse options or certificates.
    pub fn new(
        transfer: Transfer,
        request: Request,
        wants_lines: bool,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let zero = origin();
        let setup = |options: &LegOptions| Setup {
            options: options.clone(),
            epoch: Some((zero, 0.0)),
            seed: Some(transfer.seed),
            ..Setup::default()
        };
        let context = |side, options: &LegOptions| {
            Rc::new(Context {
                side,
                stack: transfer.stack.name(),
                options: options.clone(),
                socket: Socket::default(),
                epoch: (zero, 0.0),
                cpu_s: || 0.0,
                omits_intervals: false,
            })
        };
        let mut setups = vec![setup(&transfer.client)];
        if transfer.neighbour {
            let mut other = setup(&transfer.client);
            // Its connection ids are others.
            other.seed = Some(transfer.seed ^ (1 << 63));
            setups.push(other);
        }
        let (clients, server) =
            (transfer.stack).group(setups, setup(&transfer.server), transfer.zero_rtt)?;
        let mut clients = clients.into_iter();
        let client = clients.next().ok_or("no client")?;
        let neighbour = clients.next().map(|stack| Neighbour {
            endpoint: Endpoint::new(stack, NEIGHBOUR),
            client: None,
        });
        let tunnel = |own, peer| {
            let options = transfer.fec.as_ref()?;
            Some(Tunnel::new(options, own, peer))
        };
        Ok(Self {
            now: 0,
            zero,
            client: Endpoint::new(client, CLIENT).with_tunnel(zero, tunnel(CLIENT, SERVER)),
            server: Endpoint::new(server, SERVER).with_tunnel(zero, tunnel(SERVER, CLIENT)),
            neighbour,
            context: context(Side::Client, &transfer.client),
            server_app: Server::new(context(Side::Server, &transfer.server), false),
            running: None,
            next_start: Some(nanos(transfer.start_s)),
            next_sample: 0,
            done: Vec::new(),
            samples: Vec::new(),
            sampled: Stats::default(),
            lines: Default::default(),
            wants_lines,
            error: None,
            transfer,
            request,
        })
    }

    /// Virtual time, as stacks take it.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.zero + Duration::from_nanos(self.now)
    }

    fn since_zero(&self, at: Instant) -> Nanos {
        at.saturating_duration_since(self.zero).as_nanos() as Nanos
    }

    fn work(&mut self) {
        let now = self.instant();
        let client = self.running.as_mut().map(|it| &mut it.client);
        self.client.work(now, client.map(|it| it as &mut dyn App));
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.work(now);
        }
        self.server.work(now, Some(&mut self.server_app));
        if self.wants_lines {
            self.lines[1].extend(self.server_app.lines());
        }
    }

    /// Starts, observes and ends transfers; returns whether there is something to come.
    fn control(&mut self) -> bool {
        if self.next_start.is_some_and(|at| at <= self.now) {
            self.next_start = None;
            if let Err(error) = self.start() {
                self.error = Some(error);
                return false;
            }
        }
        if let Some(mut running) = self.running.take() {
            if running.completed.is_none() {
                self.observe(&mut running);
            }
            if self.wants_lines {
                self.lines[0].extend(running.client.lines());
            } else if running.completed.is_some() && self.is_last() {
                return false;
            }
            match running.client.outcome() {
                None => self.running = Some(running),
                Some(outcome) => self.end(&running, outcome),
            }
        }
        self.running.is_some() || self.next_start.is_some()
    }

    fn start(&mut self) -> Result<(), StackError> {
        let now = self.instant();
        let timeout = Duration::from_secs_f64(self.transfer.timeout_s);
        let (context, request) = (&self.context, self.request);
        let start = |endpoint: &mut Endpoint, from: SocketAddrV4| {
            let conn = (endpoint.stack).connect(now, from.into(), SERVER.into(), tls::NAME)?;
            let (context, peer) = (Rc::clone(context), SERVER.to_string());
            let client = Client::new(context, conn, peer, request, now, timeout);
            Ok::<_, StackError>((conn, client))
        };
        let is_last = self.done.len() + 1 == self.transfer.repeats as usize;
        if let Some(neighbour) = self.neighbour.as_mut().filter(|_| is_last) {
            // Its packets are the first at the server, which has what was learned for one of both.
            neighbour.client = Some(start(&mut neighbour.endpoint, NEIGHBOUR)?.1);
            neighbour.work(now);
        }
        let (conn, client) = start(&mut self.client, CLIENT)?;
        self.sampled = Stats::default();
        self.running = Some(Running {
            started: self.now,
            client,
            conn,
            previous: self.server_app.progress().map(|it| it.conn),
            marks: vec![None; self.transfer.marks_bytes.len()],
            completed: None,
        });
        self.work();
        Ok(())
    }

    /// Notes marks, samples, and whether all payload has arrived.
    fn observe(&mut self, running: &mut Running) {
        let [sender, receiver] = self.progress(running);
        let arrived = receiver.map_or(0, |it| it.bytes);
        for (mark, bytes) in running.marks.iter_mut().zip(&self.transfer.marks_bytes) {
            if arrived >= *bytes {
                mark.get_or_insert(self.now);
            }
        }
        if self.now >= self.next_sample {
            self.next_sample = (self.now / SAMPLE + 1) * SAMPLE;
            self.sample(running, sender, arrived);
        }
        if self.request.bytes.is_some_and(|bytes| arrived >= bytes) {
            running.completed = Some(self.now);
            let differing = receiver.map_or(0, |it| it.differing);
            let outcome = match differing {
                0 => Ok(()),
                _ => Err(format!("{differing} bytes of the payload are wrong")),
            };
            self.record(running, outcome);
        }
    }

    /// Both ends of the payload: sender, receiver.
    fn progress(&self, running: &Running) -> [Option<Progress>; 2] {
        let server = self.server_app.progress();
        let is_new = |it: &Progress| Some(it.conn) != running.previous;
        self.by_role(Some(running.client.progress()), server.filter(is_new))
    }

    fn stats(&mut self, running: &Running) -> [Option<Stats>; 2] {
        let server = self.server_app.stats(self.server.stack.as_mut());
        let client = self.client.stack.stats(running.conn);
        self.by_role(Some(client), server)
    }

    fn by_role<T>(&self, client: T, server: T) -> [T; 2] {
        match self.request.direction {
            Direction::Download => [server, client],
            Direction::Upload => [client, server],
        }
    }

    fn is_last(&self) -> bool {
        let is_ok = self.done.last().is_some_and(|done| done.status == "ok");
        !is_ok || self.done.len() >= self.transfer.repeats as usize
    }

    /// The client has an outcome. Once the payload has arrived, the transfer has its own.
    fn end(&mut self, running: &Running, outcome: Result<(), String>) {
        if running.completed.is_none() {
            self.record(running, outcome);
        }
        self.client.stack.forget(self.instant(), running.conn);
        if !self.is_last() {
            let end = running.completed.unwrap_or(self.now);
            let next = end + nanos(self.transfer.pause_s);
            self.next_start = Some(next.max(self.now));
        }
    }

    /// Records the figures of a transfer at its end, or when its payload has arrived.
    fn record(&mut self, running: &Running, outcome: Result<(), String>) {
        let is_late = self.now - running.started >= nanos(self.transfer.timeout_s);
        let (status, reason) = match outcome {
            Ok(()) => ("ok", String::new()),
            Err(reason) if is_late => ("censored", reason),
            Err(reason) => ("failed", reason),
        };
        let [of_sender, of_receiver] = self.stats(running);
        let since = |at: Nanos| seconds(at - running.started);
        let ms = |at: Option<Instant>| at.map(|at| since(self.since_zero(at)) * 1e3);
        let marks = running.marks.iter().zip(&self.transfer.marks_bytes);
        let marks = marks.map(|(at, bytes)| Mark {
            bytes: *bytes,
            t_s: at.map(since),
        });
        let [sender, receiver] = self.progress(running);
        self.done.push(TransferResult {
            status,
            reason,
            started_s: seconds(running.started),
            handshake_ms: ms(running.client.progress().connected),
            asked_ms: ms(sender.and_then(|it| it.requested)),
            time_to_first_byte_ms: ms(receiver.and_then(|it| it.first_byte)),
            bytes: receiver.map_or(0, |it| it.bytes),
            sender: sender.and(of_sender).map(Into::into),
            receiver: receiver.and(of_receiver).map(Into::into),
            duration_s: since(self.now),
            marks: marks.collect(),
            zero_rtt: self.client.stack.zero_rtt(running.conn) == ZeroRtt::Accepted,
            careful_resume: sender.and_then(|it| self.resumed(running, it.conn)),
        });
    }

    /// Careful Resume at the sender `conn`.
    fn resumed(&self, running: &Running, conn: Conn) -> Option<Resumed> {
        let stack = self.by_role(&self.client.stack, &self.server.stack)[0];
        let since_s = |at| seconds(self.since_zero(at).saturating_sub(running.started));
        stack.resumed(conn).map(|it| Resumed::new(it, since_s))
    }

    fn sample(&mut self, running: &Running, sender: Option<Progress>, received_bytes: u64) {
        let [stats, _] = self.stats(running);
        let stats = sender.and(stats).unwrap_or_default();
        let controller = stats.sender;
        self.samples.push(Sample {
            t_s: seconds(self.now),
            received_bytes,
            cwnd_bytes: stats.cwnd_bytes,
            in_flight_bytes: controller.map_or(0, |it| it.in_flight_bytes),
            handshaking: sender.is_none_or(|it| it.connected.is_none()),
            slow_start: controller.is_none_or(|it| it.is_slow_start),
            app_limited: controller.is_some_and(|it| it.is_app_limited),
            pacing_bps: controller.and_then(|it| it.pacing_bps),
            supply: sender.map_or(SourceState::Slow, |it| it.source),
            rtt_ms: (stats.rtt.as_secs_f64() * 1e6).round() / 1e3,
            lost_packets: stats.lost_packets,
            sent_bytes: stats.sent_bytes,
            acked_bytes: controller.map(|it| it.acks.bytes),
            ack_ms: stats.ack_ms(&self.sampled),
            forward_queue_ms: 0.0,
            return_queue_ms: 0.0,
            forward_out_bytes: 0,
            return_out_bytes: 0,
            forward_dropped_packets: 0,
            forward_lost_packets: 0,
            return_dropped_packets: 0,
            return_lost_packets: 0,
        });
        self.sampled = stats;
    }

    /// The next moment at which something happens without a packet.
    fn own_deadline(&mut self) -> Option<Nanos> {
        let sample = self.running.as_ref().filter(|it| it.completed.is_none());
        let sample = sample.map(|_| self.next_sample);
        let client = self.running.as_ref().and_then(|it| it.client.wake());
        let timers = [
            self.client.stack.timeout(),
            self.server.stack.timeout(),
            client,
            self.server_app.wake(),
        ];
        let timers = timers.map(|at| at.map(|at| self.since_zero(at)));
        let tunnels = [&self.client, &self.server].map(Endpoint::tunnel_timeout);
        let of_neighbour = self.neighbour.as_mut().map(|it| {
            let wake = it.client.as_ref().and_then(App::wake);
            it.endpoint.stack.timeout().into_iter().chain(wake).min()
        });
        let of_neighbour = of_neighbour.flatten().map(|at| self.since_zero(at));
        let own = timers.into_iter().chain(tunnels).chain([of_neighbour]);
        let own = own.chain([sample, self.next_start]);
        own.flatten().min()
    }
}

impl Ends for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn advance(&mut self, deadline: Nanos, is_busy: bool) -> bool {
        loop {
            self.work();
            if !self.control() {
                return false;
            }
            self.work();
            let ends = [&self.client, &self.server];
            let of_neighbour = self.neighbour.as_ref().map(|it| &it.endpoint);
            let has_packets = (ends.into_iter().chain(of_neighbour)).any(|end| !end.out.is_empty());
            if is_busy || has_packets || deadline <= self.now {
                return true;
            }
            let own = self.own_deadline().unwrap_or(Nanos::MAX);
            if deadline <= own {
                self.now = deadline;
                return true;
            }
            self.now = own.max(self.now + 1);
        }
    }

    fn take(&mut self, side: PathSide) -> Option<Vec<u8>> {
        match side {
            PathSide::Client => {
                let neighbour = self.neighbour.as_mut();
                let first = neighbour.and_then(|it| it.endpoint.out.pop_front());
                first.or_else(|| self.client.out.pop_front())
            }
            PathSide::Server => self.server.out.pop_front(),
        }
    }

    fn receive(&mut self, side: PathSide, packet: &[u8]) {
        let now = self.instant();
        match side {
            PathSide::Client => match &mut self.neighbour {
                Some(it) if destination_port(packet) == Some(NEIGHBOUR.port()) => {
                    it.endpoint.receive(now, packet);
                }
                _ => self.client.receive(now, packet),
            },
            PathSide::Server => self.server.receive(now, packet),
        }
    }
}
