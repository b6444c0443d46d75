// SPDX-License-Identifier: GPL-3.0-or-later
//! All flows and the time between them. A flow is stepped only when it has a packet or something is
//! due: the work grows with packets, not with flows times packets.

use std::collections::VecDeque;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use link::Nanos;
use satperf::stack::StackError;

use super::host::{Inbox, Latency};
use super::quic_flow::QuicFlow;
use super::record::{Counts, Record, Status};
use super::shared_tunnel::{SharedTunnel, TunnelTotals};
use super::spec::{Flow, NODES, Spec};
use super::udp_flow::UdpFlow;
use crate::endpoint_world::{nanos, origin};
use crate::path::{Ends, Side};
use crate::udp_ipv4;

/// Ports of flow 0; each flow has its own.
const CLIENT_PORT: u16 = 50_000;
const SERVER_PORT: u16 = 4_433;

enum Body {
    Quic(Box<QuicFlow>),
    Udp(UdpFlow),
}

/// A flow, its times and its series.
struct Running {
    body: Body,
    spec: Flow,
    start: Nanos,
    stop: Nanos,
    /// When the client takes another address.
    migrations: VecDeque<Nanos>,
    /// At the client and at the server.
    inboxes: [Inbox; 2],
    record: Record,
}

/// All flows.
pub struct World {
    now: Nanos,
    zero: Instant,
    end: Nanos,
    bin: Nanos,
    next_bin: Nanos,
    flows: Vec<Running>,
    /// When each flow has to be stepped next. Apart from the flows, as all are looked through
    /// whenever one is due.
    due: Vec<Nanos>,
    /// The least of them.
    next_flow: Nanos,
    /// Packets on their way out, of client and server side.
    out: [VecDeque<Vec<u8>>; 2],
    tunnel: Option<SharedTunnel>,
    latency: Latency,
    /// A connection could not be started: the simulation ended.
    pub error: Option<StackError>,
}

fn address(node: &str, index: usize) -> SocketAddrV4 {
    let at = NODES
        .iter()
        .position(|(name, _)| *name == node)
        .unwrap_or(0);
    // RFC 2544 addresses, as in `vagrant/lab.yml`.
    let (net, port) = match NODES[at].1 {
        Side::Client => (1, CLIENT_PORT),
        Side::Server => (4, SERVER_PORT),
    };
    let host = 2 + (at % 2) as u8;
    SocketAddrV4::new(Ipv4Addr::new(198, 18, net, host), port + index as u16)
}

impl World {
    /// All flows at time 0.
    ///
    /// # Errors
    /// A library refuses its options.
    pub fn new(spec: &Spec) -> Result<Self, Box<dyn Error>> {
        let zero = origin();
        let flows = spec.flows.iter().enumerate();
        let flows = flows.map(|(index, flow)| Running::new(spec, flow, index, zero));
        let bin = Nanos::from(spec.bin_ms) * 1_000_000;
        let flows = flows.collect::<Result<Vec<_>, _>>()?;
        let due: Vec<_> = flows.iter().map(|flow| flow.start).collect();
        Ok(Self {
            now: 0,
            zero,
            end: nanos(spec.duration_s),
            bin,
            next_bin: bin,
            next_flow: due.iter().copied().min().unwrap_or(Nanos::MAX),
            due,
            flows,
            out: Default::default(),
            tunnel: spec.fec.as_ref().map(SharedTunnel::new),
            latency: Latency::new(spec.seed, Nanos::from(spec.host_latency_us) * 1_000),
            error: None,
        })
    }

    /// Both ends of the tunnel, if there is one.
    pub fn tunnel(&self) -> Option<[TunnelTotals; 2]> {
        self.tunnel.as_ref().map(SharedTunnel::totals)
    }

    /// What was recorded of each flow, in order.
    pub fn records(self) -> Vec<Record> {
        self.flows.into_iter().map(|flow| flow.record).collect()
    }

    /// Steps all that is due now.
    fn step(&mut self) -> Result<(), StackError> {
        if self.next_flow <= self.now {
            for (due, flow) in self.due.iter_mut().zip(&mut self.flows) {
                if *due <= self.now {
                    *due = flow.step(self.now, self.zero, &mut self.out)?;
                }
            }
            self.next_flow = self.due.iter().copied().min().unwrap_or(Nanos::MAX);
        }
        for side in [Side::Client, Side::Server] {
            let tunnel = self.tunnel.as_mut();
            let packets = tunnel.map_or_else(Vec::new, |it| it.timeout(self.now, side));
            self.deliver(side, &packets);
        }
        if self.next_bin <= self.now {
            for flow in &mut self.flows {
                flow.sample(self.next_bin, self.bin);
            }
            self.next_bin += self.bin;
        }
        Ok(())
    }

    fn next_due(&self) -> Nanos {
        let tunnel = self.tunnel.as_ref().and_then(SharedTunnel::next_timeout);
        let own = self.next_flow.min(self.next_bin).min(self.end);
        tunnel.map_or(own, |at| own.min(at))
    }
}

impl Ends for World {
    fn now(&self) -> Nanos {
        self.now
    }

    fn advance(&mut self, deadline: Nanos, is_busy: bool) -> bool {
        loop {
            if let Err(error) = self.step() {
                self.error = Some(error);
                return false;
            }
            if self.now >= self.end {
                return false;
            }
            let has_frames = self.tunnel.as_ref().is_some_and(SharedTunnel::has_frames);
            let has_packets = has_frames || self.out.iter().any(|queue| !queue.is_empty());
            if is_busy || has_packets || deadline <= self.now {
                return true;
            }
            let own = self.next_due();
            if deadline <= own {
                self.now = deadline;
                return true;
            }
            self.now = own.max(self.now + 1);
        }
    }

    fn take(&mut self, side: Side) -> Option<Vec<u8>> {
        let out = &mut self.out[side as usize];
        match &mut self.tunnel {
            None => out.pop_front(),
            Some(tunnel) => tunnel.take(self.now, side, out),
        }
    }

    fn receive(&mut self, side: Side, packet: &[u8]) {
        match &mut self.tunnel {
            None => self.arrive(side, packet),
            Some(tunnel) => {
                let packets = tunnel.receive(self.now, side, packet);
                self.deliver(side, &packets);
            }
        }
    }
}

impl World {
    fn deliver(&mut self, side: Side, packets: &[Vec<u8>]) {
        for packet in packets {
            self.arrive(side, packet);
        }
    }

    /// A packet of a flow arrives.
    fn arrive(&mut self, side: Side, packet: &[u8]) {
        let base = match side {
            Side::Client => CLIENT_PORT,
            Side::Server => SERVER_PORT,
        };
        let index = udp_ipv4::destination_port(packet).and_then(|port| port.checked_sub(base));
        let now = self.zero + Duration::from_nanos(self.now);
        let Some(index) = index.map(usize::from) else {
            return;
        };
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        match &mut flow.body {
            Body::Udp(udp) => udp.receive(packet),
            Body::Quic(quic) if self.latency.is_none() => {
                quic.ends[side as usize].receive(now, packet);
                self.due[index] = self.now;
            }
            Body::Quic(_) => {
                let inbox = &mut flow.inboxes[side as usize];
                inbox.push(self.now, &mut self.latency, packet);
                self.due[index] = self.due[index].min(inbox.wake);
            }
        }
        self.next_flow = self.next_flow.min(self.due[index]);
    }
}

impl Running {
    fn new(spec: &Spec, flow: &Flow, index: usize, zero: Instant) -> Result<Self, Box<dyn Error>> {
        let (from, to) = (address(&flow.from, index), address(&flow.to, index));
        let start = nanos(flow.start_s);
        let body = match flow.stack.library() {
            None => {
                let rate_mbps = flow.rate_mbps.unwrap_or(1.0);
                Body::Udp(UdpFlow::new(
                    from,
                    to,
                    rate_mbps,
                    flow.datagram_bytes,
                    start,
                ))
            }
            Some(library) => {
                let addresses = if flow.is_forward() {
                    [to, from]
                } else {
                    [from, to]
                };
                // Of 32 bits: connection ids are made of it.
                let seed = spec.seed.wrapping_mul(1_000).wrapping_add(index as u64) & 0x7fff_ffff;
                Body::Quic(Box::new(QuicFlow::new(
                    flow,
                    library,
                    addresses,
                    (seed, spec.send_window(flow)),
                    zero,
                )?))
            }
        };
        Ok(Self {
            body,
            spec: flow.clone(),
            start,
            stop: nanos(flow.stop_s.unwrap_or(spec.duration_s)),
            migrations: flow.migrate_s.iter().copied().map(nanos).collect(),
            inboxes: Default::default(),
            record: Record::default(),
        })
    }

    /// Does all that is due, and returns when it has to be stepped next.
    fn step(
        &mut self,
        now: Nanos,
        zero: Instant,
        out: &mut [VecDeque<Vec<u8>>; 2],
    ) -> Result<Nanos, StackError> {
        let at = zero + Duration::from_nanos(now);
        let quic = match &mut self.body {
            Body::Udp(udp) => {
                let side = usize::from(self.spec.is_forward());
                let until = now.min(self.stop.saturating_sub(1));
                udp.work(until, &mut out[side]);
                self.record.is_started = true;
                let is_over = udp.next >= self.stop;
                return Ok(if is_over { Nanos::MAX } else { udp.next });
            }
            Body::Quic(quic) => quic,
        };
        if self.start <= now && !self.record.is_started {
            self.record.is_started = true;
            quic.start(at)?;
        }
        if self.migrations.front().is_some_and(|at| *at <= now) {
            self.migrations.pop_front();
            quic.ends[0].migrate();
        }
        for (inbox, end) in self.inboxes.iter_mut().zip(&mut quic.ends) {
            for packet in inbox.take(now) {
                end.receive(at, &packet);
            }
        }
        quic.work(at);
        for (end, queue) in quic.ends.iter_mut().zip(out.iter_mut()) {
            queue.append(&mut end.out);
        }
        self.look(now, at);
        let mut due = Nanos::MAX;
        if let Body::Quic(quic) = &mut self.body {
            for (end, queue) in quic.ends.iter_mut().zip(out.iter_mut()) {
                queue.append(&mut end.out);
            }
            let own = quic.due().map(|due| due.saturating_duration_since(zero));
            due = own
                .map_or(Nanos::MAX, |own| own.as_nanos() as Nanos)
                .max(now);
        }
        if !self.record.is_started {
            due = due.min(self.start);
        }
        if self.record.ended.is_none() {
            due = due.min(self.stop);
        }
        let wakes = self.inboxes.iter().map(|inbox| inbox.wake);
        let own = self.migrations.front().copied().into_iter().chain(wakes);
        Ok(own.fold(due, Nanos::min))
    }

    /// Ends a connection that is complete, over or to be stopped.
    fn look(&mut self, now: Nanos, at: Instant) {
        let Body::Quic(quic) = &mut self.body else {
            return;
        };
        if self.record.ended.is_some() || !self.record.is_started {
            return;
        }
        if let Some(why) = quic.failure() {
            self.end(now, Status::Failed, why);
            return;
        }
        let asked = self.spec.bytes;
        let has_all = asked.is_some_and(|bytes| quic.payload() >= bytes);
        if !has_all && now < self.stop {
            return;
        }
        let counts = quic.counts();
        quic.stop(at);
        let (status, why) = if counts.differing_bytes > 0 {
            (
                Status::Failed,
                format!("{} bytes of the payload are wrong", counts.differing_bytes),
            )
        } else if !counts.is_connected {
            (Status::Failed, "no handshake until the end".to_owned())
        } else if asked.is_some() && !has_all {
            (Status::Censored, "not complete at the end".to_owned())
        } else {
            (Status::Ok, String::new())
        };
        self.end(now, status, why);
    }

    fn end(&mut self, now: Nanos, status: Status, reason: String) {
        let counts = self.counts();
        let record = &mut self.record;
        if let Body::Quic(quic) = &self.body {
            record.jump = quic.jump;
        }
        if record.ended.is_none() {
            record.ended = Some(now);
            (record.status, record.reason, record.totals) = (status, reason, counts);
        }
    }

    fn counts(&mut self) -> Counts {
        match &mut self.body {
            Body::Quic(quic) => quic.counts(),
            Body::Udp(udp) => udp.counts(),
        }
    }

    /// Notes the bin that ends at `end`.
    fn sample(&mut self, end: Nanos, bin: Nanos) {
        let counts = self.counts();
        let is_over = self.record.ended.is_some_and(|at| at + bin <= end);
        let is_running = self.start < end && !is_over;
        if matches!(self.body, Body::Udp(_)) {
            self.record.totals = counts;
            self.record.ended = (end >= self.stop).then_some(self.stop);
        }
        self.record.bins.push(is_running.then_some(counts));
    }
}
