// SPDX-License-Identifier: GPL-3.0-or-later
//! 0-RTT between the proxies.

use quinn::{ConnectionError, TransportErrorCode, VarInt};
use tokio::sync::mpsc;

use crate::lab::{ALPN, NAME, Pki, Running, close_frame, connect, soon};

on_each_library!(
    a_primed_proxy_sends_early_data_and_the_second_one_takes_it,
    refused_early_data_end_the_connection_and_the_next_one_works,
);

fn warm(pki: &Pki, next_hop: &str) -> Running {
    pki.proxy(&[
        "--next-hop",
        next_hop,
        "--mode",
        "warm",
        "--prime",
        NAME,
        "--prime-alpn",
        "test",
    ])
}

async fn a_primed_proxy_sends_early_data_and_the_second_one_takes_it(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let gw = pki.proxy(&["--next-hop", &next_hop, "--mode", "h3-capable"]);
    let st = warm(&pki, &gw.address.to_string());
    let primed = async { origin.accept().await.unwrap().await.unwrap() };
    let _kept = soon(primed).await;
    assert_eq!(st.line("primed", 1).await["server_name"], NAME);
    for round in 1..=3 {
        let (client, server) = connect(&pki, st.address, &origin).await;
        soon(async {
            let mut send = client.open_uni().await.unwrap();
            send.write_all(b"early").await.unwrap();
            send.finish().unwrap();
            let mut there = server.accept_uni().await.unwrap();
            assert_eq!(there.read_to_end(9).await.unwrap(), b"early");
        })
        .await;
        client.close(VarInt::from_u32(0), b"");
        close_frame(&server).await;
        let closed = st.line("closed", round).await;
        assert_eq!(closed["zero_rtt"], true, "{closed}");
        assert_eq!(closed["outcome"], "closed");
    }
}

async fn refused_early_data_end_the_connection_and_the_next_one_works(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let (said, mut heard) = mpsc::channel(1);
    // Also takes the connections that are made for tickets alone, on which nothing is said.
    tokio::spawn(async move {
        while let Some(incoming) = origin.accept().await {
            let said = said.clone();
            tokio::spawn(async move {
                let connection = incoming.await.unwrap();
                let mut there = connection.accept_uni().await.unwrap();
                said.send(there.read_to_end(9).await.unwrap()).await
            });
        }
    });
    let gw_options = ["--next-hop", &next_hop, "--mode", "h3-capable"];
    let gw = pki.proxy(&gw_options);
    let gw_address = gw.address.to_string();
    let st = warm(&pki, &gw_address);
    st.line("primed", 1).await;
    gw.line("closed", 1).await;
    gw.end().await;
    // A new process does not know the tickets of the old one.
    let gw = pki.proxy_at(&gw_address, &gw_options);
    match soon(pki.client().connect(st.address, NAME).unwrap()).await {
        Ok(client) => {
            let close = close_frame(&client).await;
            assert_eq!(close, (0x7361_7403, "next hop: early data refused".into()));
        }
        // Before the client's handshake is done, its code must be hidden (RFC 9000 section 10.2.3).
        Err(ConnectionError::ConnectionClosed(frame)) => {
            assert_eq!(frame.error_code, TransportErrorCode::APPLICATION_ERROR);
        }
        Err(other) => panic!("{other:?}"),
    }
    let closed = st.line("closed", 1).await;
    assert_eq!(closed["reason"], "next hop: early data refused");
    st.line("primed", 2).await;
    soon(async {
        let client = pki
            .client()
            .connect(st.address, NAME)
            .unwrap()
            .await
            .unwrap();
        let mut send = client.open_uni().await.unwrap();
        send.write_all(b"again").await.unwrap();
        send.finish().unwrap();
        assert_eq!(heard.recv().await.unwrap(), b"again");
    })
    .await;
    gw.end().await;
}
