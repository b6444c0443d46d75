// SPDX-License-Identifier: GPL-3.0-or-later
//! Frames of the tunnel: one byte that names the kind, then a FEC source or repair packet as in RFC
//! 8681 section 4.1.
//!
//! A source packet is the packet and behind it its Explicit Source FEC Payload ID. A repair packet
//! is the Repair FEC Payload ID and one repair symbol. Trailing bytes of a repair symbol that no
//! packet of its window reaches are zero, and are not sent. A report of losses goes the other way.
//! The other kinds are the caller's: 0x80 to 0xff.

use crate::MAX_PACKET;
use crate::losses::{LONGEST_BURST, Report};

const SOURCE: u8 = 0;
const REPAIR: u8 = 1;
const REPORT: u8 = 2;
/// First kind that is left to the caller.
const FOREIGN: u8 = 0x80;
const ESI_BYTES: usize = 4;
const REPAIR_ID_BYTES: usize = 8;
const REPORT_BYTES: usize = 11;
/// Flow identifier and length in front of a packet in its source symbol (ADUI, RFC 8681 section
/// 3.3).
const ADUI_BYTES: usize = 3;
const FLOW: u8 = 0;

/// Repair FEC Payload ID (RFC 8681 section 4.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairId {
    /// Seed of the coefficients.
    pub key: u16,
    /// Density threshold, 0 to 15.
    pub density: u8,
    /// Source symbols in the window, 0 to 4,095.
    pub count: u16,
    /// Encoding symbol identifier of the first of them.
    pub first: u32,
}

/// One frame, its bytes borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet with its encoding symbol identifier.
    Source {
        /// Number of the packet.
        esi: u32,
        /// The packet.
        packet: &'a [u8],
    },
    /// A repair symbol, without its trailing zeros.
    Repair {
        /// How it was made.
        id: RepairId,
        /// The symbol.
        symbol: &'a [u8],
    },
    /// What the receiver of our packets has seen of their losses.
    Report(Report),
    /// A frame of the caller: its kind and content.
    Foreign(u8, &'a [u8]),
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The kind is neither known nor the caller's.
    #[error("unknown kind of frame")]
    Kind,
    /// The frame ends before its identifier does, or its packet is empty or longer than
    /// [`MAX_PACKET`].
    #[error("wrong length of a frame")]
    Length,
    /// A report contradicts itself or has a burst above [`LONGEST_BURST`].
    #[error("a report that cannot be")]
    Report,
}

/// Reads a frame.
///
/// # Errors
/// The bytes are not a frame.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, WireError> {
    let (&kind, rest) = bytes.split_first().ok_or(WireError::Length)?;
    match kind {
        SOURCE => {
            let (packet, esi) = rest
                .split_last_chunk::<ESI_BYTES>()
                .ok_or(WireError::Length)?;
            if packet.is_empty() || packet.len() > MAX_PACKET {
                return Err(WireError::Length);
            }
            let esi = u32::from_be_bytes(*esi);
            Ok(Frame::Source { esi, packet })
        }
        REPAIR => {
            let (id, symbol) = rest
                .split_first_chunk::<REPAIR_ID_BYTES>()
                .ok_or(WireError::Length)?;
            if symbol.is_empty() || symbol.len() > MAX_PACKET + ADUI_BYTES {
                return Err(WireError::Length);
            }
            let id = RepairId::parse(*id);
            Ok(Frame::Repair { id, symbol })
        }
        REPORT => parse_report(rest).map(Frame::Report),
        FOREIGN.. => Ok(Frame::Foreign(kind, rest)),
        _ => Err(WireError::Kind),
    }
}

/// Appends a source frame.
pub(crate) fn put_source(esi: u32, packet: &[u8], out: &mut Vec<u8>) {
    out.push(SOURCE);
    out.extend_from_slice(packet);
    out.extend_from_slice(&esi.to_be_bytes());
}

/// Appends the head of a repair frame; the symbol follows.
pub(crate) fn put_repair(id: RepairId, out: &mut Vec<u8>) {
    out.push(REPAIR);
    out.extend_from_slice(&id.bytes());
}

/// Appends a frame of a report: number, received, lost, burst.
pub(crate) fn put_report(report: Report, out: &mut Vec<u8>) {
    out.push(REPORT);
    out.extend_from_slice(&report.number.to_be_bytes());
    out.extend_from_slice(&report.received.to_be_bytes());
    out.extend_from_slice(&report.lost.to_be_bytes());
    out.push(report.burst);
}

fn parse_report(bytes: &[u8]) -> Result<Report, WireError> {
    let bytes: [u8; REPORT_BYTES] = bytes.try_into().map_err(|_| WireError::Length)?;
    let [n0, n1, r0, r1, r2, r3, l0, l1, l2, l3, burst] = bytes;
    let report = Report {
        number: u16::from_be_bytes([n0, n1]),
        received: u32::from_be_bytes([r0, r1, r2, r3]),
        lost: u32::from_be_bytes([l0, l1, l2, l3]),
        burst,
    };
    let is_possible = burst <= LONGEST_BURST
        && u32::from(burst) <= report.lost
        && (burst == 0) == (report.lost == 0);
    is_possible.then_some(report).ok_or(WireError::Report)
}

impl RepairId {
    fn parse([key0, key1, density, count, rest @ ..]: [u8; REPAIR_ID_BYTES]) -> Self {
        Self {
            key: u16::from_be_bytes([key0, key1]),
            density: density >> 4,
            count: u16::from_be_bytes([density & 15, count]),
            first: u32::from_be_bytes(rest),
        }
    }

    fn bytes(self) -> [u8; REPAIR_ID_BYTES] {
        let [key0, key1] = self.key.to_be_bytes();
        let [count0, count1] = (self.count & 0xfff).to_be_bytes();
        let [a, b, c, d] = self.first.to_be_bytes();
        [key0, key1, self.density << 4 | count0, count1, a, b, c, d]
    }
}

/// The source symbol of a packet (ADUI without padding): flow, length, packet. At most
/// [`MAX_PACKET`] bytes of it.
pub(crate) fn symbol_of(packet: &[u8]) -> Vec<u8> {
    let packet = &packet[..packet.len().min(MAX_PACKET)];
    let mut symbol = Vec::with_capacity(ADUI_BYTES + packet.len());
    symbol.push(FLOW);
    symbol.extend_from_slice(&(packet.len() as u16).to_be_bytes());
    symbol.extend_from_slice(packet);
    symbol
}

/// The packet in a source symbol; `None` if it does not hold one, which only a forged repair symbol
/// causes.
pub(crate) fn packet_in(symbol: &[u8]) -> Option<&[u8]> {
    let ([flow, length @ ..], rest) = symbol.split_first_chunk::<ADUI_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    let packet = rest.get(..length)?;
    (*flow == FLOW && length > 0).then_some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frames_are_laid_out_as_in_rfc_8681() {
        let mut bytes = Vec::new();
        put_source(0x0102_0304, b"packet", &mut bytes);
        assert_eq!(bytes, b"\x00packet\x01\x02\x03\x04");
        let id = RepairId {
            key: 0xabcd,
            density: 15,
            count: 100,
            first: 0xffff_fff0,
        };
        bytes.clear();
        put_repair(id, &mut bytes);
        assert_eq!(bytes, [1, 0xab, 0xcd, 0xf0, 100, 0xff, 0xff, 0xff, 0xf0]);
        assert_eq!(symbol_of(b"abc"), b"\x00\x00\x03abc");
    }

    #[test]
    fn reports_that_cannot_be_are_refused() {
        for (received, lost, burst, is_read) in [
            (0, 0, 0, true),
            (u32::MAX, u32::MAX, 72, true),
            (10, 5, 5, true),
            (10, 5, 6, false),
            (10, 0, 1, false),
            (10, 5, 0, false),
            (10, 500, 73, false),
        ] {
            let report = Report {
                number: 0xfffe,
                received,
                lost,
                burst,
            };
            let mut bytes = Vec::new();
            put_report(report, &mut bytes);
            let expected = if is_read {
                Ok(Frame::Report(report))
            } else {
                Err(WireError::Report)
            };
            assert_eq!(parse(&bytes), expected);
            assert_eq!(parse(&bytes[..11]), Err(WireError::Length));
            bytes.push(0);
            assert_eq!(parse(&bytes), Err(WireError::Length));
        }
    }

    proptest! {
        #[test]
        fn identifiers_round_trip(key: u16, density in 0..16_u8, count in 0..4096_u16, first: u32) {
            let id = RepairId { key, density, count, first };
            prop_assert_eq!(RepairId::parse(id.bytes()), id);
        }

        #[test]
        fn source_frames_round_trip(esi: u32, packet in prop::collection::vec(any::<u8>(), 1..100)) {
            let mut bytes = Vec::new();
            put_source(esi, &packet, &mut bytes);
            prop_assert_eq!(parse(&bytes), Ok(Frame::Source { esi, packet: &packet }));
            let mut symbol = symbol_of(&packet);
            symbol.extend_from_slice(&[0; 5]);
            prop_assert_eq!(packet_in(&symbol), Some(&packet[..]));
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&bytes);
            let _ = packet_in(&bytes);
        }
    }
}
