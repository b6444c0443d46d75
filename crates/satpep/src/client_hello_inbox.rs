// SPDX-License-Identifier: GPL-3.0-or-later
//! The `ClientHello` of each connection attempt, read before the library takes the datagrams.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use quic::TlsError;
use quinn::crypto::ServerConfig;
use quinn::crypto::rustls::QuicServerConfig;
use tokio::sync::Notify;

use crate::client_hello::{ClientHello, PendingHellos};

/// Inspects the Initial packets of a listening socket.
pub struct Hellos {
    crypto: Arc<dyn ServerConfig>,
    pending: Mutex<PendingHellos>,
    completed: Notify,
}

impl Hellos {
    /// `tls` is that of the listening endpoint: the keys of Initial packets follow from its suites,
    /// with either library.
    ///
    /// # Errors
    /// A suite is missing.
    pub fn new(tls: rustls::ServerConfig) -> Result<Self, TlsError> {
        let crypto: QuicServerConfig = tls.try_into()?;
        Ok(Self {
            crypto: Arc::new(crypto),
            pending: Mutex::default(),
            completed: Notify::new(),
        })
    }

    /// Waits for the whole `ClientHello` of the attempt with this original destination connection
    /// id, or of the client that tries `again` after a Retry. It may never come.
    pub async fn hello(&self, dcid: &[u8], again: Option<SocketAddr>) -> ClientHello {
        loop {
            let completed = self.completed.notified();
            let found = self.lock().take(dcid);
            let found = found.or_else(|| self.lock().take_retried(again?));
            if let Some(hello) = found {
                return hello;
            }
            completed.await;
        }
    }

    /// Inspects datagrams that were received in one call. Each has `stride` bytes; the last may be
    /// shorter.
    pub fn inspect(&self, datagrams: &[u8], stride: usize, client: SocketAddr) {
        for datagram in datagrams.chunks(stride.max(1)) {
            // Only long headers: the others are most of the traffic, and cost nothing here.
            let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
            if is_long && self.lock().inspect(datagram, client, &*self.crypto) {
                self.completed.notify_waiters();
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PendingHellos> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hellos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hellos({:?})", self.lock())
    }
}
