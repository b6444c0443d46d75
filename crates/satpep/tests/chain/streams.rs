// SPDX-License-Identifier: GPL-3.0-or-later
//! Streams, datagrams and closes cross both proxies unchanged, in each mode.

use std::time::Duration;

use quinn::{Connection, ReadError, RecvStream, SendStream, VarInt, WriteError};

use crate::lab::{ALPN, NAME, Pki, close_frame, connect, soon};

on_each_library!(
    streams_of_both_kinds_and_both_sides_cross_in_each_mode,
    resets_and_stops_keep_their_codes_in_both_directions,
    a_reset_passes_a_stalled_receiver,
    finished_streams_arrive_whole_though_their_sender_closes_at_once,
    a_torn_stream_does_not_look_finished,
    datagrams_cross_both_ways_and_oversized_ones_are_counted,
    a_stalled_reader_stops_its_sender_and_nobody_else,
    a_reader_that_pauses_with_megabytes_under_way_loses_nothing,
    name_protocol_and_choice_of_the_origin_are_kept,
);

const MODES: [&str; 3] = ["default", "h3-capable", "warm"];

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + seed * 13 + index / 251) as u8)
        .collect()
}

async fn send(mut stream: SendStream, data: &[u8]) {
    stream.write_all(data).await.unwrap();
    stream.finish().unwrap();
    assert_eq!(stream.stopped().await.unwrap(), None);
}

async fn receive(mut stream: RecvStream) -> Vec<u8> {
    stream.read_to_end(1 << 24).await.unwrap()
}

/// `from` opens four streams of each kind; `to` sees them with the same ids and contents, and
/// answers the two-way ones.
async fn exchange(from: &Connection, to: &Connection) {
    for index in 0..4 {
        let data = pattern(index, 50_000 * index);
        let (send_bi, answer) = from.open_bi().await.unwrap();
        let send_uni = from.open_uni().await.unwrap();
        let (ids, sent) = ((send_bi.id(), send_uni.id()), data.clone());
        let ((), (), answer, (seen, echoed, single)) = tokio::join!(
            send(send_bi, &sent),
            send(send_uni, &sent),
            receive(answer),
            async {
                let (back, there) = to.accept_bi().await.unwrap();
                let uni = to.accept_uni().await.unwrap();
                let seen = (there.id(), uni.id());
                let (data, single) = tokio::join!(receive(there), receive(uni));
                send(back, &data[data.len() / 2..]).await;
                (seen, data, single)
            }
        );
        assert_eq!(seen, ids, "streams keep their ids");
        assert!(echoed == data && single == data);
        assert!(answer == data[data.len() / 2..]);
    }
}

// promise: P66
async fn streams_of_both_kinds_and_both_sides_cross_in_each_mode(pki: Pki) {
    for mode in MODES {
        let origin = pki.origin(&[ALPN]);
        let (st, gw) = pki.chain(origin.local_addr().unwrap(), mode);
        let (client, server) = connect(&pki, st.address, &origin).await;
        soon(async { tokio::join!(exchange(&client, &server), exchange(&server, &client)) }).await;
        client.close(VarInt::from_u32(7), b"done");
        assert_eq!(close_frame(&server).await, (7, "done".into()), "{mode}");
        for proxy in [&st, &gw] {
            let closed = proxy.line("closed", 1).await;
            assert_eq!(closed["outcome"], "closed");
            assert_eq!(closed["from_client"]["streams"], 8);
            assert_eq!(closed["from_server"]["streams"], 8);
            // 4 two-way and 4 one-way streams of 0, 50, 100 and 150 kB, and the other side's
            // answers of half as much.
            assert_eq!(closed["from_client"]["bytes"], 300_000 * 2 + 150_000);
            assert_eq!(closed["from_server"]["bytes"], 300_000 * 2 + 150_000);
            assert_eq!(closed["alpn"], "test");
            for side in ["client_side", "server_side"] {
                assert!(
                    closed[side]["handshake_ms"].as_f64().unwrap() > 0.0,
                    "{closed}"
                );
            }
        }
    }
}

async fn resets_and_stops_keep_their_codes_in_both_directions(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "default");
    let (client, server) = connect(&pki, st.address, &origin).await;
    for (from, to, code) in [(&client, &server, 0x10c), (&server, &client, (1 << 60) + 3)] {
        let code = VarInt::from_u64(code).unwrap();
        soon(async {
            let (mut send, mut answer) = from.open_bi().await.unwrap();
            send.write_all(b"begun").await.unwrap();
            let (mut back, mut there) = to.accept_bi().await.unwrap();
            assert_eq!(
                there.read_chunk(5, true).await.unwrap().unwrap().bytes,
                "begun"
            );
            send.reset(code).unwrap();
            assert_eq!(there.read_chunk(1, true).await, Err(ReadError::Reset(code)));

            answer.stop(code).unwrap();
            assert_eq!(back.stopped().await, Ok(Some(code)));
            assert_eq!(back.write(b"x").await, Err(WriteError::Stopped(code)));

            // The connection goes on.
            let (mut send, _answer) = from.open_bi().await.unwrap();
            send.write_all(b"again").await.unwrap();
            let (_back, mut there) = to.accept_bi().await.unwrap();
            assert_eq!(
                there.read_chunk(5, true).await.unwrap().unwrap().bytes,
                "again"
            );
        })
        .await;
    }
    assert_eq!((client.close_reason(), server.close_reason()), (None, None));
}

async fn a_reset_passes_a_stalled_receiver(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let proxy = pki.proxy(&["--next-hop", &next_hop]);
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    soon(async {
        let (mut send, _answer) = client.open_bi().await.unwrap();
        // More than the origin's window of 1.25 MB takes, so that the proxy holds the rest back.
        send.write_all(&pattern(1, 4_000_000)).await.unwrap();
        let (_back, mut there) = server.accept_bi().await.unwrap();
        send.reset(VarInt::from_u32(5)).unwrap();
        assert_eq!(there.received_reset().await, Ok(Some(VarInt::from_u32(5))));
    })
    .await;
}

async fn finished_streams_arrive_whole_though_their_sender_closes_at_once(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "default");
    let (client, server) = connect(&pki, st.address, &origin).await;
    let data = pattern(3, 3_000_000);
    soon(async {
        // Acknowledged by the first proxy, which is all that a client can know.
        send(client.open_uni().await.unwrap(), &data).await;
        client.close(VarInt::from_u32(9), b"");
        assert!(receive(server.accept_uni().await.unwrap()).await == data);
        assert_eq!(close_frame(&server).await.0, 9);
    })
    .await;
}

async fn a_torn_stream_does_not_look_finished(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "default");
    let (client, server) = connect(&pki, st.address, &origin).await;
    soon(async {
        let mut torn = client.open_uni().await.unwrap();
        torn.write_all(b"half").await.unwrap();
        let mut there = server.accept_uni().await.unwrap();
        assert_eq!(
            there.read_chunk(9, true).await.unwrap().unwrap().bytes,
            "half"
        );
        client.close(VarInt::from_u32(1), b"");
        match there.read_chunk(9, true).await {
            Err(ReadError::ConnectionLost(_)) => {}
            other => panic!("{other:?}"),
        }
    })
    .await;
}

async fn datagrams_cross_both_ways_and_oversized_ones_are_counted(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "h3-capable");
    let (client, server) = connect(&pki, st.address, &origin).await;
    for (from, to) in [(&client, &server), (&server, &client)] {
        soon(async {
            from.send_datagram("ahoy".into()).unwrap();
            assert_eq!(to.read_datagram().await.unwrap(), "ahoy");
        })
        .await;
    }
    client.close(VarInt::from_u32(0), b"");
    let closed = st.line("closed", 1).await;
    assert_eq!(closed["from_client"]["datagrams"], 1);
    assert_eq!(closed["from_server"]["datagrams"], 1);
}

// promise: P66
async fn a_stalled_reader_stops_its_sender_and_nobody_else(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let small = ["--client-side-stream-receive-window", "131072"];
    let proxy = pki.proxy(&[&["--next-hop", &next_hop], &small[..]].concat());
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    let data = pattern(5, 8_000_000);
    let (mut stalled, _answer) = client.open_bi().await.unwrap();
    let mut written = 0;
    // Until nothing is taken any more: the receivers' windows, and what the proxy holds.
    while let Ok(Ok(count)) =
        tokio::time::timeout(Duration::from_secs(1), stalled.write(&data[written..])).await
    {
        written += count;
        assert!(written < data.len(), "there is no back-pressure");
    }
    // quinn's default stream window at the origin, the proxy's 256 KiB in order, its stream window.
    let bound = 1_250_000 + 262_144 + 131_072 + 65_536;
    assert!(
        (1_250_000..bound).contains(&written),
        "{written} is not below {bound}"
    );
    soon(async {
        let (_back, mut there) = server.accept_bi().await.unwrap();
        exchange(&client, &server).await;
        let rest = async {
            stalled.write_all(&data[written..]).await.unwrap();
            stalled.finish().unwrap();
        };
        let (received, ()) = tokio::join!(there.read_to_end(data.len()), rest);
        assert!(received.unwrap() == data);
    })
    .await;
}

async fn a_reader_that_pauses_with_megabytes_under_way_loses_nothing(pki: Pki) {
    let origin = pki.origin(&[ALPN]);
    let next_hop = origin.local_addr().unwrap().to_string();
    let window = ["--client-side-receive-window", "8388608"];
    let proxy = pki.proxy(&[&["--next-hop", &next_hop], &window[..]].concat());
    let (client, server) = connect(&pki, proxy.address, &origin).await;
    let data = pattern(9, 24_000_000);
    let mut upload = client.open_uni().await.unwrap();
    let mut written = 0;
    // As much as the origin's window and the proxy's take: several thousand datagrams in order.
    while let Ok(Ok(count)) =
        tokio::time::timeout(Duration::from_secs(1), upload.write(&data[written..])).await
    {
        written += count;
        assert!(written < data.len(), "there is no back-pressure");
    }
    assert!((8_000_000..11_000_000).contains(&written), "{written}");
    soon(async {
        let mut there = server.accept_uni().await.unwrap();
        let rest = async {
            upload.write_all(&data[written..]).await.unwrap();
            upload.finish().unwrap();
        };
        let (received, ()) = tokio::join!(there.read_to_end(data.len()), rest);
        assert!(received.unwrap() == data);
    })
    .await;
}

async fn name_protocol_and_choice_of_the_origin_are_kept(pki: Pki) {
    let origin = pki.origin(&[b"second"]);
    let (st, _gw) = pki.chain(origin.local_addr().unwrap(), "h3-capable");
    let client = pki.client();
    let config = pki.client_config(&[b"first", b"second"]);
    soon(async {
        let connecting = client.connect_with(config, st.address, NAME).unwrap();
        let accept = async { origin.accept().await.unwrap().await.unwrap() };
        let (client, server) = tokio::join!(connecting, accept);
        for connection in [client.unwrap(), server] {
            let data = connection.handshake_data().unwrap();
            let data = data
                .downcast::<quinn::crypto::rustls::HandshakeData>()
                .unwrap();
            assert_eq!(data.protocol.as_deref(), Some(&b"second"[..]));
            if connection.side().is_server() {
                assert_eq!(data.server_name.as_deref(), Some(NAME));
            }
        }
    })
    .await;
    let accepted = st.line("accepted", 1).await;
    assert_eq!(accepted["server_name"], NAME);
    assert_eq!(accepted["alpn"], serde_json::json!(["first", "second"]));
}
