// SPDX-License-Identifier: GPL-3.0-or-later
//! What the proxy costs on this host, as JSON: goodput and round-trip time over loopback, without,
//! through one and through two proxies, each end and each proxy on a thread of its own. A
//! benchmark: it fails no test.
//!
//! `cargo run --release -p satpep --example bench`
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use quic::LegOptions;
use quinn::{Connection, Endpoint, TransportConfig, VarInt};
use satpep::proxy::Proxy;
use satpep::report::Report;
use serde_json::json;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/chain/lab.rs"]
mod lab;

use lab::{ALPN, NAME, Pki};

const BYTES: usize = 400_000_000;
const CHUNK: usize = 1 << 13;
const PINGS: usize = 500;

/// Answers each byte of a stream opened by the client; sends `BYTES` on a stream of its own.
async fn serve(origin: Endpoint) {
    while let Some(incoming) = origin.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            let (mut back, mut there) = connection.accept_bi().await?;
            let mut byte = [0];
            for _ in 0..PINGS {
                there.read_exact(&mut byte).await.unwrap();
                back.write_all(&byte).await.unwrap();
            }
            let mut data = connection.open_uni().await?;
            for _ in 0..BYTES / CHUNK {
                data.write_all(&[0; CHUNK]).await.unwrap();
            }
            data.finish().unwrap();
            connection.closed().await;
            Ok::<_, quinn::ConnectionError>(())
        });
    }
}

/// Returns the median round-trip time, ms, and the goodput, bit/s.
async fn measure(connection: Connection) -> (f64, f64) {
    let (mut send, mut answer) = connection.open_bi().await.unwrap();
    let mut times = Vec::new();
    let mut byte = [1];
    for _ in 0..PINGS {
        let since = Instant::now();
        send.write_all(&byte).await.unwrap();
        answer.read_exact(&mut byte).await.unwrap();
        times.push(since.elapsed());
    }
    times.sort_unstable();
    let mut data = connection.accept_uni().await.unwrap();
    let (since, mut bytes) = (Instant::now(), 0);
    while let Some(chunk) = data.read_chunk(usize::MAX, false).await.unwrap() {
        bytes += chunk.bytes.len();
    }
    let goodput = bytes as f64 * 8.0 / since.elapsed().as_secs_f64();
    connection.close(VarInt::from_u32(0), b"");
    (times[PINGS / 2].as_secs_f64() * 1e3, goodput)
}

/// Runs what `begin` starts on a thread of its own, for as long as the process lives; returns its
/// address.
fn start<F: Future<Output = ()>>(
    begin: impl FnOnce() -> (SocketAddr, F) + Send + 'static,
) -> SocketAddr {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let runtime = satpep::runtime().unwrap();
        let _inside = runtime.enter();
        let (address, work) = begin();
        sender.send(address).unwrap();
        runtime.block_on(work);
    });
    receiver.recv().unwrap()
}

fn start_origin(pki: Arc<Pki>) -> SocketAddr {
    start(move || {
        let origin = pki.origin_with(&[ALPN], transport());
        (origin.local_addr().unwrap(), serve(origin))
    })
}

fn start_proxy(pki: &Pki, next_hop: SocketAddr) -> SocketAddr {
    let options = pki.options("127.0.0.1:0", &["--next-hop", &next_hop.to_string()]);
    start(|| {
        let (report, _) = Report::new(std::io::sink(), None).unwrap();
        let proxy = Proxy::bind(options, report).unwrap();
        (proxy.addresses()[0], proxy.run(std::future::pending()))
    })
}

fn ask(pki: &Pki, target: SocketAddr) -> (f64, f64) {
    satpep::runtime().unwrap().block_on(async {
        let mut config = pki.client_config(&[ALPN]);
        config.transport_config(Arc::new(transport()));
        let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        measure(
            client
                .connect_with(config, target, NAME)
                .unwrap()
                .await
                .unwrap(),
        )
        .await
    })
}

fn transport() -> TransportConfig {
    quic::transport(&LegOptions::default()).unwrap()
}

fn main() {
    let pki = Arc::new(Pki::new());
    let mut target = start_origin(Arc::clone(&pki));
    let mut results = Vec::new();
    for proxies in 0..=2 {
        if proxies > 0 {
            target = start_proxy(&pki, target);
        }
        let (rtt_ms, goodput_bps) = ask(&pki, target);
        results.push(json!({"proxies": proxies, "rtt_ms": rtt_ms, "goodput_bps": goodput_bps}));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let host = json!({"cores": cores, "load_average_1min": load.split(' ').next()});
    println!("{:#}", json!({"results": results, "host": host}));
}
