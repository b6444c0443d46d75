// SPDX-License-Identifier: GPL-3.0-or-later
//! quinn as an endpoint of the QUIC interop runner, whose folders and environment it uses: HTTP/0.9 (ALPN hq-interop), and HTTP/3
//! with h3.
//!
//! Exit status 127: an unknown test case, or one that quinn cannot do. It has no version 2 (RFC 9369), and its clients do not move
//! to a server's preferred address.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{env, future};

use bytes::{Buf, Bytes};
use http::{Request, Response, Uri};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig, TransportConfig};
use rustls::crypto::ring::{self, cipher_suite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{KeyLogFile, RootCertStore};
use tokio::task::JoinSet;

type Failure = Box<dyn Error + Send + Sync>;

const TESTS: [&str; 10] = [
    "handshake",
    "transfer",
    "multiconnect",
    "chacha20",
    "retry",
    "resumption",
    "zerortt",
    "http3",
    "keyupdate",
    "ecn",
];
const HTTP_09: &[u8] = b"hq-interop";
const HTTP_3: &[u8] = b"h3";
const MOST_REQUEST_BYTES: usize = 4096;
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

fn transport() -> Result<Arc<TransportConfig>, Failure> {
    let mut config = TransportConfig::default();
    config.max_idle_timeout(Some(IDLE.try_into()?));
    Ok(Arc::new(config))
}

// --- the client ------------------------------------------------------------------------------------------------------------------

async fn client(test: &str) -> Result<(), Failure> {
    let uris = env::var("REQUESTS")?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<Uri>, _>>()?;
    let mut endpoint = Endpoint::client("[::]:0".parse()?)?;
    endpoint.set_default_client_config(client_config(test)?);
    let connections: Vec<&[Uri]> = match test {
        "multiconnect" => uris.chunks(1).collect(),
        "resumption" | "zerortt" => vec![&uris[..1], &uris[1..]],
        _ => vec![&uris],
    };
    for (number, uris) in connections.into_iter().enumerate() {
        let connection = connect(&endpoint, &uris[0], test == "zerortt" && number == 1).await?;
        if test == "http3" {
            download_http_3(&connection, uris).await?;
        } else {
            download(&connection, uris, test == "keyupdate").await?;
        }
        connection.close(0u32.into(), b"");
    }
    endpoint.wait_idle().await;
    Ok(())
}

fn client_config(test: &str) -> Result<ClientConfig, Failure> {
    let mut provider = ring::default_provider();
    if test == "chacha20" {
        provider.cipher_suites = vec![cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    }
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter("/certs/ca.pem")? {
        roots.add(one?)?;
    }
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![if test == "http3" { HTTP_3 } else { HTTP_09 }.into()];
    tls.enable_early_data = test == "zerortt";
    tls.key_log = Arc::new(KeyLogFile::new());
    let initial = cipher_suite::TLS13_AES_128_GCM_SHA256
        .tls13()
        .and_then(rustls::Tls13CipherSuite::quic_suite)
        .ok_or("no cipher for Initial packets")?;
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::with_initial(
        Arc::new(tls),
        initial,
    )?));
    config.transport_config(transport()?);
    Ok(config)
}

async fn connect(
    endpoint: &Endpoint,
    uri: &Uri,
    has_early_data: bool,
) -> Result<Connection, Failure> {
    let host = uri.host().ok_or("a URL without a host")?;
    let port = uri.port_u16().unwrap_or(443);
    let address = std::net::ToSocketAddrs::to_socket_addrs(&(host, port))?
        .next()
        .ok_or("a host without an address")?;
    let connecting = endpoint.connect(address, host)?;
    if has_early_data {
        let (connection, _) = connecting
            .into_0rtt()
            .map_err(|_| "no session for early data")?;
        return Ok(connection);
    }
    Ok(connecting.await?)
}

/// Download files side by side, as many at once as the server allows.
async fn download(
    connection: &Connection,
    uris: &[Uri],
    updates_keys: bool,
) -> Result<(), Failure> {
    let mut running = JoinSet::new();
    for uri in uris {
        running.spawn(get(connection.clone(), uri.path().to_owned(), updates_keys));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn get(connection: Connection, path: String, mut updates_keys: bool) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(format!("GET {path}\r\n").as_bytes()).await?;
    send.finish()?;
    let mut file = File::create(format!("/downloads{path}"))?;
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await? {
        file.write_all(&chunk.bytes)?;
        if updates_keys {
            connection.force_key_update();
            updates_keys = false;
        }
    }
    Ok(())
}

async fn download_http_3(connection: &Connection, uris: &[Uri]) -> Result<(), Failure> {
    let (mut driver, sender) =
        h3::client::new(h3_quinn::Connection::new(connection.clone())).await?;
    tokio::spawn(async move { future::poll_fn(|context| driver.poll_close(context)).await });
    let mut running = JoinSet::new();
    for uri in uris.iter().cloned() {
        let mut sender = sender.clone();
        running.spawn(async move {
            let mut file = File::create(format!("/downloads{}", uri.path()))?;
            let mut stream = sender.send_request(Request::get(uri).body(())?).await?;
            stream.finish().await?;
            stream.recv_response().await?;
            while let Some(chunk) = stream.recv_data().await? {
                std::io::copy(&mut chunk.reader(), &mut file)?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

// --- the server ------------------------------------------------------------------------------------------------------------------

async fn server(test: &str) -> Result<(), Failure> {
    let endpoint = Endpoint::server(server_config()?, "[::]:443".parse()?)?;
    while let Some(incoming) = endpoint.accept().await {
        if test == "retry" && !incoming.remote_address_validated() {
            incoming.retry()?;
            continue;
        }
        tokio::spawn(async {
            if let Err(error) = serve(incoming).await {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

fn server_config() -> Result<ServerConfig, Failure> {
    let chain = CertificateDer::pem_file_iter("/certs/cert.pem")?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file("/certs/priv.key")?)?;
    tls.alpn_protocols = vec![HTTP_09.into(), HTTP_3.into()];
    tls.max_early_data_size = u32::MAX;
    tls.key_log = Arc::new(KeyLogFile::new());
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport()?);
    Ok(config)
}

async fn serve(incoming: Incoming) -> Result<(), Failure> {
    let connection = incoming.await?;
    let known = connection
        .handshake_data()
        .and_then(|data| data.downcast::<quinn::crypto::rustls::HandshakeData>().ok());
    if known.and_then(|data| data.protocol).as_deref() == Some(HTTP_3) {
        return serve_http_3(connection).await;
    }
    loop {
        let (mut send, mut receive) = connection.accept_bi().await?;
        tokio::spawn(async move {
            let request = receive.read_to_end(MOST_REQUEST_BYTES).await?;
            let request = String::from_utf8(request)?;
            let path = request.trim().strip_prefix("GET ").ok_or("no request")?;
            send.write_chunk(content(path)?).await?;
            send.finish()?;
            Ok::<(), Failure>(())
        });
    }
}

async fn serve_http_3(connection: Connection) -> Result<(), Failure> {
    let mut server = h3::server::Connection::new(h3_quinn::Connection::new(connection)).await?;
    while let Some(resolver) = server.accept().await? {
        tokio::spawn(async move {
            let (request, mut stream) = resolver.resolve_request().await?;
            stream.send_response(Response::new(())).await?;
            stream.send_data(content(request.uri().path())?).await?;
            stream.finish().await?;
            Ok::<(), Failure>(())
        });
    }
    Ok(())
}

/// A file of the served folder.
fn content(path: &str) -> Result<Bytes, Failure> {
    if path.contains("..") {
        return Err("a path outside the folder".into());
    }
    Ok(fs::read(format!("/www{path}"))?.into())
}
