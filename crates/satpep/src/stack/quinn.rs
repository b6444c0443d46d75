// SPDX-License-Identifier: GPL-3.0-or-later
//! quinn, for all but bbr3.

use ::quinn as library;

#[path = "family/mod.rs"]
mod family;

pub use family::Proxy;

/// What the family leaves to its members.
mod differences {
    use std::fmt;
    use std::io::{self, IoSliceMut};
    use std::net::{SocketAddr, UdpSocket};
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use ::quic::{QlogFile, TlsError, observed};
    use ::quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
    use ::quinn::udp::{RecvMeta, Transmit};
    use ::quinn::{
        AsyncUdpSocket, Chunk, Connection, Endpoint, EndpointConfig, QlogConfig, ReadError,
        Runtime, SendStream, ServerConfig, TokioRuntime, TransportConfig, UdpPoller, WriteError,
    };
    use bytes::Bytes;
    use resume::Resumption;

    use crate::client_hello_inbox::Hellos;
    use crate::report::Counters;

    pub use ::quic::transport;
    pub use ::quinn::RecvStream as Receive;

    pub fn server_crypto(tls: rustls::ServerConfig) -> Result<QuicServerConfig, TlsError> {
        Ok(tls.try_into()?)
    }

    pub fn client_crypto(tls: rustls::ClientConfig) -> Result<QuicClientConfig, TlsError> {
        Ok(tls.try_into()?)
    }

    pub fn set_controllers(config: &mut TransportConfig, resumption: &Resumption) {
        config.congestion_controller_factory(observed(Arc::new(resumption.clone())));
    }

    pub fn set_qlog(config: &mut TransportConfig, file: QlogFile, title: String) {
        let mut qlog = QlogConfig::default();
        qlog.writer(Box::new(file)).title(Some(title));
        config.qlog_stream(qlog.into_stream());
    }

    /// See `Window`; `_` is the window of a stream, bytes.
    pub fn most_ready(_: u64) -> usize {
        256 * 1024
    }

    pub fn unordered(stream: Receive) -> Receive {
        stream
    }

    pub async fn read(from: &mut Receive) -> Result<Option<Chunk>, ReadError> {
        from.read_chunk(usize::MAX, false).await
    }

    /// Returns whole chunks and bytes that were taken.
    pub async fn write(
        to: &mut SendStream,
        chunks: &mut [Bytes],
    ) -> Result<(usize, usize), WriteError> {
        let written = to.write_chunks(chunks).await?;
        Ok((written.chunks, written.bytes))
    }

    pub fn counters(connection: &Connection) -> Counters {
        let stats = connection.stats();
        Counters {
            rtt_ms: crate::report::millis(stats.path.rtt),
            cwnd_bytes: stats.path.cwnd,
            mtu_bytes: stats.path.current_mtu,
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            congestion_events: stats.path.congestion_events,
            udp_bytes_sent: stats.udp_tx.bytes,
            udp_bytes_received: stats.udp_rx.bytes,
            acks_sent: stats.frame_tx.acks,
            acks_received: stats.frame_rx.acks,
            ack_frequency_sent: stats.frame_tx.ack_frequency,
        }
    }

    /// Listens on `socket`. `hellos` inspects datagrams before the library does.
    pub fn listen(
        socket: UdpSocket,
        config: ServerConfig,
        hellos: Arc<Hellos>,
    ) -> io::Result<Endpoint> {
        let runtime = Arc::new(TokioRuntime);
        let socket = runtime.wrap_udp_socket(socket)?;
        Endpoint::new_with_abstract_socket(
            EndpointConfig::default(),
            Some(config),
            Arc::new(InspectedSocket { socket, hellos }),
            runtime,
        )
    }

    struct InspectedSocket {
        socket: Arc<dyn AsyncUdpSocket>,
        hellos: Arc<Hellos>,
    }

    impl fmt::Debug for InspectedSocket {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "InspectedSocket({:?})", self.socket)
        }
    }

    impl AsyncUdpSocket for InspectedSocket {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            Arc::clone(&self.socket).create_io_poller()
        }

        fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
            self.socket.try_send(transmit)
        }

        fn poll_recv(
            &self,
            cx: &mut Context<'_>,
            buffers: &mut [IoSliceMut<'_>],
            meta: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let result = self.socket.poll_recv(cx, buffers, meta);
            if let Poll::Ready(Ok(count)) = result {
                for (buffer, meta) in buffers.iter().zip(&meta[..count]) {
                    self.hellos
                        .inspect(&buffer[..meta.len], meta.stride, meta.addr);
                }
            }
            result
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.socket.local_addr()
        }

        fn max_transmit_segments(&self) -> usize {
            self.socket.max_transmit_segments()
        }

        fn max_receive_segments(&self) -> usize {
            self.socket.max_receive_segments()
        }

        fn may_fragment(&self) -> bool {
            self.socket.may_fragment()
        }
    }
}
