// SPDX-License-Identifier: GPL-3.0-or-later
//! Before a client has shown that its address is its own, nobody hears of it and little is sent
//! there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use quinn::VarInt;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::lab::{ALPN, NAME, Pki, close_frame, connect, sockets, soon};

on_each_library!(
    test_t58_a_forged_address_hears_little_and_the_next_hop_nothing,
    test_t58_a_token_of_an_earlier_connection_saves_the_retry,
    test_t58_a_hello_of_two_datagrams_outlives_the_retry_and_a_loss,
);

/// Longer than a proxy needs for its first answers, and than its first probe timeout.
const SILENCE: Duration = Duration::from_secs(3);

/// The first datagrams of a client.
async fn first_flight(pki: &Pki, count: usize) -> Vec<Vec<u8>> {
    let [path, _] = sockets();
    let _dialling = pki
        .client()
        .connect(path.local_addr().unwrap(), NAME)
        .unwrap();
    let mut flight = Vec::new();
    let mut buffer = vec![0; 65_536];
    for _ in 0..count {
        let (length, _) = soon(path.recv_from(&mut buffer)).await.unwrap();
        flight.push(buffer[..length].to_vec());
    }
    flight
}

async fn test_t58_a_forged_address_hears_little_and_the_next_hop_nothing(pki: Pki) {
    for mode in ["default", "h3-capable", "warm"] {
        let [next_hop, forged] = sockets();
        let hop = next_hop.local_addr().unwrap().to_string();
        let proxy = pki.proxy(&["--next-hop", &hop, "--mode", mode]);
        let mut sent = 0;
        for datagram in first_flight(&pki, 2).await {
            sent += datagram.len();
            forged.send_to(&datagram, proxy.address).await.unwrap();
        }
        let mut buffer = vec![0; 65_536];
        let mut heard = 0;
        while let Ok(received) = timeout(SILENCE, forged.recv(&mut buffer)).await {
            heard += received.unwrap();
        }
        assert!(heard > 0 && heard <= 3 * sent, "{mode}: {heard} of {sent}");
        let onward = timeout(Duration::from_millis(1), next_hop.recv(&mut buffer)).await;
        assert!(onward.is_err(), "{mode}: the next hop is contacted");
        let accepted = proxy.lines().iter().any(|line| line["type"] == "accepted");
        assert!(!accepted, "{mode}");
    }
}

/// A path to `target` that counts its Retry packets, and loses the datagram of the client with the
/// number `lost`.
fn path(target: SocketAddr, lost: Option<usize>) -> (SocketAddr, Arc<AtomicUsize>) {
    let [near, far]: [UdpSocket; 2] = sockets();
    let address = near.local_addr().unwrap();
    let retries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&retries);
    tokio::spawn(async move {
        let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
        let (mut client, mut number) = (None, 0);
        loop {
            tokio::select! {
                received = near.recv_from(&mut there) => {
                    let (length, sender) = received.unwrap();
                    client = Some(sender);
                    if lost != Some(number) {
                        far.send_to(&there[..length], target).await.unwrap();
                    }
                    number += 1;
                }
                received = far.recv_from(&mut back) => {
                    let (length, _) = received.unwrap();
                    // Long header, type Retry (RFC 9000 section 17.2.5).
                    counted.fetch_add(usize::from(back[0] & 0xb0 == 0xb0), Relaxed);
                    near.send_to(&back[..length], client.unwrap()).await.unwrap();
                }
            }
        }
    });
    (address, retries)
}

/// Between proxies: the first connection costs a round trip more, later ones do not.
async fn test_t58_a_token_of_an_earlier_connection_saves_the_retry(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let hop = origin.local_addr().unwrap().to_string();
    let gw = pki.proxy(&["--next-hop", &hop, "--mode", "h3-capable"]);
    let (between, retries) = path(gw.address, None);
    let st = pki.proxy(&["--next-hop", &between.to_string(), "--mode", "h3-capable"]);
    for round in 1..=3 {
        let (client, server) = connect(&pki, st.address, &origin).await;
        assert_eq!(retries.load(Relaxed), 1, "connection {round}");
        client.close(VarInt::from_u32(0), b"");
        close_frame(&server).await;
        st.line("closed", round).await;
    }
}

async fn test_t58_a_hello_of_two_datagrams_outlives_the_retry_and_a_loss(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &hop, "--mode", "h3-capable"]);
    for lost in [None, Some(1)] {
        let (to, retries) = path(proxy.address, lost);
        // A protocol list that fills more than a datagram.
        let mut names: Vec<Vec<u8>> = (0..8_u8).map(|number| vec![number; 250]).collect();
        names.insert(0, ALPN.to_vec());
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let connecting = pki
            .client()
            .connect_with(pki.client_config(&names), to, NAME)
            .unwrap();
        let accept = async { origin.accept().await.unwrap().await.unwrap() };
        let (client, _server) = soon(async { tokio::join!(connecting, accept) }).await;
        client.unwrap();
        assert_eq!(retries.load(Relaxed), 1);
    }
}
