// SPDX-License-Identifier: GPL-3.0-or-later
//! All flows and the time between them. A flow is stepped only when it has a packet or something is due: the work grows with
//! packets, not with flows times packets.

use std::collections::VecDeque;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use link::Nanos;
use satperf::stack::StackError;

use super::outcome::{Counts, Record, Status};
use super::quic_flow::QuicFlow;
use super::spec::{Flow, NODES, Spec};
use super::udp_flow::UdpFlow;
use crate::packet;
use crate::path::{Ends, Side};
use crate::world::{nanos, origin};

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
    /// When it has to be stepped next.
    due: Nanos,
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
    /// Packets on their way out, of client and server side.
    out: [VecDeque<Vec<u8>>; 2],
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
        Ok(Self {
            now: 0,
            zero,
            end: nanos(spec.duration_s),
            bin,
            next_bin: bin,
            flows: flows.collect::<Result<_, _>>()?,
            out: Default::default(),
            error: None,
        })
    }

    /// What was recorded of each flow, in order.
    pub fn records(self) -> Vec<Record> {
        self.flows.into_iter().map(|flow| flow.record).collect()
    }

    /// Steps all that is due now.
    fn step(&mut self) -> Result<(), StackError> {
        for flow in &mut self.flows {
            if flow.due <= self.now {
                flow.step(self.now, self.zero, &mut self.out)?;
            }
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
        let flows = self.flows.iter().map(|flow| flow.due);
        flows
            .chain([self.next_bin, self.end])
            .min()
            .unwrap_or(self.end)
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
            let has_packets = self.out.iter().any(|queue| !queue.is_empty());
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
        self.out[side as usize].pop_front()
    }

    fn receive(&mut self, side: Side, packet: &[u8]) {
        let base = match side {
            Side::Client => CLIENT_PORT,
            Side::Server => SERVER_PORT,
        };
        let index = packet::destination_port(packet).and_then(|port| port.checked_sub(base));
        let now = self.zero + Duration::from_nanos(self.now);
        let Some(flow) = index.and_then(|index| self.flows.get_mut(usize::from(index))) else {
            return;
        };
        match &mut flow.body {
            Body::Udp(udp) => udp.receive(packet),
            Body::Quic(quic) => {
                quic.ends[side as usize].receive(now, packet);
                flow.due = self.now;
            }
        }
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
            due: start,
            record: Record::default(),
        })
    }

    fn step(
        &mut self,
        now: Nanos,
        zero: Instant,
        out: &mut [VecDeque<Vec<u8>>; 2],
    ) -> Result<(), StackError> {
        let at = zero + Duration::from_nanos(now);
        let quic = match &mut self.body {
            Body::Udp(udp) => {
                let side = usize::from(self.spec.is_forward());
                let until = now.min(self.stop.saturating_sub(1));
                udp.work(until, &mut out[side]);
                self.due = if udp.next < self.stop {
                    udp.next
                } else {
                    Nanos::MAX
                };
                self.record.is_started = true;
                return Ok(());
            }
            Body::Quic(quic) => quic,
        };
        if self.start <= now && !self.record.is_started {
            self.record.is_started = true;
            quic.start(at)?;
        }
        quic.work(at);
        for (end, queue) in quic.ends.iter_mut().zip(out.iter_mut()) {
            queue.append(&mut end.out);
        }
        self.look(now, at);
        if let Body::Quic(quic) = &mut self.body {
            for (end, queue) in quic.ends.iter_mut().zip(out.iter_mut()) {
                queue.append(&mut end.out);
            }
            let due = quic.due().map(|due| due.saturating_duration_since(zero));
            self.due = due
                .map_or(Nanos::MAX, |due| due.as_nanos() as Nanos)
                .max(now);
        }
        if !self.record.is_started {
            self.due = self.due.min(self.start);
        }
        if self.record.ended.is_none() {
            self.due = self.due.min(self.stop);
        }
        Ok(())
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
