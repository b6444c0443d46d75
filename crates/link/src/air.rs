// SPDX-License-Identifier: GPL-3.0-or-later
//! The frame formats behind one face: packets into a frame, frame into packets.

use crate::Carrier;
use dvb::sdu::{ETHERNET_HEADER, Filled, SIGNALLING, Service};
use dvb::{gse, rle};

/// RLE in front of a packet that is not cut: PPDU header and compressed protocol type (ETSI TS 103 179).
const PPDU_BYTES: u64 = 3;
/// What a cut at the end of a burst costs: the longer header of a start, the header of an end, and the sequence number.
const CUT_BYTES: u64 = 5;

/// Sender and receiver of one carrier.
#[derive(Debug)]
pub(crate) struct Air {
    codec: Codec,
    /// What the frames carry; packets enter and leave as IP in any case.
    service: Service,
}

#[derive(Debug)]
enum Codec {
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
        let gse = |label, service| Codec::Gse {
            sender: gse::Encapsulator::new(gse::Label::Six(label)).with_service(service),
            receiver: gse::Decapsulator::new(),
        };
        let rle = |service| Codec::Rle {
            sender: rle::Encapsulator::new(rle::Protection::SequenceNumber).with_service(service),
            receiver: rle::Decapsulator::new(),
        };
        let (ip, ethernet) = (Service::Ip, Service::Ethernet);
        let (codec, service) = match *carrier {
            Carrier::Forward { label, .. } => (gse(label, ip), ip),
            Carrier::OpenSandForward { label, .. } => (gse(label, ethernet), ethernet),
            Carrier::Return { .. } => (rle(ip), ip),
            Carrier::OpenSandReturn { .. } => (rle(ethernet), ethernet),
            Carrier::Wire => return None,
        };
        Some(Self { codec, service })
    }

    /// Bytes in front of each packet.
    fn header(&self) -> usize {
        match self.service {
            Service::Ip => 0,
            Service::Ethernet => ETHERNET_HEADER,
        }
    }

    /// Whether the format can carry this packet.
    pub(crate) fn accepts(&self, packet: &[u8]) -> bool {
        let longest = match self.codec {
            Codec::Gse { .. } => gse::MAX_PDU,
            Codec::Rle { .. } => rle::MAX_SDU,
        };
        packet.len() + self.header() <= longest && dvb::sdu::protocol_type(packet).is_some()
    }

    /// Fills a frame from the packet in fragmentation and from `next`.
    pub(crate) fn fill(
        &mut self,
        frame: &mut [u8],
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Filled {
        let header = self.header();
        let next = |packet: &mut Vec<u8>| {
            let got = next(packet);
            if got && header > 0 {
                let mut ethernet = [0; ETHERNET_HEADER];
                let protocol = dvb::sdu::protocol_type(packet).unwrap_or(0);
                ethernet[12..].copy_from_slice(&protocol.to_be_bytes());
                packet.splice(..0, ethernet);
            }
            got
        };
        let mut filled = match &mut self.codec {
            Codec::Gse { sender, .. } => sender.fill(frame, next),
            Codec::Rle { sender, .. } => sender.fill(frame, next),
        };
        filled.bytes -= filled.packets * header as u64;
        filled
    }

    /// Bytes of the IP packet in fragmentation that are not yet in a frame.
    pub(crate) fn pending(&self) -> usize {
        let (in_hand, rest) = match &self.codec {
            Codec::Gse { sender, .. } => (sender.in_hand().len(), sender.pending()),
            Codec::Rle { sender, .. } => (sender.in_hand().len(), sender.pending()),
        };
        rest.min(in_hand.saturating_sub(self.header()))
    }

    /// Burst payload that waiting packets take at most, for a terminal that has to ask for it. `payload` is that of a burst.
    pub(crate) fn on_air(&self, bytes: u64, packets: u64, payload: u64) -> u64 {
        let whole = bytes + packets * (PPDU_BYTES + self.header() as u64);
        (whole * payload).div_ceil(payload.saturating_sub(CUT_BYTES).max(1))
    }

    /// Gives the packet in fragmentation back whole.
    pub(crate) fn take_back(&mut self) -> Option<Vec<u8>> {
        let packet = match &mut self.codec {
            Codec::Gse { sender, .. } => sender.take_back(),
            Codec::Rle { sender, .. } => sender.take_back(),
        };
        packet.map(|packet| packet[self.header()..].to_vec())
    }

    /// The receiver got a frame.
    pub(crate) fn receive(&mut self, frame: &[u8], mut sink: impl FnMut(&[u8])) {
        let header = self.header();
        let mut strip = |data: &[u8]| sink(data.get(header..).unwrap_or(&[]));
        match &mut self.codec {
            Codec::Gse { receiver, .. } => receiver.frame(frame, |pdu| {
                if pdu.protocol_type != SIGNALLING {
                    strip(pdu.data);
                }
            }),
            Codec::Rle { receiver, .. } => receiver.frame(frame, |sdu| strip(sdu.data)),
        }
    }

    /// The receiver missed a frame.
    pub(crate) fn miss(&mut self) {
        match &mut self.codec {
            Codec::Gse { receiver, .. } => receiver.frame_lost(),
            Codec::Rle { receiver, .. } => receiver.frame_lost(),
        }
    }
}
