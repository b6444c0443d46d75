// SPDX-License-Identifier: GPL-3.0-or-later
//! noq, a fork of quinn, for bbr3.

use ::noq as library;

#[path = "family/mod.rs"]
mod family;

pub use family::Proxy;

/// What the family leaves to its members.
mod differences {
    use std::fmt;
    use std::io::{self, IoSliceMut};
    use std::net::{SocketAddr, UdpSocket};
    use std::num::NonZeroUsize;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use ::noq::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
    use ::noq::udp::RecvMeta;
    use ::noq::{
        AsyncUdpSocket, Chunk, Connection, Endpoint, EndpointConfig, PathId, ReadError, RecvStream,
        Runtime, SendStream, ServerConfig, TokioRuntime, TransportConfig, UdpSender, WriteError,
    };
    use ::quic::TlsError;
    use bytes::Bytes;
    use resume::Resumption;

    use crate::client_hello_inbox::Hellos;
    use crate::report::Counters;

    pub use ::noq::UnorderedRecvStream as Receive;
    pub use ::quic::noq::{set_qlog, transport};

    fn no_suite(error: &NoInitialCipherSuite) -> TlsError {
        TlsError::Rustls(rustls::Error::General(error.to_string()))
    }

    pub fn server_crypto(tls: rustls::ServerConfig) -> Result<QuicServerConfig, TlsError> {
        tls.try_into().map_err(|error| no_suite(&error))
    }

    pub fn client_crypto(tls: rustls::ClientConfig) -> Result<QuicClientConfig, TlsError> {
        tls.try_into().map_err(|error| no_suite(&error))
    }

    /// The options refuse Careful Resume next to bbr3.
    pub fn set_controllers(_: &mut TransportConfig, _: &Resumption) {}

    /// See `Window`. noq 1.4.0 closes a connection once a stream has more than 2,048 unread
    /// datagrams, with gaps or without (quinn-rs/quinn issue 2809): one whose window takes so many
    /// is always read, and the connection's window holds its peer back.
    pub fn most_ready(stream_window: u64) -> usize {
        if stream_window <= 1 << 20 {
            256 * 1024
        } else {
            usize::MAX
        }
    }

    pub fn unordered(stream: RecvStream) -> Receive {
        stream.into_unordered()
    }

    pub async fn read(from: &mut Receive) -> Result<Option<Chunk>, ReadError> {
        from.read_chunk(usize::MAX).await
    }

    /// Returns whole chunks and bytes that were taken.
    pub async fn write(
        to: &mut SendStream,
        chunks: &mut [Bytes],
    ) -> Result<(usize, usize), WriteError> {
        let all = chunks.len();
        let mut rest = chunks;
        let bytes = to.write_many_chunks(&mut rest).await?;
        Ok((all - rest.len(), bytes))
    }

    /// Returns the counters of the only path; the proxy does not use several paths.
    pub fn counters(connection: &Connection) -> Counters {
        let path = connection.path_stats(PathId::ZERO).unwrap_or_default();
        let all = connection.stats();
        Counters {
            rtt_ms: crate::report::millis(path.rtt),
            cwnd_bytes: path.cwnd,
            mtu_bytes: path.current_mtu,
            packets_sent: all.sent_packets,
            packets_lost: all.lost_packets,
            congestion_events: path.congestion_events,
            udp_bytes_sent: all.udp_tx.bytes,
            udp_bytes_received: all.udp_rx.bytes,
            acks_sent: all.frame_tx.acks,
            acks_received: all.frame_rx.acks,
            ack_frequency_sent: all.frame_tx.ack_frequency,
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
            Box::new(InspectedSocket { socket, hellos }),
            runtime,
        )
    }

    struct InspectedSocket {
        socket: Box<dyn AsyncUdpSocket>,
        hellos: Arc<Hellos>,
    }

    impl fmt::Debug for InspectedSocket {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "InspectedSocket({:?})", self.socket)
        }
    }

    impl AsyncUdpSocket for InspectedSocket {
        fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
            self.socket.create_sender()
        }

        fn poll_recv(
            &mut self,
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

        fn max_receive_segments(&self) -> NonZeroUsize {
            self.socket.max_receive_segments()
        }

        fn may_fragment(&self) -> bool {
            self.socket.may_fragment()
        }
    }
}
