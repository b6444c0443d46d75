// SPDX-License-Identifier: GPL-3.0-or-later
//! What the proxy costs on this host, as JSON: goodput and round-trip time over loopback, without, through one and through
//! two proxies, each end and each proxy on a thread of its own. A benchmark: it fails no test.
//!
//! `cargo run --release -p satpep --example bench`
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot run stops")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use quic::LegOptions;
use quinn::{Connection, Endpoint, VarInt};
use satpep::proxy::Proxy;
use satpep::report::Report;
use serde_json::json;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/chain/lab.rs"]
mod lab;

use lab::{ALPN, NAME, Pki};

const BYTES: usize = 400_000_000;
const CHUNK: usize = 1 << 16;
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

/// Gives the median round-trip time, ms, and the goodput, bit/s.
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

fn main() {
    let pki = Pki::new();
    let wide = || {
        let mut transport = quic::transport(&LegOptions::default()).unwrap();
        transport.initial_rtt(Duration::from_millis(1));
        transport
    };
    let (tell, told) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let pki = &pki;
        let tell_origin = tell.clone();
        scope.spawn(move || {
            satpep::runtime().unwrap().block_on(async move {
                let origin = pki.origin_with(&[ALPN], wide());
                tell_origin.send(origin.local_addr().unwrap()).unwrap();
                serve(origin).await;
            });
        });
        let origin = told.recv().unwrap();
        let mut results = serde_json::Map::new();
        let mut target = origin;
        for (proxies, name) in ["direct", "one_proxy", "two_proxies"]
            .into_iter()
            .enumerate()
        {
            if proxies > 0 {
                let options = pki.options("127.0.0.1:0", &["--next-hop", &target.to_string()]);
                let tell = tell.clone();
                scope.spawn(move || {
                    satpep::runtime().unwrap().block_on(async move {
                        let (report, _) = Report::new(std::io::sink(), None).unwrap();
                        let proxy = Proxy::bind(options, report).unwrap();
                        tell.send(proxy.addresses()[0]).unwrap();
                        proxy.run(std::future::pending()).await;
                    });
                });
                target = told.recv().unwrap();
            }
            let (rtt_ms, goodput_bps) = satpep::runtime().unwrap().block_on(async {
                let mut config = pki.client_config(&[ALPN]);
                config.transport_config(Arc::new(wide()));
                let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
                measure(
                    client
                        .connect_with(config, target, NAME)
                        .unwrap()
                        .await
                        .unwrap(),
                )
                .await
            });
            results.insert(
                name.into(),
                json!({"rtt_ms": rtt_ms, "goodput_bps": goodput_bps}),
            );
        }
        let rtt = |name: &str| results[name]["rtt_ms"].as_f64().unwrap();
        let added = json!({"one": rtt("one_proxy") - rtt("direct"), "two": rtt("two_proxies") - rtt("direct")});
        results.insert("added_ms".into(), added);
        let cores = thread::available_parallelism().map_or(0, usize::from);
        results.insert("cores".into(), cores.into());
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        results.insert("load_average_1min".into(), load.split(' ').next().into());
        println!("{:#}", serde_json::Value::Object(results));
        // The proxies would run on.
        std::process::exit(0);
    });
}
