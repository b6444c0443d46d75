// SPDX-License-Identifier: GPL-3.0-or-later
//! Both hosts and the time between them: the clock and the devices of the emulator's own loop.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use emulator::bundle::Bundle;
use emulator::drive::{Gone, Io};
use emulator::scheduled::Scheduled;
use link::Nanos;
use quic::{LegOptions, sender_state};
use quinn_proto::{ClientConfig, ConnectionId, ServerConfig};

use crate::flow::{Habits, REQUEST_BYTES, Supply};
use crate::host::{Host, Session};
use crate::outcome::{Done, Mark, Sample, seconds};
use crate::tls;
use crate::transfer::{Direction, Transfer};

/// Time between two samples.
pub const SAMPLE: Nanos = 50_000_000;
/// RFC 2544 addresses, as in `vagrant/lab.yml`.
const CLIENT: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 1, 2), 50_000);
const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 4, 2), 4433);

/// A transfer that runs.
struct Running {
    started: Nanos,
    /// Streams are open.
    is_open: bool,
    /// They were opened before the handshake was complete.
    is_early: bool,
    /// Streams that the server has answered.
    answered: usize,
    /// When the sender knew what to send.
    asked: Option<Nanos>,
    marks: Vec<Option<Nanos>>,
}

/// Clock and devices. Directions are numbered in the order of travel: terrestrial down, forward, return, terrestrial up.
pub struct World {
    now: Nanos,
    transfer: Transfer,
    client: Host,
    server: Host,
    config: ClientConfig,
    /// From terrestrial down to forward, and from return to terrestrial up.
    between: [VecDeque<Vec<u8>>; 2],
    orders: [VecDeque<Scheduled>; 4],
    running: Option<Running>,
    /// When the next transfer starts.
    next_start: Option<Nanos>,
    next_sample: Nanos,
    /// Transfers that are over.
    pub done: Vec<Done>,
    /// Every [`SAMPLE`] of a running transfer; queues are not known here.
    pub samples: Vec<Sample>,
}

impl World {
    /// Two idle hosts at time 0, when the first transfer starts. `orders` are changes of the link, by direction of travel.
    ///
    /// # Errors
    /// The libraries refuse options or certificates.
    pub fn new(
        transfer: Transfer,
        orders: [VecDeque<Scheduled>; 4],
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let (client_tls, server_tls) = tls::pair(transfer.zero_rtt)?;
        let mut config = ClientConfig::new(Arc::new(client_tls));
        let ids = AtomicU64::new(transfer.seed << 32 | 1 << 31);
        config
            .initial_dst_cid_provider(Arc::new(move || {
                ConnectionId::new(&ids.fetch_add(1, Ordering::Relaxed).to_be_bytes())
            }))
            .transport_config(Arc::new(quic::transport(&transfer.client)?));
        let mut server = ServerConfig::with_crypto(Arc::new(server_tls));
        server.transport_config(Arc::new(quic::transport(&transfer.server)?));
        let (seed, zero) = (transfer.seed, Instant::now());
        let rate = transfer.source_mbps.map(|rate| rate / 8e3);
        let (up, down) = match transfer.direction {
            Direction::Download => (None, rate),
            Direction::Upload => (rate, None),
        };
        let habits = |rate, leg: &LegOptions| Habits {
            rate,
            stream_window: leg.stream_receive_window,
        };
        let (near, far) = (habits(up, &transfer.client), habits(down, &transfer.server));
        Ok(Self {
            now: 0,
            client: Host::new(CLIENT, SERVER, near, None, seed, zero),
            server: Host::new(SERVER, CLIENT, far, Some(server), seed, zero),
            config,
            between: Default::default(),
            orders,
            running: None,
            next_start: Some((transfer.start_s * 1e9) as Nanos),
            next_sample: 0,
            done: Vec::new(),
            samples: Vec::new(),
            transfer,
        })
    }

    /// Ends of the payload: sender, receiver.
    fn ends(&mut self) -> [Option<&mut Session>; 2] {
        let (client, server) = (self.client.newest(), self.server.newest());
        match self.transfer.direction {
            Direction::Download => [server, client],
            Direction::Upload => [client, server],
        }
    }

    /// Payload that has arrived.
    fn received(&mut self) -> u64 {
        let [_, receiver] = self.ends();
        receiver.map_or(0, |session| session.flow.received)
    }

    /// Starts, watches and ends transfers; true while there is something to come.
    fn script(&mut self) -> bool {
        if self.next_start.is_some_and(|at| at <= self.now) {
            self.next_start = None;
            self.start();
        }
        let Some(mut running) = self.running.take() else {
            return self.next_start.is_some();
        };
        self.advance(&mut running);
        self.sample();
        match self.verdict(&running) {
            None => self.running = Some(running),
            Some((status, reason)) => self.end(&running, status, reason),
        }
        self.running.is_some() || self.next_start.is_some()
    }

    fn start(&mut self) {
        self.server.forget();
        let mut running = Running {
            started: self.now,
            is_open: false,
            is_early: false,
            answered: 0,
            asked: None,
            marks: vec![None; self.transfer.marks_bytes.len()],
        };
        match self
            .client
            .connect(self.now, self.config.clone(), tls::NAME)
        {
            Ok(()) => {
                let early = self.transfer.zero_rtt;
                if early
                    && self
                        .client
                        .newest()
                        .is_some_and(|it| it.connection.has_0rtt())
                {
                    (running.is_open, running.is_early) = (self.open(), true);
                }
                self.running = Some(running);
            }
            Err(reason) => self.end(&running, "failed", reason),
        }
    }

    /// Opens the client's streams.
    fn open(&mut self) -> bool {
        let parts = match self.transfer.direction {
            Direction::Download => vec![REQUEST_BYTES; self.transfer.streams as usize],
            Direction::Upload => self.transfer.parts(),
        };
        let session = self.client.newest();
        session.is_some_and(|it| it.flow.open(&mut it.connection, &parts))
    }

    /// What the applications do next, and which marks are passed.
    fn advance(&mut self, running: &mut Running) {
        let connected = self.client.newest().and_then(|session| {
            let accepted = session.connection.accepted_0rtt();
            session.seen.connected.map(|_| accepted)
        });
        if let Some(accepted) = connected {
            if running.is_early && !accepted {
                running.is_early = false;
                running.is_open = self.open();
            } else if !running.is_open {
                running.is_open = self.open();
            }
        }
        if self.transfer.direction == Direction::Download
            && let Some(session) = self.server.newest()
            && session.flow.accepted.len() > running.answered
        {
            let parts = self.transfer.parts();
            for (stream, part) in session
                .flow
                .accepted
                .clone()
                .into_iter()
                .zip(parts)
                .skip(running.answered)
            {
                session.flow.answer(stream, part);
                running.answered += 1;
            }
        }
        let is_asked = match self.transfer.direction {
            Direction::Download => running.answered > 0,
            Direction::Upload => running.is_open,
        };
        let (now, received) = (self.now, self.received());
        if is_asked {
            running.asked.get_or_insert(now);
        }
        for (mark, bytes) in running.marks.iter_mut().zip(&self.transfer.marks_bytes) {
            if received >= *bytes {
                mark.get_or_insert(now);
            }
        }
    }

    /// How the transfer has ended, if it has.
    fn verdict(&mut self, running: &Running) -> Option<(&'static str, String)> {
        let received = self.received();
        if received >= self.transfer.bytes {
            return Some(("ok", String::new()));
        }
        let lost = [self.client.newest(), self.server.newest()]
            .into_iter()
            .flatten()
            .find_map(|session| session.seen.lost.clone());
        if let Some(reason) = lost {
            return Some(("failed", reason));
        }
        (self.now >= self.give_up(running)).then(|| {
            let limit = self.transfer.timeout_s;
            (
                "censored",
                format!("{received} bytes after {limit} s of virtual time"),
            )
        })
    }

    fn give_up(&self, running: &Running) -> Nanos {
        running.started + (self.transfer.timeout_s * 1e9) as Nanos
    }

    fn end(&mut self, running: &Running, status: &'static str, reason: String) {
        let since = |at: Nanos| seconds(at - running.started);
        let marks = running.marks.iter().zip(&self.transfer.marks_bytes);
        let marks = marks.map(|(at, bytes)| Mark {
            bytes: *bytes,
            t_s: at.map(since),
        });
        let marks = marks.collect();
        let handshake = self.client.newest().and_then(|it| it.seen.connected);
        let [sender, receiver] = self.ends();
        let first = receiver.as_ref().and_then(|it| it.seen.first_byte);
        let done = Done {
            status,
            reason,
            started_s: seconds(running.started),
            handshake_ms: handshake.map(|at| since(at) * 1e3),
            asked_ms: running.asked.map(|at| since(at) * 1e3),
            time_to_first_byte_ms: first.map(|at| since(at) * 1e3),
            bytes: receiver.as_ref().map_or(0, |it| it.flow.received),
            sender: sender.map(|it| it.stats().into()),
            receiver: receiver.map(|it| it.stats().into()),
            duration_s: since(self.now),
            marks,
            zero_rtt: running.is_early,
        };
        self.done.push(done);
        self.client.close(self.now);
        self.server.close(self.now);
        if status == "ok" && self.done.len() < self.transfer.repeats as usize {
            self.next_start = Some(self.now + (self.transfer.pause_s * 1e9) as Nanos);
        }
    }

    fn sample(&mut self) {
        if self.now < self.next_sample {
            return;
        }
        self.next_sample = (self.now / SAMPLE + 1) * SAMPLE;
        let (now, received_bytes) = (self.now, self.received());
        let [sender, _] = self.ends();
        let state = sender.as_ref().and_then(|it| sender_state(&it.connection));
        let path = sender
            .as_ref()
            .map(|it| it.stats().path)
            .unwrap_or_default();
        let handshaking = sender
            .as_ref()
            .is_none_or(|it| it.connection.is_handshaking());
        let supply = sender.map_or(Supply::Slow, |it| it.flow.supply());
        self.samples.push(Sample {
            t_s: seconds(now),
            received_bytes,
            cwnd_bytes: path.cwnd,
            in_flight_bytes: state.map_or(0, |it| it.in_flight_bytes),
            handshaking,
            slow_start: state.is_none_or(|it| it.is_slow_start),
            app_limited: state.is_some_and(|it| it.is_app_limited),
            supply,
            rtt_ms: (path.rtt.as_secs_f64() * 1e6).round() / 1e3,
            lost_packets: path.lost_packets,
            forward_queue_ms: 0.0,
            return_queue_ms: 0.0,
        });
    }

    /// The next moment at which something happens without a packet.
    fn own_deadline(&mut self) -> Option<Nanos> {
        let script = match &self.running {
            Some(running) => Some(self.give_up(running).min(self.next_sample)),
            None => self.next_start,
        };
        let hosts = [
            self.client.deadline(self.now),
            self.server.deadline(self.now),
        ];
        hosts.into_iter().chain([script]).flatten().min()
    }

    fn has_packets(&self) -> bool {
        let [down, up] = &self.between;
        let hosts = [&self.client.out, &self.server.out];
        [down, up]
            .into_iter()
            .chain(hosts)
            .any(|queue| !queue.is_empty())
    }
}

impl Io for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn wait(&mut self, deadline: Nanos, _: Nanos) -> Result<bool, Gone> {
        loop {
            self.client.work(self.now);
            self.server.work(self.now);
            if !self.script() {
                return Ok(false);
            }
            self.client.work(self.now);
            self.server.work(self.now);
            if self.has_packets() || deadline <= self.now {
                return Ok(true);
            }
            let own = self.own_deadline().unwrap_or(Nanos::MAX);
            if deadline <= own {
                self.now = deadline;
                return Ok(true);
            }
            self.now = own.max(self.now + 1);
        }
    }

    fn read(&mut self, direction: usize, buffer: &mut [u8]) -> io::Result<Option<(Nanos, usize)>> {
        let [down, up] = &mut self.between;
        let queue = match direction {
            0 => &mut self.server.out,
            1 => down,
            2 => &mut self.client.out,
            _ => up,
        };
        Ok(queue.pop_front().map(|packet| {
            buffer[..packet.len()].copy_from_slice(&packet);
            (self.now, packet.len())
        }))
    }

    fn write(&mut self, direction: usize, bundle: &mut Bundle) -> io::Result<bool> {
        let (_, packet) = bundle.finish();
        match direction {
            0 => self.between[0].push_back(packet.to_vec()),
            1 => self.client.receive(self.now, packet),
            2 => self.between[1].push_back(packet.to_vec()),
            _ => self.server.receive(self.now, packet),
        }
        Ok(true)
    }

    fn take_change(&mut self, direction: usize) -> Option<Scheduled> {
        self.orders[direction].pop_front()
    }
}
