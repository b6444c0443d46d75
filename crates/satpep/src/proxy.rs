// SPDX-License-Identifier: GPL-3.0-or-later
//! The proxy on the library that its options need: noq for bbr3, else quinn.

use std::net::SocketAddr;

use crate::options::QuicOptions;
use crate::report::Report;
use crate::stack;
use crate::start_error::StartError;

/// A proxy that listens.
#[derive(Debug)]
pub enum Proxy {
    /// Both legs on quinn.
    Quinn(stack::quinn::Proxy),
    /// Both legs on noq.
    #[cfg(feature = "noq")]
    Noq(stack::noq::Proxy),
}

impl Proxy {
    /// Listens; clients are served once [`Proxy::run`] runs. `options` must have passed their
    /// check. Needs [`crate::runtime`].
    ///
    /// # Errors
    /// Certificates, addresses or folders that cannot be used.
    pub fn bind(options: QuicOptions, report: Report) -> Result<Self, StartError> {
        #[cfg(feature = "noq")]
        if options.needs_noq() {
            return stack::noq::Proxy::bind(options, report).map(Self::Noq);
        }
        stack::quinn::Proxy::bind(options, report).map(Self::Quinn)
    }

    /// Addresses that the proxy listens on; port 0 is replaced by the port in use.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Quinn(proxy) => proxy.addresses(),
            #[cfg(feature = "noq")]
            Self::Noq(proxy) => proxy.addresses(),
        }
    }

    /// Serves clients until `shutdown` is done; then those that are connected may go on for the
    /// time set, and the rest is closed.
    pub async fn run(self, shutdown: impl Future<Output = &'static str>) {
        match self {
            Self::Quinn(proxy) => proxy.run(shutdown).await,
            #[cfg(feature = "noq")]
            Self::Noq(proxy) => proxy.run(shutdown).await,
        }
    }
}
