// SPDX-License-Identifier: GPL-3.0-or-later
//! One end of the path: a program at an address, stepped with the virtual time.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use link::Nanos;

use super::message::{self, Head, Pipe, Report, Setup, Step};
use crate::udp_ipv4;

/// Datagrams of one message to a program.
const BATCH: usize = 256;
/// Largest UDP payload that the path carries: IPv4 packets of 1500 bytes. Larger ones are lost, as
/// with the "do not fragment" bit.
const MAX_PAYLOAD: usize = 1500 - udp_ipv4::HEADER;
/// A timer that is due comes after this time again at the earliest.
const TICK: Nanos = 1_000;
/// A program that is called so often within [`STILL`] without a datagram is stuck.
const MOST_IDLE: u32 = 500;
const STILL: Nanos = 1_000_000;

/// A program and what is on its way to and from it.
pub struct End {
    pipe: Box<dyn Pipe>,
    address: SocketAddrV4,
    peer: SocketAddrV4,
    arrived: VecDeque<(u8, Vec<u8>)>,
    /// IP packets on their way out.
    pub out: VecDeque<Vec<u8>>,
    /// When the program wants to be called.
    pub timer: Option<Nanos>,
    /// A connection begins with the next call.
    starts: bool,
    /// The connection as the program reports it.
    pub report: Report,
    /// UDP payload that has arrived since the connection began.
    arrived_bytes: u64,
    /// UDP payload that was sent since the connection began.
    pub sent_bytes: u64,
    /// Payload of a connection.
    total: u64,
    /// Since when the program is called without a datagram, and how often.
    idle: (Nanos, u32),
}

impl End {
    /// A program at an address, and its stack's name; the inner error: why it cannot do what the
    /// set-up asks for.
    ///
    /// # Errors
    /// It answers nothing, or nonsense.
    pub fn new(
        mut pipe: Box<dyn Pipe>,
        setup: &Setup,
        [address, peer]: [SocketAddrV4; 2],
    ) -> Result<Result<(Self, String), String>, String> {
        let name = match message::greet(pipe.as_mut(), setup)? {
            Ok(name) => name,
            Err(why) => return Ok(Err(why)),
        };
        let end = Self {
            pipe,
            address,
            peer,
            arrived: VecDeque::new(),
            out: VecDeque::new(),
            timer: None,
            starts: false,
            report: Report::default(),
            arrived_bytes: 0,
            sent_bytes: 0,
            total: setup.bytes,
            idle: (0, 0),
        };
        Ok(Ok((end, name)))
    }

    /// Begins a connection: reports count from zero.
    pub fn start(&mut self) {
        self.starts = true;
        self.report = Report::default();
        self.arrived_bytes = 0;
        self.sent_bytes = 0;
    }

    /// Takes an IP packet from the path.
    pub fn receive(&mut self, packet: &[u8]) {
        if let Some(datagram) = udp_ipv4::decode(packet) {
            let ecn = datagram.ecn.unwrap_or(0);
            self.arrived.push_back((ecn, datagram.payload.to_vec()));
        }
    }

    /// Calls the program until it has taken all that arrived.
    ///
    /// # Errors
    /// It answers nothing, or nonsense.
    pub fn step(&mut self, now: Nanos) -> Result<(), String> {
        while self.starts || !self.arrived.is_empty() || self.timer.is_some_and(|due| due <= now) {
            self.call(now)?;
        }
        Ok(())
    }

    fn call(&mut self, now: Nanos) -> Result<(), String> {
        let batch = self.arrived.len().min(BATCH);
        let batch: Vec<_> = self.arrived.drain(..batch).collect();
        let head = |(ecn, data): &(u8, Vec<u8>)| Head {
            bytes: data.len(),
            ecn: *ecn,
        };
        let step = Step {
            now_ns: now,
            start: std::mem::take(&mut self.starts),
            datagrams: batch.iter().map(head).collect(),
        };
        let bytes: Vec<u8> = batch.into_iter().flat_map(|(_, data)| data).collect();
        self.arrived_bytes += bytes.len() as u64;
        let (answer, sent) = message::ask(self.pipe.as_mut(), &step, &bytes)?;
        self.timer = answer.timer_ns.map(|at| at.max(now + TICK));
        self.count_idle(now, step.datagrams.is_empty() && sent.is_empty())?;
        if let Some(report) = answer.report {
            self.check(&report)?;
            self.report = report;
        }
        for (head, data) in answer.datagrams.iter().zip(sent) {
            if data.len() <= MAX_PAYLOAD {
                let ecn = Some(head.ecn).filter(|ecn| *ecn != 0);
                let packet = udp_ipv4::encode(self.address, self.peer, ecn, &data);
                self.out.push_back(packet);
                self.sent_bytes += data.len() as u64;
            }
        }
        Ok(())
    }

    fn count_idle(&mut self, now: Nanos, is_idle: bool) -> Result<(), String> {
        if !is_idle || now > self.idle.0 + STILL {
            self.idle = (now, 0);
        }
        self.idle.1 += u32::from(is_idle);
        if self.idle.1 > MOST_IDLE {
            return Err(format!(
                "its timer does not advance: {MOST_IDLE} calls within 1 ms without a datagram"
            ));
        }
        Ok(())
    }

    fn check(&self, report: &Report) -> Result<(), String> {
        let bytes = report.received_bytes;
        if bytes < self.report.received_bytes || bytes > self.total.min(self.arrived_bytes) {
            return Err(format!(
                "it reports {bytes} bytes of payload, after {}, with {} of datagrams",
                self.report.received_bytes, self.arrived_bytes
            ));
        }
        let rtt_ms = report.sender.map_or(0.0, |it| it.rtt_ms);
        if !(0.0..1e6).contains(&rtt_ms) {
            return Err(format!("it reports a round-trip time of {rtt_ms} ms"));
        }
        Ok(())
    }
}
