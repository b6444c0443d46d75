// SPDX-License-Identifier: GPL-3.0-or-later
//! The two frame formats behind one face: packets into a frame, frame into packets.

use crate::Carrier;
use dvb::sdu::Filled;
use dvb::{gse, rle};

/// Sender and receiver of one carrier.
#[derive(Debug)]
pub(crate) enum Air {
    Gse {
        sender: gse::Encapsulator,
        receiver: gse::Decapsulator,
    },
    Rle {
        sender: rle::Encapsulator,
        receiver: rle::Decapsulator,
    },
}

impl Air {
    /// The format of a carrier; `None` for a wire.
    pub(crate) fn new(carrier: &Carrier) -> Option<Self> {
        match *carrier {
            Carrier::Forward { label, .. } => Some(Self::Gse {
                sender: gse::Encapsulator::new(gse::Label::Six(label)),
                receiver: gse::Decapsulator::new(),
            }),
            Carrier::Return { .. } => Some(Self::Rle {
                sender: rle::Encapsulator::new(rle::Protection::SequenceNumber),
                receiver: rle::Decapsulator::new(),
            }),
            Carrier::Wire => None,
        }
    }

    /// Whether the format can carry this packet.
    pub(crate) fn accepts(&self, packet: &[u8]) -> bool {
        let longest = match self {
            Self::Gse { .. } => gse::MAX_PDU,
            Self::Rle { .. } => rle::MAX_SDU,
        };
        packet.len() <= longest && dvb::sdu::protocol_type(packet).is_some()
    }

    /// Fills a frame from the packet in fragmentation and from `next`.
    pub(crate) fn fill(
        &mut self,
        frame: &mut [u8],
        next: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Filled {
        match self {
            Self::Gse { sender, .. } => sender.fill(frame, next),
            Self::Rle { sender, .. } => sender.fill(frame, next),
        }
    }

    /// Bytes of the packet in fragmentation that are not yet in a frame.
    pub(crate) fn pending(&self) -> usize {
        match self {
            Self::Gse { sender, .. } => sender.pending(),
            Self::Rle { sender, .. } => sender.pending(),
        }
    }

    /// The receiver got a frame.
    pub(crate) fn receive(&mut self, frame: &[u8], mut sink: impl FnMut(&[u8])) {
        match self {
            Self::Gse { receiver, .. } => receiver.frame(frame, |pdu| sink(pdu.data)),
            Self::Rle { receiver, .. } => receiver.frame(frame, |sdu| sink(sdu.data)),
        }
    }

    /// The receiver missed a frame.
    pub(crate) fn miss(&mut self) {
        match self {
            Self::Gse { receiver, .. } => receiver.frame_lost(),
            Self::Rle { receiver, .. } => receiver.frame_lost(),
        }
    }
}
