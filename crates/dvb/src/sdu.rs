// SPDX-License-Identifier: GPL-3.0-or-later
//! What GSE and RLE share: the service data units they carry and the CRC-32 that protects them.
//!
//! Both use the CRC-32 of MPEG-2 systems (ISO/IEC 13818-1 annex A: polynomial 0x04C11DB7, all ones
//! to start, not reflected), ETSI TS 102 606-1 for GSE, ETSI TS 103 179 for RLE.

use crc::{CRC_32_MPEG_2, Crc, Table};

/// Ethertype of IPv4, the protocol type of GSE and RLE.
pub const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const IPV6: u16 = 0x86DD;
/// Protocol type of a bridged Ethernet frame (RFC 1701: transparent Ethernet bridging).
pub const ETHERNET: u16 = 0x6558;
/// Protocol type of the lower-layer signalling of DVB-RCS2 in GSE.
pub const SIGNALLING: u16 = 0x0082;
/// Bytes of an Ethernet header: two addresses and a type.
pub const ETHERNET_HEADER: usize = 14;

static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_MPEG_2);

/// Protocol type of an IP packet, from its version nibble; `None` if it is not one.
#[must_use]
pub fn protocol_type(packet: &[u8]) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => Some(IPV4),
        6 => Some(IPV6),
        _ => None,
    }
}

/// What an encapsulator carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// IPv4 and IPv6 packets.
    #[default]
    Ip,
    /// Ethernet frames without check sequence.
    Ethernet,
}

impl Service {
    /// Protocol type of a service data unit; `None` if the service does not carry it.
    #[must_use]
    pub fn protocol_type(self, sdu: &[u8]) -> Option<u16> {
        match self {
            Self::Ip => protocol_type(sdu),
            Self::Ethernet => (sdu.len() >= ETHERNET_HEADER).then_some(ETHERNET),
        }
    }
}

/// CRC-32 over several pieces in a row.
pub(crate) fn crc32(pieces: &[&[u8]]) -> u32 {
    let mut digest = CRC32.digest();
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize()
}

/// What one call of an encapsulator's `fill` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Bytes of the frame that are not padding.
    pub used: usize,
    /// Packets whose last byte went into this frame.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// The packet an encapsulator is working on, and how much of it is already sent.
#[derive(Debug, Default)]
pub(crate) struct Current {
    packet: Vec<u8>,
    sent: usize,
    /// A fragment of it is sent, which may hold no byte of it.
    started: bool,
}

impl Current {
    /// Takes the next packet that `accept` likes, unless there is one already; false if there is
    /// none.
    pub(crate) fn load(
        &mut self,
        next: &mut impl FnMut(&mut Vec<u8>) -> bool,
        accept: impl Fn(&[u8]) -> bool,
    ) -> bool {
        while self.packet.is_empty() {
            if !next(&mut self.packet) {
                self.packet.clear();
                return false;
            }
            if !accept(&self.packet) {
                self.packet.clear();
            }
        }
        true
    }

    /// Takes back the packet in fragmentation, whole; the fragments already sent are of no use.
    pub(crate) fn take_back(&mut self) -> Option<Vec<u8>> {
        (self.sent, self.started) = (0, false);
        let packet = std::mem::take(&mut self.packet);
        (!packet.is_empty()).then_some(packet)
    }

    pub(crate) fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// Bytes not yet sent.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.packet[self.sent..]
    }

    pub(crate) fn is_fragmented(&self) -> bool {
        self.started
    }

    /// Marks `bytes` more as sent; once that was all, adds the packet to `filled` and makes room
    /// for the next.
    pub(crate) fn advance(&mut self, bytes: usize, filled: &mut Filled) {
        self.sent += bytes;
        self.started = true;
        if self.sent >= self.packet.len() {
            filled.packets += 1;
            filled.bytes += self.packet.len() as u64;
            self.packet.clear();
            (self.sent, self.started) = (0, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_has_the_check_value_of_mpeg_2() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0x0376_E6E7);
    }

    #[test]
    fn protocol_type_is_the_version_nibble() {
        assert_eq!(protocol_type(&[0x45, 0]), Some(IPV4));
        assert_eq!(protocol_type(&[0x60]), Some(IPV6));
        assert_eq!(protocol_type(&[0x50]), None);
        assert_eq!(protocol_type(&[]), None);
        assert_eq!(Service::Ip.protocol_type(&[0x60]), Some(IPV6));
        assert_eq!(Service::Ethernet.protocol_type(&[2; 14]), Some(ETHERNET));
        assert_eq!(Service::Ethernet.protocol_type(&[2; 13]), None);
    }
}
