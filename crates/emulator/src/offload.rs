// SPDX-License-Identifier: GPL-3.0-or-later
//! The reader's part of TUN offload: segmentation and checksums. Large packets of TCP and UDP are
//! cut into the IP packets that the link carries, byte for byte those that the kernel would have
//! made.
//!
//! Header of a read or write: virtio 1.2, 5.1.6 (`struct virtio_net_hdr`). Checksums: RFC 1071.

/// The checksum is left to the reader; what the field holds is the sum of the pseudo-header.
pub(crate) const NEEDS_CHECKSUM: u8 = 1;
/// One packet.
pub(crate) const WHOLE: u8 = 0;
/// TCP over IPv4, to be cut.
pub(crate) const TCP4: u8 = 1;
/// TCP over IPv6, to be cut.
pub(crate) const TCP6: u8 = 4;
/// UDP, to be cut into datagrams.
pub(crate) const UDP: u8 = 5;

/// Offset of the checksum in the TCP header.
pub(crate) const TCP_CHECKSUM: usize = 16;
/// Offset of the checksum in the UDP header.
pub(crate) const UDP_CHECKSUM: usize = 6;
/// FIN and PSH, which only the last segment has.
const FIN_PSH: u8 = 0x09;

/// What stands in front of each packet of a TUN device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    pub(crate) flags: u8,
    pub(crate) kind: u8,
    /// Bytes in front of the payload.
    pub(crate) length: u16,
    /// Payload of a segment.
    pub(crate) segment: u16,
    /// Offset of the part that the checksum covers.
    pub(crate) start: u16,
    /// The checksum's place in it.
    pub(crate) offset: u16,
}

impl Header {
    /// Length, bytes.
    pub const BYTES: usize = 10;

    /// One packet follows, not one to be cut.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.kind == WHOLE
    }

    /// Reads a header in the host's byte order.
    #[must_use]
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            kind: bytes[1],
            length: word(2),
            segment: word(4),
            start: word(6),
            offset: word(8),
        }
    }

    /// Returns the header as bytes.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.kind);
        let words = [self.length, self.segment, self.start, self.offset];
        for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

/// Sum of 16-bit words, not yet folded. Two 32-bit halves of a word count alike, for 2^16 is 1
/// modulo 2^16 - 1.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    let word = |word: &[u8]| u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    words.map(word).sum::<u64>() + word(&last)
}

/// Folds a sum to 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of a sum; 0 stands for "none" in UDP, and the other zero means the same in TCP.
fn checksum(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Sum of the pseudo-header of a packet whose transport part has `length` bytes (RFC 9293, 3.1; RFC
/// 8200, 8.1).
pub(crate) fn pseudo_header(packet: &[u8], protocol: u8, length: usize) -> u64 {
    let addresses = if is_ipv4(packet) { 12..20 } else { 8..40 };
    sum(&packet[addresses]) + u64::from(protocol) + length as u64
}

pub(crate) fn is_ipv4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

/// Writes the length of an IP packet, and the checksum of an IPv4 header, which ends at
/// `transport`.
pub(crate) fn set_length(packet: &mut [u8], transport: usize) {
    let length = packet.len();
    if is_ipv4(packet) {
        put(packet, 2, length as u16);
        put(packet, 10, 0);
        let checksum = !fold(sum(&packet[..transport]));
        put(packet, 10, checksum);
    } else {
        put(packet, 4, (length - 40) as u16);
    }
}

pub(crate) fn get(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

pub(crate) fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Computes the checksum that was left to the reader. If the header does not match the packet,
/// nothing changes.
pub fn complete(header: &Header, packet: &mut [u8]) {
    let (start, at) = (
        header.start.into(),
        usize::from(header.start) + usize::from(header.offset),
    );
    if header.flags & NEEDS_CHECKSUM != 0 && at + 2 <= packet.len() {
        let checksum = checksum(sum(&packet[start..]));
        put(packet, at, checksum);
    }
}

/// A large packet, and how much of it has been cut off.
#[derive(Debug, Default)]
pub struct Segments {
    bytes: Vec<u8>,
    is_tcp: bool,
    /// Offset of the transport header.
    transport: usize,
    /// Offset of the payload.
    payload: usize,
    /// Payload of a segment.
    segment: usize,
    /// Segments so far.
    count: u16,
}

impl Segments {
    /// Loads a large packet. A packet that does not match its header has no segments.
    pub fn load(&mut self, header: &Header, packet: &[u8]) {
        self.bytes.clear();
        self.count = 0;
        if let Some((is_tcp, payload)) = layout(header, packet) {
            self.bytes.extend_from_slice(packet);
            self.is_tcp = is_tcp;
            self.transport = header.start.into();
            self.payload = payload;
            self.segment = header.segment.into();
        }
    }

    /// Whether no segment is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.position() >= self.bytes.len()
    }

    /// Writes the next segment, an IP packet, to `out`, which has room for it, and returns its
    /// length.
    pub fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let from = self.position();
        let to = self.bytes.len().min(from + self.segment);
        let packet = &mut out[..self.payload + to - from];
        packet[..self.payload].copy_from_slice(&self.bytes[..self.payload]);
        packet[self.payload..].copy_from_slice(&self.bytes[from..to]);
        if is_ipv4(packet) {
            let id = get(packet, 4).wrapping_add(self.count);
            put(packet, 4, id);
        }
        set_length(packet, self.transport);
        self.set_transport(packet, to == self.bytes.len());
        self.count += 1;
        Some(packet.len())
    }

    /// Offset of the payload of the next segment.
    fn position(&self) -> usize {
        self.payload + usize::from(self.count) * self.segment
    }

    fn set_transport(&self, packet: &mut [u8], is_last: bool) {
        let (protocol, place) = if self.is_tcp {
            (6, TCP_CHECKSUM)
        } else {
            (17, UDP_CHECKSUM)
        };
        let length = packet.len() - self.transport;
        let pseudo = pseudo_header(packet, protocol, length);
        let transport = &mut packet[self.transport..];
        if self.is_tcp {
            let sent = u32::from(self.count) * self.segment as u32;
            let first = u32::from(get(transport, 4)) << 16 | u32::from(get(transport, 6));
            transport[4..8].copy_from_slice(&first.wrapping_add(sent).to_be_bytes());
            if !is_last {
                transport[13] &= !FIN_PSH;
            }
        } else {
            put(transport, 4, length as u16);
        }
        put(transport, place, 0);
        let checksum = checksum(pseudo + sum(transport));
        put(transport, place, checksum);
    }
}

/// Whether a large packet is TCP, and where its payload starts; `None` where header and packet do
/// not fit.
fn layout(header: &Header, packet: &[u8]) -> Option<(bool, usize)> {
    let transport = usize::from(header.start);
    let (is_ipv4, is_tcp) = match header.kind {
        TCP4 => (true, true),
        TCP6 => (false, true),
        UDP => (self::is_ipv4(packet.get(..1)?), false),
        _ => return None,
    };
    let fits = is_ipv4 == self::is_ipv4(packet.get(..1)?)
        && transport >= if is_ipv4 { 20 } else { 40 }
        && header.segment > 0;
    let payload = if is_tcp {
        transport + usize::from(packet.get(transport + 12)? >> 4) * 4
    } else {
        transport + 8
    };
    let least = transport + if is_tcp { 20 } else { 8 };
    (fits && payload >= least && payload < packet.len()).then_some((is_tcp, payload))
}

#[cfg(test)]
#[path = "offload_tests.rs"]
pub(crate) mod tests;
