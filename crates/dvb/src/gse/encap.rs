// SPDX-License-Identifier: GPL-3.0-or-later
//! Encapsulation of packets in data fields.

use super::packet::{CRC_LEN, Label, LabelField, MAX_LENGTH, Packet};
use super::{MAX_PDU, MIN_DATA_FIELD};
use crate::sdu::{Current, Filled, Service, crc32};

/// Fills data fields of BBFRAMEs with GSE packets for one receiver.
///
/// A packet is cut only where the data field ends. Where the room left is too small for a useful
/// fragment the field is padded and the packet kept for the next one.
#[derive(Debug)]
pub struct Encapsulator {
    label: Label,
    re_use: bool,
    empty_starts: bool,
    service: Service,
    current: Current,
    frag_id: u8,
    stride: u8,
    crc: u32,
}

impl Encapsulator {
    /// Sends to `label`, written in every packet that starts a PDU.
    #[must_use]
    pub fn new(label: Label) -> Self {
        Self {
            label,
            re_use: false,
            empty_starts: false,
            service: Service::Ip,
            current: Current::default(),
            frag_id: 0,
            stride: 1,
            crc: 0,
        }
    }

    /// Writes the label once per BBFRAME and signals its re-use after that (label type 11).
    #[must_use]
    pub fn with_label_re_use(mut self) -> Self {
        self.re_use = true;
        self
    }

    /// Starts a packet also where only the header of its first fragment fits, as `OpenSAND` does.
    #[must_use]
    pub fn with_empty_starts(mut self) -> Self {
        self.empty_starts = true;
        self
    }

    /// Cut packets have ids at distances of `stride` behind `first`, modulo 256, so that
    /// encapsulators can share frames: up to 256 with a power of 2 above their number as stride.
    #[must_use]
    pub fn with_fragment_ids(mut self, first: u8, stride: u8) -> Self {
        (self.frag_id, self.stride) = (first, stride);
        self
    }

    /// Whether a packet is in hand of which no fragment is sent.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        !self.current.packet().is_empty() && !self.current.is_fragmented()
    }

    /// Encapsulates units of `service` (for example Ethernet frames) instead of IP packets.
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

    /// Fills `field` from the packet in hand and from `next`, which writes the next packet into the
    /// empty vector and says whether there was one. The rest of the field becomes padding.
    ///
    /// Anything but an IP packet of at most [`MAX_PDU`] bytes is taken and discarded. A field
    /// shorter than [`MIN_DATA_FIELD`] may stay empty.
    pub fn fill(&mut self, field: &mut [u8], next: impl FnMut(&mut Vec<u8>) -> bool) -> Filled {
        let filled = self.append(field, next);
        field[filled.used..].fill(0);
        filled
    }

    /// The same without padding: the rest of the field is for others, or to be filled with zeros.
    pub fn append(
        &mut self,
        field: &mut [u8],
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Filled {
        debug_assert!(field.len() >= MIN_DATA_FIELD);
        let service = self.service;
        let accept =
            |packet: &[u8]| packet.len() <= MAX_PDU && service.protocol_type(packet).is_some();
        let mut filled = Filled::default();
        let mut label_sent = false;
        while self.current.load(&mut next, accept) {
            let room = &mut field[filled.used..];
            let put = if self.current.is_fragmented() {
                self.put_rest(room)
            } else {
                self.put_start(room, &mut label_sent)
            };
            let Some((bytes, data)) = put else { break };
            filled.used += bytes;
            self.current.advance(data, &mut filled);
        }
        filled
    }

    /// A complete packet or a first fragment: bytes written and bytes of the PDU in them.
    fn put_start(&mut self, room: &mut [u8], label_sent: &mut bool) -> Option<(usize, usize)> {
        let pdu = self.current.packet();
        let protocol_type = self.service.protocol_type(pdu)?;
        let label = if *label_sent {
            LabelField::ReUse
        } else {
            LabelField::Label(self.label)
        };
        let complete = Packet::Complete {
            protocol_type,
            label,
            data: pdu,
        };
        let (packet, data) = if complete.len() <= room.len().min(MAX_LENGTH + 2) {
            (complete, pdu.len())
        } else {
            let header = 7 + label.as_bytes().len();
            let space = room.len().min(MAX_LENGTH + 2).checked_sub(header)?;
            let data = space.min(pdu.len() - 1);
            if data == 0 && !self.empty_starts {
                return None;
            }
            let total_length = (2 + label.as_bytes().len() + pdu.len()) as u16;
            self.frag_id = self.frag_id.wrapping_add(self.stride);
            self.crc = crc32(&[
                &total_length.to_be_bytes(),
                &protocol_type.to_be_bytes(),
                label.as_bytes(),
                pdu,
            ]);
            let frag_id = self.frag_id;
            (
                Packet::First {
                    frag_id,
                    total_length,
                    protocol_type,
                    label,
                    data: &pdu[..data],
                },
                data,
            )
        };
        let bytes = packet.emit(room).ok()?;
        *label_sent = self.re_use && self.label != Label::Broadcast;
        Some((bytes, data))
    }

    /// A middle or last fragment. The last one keeps at least one byte of the PDU, and the CRC-32
    /// in one piece.
    fn put_rest(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        let rest = self.current.rest();
        let frag_id = self.frag_id;
        let room_for_data = room.len().min(MAX_LENGTH + 2).checked_sub(3)?;
        let (packet, data) = if rest.len() + CRC_LEN <= room_for_data {
            (
                Packet::Last {
                    frag_id,
                    data: rest,
                    crc: self.crc,
                },
                rest.len(),
            )
        } else {
            let data = room_for_data.min(rest.len() - 1);
            if data == 0 {
                return None;
            }
            (
                Packet::Middle {
                    frag_id,
                    data: &rest[..data],
                },
                data,
            )
        };
        packet.emit(room).ok().map(|bytes| (bytes, data))
    }
}
