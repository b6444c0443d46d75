// SPDX-License-Identifier: GPL-3.0-or-later
//! The QUIC libraries that take the time as an argument.

use std::error::Error;
use std::sync::Arc;

use quic::LegOptions;
use satperf::stack::quinn::{self, Quinn};
use satperf::stack::{Setup, Stack};
use serde::{Deserialize, Serialize};

use crate::tls;

/// A QUIC library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// quinn-proto: reno, cubic.
    #[default]
    Quinn,
    /// noq-proto: reno, cubic, bbr3.
    Noq,
}

impl Library {
    /// Name and version.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quinn => quinn::NAME,
            #[cfg(feature = "noq")]
            Self::Noq => satperf::stack::noq::NAME,
            #[cfg(not(feature = "noq"))]
            Self::Noq => "noq-proto",
        }
    }

    /// Why it does not take these options, if so.
    #[must_use]
    pub fn refuses(self, options: &LegOptions) -> Option<String> {
        match self {
            Self::Quinn => quinn::check(options).err(),
            #[cfg(feature = "noq")]
            Self::Noq => satperf::stack::noq::check(options).err(),
            #[cfg(not(feature = "noq"))]
            Self::Noq => {
                let _ = options;
                Some("built without noq; build it with Rust 1.88 or later: cargo build --release -p satvirtual --features noq".into())
            }
        }
    }

    /// A client and a server that trust each other.
    ///
    /// # Errors
    /// Options or TLS that the library refuses.
    pub fn pair(
        self,
        [client, server]: [Setup; 2],
        zero_rtt: bool,
    ) -> Result<[Box<dyn Stack>; 2], Box<dyn Error>> {
        for setup in [&client, &server] {
            if let Some(why) = self.refuses(&setup.options) {
                return Err(why.into());
            }
        }
        let (client_tls, server_tls) = tls::pair(zero_rtt)?;
        Ok(match self {
            #[cfg(feature = "noq")]
            Self::Noq => {
                use satperf::stack::noq::{Crypto, Noq};
                let client_tls = Crypto::Client(Arc::new(client_tls.try_into()?));
                let server_tls = Crypto::Server(Arc::new(server_tls.try_into()?));
                [
                    Box::new(Noq::with_crypto(client, client_tls)),
                    Box::new(Noq::with_crypto(server, server_tls)),
                ]
            }
            _ => {
                use quinn::Crypto;
                let client_tls = Crypto::Client(Arc::new(client_tls.try_into()?));
                let server_tls = Crypto::Server(Arc::new(server_tls.try_into()?));
                [
                    Box::new(Quinn::with_crypto(client, client_tls)),
                    Box::new(Quinn::with_crypto(server, server_tls)),
                ]
            }
        })
    }
}
