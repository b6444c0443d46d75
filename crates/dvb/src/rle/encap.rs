// SPDX-License-Identifier: GPL-3.0-or-later
//! Encapsulation of packets in burst payloads.

use super::ppdu::{AlpduType, Header, MAX_LENGTH};
use super::{MAX_SDU, MIN_PAYLOAD, Protection, compressed};
use crate::sdu::{Current, Filled, IPV4, IPV6, Service, crc32};

/// Fills burst payloads with PPDUs.
///
/// A packet is cut only where the payload ends; the trailer is never cut. Each fragmented packet
/// takes the next of the eight fragment ids, so that a lost end cannot meet the fragments of the
/// packet after it.
#[derive(Debug, Default)]
pub struct Encapsulator {
    protection: Protection,
    service: Service,
    current: Current,
    frag_id: u8,
    sequence: [u8; 8],
    crc: u32,
}

impl Encapsulator {
    /// Protects fragmented packets with `protection`.
    #[must_use]
    pub fn new(protection: Protection) -> Self {
        Self {
            protection,
            ..Self::default()
        }
    }

    /// Carries units of `service` in place of IP packets. Only IP has a compressed protocol type
    /// here: others cost two bytes more.
    #[must_use]
    pub fn with_service(mut self, service: Service) -> Self {
        self.service = service;
        self
    }

    /// Takes back the packet in fragmentation, whole; its fragments on air will never be complete.
    pub fn take_back(&mut self) -> Option<Vec<u8>> {
        self.current.take_back()
    }

    /// The packet in hand, whole; empty if there is none.
    #[must_use]
    pub fn in_hand(&self) -> &[u8] {
        self.current.packet()
    }

    /// Bytes of the packet in hand that are not yet sent; 0 if there is none.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.current.rest().len()
    }

    /// Fills `payload` from the packet in hand and from `next`, which writes the next packet into
    /// the empty vector and says whether there was one. The rest of the payload becomes padding.
    ///
    /// Anything but an IP packet of at most [`MAX_SDU`] bytes is taken and discarded. A payload
    /// shorter than [`MIN_PAYLOAD`] may stay empty.
    pub fn fill(
        &mut self,
        payload: &mut [u8],
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Filled {
        debug_assert!(payload.len() >= MIN_PAYLOAD);
        let service = self.service;
        let accept =
            |packet: &[u8]| packet.len() <= MAX_SDU && service.protocol_type(packet).is_some();
        let mut filled = Filled::default();
        while self.current.load(&mut next, accept) {
            let room = &mut payload[filled.used..];
            let put = if self.current.is_fragmented() {
                self.put_rest(room)
            } else {
                self.put_start(room)
            };
            let Some((bytes, data)) = put else { break };
            filled.used += bytes;
            self.current.advance(data, &mut filled);
        }
        payload[filled.used..].fill(0);
        filled
    }

    /// A complete or start PPDU: bytes written and bytes of the SDU in them.
    fn put_start(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        let sdu = self.current.packet();
        let protocol_type = self.service.protocol_type(sdu)?;
        let [high, low] = protocol_type.to_be_bytes();
        let alpdu_header = match protocol_type {
            IPV4 => &[compressed::IPV4][..],
            IPV6 => &[compressed::IPV6],
            _ => &[compressed::FALLBACK, high, low],
        };
        let alpdu = AlpduType::PLAIN;
        let space = room.len().min(MAX_LENGTH + 2);
        let type_len = alpdu_header.len();
        if 2 + type_len + sdu.len() <= space {
            let bytes = Header::Complete { alpdu }
                .emit(&[alpdu_header, sdu], room)
                .ok()?;
            return Some((bytes, sdu.len()));
        }
        let data = space.saturating_sub(4 + type_len).min(sdu.len() - 1);
        if data == 0 {
            return None;
        }
        self.frag_id = (self.frag_id + 1) % 8;
        let use_crc = self.protection == Protection::Crc32;
        if use_crc {
            self.crc = crc32(&[&protocol_type.to_be_bytes(), sdu]);
        }
        let total_length = (type_len + sdu.len() + self.protection.len()) as u16;
        let header = Header::Start {
            frag_id: self.frag_id,
            use_crc,
            total_length,
            alpdu,
        };
        header
            .emit(&[alpdu_header, &sdu[..data]], room)
            .ok()
            .map(|bytes| (bytes, data))
    }

    /// A continuation or end PPDU. The end keeps at least one byte of the SDU in front of the
    /// trailer: a receiver may refuse a bare trailer, though it is legal.
    fn put_rest(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        let rest = self.current.rest();
        let frag_id = self.frag_id;
        let space = room.len().min(MAX_LENGTH + 2).checked_sub(2)?;
        if rest.len() + self.protection.len() > space {
            let data = space.min(rest.len() - 1);
            if data == 0 {
                return None;
            }
            let bytes = Header::Continuation { frag_id }
                .emit(&[&rest[..data]], room)
                .ok()?;
            return Some((bytes, data));
        }
        let crc = self.crc.to_be_bytes();
        let sequence = &mut self.sequence[usize::from(frag_id)];
        let trailer = match self.protection {
            Protection::SequenceNumber => &[*sequence][..],
            Protection::Crc32 => &crc,
        };
        let bytes = Header::End { frag_id }.emit(&[rest, trailer], room).ok()?;
        *sequence = sequence.wrapping_add(1);
        Some((bytes, rest.len()))
    }
}
