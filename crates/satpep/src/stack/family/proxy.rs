// SPDX-License-Identifier: GPL-3.0-or-later
//! A proxy on one library: listens, serves connections, shuts down.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connector::Connector;
use super::differences;
use super::library::{Incoming, ServerConfig};
use super::pair::{self, Listener, Shared};
use super::splice::PepCode;
use super::validation;
use crate::options::QuicOptions;
use crate::report::{Closed, Outcome, Record, Report, millis};
use crate::start_error::StartError;
use crate::sys;

const SCHEMA: &str = "satlab/satpep/1";
/// A priming connection that failed is tried again after this time.
const PRIME_RETRY: Duration = Duration::from_secs(1);
/// Time in which a lost `CONNECTION_CLOSE` is repeated.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A proxy that listens.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    stop: watch::Sender<bool>,
}

/// Totals of a proxy.
#[derive(Debug, Default)]
struct Totals {
    attempts: u64,
    connections: u64,
    failed: u64,
    refused: u64,
    from_client_bytes: u64,
    from_server_bytes: u64,
}

type ServeResult = Result<Closed, (SocketAddr, String)>;

impl Proxy {
    /// Listens; clients are served once [`Proxy::run`] runs. `options` must have passed their
    /// check. Needs [`crate::runtime`].
    ///
    /// # Errors
    /// Certificates, addresses or folders that cannot be used.
    pub fn bind(options: QuicOptions, report: Report) -> Result<Self, StartError> {
        if let Some(folder) = &options.qlog {
            std::fs::create_dir_all(folder).map_err(|error| StartError::Qlog {
                folder: folder.display().to_string(),
                error,
            })?;
        }
        let connector = Connector::new(options.clone())?;
        let listeners = (options.listen.iter())
            .map(|address| listen(&connector, &options, *address))
            .collect::<Result<_, _>>()?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared {
            options,
            connector,
            report,
            stop: stopped,
        });
        Ok(Self {
            shared,
            listeners,
            stop,
        })
    }

    /// Addresses that the proxy listens on; port 0 is replaced by the port in use.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        (self.listeners.iter())
            .filter_map(|listener| listener.endpoint.local_addr().ok())
            .collect()
    }

    /// Serves clients until `shutdown` is done; then those that are connected may go on for the
    /// time set, and the rest is closed.
    pub async fn run(self, shutdown: impl Future<Output = &'static str>) {
        self.shared.report.record(&self.ready());
        let mut priming = self.prime();
        let mut served = JoinSet::new();
        let mut totals = Totals::default();
        let (found, mut arrivals) = tokio::sync::mpsc::channel(1);
        let mut accepting = JoinSet::new();
        for listener in self.listeners.iter().cloned() {
            let found = found.clone();
            accepting.spawn(async move {
                while let Some(incoming) = listener.endpoint.accept().await {
                    // Fails only when the proxy is gone, and the connection is refused with it.
                    let _ = found.send((incoming, Arc::clone(&listener))).await;
                }
            });
        }
        let mut shutdown = std::pin::pin!(shutdown);
        let reason = loop {
            tokio::select! {
                reason = &mut shutdown => break reason,
                Some((incoming, listener)) = arrivals.recv() => {
                    self.receive(&mut served, &mut totals, incoming, listener);
                }
                Some(ended) = served.join_next() => self.count(&mut totals, ended.ok()),
            }
        };
        priming.abort_all();
        accepting.abort_all();
        drop(arrivals);
        self.end(served, &mut totals).await;
        if let Some(Err(error)) = self.shared.connector.memory.as_ref().map(|it| it.save()) {
            // stderr may be closed.
            let _ = writeln!(
                io::stderr(),
                "warning: state of Careful Resume was not kept: {error}"
            );
        }
        self.shared.report.record(&self.summary(reason, &totals));
    }

    fn receive(
        &self,
        served: &mut JoinSet<ServeResult>,
        totals: &mut Totals,
        incoming: Incoming,
        listener: Arc<Listener>,
    ) {
        let client = incoming.remote_address();
        if served.len() >= self.shared.options.max_connections {
            incoming.refuse();
            let reason = format!("{} connections are there already", served.len());
            return self.refused(totals, client, reason);
        }
        if !incoming.remote_address_validated() {
            // Before the client shows that it has this address, nothing is kept of it, and nobody
            // else hears of it. It cannot fail: who is not validated may be asked to try again.
            let _ = incoming.retry();
            return;
        }
        totals.attempts += 1;
        let (shared, number) = (Arc::clone(&self.shared), totals.attempts);
        served.spawn(async move {
            pair::serve(&shared, incoming, &listener, number)
                .await
                .map_err(|reason| (client, reason))
        });
    }

    fn refused(&self, totals: &mut Totals, client: SocketAddr, reason: String) {
        totals.refused += 1;
        self.shared
            .report
            .record(&Record::Refused { client, reason });
    }

    fn count(&self, totals: &mut Totals, ended: Option<ServeResult>) {
        match ended {
            // It panicked, which it does not.
            None => totals.failed += 1,
            Some(Err((client, reason))) => self.refused(totals, client, reason),
            Some(Ok(closed)) => {
                totals.connections += 1;
                totals.failed += u64::from(closed.outcome == Outcome::Failed);
                totals.from_client_bytes += closed.from_client.bytes;
                totals.from_server_bytes += closed.from_server.bytes;
                self.shared.report.record(&Record::Closed(Box::new(closed)));
            }
        }
    }

    /// Waits for connections to end, then closes the rest.
    async fn end(&self, mut served: JoinSet<ServeResult>, totals: &mut Totals) {
        for listener in &self.listeners {
            listener.endpoint.set_server_config(None);
        }
        let drain = Duration::from_millis(self.shared.options.drain_ms);
        let mut stop = std::pin::pin!(async {
            sleep(drain).await;
            let _ = self.stop.send(true);
            sleep(CLOSE_TIMEOUT).await;
        });
        let mut overdue = false;
        while !overdue && !served.is_empty() {
            tokio::select! {
                () = &mut stop => overdue = true,
                ended = served.join_next() => {
                    if let Some(ended) = ended {
                        self.count(totals, ended.ok());
                    }
                }
            }
        }
        for listener in &self.listeners {
            let endpoint = &listener.endpoint;
            endpoint.close(PepCode::Shutdown.into(), b"satpep ends");
            // Peers that do not answer by then time out.
            let _ = timeout(CLOSE_TIMEOUT, endpoint.wait_idle()).await;
        }
    }

    /// Keeps a session ticket for each name of `--prime`.
    fn prime(&self) -> JoinSet<()> {
        let mut priming = JoinSet::new();
        for name in self.shared.options.prime.clone() {
            let shared = Arc::clone(&self.shared);
            priming.spawn(async move {
                // Checked with the options: a next hop there is, and the name is one.
                let (Some(next_hop), Ok(server_name)) =
                    (shared.options.next_hop, ServerName::try_from(name.clone()))
                else {
                    return;
                };
                loop {
                    shared.connector.tickets.absent(&server_name).await;
                    if let Err(reason) = fetch_ticket(&shared, next_hop, &name, &server_name).await
                    {
                        // stderr may be closed.
                        let _ = writeln!(
                            io::stderr(),
                            "warning: priming {name}: {reason}; trying again"
                        );
                        sleep(PRIME_RETRY).await;
                    }
                }
            });
        }
        priming
    }

    fn ready(&self) -> Record {
        let options = &self.shared.options;
        Record::Ready {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            listen: self.addresses(),
            next_hop: options.next_hop,
            transparent: options.transparent,
            keep_client_address: options.keep_client_address,
            mode: options.mode,
            client_side: options.client_side.0.clone(),
            server_side: options.server_side.0.clone(),
        }
    }

    fn summary(&self, reason: &str, totals: &Totals) -> Record {
        let (lines_dropped, metrics_fault) = self.shared.report.faults();
        Record::Summary {
            reason: reason.into(),
            connections: totals.connections,
            failed: totals.failed,
            refused: totals.refused,
            from_client_bytes: totals.from_client_bytes,
            from_server_bytes: totals.from_server_bytes,
            cpu_s: linux::cpu_seconds(),
            lines_dropped,
            metrics_fault,
        }
    }
}

fn listen(
    connector: &Connector,
    options: &QuicOptions,
    address: SocketAddr,
) -> Result<Arc<Listener>, StartError> {
    let crypto = connector.server_crypto(Vec::new())?;
    let hellos = Arc::new(connector.hellos()?);
    let failed = |error| StartError::Listen { address, error };
    let socket = sys::udp_socket(address, options.transparent).map_err(failed)?;
    let mut config = ServerConfig::with_crypto(crypto);
    config.max_incoming(options.max_connections);
    config.validation_token_config(validation::tokens());
    let endpoint =
        differences::listen(socket, config.clone(), Arc::clone(&hellos)).map_err(failed)?;
    let port = endpoint.local_addr().map_err(failed)?.port();
    Ok(Arc::new(Listener {
        endpoint,
        hellos,
        port,
        config,
    }))
}

/// Makes a connection for its session ticket alone.
async fn fetch_ticket(
    shared: &Shared,
    next_hop: SocketAddr,
    name: &str,
    server_name: &ServerName<'static>,
) -> Result<(), String> {
    let since = Instant::now();
    let limit = Duration::from_millis(shared.options.handshake_timeout_ms);
    let alpn = vec![shared.options.prime_alpn.clone().into_bytes()];
    let leg = shared
        .connector
        .dial(next_hop, None, name, alpn, &format!("satpep-prime-{name}"))
        .await
        .map_err(|error| error.to_string())?;
    let ticket = tokio::select! {
        ticket = timeout(limit, shared.connector.tickets.present(server_name)) => {
            ticket.map_err(|_| format!("no session ticket within {limit:?}"))
        }
        error = leg.connection.closed() => Err(error.to_string()),
    };
    leg.connection.close(0u32.into(), b"primed");
    ticket?;
    shared.report.record(&Record::Primed {
        server_name: name.into(),
        took_ms: millis(since.elapsed()),
    });
    Ok(())
}
