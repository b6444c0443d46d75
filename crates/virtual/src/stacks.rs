// SPDX-License-Identifier: GPL-3.0-or-later
//! The QUIC libraries that take the time as an argument.

use std::error::Error;
use std::sync::Arc;

use quic::LegOptions;
use rustls::client::Resumption;
use rustls::{ClientConfig, ServerConfig};
use satperf::stack::quinn::{self, Quinn};
use satperf::stack::{Setup, Stack};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tls;

/// Clients and the server that they trust.
pub type Group = (Vec<Box<dyn Stack>>, Box<dyn Stack>);

/// A QUIC library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
        let (mut clients, server) = self.group(vec![client], server, zero_rtt)?;
        let client = clients.pop().ok_or("no client")?;
        Ok([client, server])
    }

    /// Clients and the server that they trust. Only the first one keeps session tickets.
    ///
    /// # Errors
    /// Options or TLS that the library refuses.
    pub fn group(
        self,
        clients: Vec<Setup>,
        server: Setup,
        zero_rtt: bool,
    ) -> Result<Group, Box<dyn Error>> {
        for setup in clients.iter().chain([&server]) {
            if let Some(why) = self.refuses(&setup.options) {
                return Err(why.into());
            }
        }
        let (client_tls, server_tls) = tls::pair(zero_rtt)?;
        let client = |(number, setup)| {
            let mut tls = client_tls.clone();
            if number > 0 {
                tls.resumption = Resumption::disabled();
            }
            self.client(setup, tls)
        };
        let clients = clients.into_iter().enumerate().map(client);
        let clients = clients.collect::<Result<_, _>>()?;
        Ok((clients, self.server(server, server_tls)?))
    }

    fn client(self, setup: Setup, tls: ClientConfig) -> Result<Box<dyn Stack>, Box<dyn Error>> {
        Ok(match self {
            #[cfg(feature = "noq")]
            Self::Noq => {
                use satperf::stack::noq::{Crypto, Noq};
                let crypto = Crypto::Client(Arc::new(tls.try_into()?));
                Box::new(Noq::with_crypto(setup, crypto)?)
            }
            _ => {
                let crypto = quinn::Crypto::Client(Arc::new(tls.try_into()?));
                Box::new(Quinn::with_crypto(setup, crypto)?)
            }
        })
    }

    fn server(self, setup: Setup, tls: ServerConfig) -> Result<Box<dyn Stack>, Box<dyn Error>> {
        Ok(match self {
            #[cfg(feature = "noq")]
            Self::Noq => {
                use satperf::stack::noq::{Crypto, Noq};
                let crypto = Crypto::Server(Arc::new(tls.try_into()?));
                Box::new(Noq::with_crypto(setup, crypto)?)
            }
            _ => {
                let crypto = quinn::Crypto::Server(Arc::new(tls.try_into()?));
                Box::new(Quinn::with_crypto(setup, crypto)?)
            }
        })
    }
}
