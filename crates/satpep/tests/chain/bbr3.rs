// SPDX-License-Identifier: GPL-3.0-or-later
//! bbr3 between the proxies, over a path that loses datagrams in both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quinn::{Connection, VarInt};

use crate::lab::{ALPN, Pki, connect, sockets, soon};

const BYTES: usize = 3_000_000;
/// Every so many datagrams one is lost.
const LOST_OF: usize = 50;

/// A path to `target`, and whether it loses datagrams. Its client side has an address of its own.
fn lossy_path(target: SocketAddr) -> (SocketAddr, Arc<AtomicBool>) {
    let [near, far] = sockets();
    let address = near.local_addr().unwrap();
    let loses = Arc::new(AtomicBool::new(true));
    let is_lossy = Arc::clone(&loses);
    tokio::spawn(async move {
        let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
        let (mut client, mut counts) = (None, [0; 2]);
        let is_lost = |count: &mut usize| {
            *count += 1;
            *count % LOST_OF == 0 && is_lossy.load(Ordering::Relaxed)
        };
        loop {
            tokio::select! {
                received = near.recv_from(&mut there) => {
                    let (length, sender) = received.unwrap();
                    client = Some(sender);
                    if !is_lost(&mut counts[0]) {
                        far.send_to(&there[..length], target).await.unwrap();
                    }
                }
                received = far.recv_from(&mut back) => {
                    let (length, _) = received.unwrap();
                    if !is_lost(&mut counts[1]) {
                        near.send_to(&back[..length], client.unwrap()).await.unwrap();
                    }
                }
            }
        }
    });
    (address, loses)
}

/// Uploads [`BYTES`] and downloads them again.
async fn there_and_back(client: &Connection, server: &Connection) {
    let data: Vec<u8> = (0..BYTES).map(|index| (index / 251) as u8).collect();
    soon(async {
        let (mut up, mut down) = client.open_bi().await.unwrap();
        let ask = async {
            up.write_all(&data).await.unwrap();
            up.finish().unwrap();
            down.read_to_end(BYTES).await.unwrap()
        };
        let answer = async {
            let (mut back, mut there) = server.accept_bi().await.unwrap();
            let uploaded = there.read_to_end(BYTES).await.unwrap();
            back.write_all(&uploaded).await.unwrap();
            back.finish().unwrap();
            uploaded
        };
        let (downloaded, uploaded) = tokio::join!(ask, answer);
        assert!(uploaded == data && downloaded == data);
    })
    .await;
}

#[tokio::test]
// promise: P69
async fn downloads_and_uploads_cross_a_lossy_path_between_two_proxies() {
    let pki = Pki::new();
    let origin = pki.origin(&[ALPN]);
    let (metrics, qlog) = (pki.file("metrics.jsonl"), pki.file("qlog"));
    let next_hop = origin.local_addr().unwrap().to_string();
    let gw = pki.proxy(&[
        "--next-hop",
        &next_hop,
        "--client-side-congestion-control",
        "bbr3",
        "--qlog",
        qlog.to_str().unwrap(),
    ]);
    let (path, loses) = lossy_path(gw.address);
    let st = pki.proxy(&[
        "--next-hop",
        &path.to_string(),
        "--server-side-congestion-control",
        "bbr3",
        "--metrics",
        metrics.to_str().unwrap(),
    ]);
    let (client, server) = connect(&pki, st.address, &origin).await;
    there_and_back(&client, &server).await;
    // The end of a connection is one datagram, which is not retransmitted.
    loses.store(false, Ordering::Relaxed);
    client.close(VarInt::from_u32(0), b"");
    for (proxy, side) in [(st, "server_side"), (gw, "client_side")] {
        let closed = proxy.line("closed", 1).await;
        assert_eq!(closed["outcome"], "closed");
        assert_eq!(closed["qlog_fault"], serde_json::Value::Null);
        assert_eq!(closed["from_client"]["bytes"], BYTES);
        assert_eq!(closed["from_server"]["bytes"], BYTES);
        let lost = closed[side]["packets_lost"].as_u64().unwrap();
        assert!(lost > (BYTES / 1500 / LOST_OF / 2) as u64, "{closed}");
        proxy.end().await;
    }
    let sampled = std::fs::read_to_string(&metrics).unwrap();
    let last: serde_json::Value = serde_json::from_str(sampled.lines().last().unwrap()).unwrap();
    assert!(last["server_side"]["rtt_ms"].as_f64().unwrap() > 0.0);
    let sizes: Vec<_> = (std::fs::read_dir(&qlog).unwrap())
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect();
    assert!(
        sizes.len() == 2 && sizes.iter().all(|size| *size > 100_000),
        "{sizes:?}"
    );
}
