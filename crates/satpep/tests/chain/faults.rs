// SPDX-License-Identifier: GPL-3.0-or-later
//! Every wait has a deadline, every failure a reason, and the proxy serves on.

use std::net::UdpSocket;
use std::time::Duration;

use quinn::{ConnectionError, VarInt};

use crate::lab::{ALPN, NAME, Pki, close_frame, connect, soon};

on_each_library!(
    a_next_hop_that_never_answers_ends_at_the_deadline,
    a_refusal_by_the_next_hop_is_reported_to_the_client_at_once,
    malformed_packets_are_survived,
    a_lost_origin_is_reported_with_the_proxy_s_own_code,
    close_codes_of_the_origin_reach_the_client,
    one_connection_too_many_is_refused,
    the_end_of_a_proxy_closes_both_sides_with_its_code,
    samples_and_qlog_are_written_where_asked,
);

// promise: P67
async fn a_next_hop_that_never_answers_ends_at_the_deadline(pki: Pki) {
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let next_hop = mute.local_addr().unwrap().to_string();
    for mode in ["default", "h3-capable"] {
        let limit = ["--handshake-timeout-ms", "300", "--mode", mode];
        let proxy = pki.proxy(&[&["--next-hop", &next_hop], &limit[..]].concat());
        let connected = soon(pki.client().connect(proxy.address, NAME).unwrap()).await;
        if mode == "h3-capable" {
            match connected {
                Err(ConnectionError::ConnectionClosed(frame)) => {
                    assert_eq!(
                        frame.error_code,
                        quinn::TransportErrorCode::CONNECTION_REFUSED
                    );
                }
                other => panic!("{other:?}"),
            }
        } else {
            let (code, reason) = close_frame(&connected.unwrap()).await;
            assert_eq!(
                (code, &reason[..]),
                (0x7361_7401, "next hop: no answer within 300ms")
            );
        }
        let closed = proxy.line("closed", 1).await;
        assert_eq!(closed["outcome"], "failed");
        assert_eq!(closed["reason"], "next hop: no answer within 300ms");
        let lines = proxy.end().await;
        assert_eq!(lines.last().unwrap()["failed"], 1);
    }
}

async fn a_refusal_by_the_next_hop_is_reported_to_the_client_at_once(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, gw) = pki.chain(origin.local_addr().unwrap(), "h3-capable");
    let refuse = async { origin.accept().await.unwrap().refuse() };
    let (connected, ()) =
        soon(async { tokio::join!(pki.client().connect(st.address, NAME).unwrap(), refuse) }).await;
    assert!(matches!(
        connected,
        Err(ConnectionError::ConnectionClosed(_))
    ));
    for proxy in [&st, &gw] {
        let closed = proxy.line("closed", 1).await;
        assert!(
            closed["reason"].as_str().unwrap().contains("refused"),
            "{closed}"
        );
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let (pki, other) = (Pki::new(), Pki::new());
    let origin = other.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop, "--mode", "h3-capable"]);
    let accept = async { origin.accept().await.unwrap().await };
    let (connected, _) =
        soon(async { tokio::join!(pki.client().connect(proxy.address, NAME).unwrap(), accept) })
            .await;
    assert!(connected.is_err());
    let closed = proxy.line("closed", 1).await;
    assert_eq!(closed["outcome"], "failed");
    assert!(
        closed["reason"].as_str().unwrap().contains("certificate"),
        "{closed}"
    );
}

async fn malformed_packets_are_survived(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop, "--handshake-timeout-ms", "200"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 1u32;
    for length in (0..1400).step_by(7) {
        let mut packet: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        if length > 20 {
            // A long header of version 1 with an Initial packet in it, or so it says.
            packet[..6].copy_from_slice(&[0xc0 | (length as u8 & 0x0f), 0, 0, 0, 1, 8]);
        }
        socket.send_to(&packet, proxy.address).unwrap();
    }
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    client.close(VarInt::from_u32(3), b"");
    assert_eq!(close_frame(&server).await.0, 3);
    assert_eq!(proxy.line("closed", 1).await["outcome"], "closed");
}

async fn a_lost_origin_is_reported_with_the_proxy_s_own_code(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let idle = ["--server-side-max-idle-ms", "1000"];
    let proxy = pki.proxy(&[&["--next-hop", &next_hop], &idle[..]].concat());
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    // The origin dies without a word: its endpoint no longer reads its socket.
    origin
        .rebind(UdpSocket::bind("127.0.0.1:0").unwrap())
        .unwrap();
    let (code, reason) = close_frame(&client).await;
    assert_eq!((code, &reason[..]), (0x7361_7402, "satpep: timed out"));
    let closed = proxy.line("closed", 1).await;
    assert_eq!(closed["outcome"], "lost");
    assert_eq!(closed["reason"], "server side: timed out");
    drop(server);
}

async fn close_codes_of_the_origin_reach_the_client(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "h3-capable");
    let (client, server) = connect(&pki, st.address, &origin).await;
    server.close(VarInt::from_u32(0x100), b"no error");
    assert_eq!(close_frame(&client).await, (0x100, "no error".into()));
}

async fn one_connection_too_many_is_refused(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop, "--max-connections", "1"]);
    let (first, server) = connect(&pki, proxy.address, &origin).await;
    let second = soon(pki.client().connect(proxy.address, NAME).unwrap()).await;
    assert!(matches!(second, Err(ConnectionError::ConnectionClosed(_))));
    proxy.line("refused", 1).await;
    first.close(VarInt::from_u32(0), b"");
    close_frame(&server).await;
    proxy.line("closed", 1).await;
    connect(&pki, proxy.address, &origin).await;
}

async fn the_end_of_a_proxy_closes_both_sides_with_its_code(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop]);
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    let address = proxy.address;
    let lines = proxy.end().await;
    for connection in [&client, &server] {
        assert_eq!(
            close_frame(connection).await,
            (0x7361_7400, "satpep ends".into())
        );
    }
    let kinds: Vec<_> = lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["ready", "accepted", "closed", "summary"]);
    assert_eq!(lines[3]["reason"], "test");
    assert_eq!(lines[3]["connections"], 1);
    soon(async {
        while UdpSocket::bind(address).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

async fn samples_and_qlog_are_written_where_asked(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let metrics = pki.file("metrics.jsonl");
    let qlog = pki.file("qlog");
    let files = [
        "--metrics",
        metrics.to_str().unwrap(),
        "--qlog",
        qlog.to_str().unwrap(),
    ];
    let proxy = pki.proxy(&[&["--next-hop", &next_hop], &files[..]].concat());
    let (client, _server) = connect(&pki, proxy.address, &origin).await;
    let sampled = || {
        std::fs::read_to_string(&metrics)
            .unwrap_or_default()
            .lines()
            .count()
            >= 3
    };
    soon(async {
        while !sampled() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    client.close(VarInt::from_u32(0), b"");
    proxy.line("closed", 1).await;
    proxy.end().await;
    let text = std::fs::read_to_string(&metrics).unwrap();
    let sample: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert!(sample["server_side"]["cwnd_bytes"].as_u64().unwrap() > 0);
    let files: Vec<_> = std::fs::read_dir(&qlog)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    soon(async {
        for file in files {
            while !std::fs::read_to_string(&file).unwrap().contains("qlog") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
    .await;
}
