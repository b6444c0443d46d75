// SPDX-License-Identifier: GPL-3.0-or-later
//! The `ClientHello` of each connection attempt, read before the library takes the datagrams.

use std::fmt;
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
    /// id. It may never come.
    pub async fn hello(&self, dcid: &[u8]) -> ClientHello {
        loop {
            let completed = self.completed.notified();
            if let Some(hello) = self.lock().take(dcid) {
                return hello;
            }
            completed.await;
        }
    }

    /// Inspects what was received at once: datagrams of `stride` bytes, the last of them shorter
    /// maybe.
    pub fn inspect(&self, datagrams: &[u8], stride: usize) {
        for datagram in datagrams.chunks(stride.max(1)) {
            // Only long headers: the others are most of the traffic, and cost nothing here.
            let is_long = datagram.first().is_some_and(|first| first & 0x80 != 0);
            if is_long && self.lock().inspect(datagram, &*self.crypto) {
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
