// SPDX-License-Identifier: GPL-3.0-or-later
//! UDP datagrams as IPv4 packets: encode and decode.

use std::net::{Ipv4Addr, SocketAddrV4};

/// IPv4 header without options (RFC 791) and UDP header (RFC 768), bytes.
pub const HEADER: usize = 20 + 8;

/// A received datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source address and port.
    pub source: SocketAddrV4,
    /// ECN codepoint (RFC 3168); `None`: Not-ECT.
    pub ecn: Option<u8>,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// Destination port of a UDP datagram in an IPv4 packet without options; `None` for a shorter
/// packet.
#[must_use]
pub fn destination_port(packet: &[u8]) -> Option<u16> {
    let port = packet.get(22..24)?.try_into().ok()?;
    Some(u16::from_be_bytes(port))
}

/// Returns the IPv4 packet of a datagram of at most 65 507 bytes. Checksums are zero, as nothing on
/// the path checks them.
#[must_use]
pub fn encode(
    source: SocketAddrV4,
    destination: SocketAddrV4,
    ecn: Option<u8>,
    payload: &[u8],
) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = Vec::with_capacity(HEADER + payload.len());
    packet.extend([0x45, ecn.unwrap_or(0)]);
    packet.extend(length(HEADER + payload.len()));
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source.ip().octets());
    packet.extend(destination.ip().octets());
    packet.extend(source.port().to_be_bytes());
    packet.extend(destination.port().to_be_bytes());
    packet.extend(length(8 + payload.len()));
    packet.extend([0, 0]);
    packet.extend(payload);
    packet
}

/// Reverses [`encode`]; `None` for anything shorter than its headers.
#[must_use]
pub fn decode(packet: &[u8]) -> Option<Datagram<'_>> {
    let (header, payload) = packet.split_at_checked(HEADER)?;
    let address: [u8; 4] = header[12..16].try_into().ok()?;
    let port = u16::from_be_bytes(header[20..22].try_into().ok()?);
    Some(Datagram {
        source: SocketAddrV4::new(Ipv4Addr::from(address), port),
        ecn: Some(header[1] & 3).filter(|ecn| *ecn != 0),
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 1, 2), 4433);
    const DESTINATION: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 18, 4, 2), 443);

    #[test]
    fn datagrams_come_back_with_source_and_mark() {
        for ecn in [None, Some(2), Some(3)] {
            let packet = encode(SOURCE, DESTINATION, ecn, b"payload");
            assert_eq!(packet.len(), HEADER + 7);
            assert_eq!(u16::from_be_bytes([packet[2], packet[3]]), 35);
            let expected = Datagram {
                source: SOURCE,
                ecn,
                payload: b"payload",
            };
            assert_eq!(decode(&packet), Some(expected));
        }
    }

    #[test]
    fn short_packets_are_no_datagrams() {
        assert_eq!(decode(&[0x45; HEADER - 1]), None);
    }
}
