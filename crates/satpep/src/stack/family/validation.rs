// SPDX-License-Identifier: GPL-3.0-or-later
//! Tokens by which a client shows that an address is its own (RFC 9000 section 8.1), and that save
//! it a Retry.
//!
//! A proxy contacts nobody for a client before that: a forged address would make it send to the
//! next hop, and more to the address than came from it. A Retry costs a round trip. Each connection
//! brings its client tokens for later ones.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use super::library::{TokenLog, TokenReuseError, TokenStore, ValidationTokenConfig};

/// Number of tokens that a connection brings. A browser opens several connections for a page at the
/// same time, and each needs a token.
const TOKENS: u32 = 4;
/// Tokens that a proxy keeps of its next hops; the oldest are used first.
const MOST_KEPT: usize = 256;
/// Number of used tokens that are remembered: at least the last `MOST_USED`, at most twice as many.
const MOST_USED: usize = 1 << 16;
/// Time after which a token is invalid.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// What clients of a listener get, and how it notes which are used.
pub fn tokens() -> ValidationTokenConfig {
    let mut config = ValidationTokenConfig::default();
    config
        .lifetime(LIFETIME)
        .log(Arc::new(Used::default()))
        .sent(TOKENS);
    config
}

/// Tokens of next hops by server name. Memory: 256 tokens of at most a datagram.
#[derive(Default)]
pub struct Tokens(Mutex<Vec<(String, Bytes)>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl TokenStore for Tokens {
    fn insert(&self, server_name: &str, token: Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == MOST_KEPT {
            kept.remove(0);
        }
        kept.push((server_name.to_owned(), token));
    }

    fn take(&self, server_name: &str) -> Option<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(name, _)| name == server_name)?;
        Some(kept.remove(found).1)
    }
}

/// Nonces of tokens that were used, in two halves: the older one is forgotten as a whole.
#[derive(Default)]
struct Used(Mutex<[HashSet<u128>; 2]>);

impl TokenLog for Used {
    fn check_and_insert(
        &self,
        nonce: u128,
        _issued: SystemTime,
        _lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.iter().any(|half| half.contains(&nonce)) {
            return Err(TokenReuseError);
        }
        if halves[0].len() == MOST_USED {
            halves.swap(0, 1);
            halves[0].clear();
        }
        halves[0].insert(nonce);
        Ok(())
    }
}
