// SPDX-License-Identifier: GPL-3.0-or-later
//! Server name and protocols of a `ClientHello`, read from Initial packets.
//!
//! Initial packets are protected with keys that follow from the client's first destination
//! connection id (RFC 9001 section 5.2), so that a proxy can read them before it decides whether
//! and as what to accept the connection.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use bytes::{Buf, BytesMut};
use quic::Reassembly;
use quinn::ConnectionId;
use quinn::crypto::ServerConfig;

/// Connection attempts whose `ClientHello` is kept until the proxy takes it; the oldest is dropped
/// first.
const MOST_ATTEMPTS: usize = 256;
/// A `ClientHello` with a post-quantum key share has 2 kB.
const MOST_HELLO_BYTES: usize = 16 * 1024;
/// Longest connection id (RFC 9000 section 17.2).
const MOST_CID_BYTES: usize = 20;

/// Server name and protocols, in the client's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// Host name of the server name indication (RFC 6066 section 3).
    pub server_name: Option<String>,
    /// Protocol names (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
}

/// `ClientHello`s of connection attempts that the proxy has not taken yet.
#[derive(Debug, Default)]
pub struct PendingHellos {
    attempts: HashMap<Vec<u8>, Attempt>,
    /// Clients whose last Initial packet had a token, by attempt.
    with_token: HashMap<Vec<u8>, SocketAddr>,
    oldest: VecDeque<Vec<u8>>,
}

#[derive(Debug)]
enum Attempt {
    Partial(Reassembly, Vec<u8>),
    Whole(ClientHello),
}

impl PendingHellos {
    /// Inspects one received datagram. Anything but an Initial packet of a client is ignored.
    ///
    /// Returns whether a `ClientHello` became complete.
    pub fn inspect(
        &mut self,
        datagram: &[u8],
        client: SocketAddr,
        crypto: &dyn ServerConfig,
    ) -> bool {
        let Some(initial) = open_initial(datagram, crypto) else {
            return false;
        };
        let with_token = initial.has_token.then(|| initial.dcid.clone());
        let is_whole = self.add(initial.dcid, initial.payload).unwrap_or(false);
        if let Some(dcid) = with_token.filter(|dcid| self.attempts.contains_key(dcid)) {
            self.with_token.insert(dcid, client);
        }
        is_whole
    }

    /// Returns the `ClientHello` of a client that was asked to try again, from its newest attempt
    /// with a token: after a Retry it has another destination connection id than the one which the
    /// library names.
    pub fn take_retried(&mut self, client: SocketAddr) -> Option<ClientHello> {
        let newest = (self.oldest.iter().rev())
            .find(|dcid| self.with_token.get(*dcid) == Some(&client))?
            .clone();
        self.take(&newest)
    }

    /// Returns the `ClientHello` of the attempt with this original destination connection id.
    pub fn take(&mut self, dcid: &[u8]) -> Option<ClientHello> {
        let Some(Attempt::Whole(_)) = self.attempts.get(dcid) else {
            return None;
        };
        self.oldest.retain(|it| it != dcid);
        self.with_token.remove(dcid);
        match self.attempts.remove(dcid) {
            Some(Attempt::Whole(hello)) => Some(hello),
            _ => None,
        }
    }

    /// `None` for bytes that are no `ClientHello`; quinn refuses the connection then.
    fn add(&mut self, dcid: Vec<u8>, payload: BytesMut) -> Option<bool> {
        if !self.attempts.contains_key(&dcid) {
            if self.oldest.len() == MOST_ATTEMPTS {
                let gone = self.oldest.pop_front()?;
                self.attempts.remove(&gone);
                self.with_token.remove(&gone);
            }
            self.oldest.push_back(dcid.clone());
        }
        let attempt = self
            .attempts
            .entry(dcid)
            .or_insert_with(|| Attempt::Partial(Reassembly::new(MOST_HELLO_BYTES), Vec::new()));
        let Attempt::Partial(stream, message) = attempt else {
            return Some(false);
        };
        let mut payload = payload.freeze();
        while let Some((offset, data)) = next_crypto_frame(&mut payload) {
            if offset + data.len() as u64 > MOST_HELLO_BYTES as u64 {
                return None;
            }
            stream.insert(offset, data).ok()?;
        }
        while let Some(data) = stream.pop() {
            message.extend_from_slice(&data);
        }
        let hello = parse_client_hello(message)?;
        *attempt = Attempt::Whole(hello);
        Some(true)
    }
}

/// An Initial packet of a client.
struct Initial {
    dcid: Vec<u8>,
    has_token: bool,
    payload: BytesMut,
}

/// Opens the Initial packet at the start of a datagram.
fn open_initial(datagram: &[u8], crypto: &dyn ServerConfig) -> Option<Initial> {
    let mut rest = datagram;
    let first = take_u8(&mut rest)?;
    // Long header, type Initial (RFC 9000 section 17.2.2). A resuming client may have cleared the
    // fixed bit (RFC 9287).
    if first & 0xb0 != 0x80 {
        return None;
    }
    let version = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let dcid = take_short(&mut rest)?;
    take_short(&mut rest)?;
    if dcid.len() > MOST_CID_BYTES {
        return None;
    }
    let token_len = take_varint(&mut rest)?;
    take(&mut rest, token_len.try_into().ok()?)?;
    let length = usize::try_from(take_varint(&mut rest)?).ok()?;
    let pn_offset = datagram.len() - rest.len();
    let end = pn_offset
        .checked_add(length)
        .filter(|end| *end <= datagram.len())?;

    let keys = crypto
        .initial_keys(version, &ConnectionId::new(dcid))
        .ok()?;
    let header_key = &keys.header.remote;
    if length < 4 + header_key.sample_size() {
        return None;
    }
    let mut packet = datagram[..end].to_vec();
    header_key.decrypt(pn_offset, &mut packet);
    let pn_len = usize::from(packet[0] & 0x03) + 1;
    let (header, payload) = packet.split_at(pn_offset + pn_len);
    // A client's first packets have numbers that need no completion (RFC 9000 appendix A.3).
    let number = header[pn_offset..]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    let mut payload = BytesMut::from(payload);
    keys.packet
        .remote
        .decrypt(number, header, &mut payload)
        .ok()?;
    Some(Initial {
        dcid: dcid.to_vec(),
        has_token: token_len > 0,
        payload,
    })
}

/// Returns offset and data of the next CRYPTO frame; `None` at the end or at a frame that a first
/// flight does not have.
fn next_crypto_frame(payload: &mut bytes::Bytes) -> Option<(u64, bytes::Bytes)> {
    loop {
        let mut rest = &payload[..];
        match take_u8(&mut rest)? {
            // PADDING and PING
            0x00 | 0x01 => payload.advance(1),
            // CRYPTO
            0x06 => {
                let offset = take_varint(&mut rest)?;
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                payload.advance(payload.len() - rest.len());
                return (length <= payload.len()).then(|| (offset, payload.split_to(length)));
            }
            _ => return None,
        }
    }
}

/// Reads a whole `ClientHello` (RFC 8446 section 4.1.2); `None` if the bytes are incomplete or
/// something else.
fn parse_client_hello(message: &[u8]) -> Option<ClientHello> {
    let mut rest = message;
    if take_u8(&mut rest)? != 1 {
        return None;
    }
    let length = take_sized(&mut rest, 3)?;
    let mut body = length;
    take(&mut body, 2 + 32)?;
    take_sized(&mut body, 1)?;
    take_sized(&mut body, 2)?;
    take_sized(&mut body, 1)?;
    let mut extensions = take_sized(&mut body, 2)?;
    let mut hello = ClientHello::default();
    while !extensions.is_empty() {
        let kind = take(&mut extensions, 2)?;
        let mut data = take_sized(&mut extensions, 2)?;
        match kind {
            [0, 0] => hello.server_name = host_name(take_sized(&mut data, 2)?),
            [0, 16] => {
                let mut names = take_sized(&mut data, 2)?;
                while !names.is_empty() {
                    hello.alpn.push(take_sized(&mut names, 1)?.to_vec());
                }
            }
            _ => {}
        }
    }
    Some(hello)
}

fn host_name(mut list: &[u8]) -> Option<String> {
    let kind = take_u8(&mut list)?;
    let name = take_sized(&mut list, 2)?;
    (kind == 0)
        .then(|| String::from_utf8(name.to_vec()).ok())
        .flatten()
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn take_u8(bytes: &mut &[u8]) -> Option<u8> {
    take(bytes, 1).map(|it| it[0])
}

/// Bytes behind a big-endian length of `width` bytes.
fn take_sized<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = take(bytes, width)?
        .iter()
        .fold(0, |length, byte| length << 8 | usize::from(*byte));
    take(bytes, length)
}

fn take_short<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    take_sized(bytes, 1)
}

/// Variable-length integer, RFC 9000 section 16.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let width = 1 << (bytes.first()? >> 6);
    let value = take(bytes, width)?
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte));
    Some(value & (u64::MAX >> (66 - 8 * width as u32)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use proptest::prelude::*;
    use quinn::crypto::rustls::QuicClientConfig;
    use rustls::pki_types::CertificateDer;

    use super::*;

    const CLIENT: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

    /// First flight of a quinn client: one datagram, or more if `alpn` does not fit into one.
    fn first_flight(name: &str, alpn: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        tls.alpn_protocols = alpn.to_vec();
        let config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let mut endpoint = quinn_proto::Endpoint::new(Arc::default(), None, true, None);
        let (_, mut connection) = endpoint
            .connect(Instant::now(), config, "127.0.0.1:1".parse().unwrap(), name)
            .unwrap();
        let mut datagrams = Vec::new();
        let mut buffer = Vec::new();
        while connection
            .poll_transmit(Instant::now(), 1, &mut buffer)
            .is_some()
        {
            datagrams.push(std::mem::take(&mut buffer));
        }
        datagrams
    }

    fn crypto() -> impl ServerConfig {
        let key = rcgen::generate_simple_self_signed(["x.test".into()]).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(key.cert)],
            rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap(),
        )
        .unwrap();
        config.max_early_data_size = u32::MAX;
        quinn::crypto::rustls::QuicServerConfig::try_from(config).unwrap()
    }

    fn dcid(datagram: &[u8]) -> Vec<u8> {
        datagram[6..][..usize::from(datagram[5])].to_vec()
    }

    /// After a Retry the library names the first attempt; what came with the token is another one.
    #[test]
    fn a_hello_that_comes_again_with_a_token_is_found_by_its_client() {
        let (crypto, mut hellos) = (crypto(), PendingHellos::default());
        let flight = first_flight("kepler.satlab.test", &[]);
        assert!(hellos.inspect(&flight[0], CLIENT, &crypto));
        assert_eq!(hellos.take_retried(CLIENT), None);
        hellos.with_token.insert(dcid(&flight[0]), CLIENT);
        let other = SocketAddr::new(CLIENT.ip(), 2);
        assert_eq!(hellos.take_retried(other), None);
        let hello = hellos.take_retried(CLIENT).unwrap();
        assert_eq!(hello.server_name.as_deref(), Some("kepler.satlab.test"));
        assert!(hellos.with_token.is_empty() && hellos.oldest.is_empty());
    }

    #[test]
    fn name_and_protocols_are_read_from_the_first_datagram() {
        let (crypto, mut hellos) = (crypto(), PendingHellos::default());
        let alpn = [b"h3".to_vec(), b"satperf".to_vec()];
        let flight = first_flight("kepler.satlab.test", &alpn);
        assert!(hellos.inspect(&flight[0], CLIENT, &crypto));
        assert!(
            !hellos.inspect(&flight[0], CLIENT, &crypto),
            "it comes but once"
        );
        let hello = hellos.take(&dcid(&flight[0])).unwrap();
        assert_eq!(hello.server_name.as_deref(), Some("kepler.satlab.test"));
        assert_eq!(hello.alpn, alpn);
        assert_eq!(hellos.take(&dcid(&flight[0])), None);
        assert!(hellos.attempts.is_empty() && hellos.oldest.is_empty());
    }

    #[test]
    fn a_hello_over_several_datagrams_is_put_together_in_any_order() {
        let (crypto, mut hellos) = (crypto(), PendingHellos::default());
        let alpn: Vec<_> = (0..12u8).map(|index| vec![b'a' + index; 200]).collect();
        let flight = first_flight("a.test", &alpn);
        assert!(flight.len() > 1);
        let complete: Vec<_> = flight
            .iter()
            .rev()
            .map(|datagram| hellos.inspect(datagram, CLIENT, &crypto))
            .collect();
        assert_eq!(complete.iter().filter(|it| **it).count(), 1);
        assert_eq!(hellos.take(&dcid(&flight[0])).unwrap().alpn, alpn);
    }

    #[test]
    fn an_address_is_not_a_name() {
        let (crypto, mut hellos) = (crypto(), PendingHellos::default());
        let flight = first_flight("127.0.0.1", &[]);
        assert!(hellos.inspect(&flight[0], CLIENT, &crypto));
        let hello = hellos.take(&dcid(&flight[0])).unwrap();
        assert_eq!(hello, ClientHello::default());
    }

    #[test]
    fn attempts_that_nobody_takes_are_forgotten() {
        let (crypto, mut hellos) = (crypto(), PendingHellos::default());
        for _ in 0..MOST_ATTEMPTS + 10 {
            hellos.inspect(&first_flight("a.test", &[])[0], CLIENT, &crypto);
        }
        assert_eq!(hellos.attempts.len(), MOST_ATTEMPTS);
        assert_eq!(hellos.oldest.len(), MOST_ATTEMPTS);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            let (crypto, mut hellos) = (crypto(), PendingHellos::default());
            hellos.inspect(&bytes, CLIENT, &crypto);
            let mut initial = bytes;
            if initial.len() > 5 {
                initial[..5].copy_from_slice(&[0xc3, 0, 0, 0, 1]);
            }
            hellos.inspect(&initial, CLIENT, &crypto);
            parse_client_hello(&initial);
            next_crypto_frame(&mut initial.into());
        }

        #[test]
        fn damaged_datagrams_are_passed_over(at in 0usize..1200, bit in 0u8..8) {
            let (crypto, mut hellos) = (crypto(), PendingHellos::default());
            let mut datagram = first_flight("a.test", &[]).remove(0);
            datagram[at] ^= 1 << bit;
            prop_assert!(!hellos.inspect(&datagram, CLIENT, &crypto));
        }
    }
}
