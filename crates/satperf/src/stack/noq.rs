// SPDX-License-Identifier: GPL-3.0-or-later
//! noq's protocol core (noq-proto, a fork of quinn-proto), without its runtime. It has `BBRv3`: its controllers set the pacing
//! rate and learn the number of each acknowledged packet.

use noq_proto as proto;

#[path = "quinn_family.rs"]
mod family;
#[path = "noq_watch.rs"]
mod watch;

pub use family::{Crypto, Family as Noq, check};

/// As in Cargo.lock.
pub const NAME: &str = "noq-proto 1.4.0";

/// What the family leaves to its members.
mod differences {
    use std::net::{IpAddr, SocketAddr};
    use std::num::NonZeroUsize;
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use ::quic::{CongestionControl, Fault, Faults, LegOptions, QlogFile, client_tls, server_tls};
    use bytes::{Bytes, BytesMut};
    use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig, NewRenoConfig};
    use noq_proto::{
        AckFrequencyConfig, Connection, ConnectionId, ConnectionIdGenerator, DatagramEvent,
        EcnCodepoint, Endpoint, EndpointConfig, FourTuple, IdleTimeout, PathId, QlogConfig,
        QlogFactory, ServerConfig, Side, StreamId, Transmit, TransportConfig, VarInt,
    };

    use super::Crypto;
    use super::watch::{ObservedFactory, sender_state};
    use crate::stack::{ALPN, Setup, StackError, Stats, TlsFiles};

    pub fn transport(setup: &Setup) -> Result<TransportConfig, Faults> {
        let options = &setup.options;
        options.check()?;
        if let Some(fault) = options.careful_resume_fault("with noq") {
            return Err(Faults(vec![fault]));
        }
        let varint = |value: u64| VarInt::from_u64(value).unwrap_or(VarInt::MAX);
        let idle = VarInt::from_u32(options.max_idle_ms);
        let mut config = TransportConfig::default();
        config
            .congestion_controller_factory(Arc::new(ObservedFactory(controller(options)?)))
            .receive_window(varint(options.receive_window))
            .stream_receive_window(varint(options.stream_receive_window))
            .send_window(options.send_window)
            .initial_rtt(Duration::from_millis(options.initial_rtt_ms.into()))
            .max_idle_timeout(Some(IdleTimeout::from(idle)))
            .ack_frequency_config(ack_frequency(options));
        Ok(config)
    }

    fn ack_frequency(options: &LegOptions) -> Option<AckFrequencyConfig> {
        if options.ack_threshold.is_none() && options.max_ack_delay_ms.is_none() {
            return None;
        }
        let mut config = AckFrequencyConfig::default();
        if let Some(threshold) = options.ack_threshold {
            config.ack_eliciting_threshold(VarInt::from_u32(threshold));
        }
        let delay = options.max_ack_delay_ms;
        config.max_ack_delay(delay.map(|ms| Duration::from_millis(ms.into())));
        Some(config)
    }

    fn controller(
        options: &LegOptions,
    ) -> Result<Arc<dyn ControllerFactory + Send + Sync>, Faults> {
        let window = options.initial_window_bytes() + 1; // as with quinn
        Ok(match options.congestion_control {
            CongestionControl::Reno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            CongestionControl::Cubic => {
                let mut config = CubicConfig::default();
                config.initial_window(window);
                Arc::new(config)
            }
            CongestionControl::Bbr3 => {
                let mut config = Bbr3Config::default();
                config.initial_window(window);
                Arc::new(config)
            }
            CongestionControl::Bbr => {
                return Err(Faults(vec![Fault {
                    option: "congestion-control",
                    why: "bbr (BBRv2) is not offered with noq; use bbr3, or --stack quiche".into(),
                }]));
            }
        })
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

    /// Hands the file to the only connection that is made with a configuration.
    struct OneFile(Mutex<Option<(QlogFile, String)>>);

    impl QlogFactory for OneFile {
        fn for_connection(
            &self,
            _: Side,
            _: SocketAddr,
            _: ConnectionId,
            now: Instant,
        ) -> Option<QlogConfig> {
            let (file, title) = self.0.lock().ok()?.take()?;
            let mut config = QlogConfig::new(Box::new(file));
            config.title(Some(title)).start_time(now);
            Some(config)
        }
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
        config.qlog_factory(Arc::new(OneFile(Mutex::new(Some((file, title))))));
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
