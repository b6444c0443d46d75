// SPDX-License-Identifier: GPL-3.0-or-later
//! quinn's protocol core (quinn-proto), without its runtime.

use quinn_proto as proto;

#[path = "quinn_family.rs"]
mod family;

pub use family::{Crypto, Family as Quinn, check};

/// As in Cargo.lock.
pub const NAME: &str = "quinn-proto 0.11.19";

/// What the family leaves to its members.
mod differences {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Arc;
    use std::time::Instant;

    use ::quic::{Faults, QlogFile, client_crypto, observed, sender_state, server_crypto};
    use bytes::{Bytes, BytesMut};
    use quinn_proto::{
        Connection, ConnectionIdGenerator, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
        QlogConfig, ServerConfig, StreamId, Transmit, TransportConfig,
    };
    use resume::Resumption;

    use super::Crypto;
    use crate::stack::{ALPN, Setup, StackError, Stats, TlsFiles};

    pub fn transport(setup: &Setup) -> Result<TransportConfig, Faults> {
        ::quic::transport(&setup.options)
    }

    pub fn crypto(files: &TlsFiles) -> Result<Crypto, StackError> {
        Ok(match files {
            TlsFiles::Client { ca } => Crypto::Client(Arc::new(client_crypto(ca, &[ALPN], false)?)),
            TlsFiles::Server { cert, key } => {
                Crypto::Server(Arc::new(server_crypto(cert, key, &[ALPN], true)?))
            }
        })
    }

    pub fn endpoint(config: EndpointConfig, server: Option<Arc<ServerConfig>>) -> Endpoint {
        Endpoint::new(Arc::new(config), server, true, None)
    }

    pub fn set_ids(
        config: &mut EndpointConfig,
        generator: impl Fn() -> Box<dyn ConnectionIdGenerator> + Send + Sync + 'static,
    ) {
        config.cid_generator(generator);
    }

    pub fn write(connection: &mut Connection, stream: StreamId, data: &mut Bytes) {
        let _ = connection
            .send_stream(stream)
            .write_chunks(std::slice::from_mut(data));
    }

    pub fn set_controllers(config: &mut TransportConfig, resumption: &Resumption) {
        let controllers = observed(Arc::new(resumption.clone()));
        config.congestion_controller_factory(controllers);
    }

    pub fn set_qlog(config: &mut TransportConfig, file: QlogFile, title: String, now: Instant) {
        let mut qlog = QlogConfig::default();
        qlog.writer(Box::new(file))
            .title(Some(title))
            .start_time(now);
        config.qlog_stream(qlog.into_stream());
    }

    pub fn handle(
        endpoint: &mut Endpoint,
        now: Instant,
        (from, to): (SocketAddr, IpAddr),
        ecn: Option<EcnCodepoint>,
        data: BytesMut,
        buffer: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        endpoint.handle(now, from, Some(to), ecn, data, buffer)
    }

    pub fn transmit(
        connection: &mut Connection,
        now: Instant,
        segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        connection.poll_transmit(now, segments, buffer)
    }

    pub fn migrated(connection: &mut Connection, _: Instant) {
        connection.local_address_changed();
    }

    pub fn stats(connection: &mut Connection) -> Stats {
        let stats = connection.stats();
        Stats {
            cwnd_bytes: stats.path.cwnd,
            rtt: stats.path.rtt,
            sent_packets: stats.path.sent_packets,
            sent_datagrams: Some(stats.udp_tx.datagrams),
            received_packets: stats.udp_rx.datagrams,
            received_bytes: stats.udp_rx.bytes,
            lost_packets: stats.path.lost_packets,
            sent_bytes: stats.udp_tx.bytes,
            lost_bytes: stats.path.lost_bytes,
            acks_sent: Some(stats.frame_tx.acks),
            acks_received: Some(stats.frame_rx.acks),
            congestion_events: Some(stats.path.congestion_events),
            blocked_frames: Some(stats.frame_tx.data_blocked + stats.frame_tx.stream_data_blocked),
            sender: sender_state(connection),
        }
    }
}
