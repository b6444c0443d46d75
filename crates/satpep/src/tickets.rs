// SPDX-License-Identifier: GPL-3.0-or-later
//! Session tickets of next hops, which make 0-RTT possible (RFC 8446 section 2.3).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;
use tokio::sync::Notify;

/// Tickets kept for one name, and names kept. Each ticket serves once.
const MOST_TICKETS: usize = 8;
const MOST_NAMES: usize = 256;

type ByName = HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>;

/// Tickets by server name.
#[derive(Default)]
pub struct Tickets {
    by_name: Mutex<ByName>,
    changed: Notify,
}

impl Tickets {
    /// Waits until there is a ticket for `name`.
    pub async fn present(&self, name: &ServerName<'static>) {
        self.until(|tickets| tickets.contains_key(name)).await;
    }

    /// Waits until there is no ticket for `name`.
    pub async fn absent(&self, name: &ServerName<'static>) {
        self.until(|tickets| !tickets.contains_key(name)).await;
    }

    /// Drops the tickets for `name`: the next hop does not accept them any more.
    pub fn forget(&self, name: &ServerName<'static>) {
        self.lock().remove(name);
        self.changed.notify_waiters();
    }

    async fn until(&self, holds: impl Fn(&ByName) -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByName> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tickets(for {} names)", self.lock().len())
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut by_name = self.lock();
        if by_name.len() == MOST_NAMES && !by_name.contains_key(&name) {
            by_name.clear();
        }
        let tickets = by_name.entry(name).or_default();
        if tickets.len() == MOST_TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
        drop(by_name);
        self.changed.notify_waiters();
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut by_name = self.lock();
        let tickets = by_name.get_mut(name)?;
        // The newest: the next hop keeps a bounded number, too.
        let ticket = tickets.pop_back();
        if tickets.is_empty() {
            by_name.remove(name);
            self.changed.notify_waiters();
        }
        ticket
    }
}
