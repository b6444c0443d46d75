// SPDX-License-Identifier: GPL-3.0-or-later
//! A UDP socket that reads the `ClientHello` of each connection attempt before quinn does.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use quinn::crypto::ServerConfig;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::Notify;

use crate::client_hello::{ClientHello, PendingHellos};

/// Passes datagrams between quinn and its own socket, and inspects Initial packets.
pub struct InspectedSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    crypto: Arc<dyn ServerConfig>,
    hellos: Mutex<PendingHellos>,
    completed: Notify,
}

impl InspectedSocket {
    /// Wraps `socket`; `crypto` derives the keys of Initial packets.
    #[must_use]
    pub fn new(socket: Arc<dyn AsyncUdpSocket>, crypto: Arc<dyn ServerConfig>) -> Self {
        Self {
            socket,
            crypto,
            hellos: Mutex::default(),
            completed: Notify::new(),
        }
    }

    /// Waits for the whole `ClientHello` of the attempt with this original destination connection id. It may never come.
    pub async fn hello(&self, dcid: &[u8]) -> ClientHello {
        loop {
            let completed = self.completed.notified();
            if let Some(hello) = self.lock().take(dcid) {
                return hello;
            }
            completed.await;
        }
    }

    fn inspect(&self, datagrams: &[u8], stride: usize) {
        for datagram in datagrams.chunks(stride.max(1)) {
            // Only long headers: the others are most of the traffic, and cost nothing here.
            let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
            if is_long && self.lock().inspect(datagram, &*self.crypto) {
                self.completed.notify_waiters();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingHellos> {
        self.hellos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for InspectedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InspectedSocket({:?})", self.socket)
    }
}

impl AsyncUdpSocket for InspectedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let result = self.socket.poll_recv(cx, buffers, meta);
        if let Poll::Ready(Ok(count)) = result {
            for (buffer, meta) in buffers.iter().zip(&meta[..count]) {
                self.inspect(&buffer[..meta.len], meta.stride);
            }
        }
        result
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}
