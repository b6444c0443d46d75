// SPDX-License-Identifier: GPL-3.0-or-later
//! A long path whose queue overflows in slow start leaves more gaps in one stream than quinn keeps
//! spans.

use std::any::Any;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quic::LegOptions;
use quinn::congestion::{Controller, ControllerFactory};
use quinn::{Endpoint, VarInt};

use crate::lab::{ALPN, NAME, Pki, sockets, soon};

on_each_library!(more_gaps_than_quinn_keeps_do_not_close_the_connection,);

/// These datagrams from the client are held back until the last of them is there; then every second
/// one is let go.
const HELD: std::ops::Range<usize> = 50..4_650;
/// Fills far more datagrams than are held, as the path's own socket may overflow, too.
const BYTES: usize = 10_000_000;

/// A path to `target` that overflows once. Its client side has an address of its own.
fn overflowing_path(target: SocketAddr) -> SocketAddr {
    let [near, far] = sockets();
    let address = near.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut there, mut back) = (vec![0; 65_536], vec![0; 65_536]);
        let (mut client, mut held) = (None, VecDeque::new());
        let mut number = 0;
        loop {
            tokio::select! {
                received = near.recv_from(&mut there) => {
                    let (length, sender) = received.unwrap();
                    client = Some(sender);
                    held.push_back(there[..length].to_vec());
                    if number + 1 < HELD.end && HELD.contains(&number) {
                        number += 1;
                        continue;
                    }
                    let step = if HELD.contains(&number) { 2 } else { 1 };
                    for (index, datagram) in held.drain(..).step_by(step).enumerate() {
                        far.send_to(&datagram, target).await.unwrap();
                        if index % 16 == 15 {
                            // No more at once than the target's socket holds.
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                    number += 1;
                }
                received = far.recv_from(&mut back) => {
                    let (length, _) = received.unwrap();
                    near.send_to(&back[..length], client.unwrap()).await.unwrap();
                }
            }
        }
    });
    address
}

/// A sender that losses do not impress.
#[derive(Clone)]
struct Fixed;

impl Controller for Fixed {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        2 * BYTES as u64
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for Fixed {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Fixed)
    }
}

/// Sends one large stream, all of it at once.
async fn send_in_one_burst(pki: &Pki, target: SocketAddr) -> quinn::Connection {
    let mut transport = quic::transport(&LegOptions::default()).unwrap();
    transport.congestion_controller_factory(Arc::new(Fixed));
    // One datagram at a time, so that the path can lose some.
    transport.enable_segmentation_offload(false);
    transport.mtu_discovery_config(None);
    let mut config = pki.client_config(&[ALPN]);
    config.transport_config(Arc::new(transport));
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connection = client
        .connect_with(config, target, NAME)
        .unwrap()
        .await
        .unwrap();
    let sender = connection.clone();
    tokio::spawn(async move {
        let mut stream = sender.open_uni().await?;
        // Fails when the receiver closes the connection.
        let _ = stream.write_all(&vec![7; BYTES]).await;
        let _ = stream.finish();
        Ok::<_, quinn::ConnectionError>(stream.stopped().await)
    });
    connection
}

// promise: P66
async fn more_gaps_than_quinn_keeps_do_not_close_the_connection(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop]);
    let path = overflowing_path(proxy.address);
    soon(async {
        let accept = async { origin.accept().await.unwrap().await.unwrap() };
        let (client, server) = tokio::join!(send_in_one_burst(&pki, path), accept);
        let mut there = server.accept_uni().await.unwrap();
        let received = there.read_to_end(BYTES).await.unwrap();
        assert!(received == vec![7; BYTES]);
        assert_eq!(client.close_reason(), None);
        client.close(VarInt::from_u32(0), b"");
    })
    .await;
    let closed = proxy.line("closed", 1).await;
    assert_eq!(closed["outcome"], "closed");
    assert_eq!(closed["from_client"]["bytes"], BYTES);
}
