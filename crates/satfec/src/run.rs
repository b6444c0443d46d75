// SPDX-License-Identifier: GPL-3.0-or-later
//! The loop around a session: device, socket, clock, lines of output.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use fec::Nanos;
use linux::Signals;
use thiserror::Error;

use crate::hello;
use crate::icmp;
use crate::options::{OVERHEAD, Options};
use crate::report::{Counters, Line, Report};
use crate::session::{Event, Output, Parameters, Session};
use crate::sys;

/// Datagrams or packets that are read before the other side has its turn.
const BATCH: usize = 64;
const LONGEST: usize = 1 << 16;

/// Why a tunnel does not start, or ends.
#[derive(Debug, Error)]
pub enum RunError {
    /// The host refuses something.
    #[error("{what}: {error}")]
    Host {
        /// What it was.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// The path takes shorter datagrams than the tunnel's.
    #[error("the path takes {path} bytes, and packets of {mtu} bytes need {need}")]
    PathMtu {
        /// Path MTU.
        path: u16,
        /// MTU of the tunnel.
        mtu: u16,
        /// What the path would have to take.
        need: u16,
    },
    /// The peer does not answer, or not any more.
    #[error("{peer} was silent for {seconds} s")]
    Silent {
        /// Its address.
        peer: String,
        /// How long.
        seconds: u64,
    },
    /// The ends speak different versions of the tunnel's frames.
    #[error("the other end speaks version {theirs} of the tunnel, this one version {own}", own = hello::VERSION)]
    OtherVersion {
        /// The peer's.
        theirs: u8,
    },
    /// The ends have different MTUs.
    #[error("the other end has an MTU of {theirs} bytes, this one of {own}")]
    OtherMtu {
        /// The peer's.
        theirs: u16,
        /// Our own.
        own: u16,
    },
}

fn host(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    let what = what.into();
    move |error| RunError::Host { what, error }
}

/// Device and socket, as a session's output.
struct Ports {
    tun: File,
    socket: UdpSocket,
    /// A datagram was longer than the path takes.
    is_too_long: bool,
    too_long: u64,
    send_errors: u64,
}

impl Output for Ports {
    fn send(&mut self, datagram: &[u8]) {
        match self.socket.send(datagram) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => self.is_too_long = true,
            // A refused datagram reports an earlier one: nobody listens there yet, or any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => self.send_errors += 1,
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        // The device rejects anything but an IP packet, and drops when its reader is slow: both are losses of the network.
        if self.tun.write(packet).is_err() {
            self.send_errors += 1;
        }
    }
}

impl Ports {
    fn open(options: &Options) -> Result<Self, RunError> {
        let socket = UdpSocket::bind(options.listen)
            .map_err(host(format!("--listen {}", options.listen)))?;
        let connected = sys::prepare(&socket, options.mark)
            .and_then(|()| socket.connect(options.peer))
            .and_then(|()| socket.set_nonblocking(true));
        connected.map_err(host(format!("--peer {}", options.peer)))?;
        let path = sys::path_mtu(&socket).map_err(host("path MTU"))?;
        let (mtu, need) = (options.mtu, options.mtu + OVERHEAD);
        if path < need {
            return Err(RunError::PathMtu { path, mtu, need });
        }
        let addresses = options.address.zip(options.peer_address);
        let tun = sys::make_tun(&options.device, addresses, mtu)
            .map_err(host(format!("--device {}", options.device)))?;
        Ok(Self {
            tun,
            socket,
            is_too_long: false,
            too_long: 0,
            send_errors: 0,
        })
    }

    /// Answers a packet that the path does not take; returns the longest that it does.
    fn answer(&mut self, packet: &[u8]) -> Option<u16> {
        if !std::mem::take(&mut self.is_too_long) {
            return None;
        }
        self.too_long += 1;
        let path = sys::path_mtu(&self.socket).ok()?;
        let longest = path.saturating_sub(OVERHEAD);
        if let Some(answer) = icmp::fragmentation_needed(packet, longest) {
            self.deliver(&answer);
        }
        Some(longest)
    }
}

/// Carries packets until a signal.
///
/// # Errors
/// The host refuses something, the peer is silent or does not fit.
pub fn run(options: &Options, signals: &Signals, report: &Report) -> Result<(), RunError> {
    let ports = Ports::open(options)?;
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
    });
    let mut tunnel = Tunnel {
        session: Session::new(parameters, 0),
        ports,
        start: Instant::now(),
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
    /// Longest packet that the path is known to take.
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
            let due = self.session.next_timeout().min(self.next_line);
            let wait = Duration::from_nanos(due.saturating_sub(self.now()));
            sys::wait([&self.ports.tun, &self.ports.socket, signals], wait)
                .map_err(host("waiting"))?;
            if let Ok(signal) = signals.take() {
                return Ok(signal);
            }
            self.read_peer();
            self.read_device(report)?;
            let now = self.now();
            self.session.timeout(now, &mut self.ports);
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

    fn counters(&self) -> Counters {
        Counters::of(&self.session, self.ports.too_long, self.ports.send_errors)
    }

    fn read_peer(&mut self) {
        for _ in 0..BATCH {
            // Nothing more to read, or an error of an earlier datagram: the session notices a silent peer.
            let Ok(length) = self.ports.socket.recv(&mut self.buffer) else {
                return;
            };
            let now = self.now();
            self.session
                .receive(now, &self.buffer[..length], &mut self.ports);
        }
    }

    fn read_device(&mut self, report: &Report) -> Result<(), RunError> {
        for _ in 0..BATCH {
            let length = match self.ports.tun.read(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(host("the device")(error)),
            };
            let now = self.now();
            let packet = &self.buffer[..length];
            self.session.push(now, packet, &mut self.ports);
            if let Some(packet_bytes) = self.ports.answer(packet) {
                if std::mem::replace(&mut self.longest, packet_bytes) != packet_bytes {
                    report.line(&Line::PathMtu { packet_bytes });
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, options: &Options, report: &Report) -> Result<(), RunError> {
        for event in self.session.events() {
            match event {
                Event::Connected { peer_window } => report.line(&Line::Connected { peer_window }),
                Event::Code {
                    code,
                    report: heard,
                } => report.line(&Line::of_code(code, heard)),
                Event::OtherVersion(theirs) => return Err(RunError::OtherVersion { theirs }),
                Event::OtherMtu(theirs) => {
                    let own = options.mtu;
                    return Err(RunError::OtherMtu { theirs, own });
                }
                Event::Silent => {
                    return Err(RunError::Silent {
                        peer: options.peer.to_string(),
                        seconds: options.peer_timeout_s,
                    });
                }
            }
        }
        Ok(())
    }
}
