// SPDX-License-Identifier: GPL-3.0-or-later
//! The one place with a socket and a clock: drives a stack and its application in real time, in one
//! thread.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;
use satperf::app::App;
use satperf::record;
use satperf::stack::{Datagram, Stack, Transmit};

use crate::output::Output;

/// Bridges a host that is late by 60 ms at 1 Gbit/s (the kernel counts its own overhead, about as
/// much again).
const BUFFER: usize = 16 << 20;

/// Bytes of one receive buffer: as much as the kernel joins (GRO).
const JOINED: usize = 64 << 10;

/// Most datagrams of one system call: together they must fit the 65,507 bytes of a UDP payload, or
/// all are refused.
const SEGMENTS: usize = 40;

/// Datagram bursts sent before the socket is read again.
const BURSTS: usize = 64;

/// Longest sleep: signals are looked for as often.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// A UDP socket at one own address.
struct Bound {
    udp: UdpSocket,
    state: UdpSocketState,
    local: SocketAddr,
}

/// What a client or a server sends and receives with: one own address, or one after the other.
pub struct Socket {
    current: Bound,
    /// At the address before the last migration: packets for it are still on their way.
    former: Option<Bound>,
    /// When the client takes which own address; rising.
    migrations: VecDeque<(Instant, IpAddr)>,
    /// A burst that the kernel had no room for.
    unsent: Option<(Transmit, Vec<u8>)>,
    space: Vec<u8>,
}

impl Bound {
    /// Binds a socket with large buffers, beyond the system's bound where the user may.
    fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        }
        if sockopt::set_socket_send_buffer_size_force(&socket, BUFFER).is_err() {
            sockopt::set_socket_send_buffer_size(&socket, BUFFER)?;
        }
        let state = UdpSocketState::new((&socket).into())?;
        let local = socket.local_addr()?;
        Ok(Self {
            udp: socket,
            state,
            local,
        })
    }

    /// Passes received datagrams of one system call to the stack; returns whether there may be
    /// more.
    fn receive(&self, space: &mut [u8], stack: &mut dyn Stack) -> io::Result<bool> {
        let mut buffers: Vec<_> = space.chunks_mut(JOINED).map(IoSliceMut::new).collect();
        let mut metas = [RecvMeta::default(); quinn_udp::BATCH_SIZE];
        let count = match self
            .state
            .recv((&self.udp).into(), &mut buffers, &mut metas)
        {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // An ICMP message is only a hint (RFC 9000 section 21.1.1.4).
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(true),
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        for (meta, buffer) in metas.iter().zip(&buffers).take(count) {
            let to = SocketAddr::new(meta.dst_ip.unwrap_or(self.local.ip()), self.local.port());
            let mut joined = BytesMut::from(&buffer[..meta.len]);
            while !joined.is_empty() {
                let data = joined.split_to(meta.stride.clamp(1, joined.len()));
                stack.receive(
                    now,
                    Datagram {
                        from: meta.addr,
                        to,
                        ecn: meta.ecn.map(|ecn| ecn as u8),
                        data,
                    },
                );
            }
        }
        Ok(count == metas.len())
    }
}

impl Socket {
    /// Binds a socket to an own address.
    ///
    /// # Errors
    /// The address cannot be had.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            current: Bound::new(address)?,
            former: None,
            migrations: VecDeque::new(),
            unsent: None,
            space: vec![0; JOINED * quinn_udp::BATCH_SIZE],
        })
    }

    /// Binds a socket for a client of `remote`, to the own address that the routes choose.
    ///
    /// # Errors
    /// There is no way to `remote`.
    pub fn towards(remote: SocketAddr) -> io::Result<Self> {
        let any = if remote.is_ipv4() {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let probe = UdpSocket::bind((any, 0))?;
        probe.connect(remote)?;
        Self::bind((probe.local_addr()?.ip(), 0).into())
    }

    /// Own address.
    pub fn local(&self) -> SocketAddr {
        self.current.local
    }

    /// Takes other own addresses later, each at its moment; these rise.
    pub fn migrate(&mut self, migrations: impl IntoIterator<Item = (Instant, IpAddr)>) {
        self.migrations = migrations.into_iter().collect();
    }

    /// Takes the own address that is due, if one is.
    fn follow_migrations(&mut self, now: Instant, stack: &mut dyn Stack) -> io::Result<()> {
        while let Some((_, address)) = self.migrations.front().filter(|it| it.0 <= now).copied() {
            self.migrations.pop_front();
            let next = Bound::new((address, 0).into())?;
            self.former = Some(std::mem::replace(&mut self.current, next));
            stack.migrated(now);
        }
        Ok(())
    }

    /// Buffer sizes as the kernel granted them.
    pub fn describe(&self) -> record::Socket {
        let Bound { udp, state, .. } = &self.current;
        record::Socket {
            send_buffer_bytes: state.send_buffer_size(udp.into()).unwrap_or(0),
            receive_buffer_bytes: state.recv_buffer_size(udp.into()).unwrap_or(0),
            gso_segments: self.segments(),
        }
    }

    fn segments(&self) -> usize {
        self.current.state.max_gso_segments().min(SEGMENTS)
    }

    /// Passes received datagrams of one system call for each socket to the stack; returns whether
    /// there may be more.
    fn receive(&mut self, stack: &mut dyn Stack) -> io::Result<bool> {
        let mut more = false;
        for bound in [Some(&self.current), self.former.as_ref()]
            .into_iter()
            .flatten()
        {
            more |= bound.receive(&mut self.space, stack)?;
        }
        Ok(more)
    }

    /// Sends what the stack has; returns whether there may be more.
    fn send(&mut self, stack: &mut dyn Stack, now: Instant) -> io::Result<bool> {
        for _ in 0..BURSTS {
            let mut burst = self.unsent.take();
            if burst.is_none() {
                let mut buffer = Vec::new();
                let transmit = stack.transmit(now, self.segments(), &mut buffer);
                burst = transmit.map(|transmit| (transmit, buffer));
            }
            let Some((transmit, buffer)) = burst else {
                return Ok(false);
            };
            let datagrams = quinn_udp::Transmit {
                destination: transmit.to,
                ecn: transmit.ecn.and_then(EcnCodepoint::from_bits),
                contents: &buffer,
                segment_size: transmit.segment,
                // After a migration the stack may still have the former address.
                src_ip: transmit.from.filter(|_| self.former.is_none()),
            };
            let Bound { udp, state, .. } = &self.current;
            match state.send(udp.into(), &datagrams) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some((transmit, buffer));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn wait(&self, until: Instant) -> io::Result<()> {
        let timeout = until
            .saturating_duration_since(Instant::now())
            .min(MAX_WAIT);
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, self.unsent.is_some());
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut descriptors = vec![PollFd::new(&self.current.udp, flags)];
        let former = self.former.as_ref();
        descriptors.extend(former.map(|it| PollFd::new(&it.udp, PollFlags::IN)));
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why a run stopped, other than by the application's own outcome.
#[derive(Debug)]
pub enum RunError {
    /// The socket failed.
    Socket(io::Error),
    /// A line or a qlog could not be written.
    Output(String),
    /// SIGINT or SIGTERM.
    Signal,
}

/// Runs until the application has an outcome and what it sent last has left. Its lines go to
/// `output` as they are written.
///
/// # Errors
/// Socket, output and signals; the application was interrupted and its last lines were written as
/// far as possible.
pub fn run(
    socket: &mut Socket,
    stack: &mut dyn Stack,
    app: &mut dyn App,
    output: &mut Output,
    signalled: &dyn Fn() -> bool,
) -> Result<Result<(), String>, RunError> {
    let mut stopped = None;
    loop {
        let more = socket.receive(stack).map_err(RunError::Socket)?;
        let now = Instant::now();
        socket
            .follow_migrations(now, stack)
            .map_err(RunError::Socket)?;
        if stack.timeout().is_some_and(|due| due <= now) {
            stack.handle_timeout(now);
        }
        app.step(now, stack);
        if stopped.is_none() {
            stopped = reason_to_stop(stack, signalled);
            if let Some((_, why)) = &stopped {
                app.interrupt(now, stack, why);
            }
        }
        if let Err(error) = output.write(&app.lines()) {
            let why = format!("output: {error}");
            app.interrupt(now, stack, &why);
            stopped.get_or_insert((RunError::Output(why.clone()), why));
        }
        let busy = socket.send(stack, now).map_err(RunError::Socket)?;
        if let Some(outcome) = app.outcome() {
            if let Some((error, _)) = stopped {
                return Err(error);
            }
            if !busy && socket.unsent.is_none() {
                return Ok(outcome);
            }
        }
        if !more && !busy {
            let migration = socket.migrations.front().map(|it| it.0);
            let wake = [stack.timeout(), app.wake(), migration]
                .into_iter()
                .flatten()
                .min();
            socket
                .wait(wake.unwrap_or(now + MAX_WAIT))
                .map_err(RunError::Socket)?;
        }
    }
}

/// Looks for reasons to stop that do not come from the network.
fn reason_to_stop(stack: &dyn Stack, signalled: &dyn Fn() -> bool) -> Option<(RunError, String)> {
    if let Some(why) = stack.qlog_fault() {
        let why = format!("qlog: {why}");
        return Some((RunError::Output(why.clone()), why));
    }
    signalled().then(|| (RunError::Signal, "interrupted".to_owned()))
}
