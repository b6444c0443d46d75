// SPDX-License-Identifier: GPL-3.0-or-later
//! Packets of one flow that leave together are written as one large packet: the host receives them
//! in one go, as from a network card with receive offload. Packets are merged only if segmentation
//! restores them byte for byte.

use link::Volume;

use crate::offload::{
    Header, NEEDS_CHECKSUM, TCP_CHECKSUM, TCP4, TCP6, UDP, UDP_CHECKSUM, fold, get, is_ipv4,
    pseudo_header, put, set_length, sum,
};

/// Most packets of a bundle: Linux takes so many datagrams of UDP, 64 before 6.2.
const MOST_PACKETS: u64 = 64;
/// Longest bundle: the length field of IP.
const MOST_BYTES: usize = 65_535;
const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// The kinds of packets that a device accepts in bundles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Takes {
    /// Segments of TCP.
    pub tcp: bool,
    /// Datagrams of UDP.
    pub udp: bool,
}

/// Offsets of the parts of a packet that can be bundled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    is_tcp: bool,
    transport: usize,
    payload: usize,
}

impl Layout {
    /// TCP data or a UDP datagram, whole, without IP options, with a right checksum; `None` for
    /// everything else.
    fn of(packet: &[u8], takes: Takes) -> Option<Self> {
        let (transport, protocol) = network(packet)?;
        let bytes = &packet[transport..];
        let (is_tcp, header) = match protocol {
            6 if takes.tcp && bytes.len() > 20 => (true, usize::from(bytes[12] >> 4) * 4),
            17 if takes.udp && bytes.len() > 8 => (false, 8),
            _ => return None,
        };
        let is_plain = if is_tcp {
            header >= 20 && bytes[13] & !PSH == ACK
        } else {
            usize::from(get(bytes, 4)) == bytes.len() && get(bytes, UDP_CHECKSUM) != 0
        };
        let is_right = || {
            let pseudo = pseudo_header(packet, protocol, bytes.len());
            fold(pseudo + sum(bytes)) == 0xffff
        };
        (is_plain && header < bytes.len() && is_right()).then_some(Self {
            is_tcp,
            transport,
            payload: transport + header,
        })
    }

    /// Whether this packet must be the last of its bundle, because the receiver needs it at once
    /// (PSH).
    fn ends(self, packet: &[u8]) -> bool {
        self.is_tcp && packet[self.transport + 13] & PSH != 0
    }
}

/// Returns the offset of the transport header, and its protocol; `None` for fragments, options and
/// wrong lengths or checksums.
fn network(packet: &[u8]) -> Option<(usize, u8)> {
    match packet.first()? >> 4 {
        4 if packet.len() > 20
            && packet[0] & 15 == 5
            && usize::from(get(packet, 2)) == packet.len()
            && get(packet, 6) << 2 == 0
            && fold(sum(&packet[..20])) == 0xffff =>
        {
            Some((20, packet[9]))
        }
        6 if packet.len() > 40 && usize::from(get(packet, 4)) + 40 == packet.len() => {
            Some((40, packet[6]))
        }
        _ => None,
    }
}

/// Packets that are written in one call: a single packet, or several packets of a flow as one large
/// packet.
#[derive(Debug, Default)]
pub struct Bundle {
    bytes: Vec<u8>,
    layout: Option<Layout>,
    size: Volume,
    /// Payload bytes of every packet except the last.
    segment: usize,
    is_closed: bool,
}

impl Bundle {
    /// An empty bundle that will not grow its memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(MOST_BYTES),
            ..Self::default()
        }
    }

    /// Adds a packet; false where it does not go with those that are there. An empty bundle takes
    /// any.
    pub fn add(&mut self, packet: &[u8], takes: Takes) -> bool {
        if self.is_closed {
            return false;
        }
        let layout = Layout::of(packet, takes);
        if self.size.packets == 0 {
            self.bytes.extend_from_slice(packet);
            self.segment = layout.map_or(0, |layout| packet.len() - layout.payload);
            self.layout = layout;
        } else {
            let follows = layout.filter(|layout| self.is_continued(packet, *layout));
            let Some(layout) = follows else {
                return false;
            };
            self.bytes.extend_from_slice(&packet[layout.payload..]);
        }
        self.size += Volume::of_packet(packet.len());
        self.is_closed = self.size.packets == MOST_PACKETS
            || layout.is_none_or(|layout| {
                packet.len() - layout.payload < self.segment || layout.ends(packet)
            });
        if let Some(layout) = layout.filter(|layout| layout.ends(packet)) {
            self.bytes[layout.transport + 13] |= PSH;
        }
        true
    }

    /// Whether the bundle accepts no further packet.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// IP packets in it.
    #[must_use]
    pub fn size(&self) -> Volume {
        self.size
    }

    /// Returns the packet to write, and its header. Call it once, then [`Bundle::clear`].
    pub fn finish(&mut self) -> (Header, &[u8]) {
        let Some(layout) = self.layout.filter(|_| self.size.packets > 1) else {
            return (Header::default(), &self.bytes);
        };
        let Layout {
            is_tcp,
            transport,
            payload,
        } = layout;
        let length = self.bytes.len() - transport;
        set_length(&mut self.bytes, transport);
        let (protocol, place) = if is_tcp {
            (6, TCP_CHECKSUM)
        } else {
            put(&mut self.bytes, transport + 4, length as u16);
            (17, UDP_CHECKSUM)
        };
        let pseudo = fold(pseudo_header(&self.bytes, protocol, length));
        put(&mut self.bytes, transport + place, pseudo);
        let kind = match (is_tcp, is_ipv4(&self.bytes)) {
            (true, true) => TCP4,
            (true, false) => TCP6,
            (false, _) => UDP,
        };
        let header = Header {
            flags: NEEDS_CHECKSUM,
            kind,
            length: payload as u16,
            segment: self.segment as u16,
            start: transport as u16,
            offset: place as u16,
        };
        (header, &self.bytes)
    }

    /// Makes room for the next.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.size = Volume::default();
        self.is_closed = false;
    }

    /// Whether segmentation would make `packet` from the next payload.
    fn is_continued(&self, packet: &[u8], layout: Layout) -> bool {
        let Layout {
            is_tcp,
            transport,
            payload,
        } = layout;
        let same = |from: usize, to: usize| self.bytes[from..to] == packet[from..to];
        self.layout == Some(layout)
            && packet.len() - payload <= self.segment
            && self.bytes.len() + packet.len() - payload <= MOST_BYTES
            && self.is_same_network(packet)
            && same(transport, transport + 4)
            && (!is_tcp || self.is_next_of_tcp(packet, layout))
    }

    /// Same addresses, lifetime, ECN and so on; numbers of IPv4 packets count up, or say nothing
    /// (RFC 6864, 4.1).
    fn is_same_network(&self, packet: &[u8]) -> bool {
        let same = |from: usize, to: usize| self.bytes[from..to] == packet[from..to];
        if !is_ipv4(packet) {
            return same(0, 4) && same(6, 40);
        }
        let next = get(&self.bytes, 4).wrapping_add(self.size.packets as u16);
        let is_atomic = packet[6] & 0x40 != 0;
        same(0, 2) && same(6, 10) && same(12, 20) && (is_atomic || get(packet, 4) == next)
    }

    /// Same acknowledgement, window and options, and the next byte of the stream.
    fn is_next_of_tcp(&self, packet: &[u8], layout: Layout) -> bool {
        let at = layout.transport;
        let same = |from: usize, to: usize| self.bytes[from..to] == packet[from..to];
        let number =
            |packet: &[u8]| u32::from(get(packet, at + 4)) << 16 | u32::from(get(packet, at + 6));
        let sent = (self.bytes.len() - layout.payload) as u32;
        number(packet) == number(&self.bytes).wrapping_add(sent)
            && same(at + 8, at + 13)
            && same(at + 14, at + 16)
            && same(at + 18, layout.payload)
    }
}

#[cfg(test)]
#[path = "bundle_tests.rs"]
mod tests;
