// SPDX-License-Identifier: GPL-3.0-or-later
//! noq's protocol core (noq-proto), without its runtime.

use noq_proto as proto;

#[path = "quinn_family.rs"]
mod family;

pub use family::{Crypto, Family as Noq, check};

/// As in Cargo.lock.
pub const NAME: &str = "noq-proto 1.4.0";

/// What the family leaves to its members.
mod differences {
    use std::net::{IpAddr, SocketAddr};
    use std::num::NonZeroUsize;
    use std::sync::Arc;
    use std::time::Instant;

    use ::quic::noq::sender_state;
    use ::quic::{Faults, QlogFile, client_tls, server_tls};
    use bytes::{Bytes, BytesMut};
    use noq_proto::{
        Connection, ConnectionIdGenerator, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
        FourTuple, PathId, ServerConfig, StreamId, Transmit, TransportConfig,
    };

    use super::Crypto;
    use crate::stack::{ALPN, Setup, StackError, Stats, TlsFiles};

    pub fn transport(setup: &Setup) -> Result<TransportConfig, Faults> {
        ::quic::noq::transport(&setup.options)
    }

    pub fn crypto(files: &TlsFiles) -> Result<Crypto, StackError> {
        let no_suite = |why| StackError::Library { what: "TLS", why };
        Ok(match files {
            TlsFiles::Client { ca } => {
                let mut tls = client_tls(ca, false)?;
                tls.alpn_protocols = vec![ALPN.to_vec()];
                let made = tls.try_into();
                Crypto::Client(Arc::new(
                    made.map_err(|it: NoSuite| no_suite(it.to_string()))?,
                ))
            }
            TlsFiles::Server { cert, key } => {
                let mut tls = server_tls(cert, key, true)?;
                tls.alpn_protocols = vec![ALPN.to_vec()];
                let made = tls.try_into();
                Crypto::Server(Arc::new(
                    made.map_err(|it: NoSuite| no_suite(it.to_string()))?,
                ))
            }
        })
    }

    type NoSuite = noq_proto::crypto::rustls::NoInitialCipherSuite;

    pub fn endpoint(config: EndpointConfig, server: Option<Arc<ServerConfig>>) -> Endpoint {
        Endpoint::new(Arc::new(config), server, true)
    }

    pub fn set_ids(
        config: &mut EndpointConfig,
        generator: impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static,
    ) {
        config.cid_generator(Arc::new(generator));
    }

    pub fn write(connection: &mut Connection, stream: StreamId, data: &mut Bytes) {
        let _ = connection
            .send_stream(stream)
            .write_chunks(&mut std::slice::from_mut(data));
    }

    /// [`transport`] refuses Careful Resume.
    pub fn set_controllers(_: &mut TransportConfig, _: &resume::Resumption) {}

    pub fn set_qlog(config: &mut TransportConfig, file: QlogFile, title: String, _: Instant) {
        ::quic::noq::set_qlog(config, file, title);
    }

    pub fn handle(
        endpoint: &mut Endpoint,
        now: Instant,
        (from, to): (SocketAddr, IpAddr),
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
        buffer: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        endpoint.handle(now, FourTuple::new(from, Some(to)), ecn, data, buffer)
    }

    pub fn transmit(
        connection: &mut Connection,
        now: Instant,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let segments = NonZeroUsize::new(segments).unwrap_or(NonZeroUsize::MIN);
        connection.poll_transmit(now, segments, buffer)
    }

    pub fn migrated(connection: &mut Connection, now: Instant) {
        connection.handle_network_change(None, now);
    }

    /// Of the only path: several are not asked for.
    pub fn stats(connection: &mut Connection) -> Stats {
        let path = connection.path_stats(PathId::ZERO).unwrap_or_default();
        let all = connection.stats();
        Stats {
            cwnd_bytes: path.cwnd,
            rtt: path.rtt,
            sent_packets: all.sent_packets,
            sent_datagrams: Some(all.udp_tx.datagrams),
            received_packets: all.udp_rx.datagrams,
            received_bytes: all.udp_rx.bytes,
            lost_packets: all.lost_packets,
            sent_bytes: all.udp_tx.bytes,
            lost_bytes: all.lost_bytes,
            acks_sent: Some(all.frame_tx.acks),
            acks_received: Some(all.frame_rx.acks),
            congestion_events: Some(path.congestion_events),
            blocked_frames: Some(all.frame_tx.data_blocked + all.frame_tx.stream_data_blocked),
            sender: connection
                .congestion_state(PathId::ZERO)
                .and_then(sender_state),
        }
    }
}
