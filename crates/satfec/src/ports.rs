// SPDX-License-Identifier: GPL-3.0-or-later
//! Device and socket of an end, and the QUIC connection over the socket if there is one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::time::Instant;

use crate::control::Control;
use crate::failure::{RunError, host};
use crate::icmp;
use crate::options::{FRAMING, Options, Transport};
use crate::quic::{ALPN, Carried, Carrier, Role, Setup};
use crate::session::Output;
use crate::sys;

/// Counts of the I/O since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Packets longer than the path takes.
    pub too_long: u64,
    /// Datagrams and packets that the host refused to send.
    pub send_errors: u64,
    /// What the QUIC connection did.
    pub outer: Carried,
}

/// Device, socket and connection to which the output of a session goes.
pub struct Ports {
    /// The tunnel device.
    pub tun: File,
    /// The socket, connected.
    pub socket: UdpSocket,
    carrier: Option<Carrier>,
    transport: Transport,
    /// Longest packet that the path is known to take.
    longest: u16,
    mtu: u16,
    /// A datagram was longer than the path takes.
    is_too_long: bool,
    passed: Passed,
    buffer: Vec<u8>,
}

impl Output for Ports {
    fn send(&mut self, frame: &[u8]) {
        match &mut self.carrier {
            Some(carrier) => carrier.send(frame),
            None => self.send_datagram(frame),
        }
    }

    fn deliver(&mut self, packet: &[u8]) {
        // The device rejects anything but an IP packet, and drops when its reader is slow: both are
        // losses of the network.
        if self.tun.write(packet).is_err() {
            self.passed.send_errors += 1;
        }
    }
}

impl Ports {
    /// Opens device, socket and connection.
    ///
    /// # Errors
    /// The host refuses something, certificates cannot be used, or the path is too narrow.
    pub fn open(options: &Options, now: Instant) -> Result<Self, RunError> {
        let socket = UdpSocket::bind(options.listen)
            .map_err(host(format!("--listen {}", options.listen)))?;
        let connected = sys::prepare(&socket, options.mark)
            .and_then(|()| socket.connect(options.peer))
            .and_then(|()| socket.set_nonblocking(true));
        connected.map_err(host(format!("--peer {}", options.peer)))?;
        let carrier = match options.transport {
            Transport::Udp => None,
            Transport::Quic => Some(Carrier::new(setup(options)?, now)),
        };
        let path = sys::path_mtu(&socket).map_err(host("path MTU"))?;
        let (mtu, need) = (options.mtu, options.transport.need(options.mtu));
        if path < need {
            return Err(RunError::PathMtu { path, mtu, need });
        }
        let addresses = options.address.zip(options.peer_address);
        let tun = sys::make_tun(&options.device, addresses, mtu)
            .map_err(host(format!("--device {}", options.device)))?;
        Ok(Self {
            tun,
            socket,
            carrier,
            transport: options.transport,
            longest: mtu,
            mtu,
            is_too_long: false,
            passed: Passed::default(),
            buffer: Vec::new(),
        })
    }

    /// Counts so far.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let outer = self.carrier.as_ref().map(Carrier::carried);
        Passed {
            outer: outer.unwrap_or_default(),
            ..self.passed
        }
    }

    /// Longest packet that the path is known to take, bytes.
    #[must_use]
    pub fn longest(&self) -> u16 {
        self.longest
    }

    /// Reason why the QUIC connection can never be established; `None` if it can.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.carrier.as_ref().and_then(Carrier::refusal)
    }

    /// Time of the next timer of the QUIC connection.
    #[must_use]
    pub fn next_timeout(&mut self) -> Option<Instant> {
        self.carrier.as_mut().and_then(Carrier::next_timeout)
    }

    /// Reads a packet of the device.
    ///
    /// # Errors
    /// The device is gone, or has no packet ([`io::ErrorKind::WouldBlock`]).
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.tun.read(buffer)
    }

    /// Reads a datagram, and passes its frames to `take`. Returns false if there is no datagram.
    pub fn receive(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8], &mut Self),
    ) -> bool {
        // Nothing more to read, or an error of an earlier datagram: the session notices a silent
        // peer.
        let Ok(length) = self.socket.recv(buffer) else {
            return false;
        };
        let Some(carrier) = &mut self.carrier else {
            take(&buffer[..length], self);
            return true;
        };
        carrier.receive(now, &buffer[..length]);
        while let Some(frame) = self.carrier.as_mut().and_then(Carrier::arrived) {
            take(&frame, self);
        }
        true
    }

    /// Runs the due timers of the QUIC connection, and sends its datagrams.
    pub fn flush(&mut self, now: Instant) {
        let Some(mut carrier) = self.carrier.take() else {
            return;
        };
        carrier.timeout(now);
        let mut buffer = std::mem::take(&mut self.buffer);
        while carrier.transmit(now, &mut buffer) {
            self.send_datagram(&buffer);
        }
        self.buffer = buffer;
        self.carrier = Some(carrier);
    }

    /// Answers a packet that is longer than the path is known to take; false if it may pass.
    pub fn refuse(&mut self, packet: &[u8]) -> bool {
        if packet.len() > usize::from(self.longest) {
            // What the kernel knows of the path expires.
            self.look();
        }
        let is_refused = packet.len() > usize::from(self.longest);
        if is_refused {
            self.passed.too_long += 1;
            if let Some(answer) = icmp::fragmentation_needed(packet, self.longest) {
                self.deliver(&answer);
            }
        }
        is_refused
    }

    /// Answers the packet that was just sent, if the path does not take it.
    pub fn answer(&mut self, packet: &[u8]) {
        if std::mem::take(&mut self.is_too_long) {
            self.look();
            self.refuse(packet);
        }
    }

    fn look(&mut self) {
        if let Ok(path) = sys::path_mtu(&self.socket) {
            let longest = path.saturating_sub(self.transport.overhead());
            self.longest = longest.min(self.mtu);
        }
    }

    fn send_datagram(&mut self, datagram: &[u8]) {
        match self.socket.send(datagram) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => self.is_too_long = true,
            // A refused datagram reports an earlier one: nobody listens there yet, or any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => self.passed.send_errors += 1,
        }
    }
}

/// The QUIC connection of the options.
fn setup(options: &Options) -> Result<Setup, RunError> {
    let tls = |error: quic::TlsError| host("TLS")(io::Error::other(error));
    let role = match (&options.ca, &options.cert, &options.key) {
        (Some(ca), ..) => {
            let crypto = quic::client_crypto(ca, &[ALPN], false).map_err(tls)?;
            let name = options.server_name.clone();
            let name = name.unwrap_or_else(|| options.peer.ip().to_string());
            Role::Client(crypto.into(), name)
        }
        (None, Some(cert), Some(key)) => Role::Server(
            quic::server_crypto(cert, key, &[ALPN], false)
                .map_err(tls)?
                .into(),
        ),
        _ => return Err(host("TLS")(io::Error::other("no certificates"))),
    };
    Ok(Setup {
        role,
        peer: options.peer.into(),
        control: options
            .congestion_control
            .unwrap_or(Control::Cubic)
            .factory(),
        longest: options.mtu + FRAMING,
    })
}
