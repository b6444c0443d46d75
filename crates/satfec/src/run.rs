// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop around a session: device, socket, clock, lines of output.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use fec::Nanos;
use linux::Signals;

use crate::failure::{RunError, host};
use crate::options::Options;
use crate::ports::Ports;
use crate::report::{Counters, Line, Report};
use crate::session::{Event, Misfit, Parameters, Session};
use crate::sys;

/// Datagrams or packets that are read before the other side has its turn.
const BATCH: usize = 64;
const LONGEST: usize = 1 << 16;

/// Carries packets until a signal.
///
/// # Errors
/// The host refuses something, the peer is silent or does not fit.
pub fn run(options: &Options, signals: &Signals, report: &Report) -> Result<(), RunError> {
    let start = Instant::now();
    let ports = Ports::open(options, start)?;
    let session = random().map_err(host("/dev/urandom"))?;
    sys::drop_privileges().map_err(host("privileges"))?;
    let parameters = Parameters {
        session,
        protection: options.code,
        delivery: options.delivery(),
        mtu: options.mtu,
        peer_timeout: options.peer_timeout_s * 1_000_000_000,
    };
    report.line(&Line::Ready {
        version: env!("CARGO_PKG_VERSION"),
        device: options.device.clone(),
        code: options.code.to_string(),
        mtu: options.mtu,
        transport: options.transport,
    });
    let mut tunnel = Tunnel {
        session: Session::new(parameters, 0),
        ports,
        start,
        interval: options.interval_ms * 1_000_000,
        next_line: 0,
        longest: options.mtu,
        buffer: vec![0; LONGEST],
    };
    let ended = tunnel.carry(options, signals, report);
    report.line(&Line::Summary {
        reason: match &ended {
            Ok(signal) => (*signal).into(),
            Err(error) => error.to_string(),
        },
        counters: tunnel.counters(),
        cpu_s: linux::cpu_seconds(),
        lines_dropped: report.dropped(),
    });
    ended.map(|_| ())
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

struct Tunnel {
    session: Session,
    ports: Ports,
    start: Instant,
    interval: Nanos,
    next_line: Nanos,
    /// Longest packet that the path took when a line last said so.
    longest: u16,
    buffer: Vec<u8>,
}

impl Tunnel {
    /// Until a signal, which it names.
    fn carry(
        &mut self,
        options: &Options,
        signals: &Signals,
        report: &Report,
    ) -> Result<&'static str, RunError> {
        loop {
            let wait = self.due().saturating_sub(self.now());
            let wait = Duration::from_nanos(wait);
            sys::wait([&self.ports.tun, &self.ports.socket, signals], wait)
                .map_err(host("waiting"))?;
            if let Ok(signal) = signals.take() {
                return Ok(signal);
            }
            self.read_peer();
            self.read_device()?;
            let now = self.now();
            self.session.timeout(now, &mut self.ports);
            self.ports.flush(Instant::now());
            if now >= self.next_line {
                self.next_line = now + self.interval;
                report.line(&Line::Counters(self.counters()));
            }
            self.note(options, report)?;
        }
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// Time at which the loop must wake up without a packet.
    fn due(&mut self) -> Nanos {
        let outer = self.ports.next_timeout();
        let since = |at: Instant| at.saturating_duration_since(self.start).as_nanos() as Nanos;
        let own = self.session.next_timeout().min(self.next_line);
        outer.map(since).into_iter().fold(own, Nanos::min)
    }

    fn counters(&self) -> Counters {
        Counters::of(&self.session, self.ports.passed())
    }

    fn read_peer(&mut self) {
        for _ in 0..BATCH {
            let (instant, now) = (Instant::now(), self.now());
            let session = &mut self.session;
            let take = |frame: &[u8], ports: &mut Ports| session.receive(now, frame, ports);
            if !self.ports.receive(instant, &mut self.buffer, take) {
                return;
            }
        }
    }

    fn read_device(&mut self) -> Result<(), RunError> {
        for _ in 0..BATCH {
            let length = match self.ports.read(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(host("the device")(error)),
            };
            let now = self.now();
            let packet = &self.buffer[..length];
            if !self.ports.refuse(packet) {
                self.session.push(now, packet, &mut self.ports);
                self.ports.flush(Instant::now());
                self.ports.answer(packet);
            }
        }
        Ok(())
    }

    fn note(&mut self, options: &Options, report: &Report) -> Result<(), RunError> {
        let packet_bytes = self.ports.longest();
        if std::mem::replace(&mut self.longest, packet_bytes) != packet_bytes {
            report.line(&Line::PathMtu { packet_bytes });
        }
        if let Some(why) = self.ports.refusal() {
            let (peer, why) = (options.peer.to_string(), why.to_owned());
            return Err(RunError::Refused { peer, why });
        }
        for event in self.session.events() {
            match event {
                Event::Connected { peer_window } => report.line(&Line::Connected { peer_window }),
                Event::Code {
                    code,
                    report: heard,
                } => report.line(&Line::of_code(code, heard)),
                Event::Silent(misfit) => return Err(silent(options, misfit)),
            }
        }
        Ok(())
    }
}

/// Makes the error for a silent peer.
fn silent(options: &Options, misfit: Option<Misfit>) -> RunError {
    let own = options.mtu;
    match misfit {
        Some(Misfit::Mtu(theirs)) => RunError::OtherMtu { theirs, own },
        Some(Misfit::Version(theirs)) => RunError::OtherVersion { theirs },
        None => RunError::Silent {
            peer: options.peer.to_string(),
            seconds: options.peer_timeout_s,
        },
    }
}
