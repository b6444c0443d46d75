// SPDX-License-Identifier: GPL-3.0-or-later
//! s2n-quic as an endpoint of the QUIC interop runner, whose folders and environment it uses: HTTP/0.9 (ALPN hq-interop), TLS of
//! rustls.
//!
//! Exit status 127: an unknown test case, or one that s2n-quic cannot do. It has no 0-RTT and no version 2 (RFC 9369), with rustls
//! no session tickets, its application cannot ask for a key update, its clients do not move to a server's preferred address, and
//! all versions of its HTTP/3 on crates.io (s2n-quic-h3) are withdrawn.

use std::env;
use std::error::Error;
use std::net::ToSocketAddrs;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, KeyLogFile, RootCertStore, ServerConfig};
use s2n_quic::client::Connect;
use s2n_quic::connection::{Connection, Handle};
use s2n_quic::provider::endpoint_limits;
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::tls::rustls as tls;
use s2n_quic::stream::BidirectionalStream;
use s2n_quic::{Client, Server};
use tokio::fs;
use tokio::io::{self, AsyncReadExt};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

const TESTS: [&str; 6] = [
    "handshake",
    "transfer",
    "multiconnect",
    "chacha20",
    "retry",
    "ecn",
];
const HTTP_09: &[u8] = b"hq-interop";
const MOST_REQUEST_BYTES: u64 = 4096;
const MOST_HANDSHAKES: usize = 100;
/// Longer than the pauses of a client whose first packets are lost.
const IDLE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let test = env::var("TESTCASE").unwrap_or_default();
    if !TESTS.contains(&test.as_str()) {
        return ExitCode::from(127);
    }
    let is_server = env::var("ROLE").is_ok_and(|role| role == "server");
    let ended = if is_server {
        server(&test).await
    } else {
        client(&test).await
    };
    if let Err(error) = ended {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn limits() -> Result<Limits, Failure> {
    Ok(Limits::new()
        .with_max_idle_timeout(IDLE)?
        .with_max_handshake_duration(IDLE)?)
}

// --- the client ------------------------------------------------------------------------------------------------------------------

async fn client(test: &str) -> Result<(), Failure> {
    let urls = env::var("REQUESTS")?;
    let urls: Vec<&str> = urls.split_whitespace().collect();
    let mut client = Client::builder()
        .with_tls(tls::Client::from(client_config(test)?))?
        .with_io("[::]:0")?
        .with_limits(limits()?)?
        .start()?;
    let connections: Vec<&[&str]> = match test {
        "multiconnect" => urls.chunks(1).collect(),
        _ => vec![&urls],
    };
    for urls in connections {
        download(&client, urls).await?;
    }
    client.wait_idle().await?;
    Ok(())
}

fn client_config(test: &str) -> Result<ClientConfig, Failure> {
    let mut provider = aws_lc_rs::default_provider();
    if test == "chacha20" {
        provider.cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter("/certs/ca.pem")? {
        roots.add(one?)?;
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![HTTP_09.into()];
    config.key_log = Arc::new(KeyLogFile::new());
    Ok(config)
}

/// Download files of one server over one connection, as many at once as the server allows.
async fn download(client: &Client, urls: &[&str]) -> Result<(), Failure> {
    let (authority, _) = split(urls[0])?;
    let (host, _) = authority.rsplit_once(':').ok_or("a URL without a port")?;
    let address = authority
        .to_socket_addrs()?
        .next()
        .ok_or("a host without an address")?;
    let connection = client
        .connect(Connect::new(address).with_server_name(host))
        .await?;
    let mut running = JoinSet::new();
    for url in urls {
        running.spawn(get(connection.handle(), split(url)?.1.to_owned()));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// The authority of a URL, and its path without the slash.
fn split(url: &str) -> Result<(&str, &str), Failure> {
    let rest = url.strip_prefix("https://");
    Ok(rest
        .and_then(|rest| rest.split_once('/'))
        .ok_or("a URL of another form")?)
}

async fn get(mut connection: Handle, path: String) -> Result<(), Failure> {
    let (mut receive, mut send) = connection.open_bidirectional_stream().await?.split();
    send.send(format!("GET /{path}\r\n").into()).await?;
    send.finish()?;
    let mut file = fs::File::create(format!("/downloads/{path}")).await?;
    io::copy(&mut receive, &mut file).await?;
    file.sync_all().await?;
    Ok(())
}

// --- the server ------------------------------------------------------------------------------------------------------------------

async fn server(test: &str) -> Result<(), Failure> {
    // Without room for a handshake it answers with a Retry.
    let most = if test == "retry" { 0 } else { MOST_HANDSHAKES };
    let endpoint_limits = endpoint_limits::Default::builder()
        .with_inflight_handshake_limit(most)?
        .build()?;
    let mut server = Server::builder()
        .with_tls(tls::Server::from(server_config()?))?
        .with_io("[::]:443")?
        .with_limits(limits()?)?
        .with_endpoint_limits(endpoint_limits)?
        .start()?;
    while let Some(connection) = server.accept().await {
        tokio::spawn(serve(connection));
    }
    Ok(())
}

fn server_config() -> Result<ServerConfig, Failure> {
    let chain = CertificateDer::pem_file_iter("/certs/cert.pem")?.collect::<Result<Vec<_>, _>>()?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file("/certs/priv.key")?)?;
    config.alpn_protocols = vec![HTTP_09.into()];
    config.key_log = Arc::new(KeyLogFile::new());
    Ok(config)
}

async fn serve(mut connection: Connection) {
    while let Ok(Some(stream)) = connection.accept_bidirectional_stream().await {
        tokio::spawn(async {
            if let Err(error) = answer(stream).await {
                eprintln!("{error}");
            }
        });
    }
}

async fn answer(stream: BidirectionalStream) -> Result<(), Failure> {
    let (receive, mut send) = stream.split();
    let mut request = String::new();
    receive
        .take(MOST_REQUEST_BYTES)
        .read_to_string(&mut request)
        .await?;
    let path = request.trim().strip_prefix("GET ").ok_or("no request")?;
    if path.contains("..") {
        return Err("a path outside the folder".into());
    }
    send.send(fs::read(format!("/www{path}")).await?.into())
        .await?;
    send.close().await?;
    Ok(())
}
