// SPDX-License-Identifier: GPL-3.0-or-later
//! Client, proxies and origin in one process, joined by loopback.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use quic::{client_crypto, server_crypto};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig, TransportConfig};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use satpep::options::QuicOptions;
use satpep::proxy::Proxy;
use satpep::report::Report;
use satpep::start_error::StartError;
use serde_json::Value;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub const NAME: &str = "origin.test";
pub const ALPN: &[u8] = b"test";
/// Long, as a busy host may be late.
const PATIENCE: Duration = Duration::from_secs(120);

/// Deadline of every wait of a test.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.unwrap()
}

/// Both sides of a path that a test makes.
pub fn sockets() -> [UdpSocket; 2] {
    [(); 2].map(|()| {
        let socket = satpep::sys::udp_socket("127.0.0.1:0".parse().unwrap(), false).unwrap();
        UdpSocket::from_std(socket).unwrap()
    })
}

/// A CA and what it signed, in a folder of its own; `more` are arguments of all proxies.
pub struct Pki {
    folder: tempfile::TempDir,
    more: &'static [&'static str],
}

/// A proxy with them runs on noq.
#[cfg(feature = "noq")]
const BBR3: &[&str] = &[
    "--client-side-congestion-control",
    "bbr3",
    "--server-side-congestion-control",
    "bbr3",
];

impl Pki {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let names = [NAME.to_owned(), "127.0.0.1".to_owned()];
        let leaf = CertificateParams::new(names).unwrap();
        let leaf = leaf
            .signed_by(&key, &Issuer::from_params(&params, &ca_key))
            .unwrap();
        for (file, text) in [
            ("ca.crt", ca.pem()),
            ("leaf.crt", leaf.pem()),
            ("leaf.key", key.serialize_pem()),
        ] {
            std::fs::write(dir.path().join(file), text).unwrap();
        }
        Self {
            folder: dir,
            more: &[],
        }
    }

    #[cfg(feature = "noq")]
    pub fn bbr3() -> Self {
        Self {
            more: BBR3,
            ..Self::new()
        }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// An origin that speaks `alpn`.
    pub fn origin(&self, alpn: &[&[u8]]) -> Endpoint {
        self.origin_with(alpn, generous())
    }

    pub fn origin_with(&self, alpn: &[&[u8]], transport: TransportConfig) -> Endpoint {
        let (cert, key) = (self.file("leaf.crt"), self.file("leaf.key"));
        let crypto = server_crypto(&cert, &key, alpn, false).unwrap();
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap()
    }

    pub fn client_config(&self, alpn: &[&[u8]]) -> ClientConfig {
        let crypto = client_crypto(&self.file("ca.crt"), alpn, false).unwrap();
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(generous()));
        config
    }

    pub fn client(&self) -> Endpoint {
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(self.client_config(&[ALPN]));
        endpoint
    }

    /// Starts a proxy with `more` arguments.
    pub fn proxy(&self, more: &[&str]) -> Running {
        self.proxy_at("127.0.0.1:0", more)
    }

    /// Options of a proxy with `more` arguments.
    pub fn options(&self, listen: &str, more: &[&str]) -> QuicOptions {
        let [cert, key, ca] =
            ["leaf.crt", "leaf.key", "ca.crt"].map(|name| self.file(name).display().to_string());
        let mut argv = vec![
            "satpep",
            "--listen",
            listen,
            "--cert",
            &cert,
            "--key",
            &key,
            "--ca",
            &ca,
            "--drain-ms",
            "0",
        ];
        argv.extend(self.more);
        argv.extend(more);
        let options = Cli::try_parse_from(argv).unwrap().options;
        options.check().unwrap();
        options
    }

    pub fn proxy_at(&self, listen: &str, more: &[&str]) -> Running {
        let options = self.options(listen, more);
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Running::start(options.clone()) {
                Ok(running) => return running,
                // The proxy before it may still be about to let go of the address.
                Err(StartError::Listen { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Starts two proxies in a row before `origin`.
    pub fn chain(&self, origin: SocketAddr, mode: &str) -> (Running, Running) {
        let gw = self.proxy(&["--next-hop", &origin.to_string(), "--mode", mode]);
        let st = self.proxy(&["--next-hop", &gw.address.to_string(), "--mode", mode]);
        (st, gw)
    }
}

/// Windows large enough not to matter.
fn generous() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(100u32.into());
    transport
}

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    options: QuicOptions,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A proxy that runs.
pub struct Running {
    pub address: SocketAddr,
    lines: Lines,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn start(options: QuicOptions) -> Result<Self, StartError> {
        let lines = Lines::default();
        let (report, _) = Report::new(lines.clone(), options.metrics.as_deref()).unwrap();
        let proxy = Proxy::bind(options, report)?;
        let address = proxy.addresses()[0];
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(proxy.run(async {
            let _ = stopped.await;
            "test"
        }));
        Ok(Self {
            address,
            lines,
            stop,
            task,
        })
    }

    /// Lines so far.
    pub fn lines(&self) -> Vec<Value> {
        let text = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for `count` lines of a type and returns the last one.
    pub async fn line(&self, kind: &str, count: usize) -> Value {
        soon(async {
            loop {
                let found: Vec<_> = (self.lines().into_iter())
                    .filter(|line| line["type"] == kind)
                    .collect();
                if found.len() >= count {
                    return found[count - 1].clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Ends the proxy and returns all its lines.
    pub async fn end(self) -> Vec<Value> {
        let _ = self.stop.send(());
        soon(self.task).await.unwrap();
        let lines = soon(async {
            loop {
                let text = String::from_utf8(self.lines.0.lock().unwrap().clone()).unwrap();
                if text.contains("\"summary\"") && text.ends_with('\n') {
                    return text;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        (lines.lines())
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// Connects a client to `address` and returns both ends of the connection.
pub async fn connect(
    pki: &Pki,
    address: SocketAddr,
    origin: &Endpoint,
) -> (Connection, Connection) {
    soon(async {
        let connecting = pki.client().connect(address, NAME).unwrap();
        let accept = async { origin.accept().await.unwrap().await.unwrap() };
        let (client, server) = tokio::join!(connecting, accept);
        (client.unwrap(), server)
    })
    .await
}

/// Code and reason of an application's close.
pub async fn close_frame(connection: &Connection) -> (u64, String) {
    match soon(connection.closed()).await {
        ConnectionError::ApplicationClosed(frame) => (
            frame.error_code.into_inner(),
            String::from_utf8_lossy(&frame.reason).into_owned(),
        ),
        other => panic!("{other:?}"),
    }
}
