// SPDX-License-Identifier: GPL-3.0-or-later
//! One interface for the frame formats: encapsulates packets in a frame and decapsulates them.

use crate::Carrier;
use dvb::sdu::{ETHERNET_HEADER, Filled, SIGNALLING, Service};
use dvb::{gse, rle};

/// PPDU header of a packet that is not cut (ETSI TS 103 179).
const PPDU_BYTES: u64 = 2;
/// What a cut at the end of a burst costs: the longer header of a start, the header of an end, and
/// the sequence number.
const CUT_BYTES: u64 = 5;

/// Sender of one carrier, which puts packets into frames.
#[derive(Debug)]
pub(crate) struct Encapsulator {
    codec: Sending,
    /// Bytes in front of each packet: 0, or an Ethernet header. Packets enter as IP in both cases.
    header: usize,
}

/// Receiver of one carrier, which takes packets out of frames.
#[derive(Debug)]
pub(crate) struct Decapsulator {
    codec: Receiving,
    /// Bytes in front of each packet.
    header: usize,
}

#[derive(Debug)]
enum Sending {
    Gse(gse::Encapsulator),
    Rle(rle::Encapsulator),
}

#[derive(Debug)]
enum Receiving {
    Gse(gse::Decapsulator),
    Rle(rle::Decapsulator),
}

/// Bytes in front of each packet; `None` for a wire.
const fn header(carrier: &Carrier) -> Option<usize> {
    match carrier {
        Carrier::Forward { .. } | Carrier::Return { .. } => Some(0),
        Carrier::OpenSandForward { .. } | Carrier::OpenSandReturn { .. } => Some(ETHERNET_HEADER),
        Carrier::Line { .. } | Carrier::Wire => None,
    }
}

impl Encapsulator {
    /// The format of a carrier; `None` for a wire. For terminal `index` of `count` that have
    /// the carrier: fragments of different terminals have different ids.
    pub(crate) fn new(carrier: &Carrier, (index, count): (u16, u16)) -> Option<Self> {
        let gse = |label, service| {
            let sender = gse::Encapsulator::new(gse::Label::Six(label))
                .with_service(service)
                .with_fragment_ids(index as u8, count.next_power_of_two() as u8);
            Sending::Gse(match carrier {
                Carrier::OpenSandForward { defects: true, .. } => sender.with_empty_starts(),
                _ => sender,
            })
        };
        let rle = |service| {
            let protection = rle::Protection::SequenceNumber;
            Sending::Rle(rle::Encapsulator::new(protection).with_service(service))
        };
        let header = header(carrier)?;
        let service = if header == 0 {
            Service::Ip
        } else {
            Service::Ethernet
        };
        let codec = match *carrier {
            Carrier::Forward { label, .. } | Carrier::OpenSandForward { label, .. } => {
                gse(label, service)
            }
            Carrier::Return { .. } | Carrier::OpenSandReturn { .. } => rle(service),
            Carrier::Line { .. } | Carrier::Wire => return None,
        };
        Some(Self { codec, header })
    }

    /// Whether the format can carry this packet.
    pub(crate) fn accepts(&self, packet: &[u8]) -> bool {
        let longest = match self.codec {
            Sending::Gse(_) => gse::MAX_PDU,
            Sending::Rle(_) => rle::MAX_SDU,
        };
        packet.len() + self.header <= longest && dvb::sdu::protocol_type(packet).is_some()
    }

    /// Fills a frame from the packet in fragmentation and from `next`. What is not used is left as
    /// it was, or padding.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        frame: &mut [u8],
        mut next: impl FnMut(&mut Vec<u8>) -> bool,
    ) -> Filled {
        let header = self.header;
        let next = |packet: &mut Vec<u8>| {
            let got = next(packet);
            if got && header > 0 {
                let mut ethernet = [0; ETHERNET_HEADER];
                let protocol = dvb::sdu::protocol_type(packet).unwrap_or(0);
                ethernet[ETHERNET_HEADER - 2..].copy_from_slice(&protocol.to_be_bytes());
                packet.splice(..0, ethernet);
            }
            got
        };
        let mut filled = match &mut self.codec {
            Sending::Gse(sender) => sender.append(frame, next),
            Sending::Rle(sender) => sender.fill(frame, next),
        };
        filled.bytes -= filled.packets * header as u64;
        filled
    }

    /// Bytes of the IP packet in fragmentation that are not yet in a frame.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        let (in_hand, rest) = match &self.codec {
            Sending::Gse(sender) => (sender.in_hand().len(), sender.pending()),
            Sending::Rle(sender) => (sender.in_hand().len(), sender.pending()),
        };
        rest.min(in_hand.saturating_sub(self.header))
    }

    /// Whether a packet was taken from the queue and no fragment of it is in a frame. Only GSE
    /// reports this.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(&self.codec, Sending::Gse(sender) if sender.is_unsent())
    }

    /// Burst payload that waiting packets take at most, for a terminal that has to ask for it.
    /// `payload` is that of a burst.
    pub(crate) fn on_air(&self, bytes: u64, packets: u64, payload: u64) -> u64 {
        let in_front = PPDU_BYTES + self.type_bytes() + self.header as u64;
        let whole = bytes + packets * in_front;
        (whole * payload).div_ceil(payload.saturating_sub(CUT_BYTES).max(1))
    }

    /// RLE's protocol type: compressed for IP, an escape and two bytes for Ethernet (EN 301 545-2
    /// table 7-3).
    fn type_bytes(&self) -> u64 {
        if self.header == 0 { 1 } else { 3 }
    }

    /// Takes back the packet in fragmentation, whole.
    pub(crate) fn take_back(&mut self) -> Option<Vec<u8>> {
        let packet = match &mut self.codec {
            Sending::Gse(sender) => sender.take_back(),
            Sending::Rle(sender) => sender.take_back(),
        };
        packet.map(|packet| packet[self.header..].to_vec())
    }
}

impl Decapsulator {
    /// The format of a carrier; `None` for a wire.
    pub(crate) fn new(carrier: &Carrier) -> Option<Self> {
        let codec = match carrier {
            Carrier::Forward { .. } | Carrier::OpenSandForward { .. } => {
                Receiving::Gse(gse::Decapsulator::new())
            }
            Carrier::Return { .. } | Carrier::OpenSandReturn { .. } => {
                Receiving::Rle(rle::Decapsulator::new())
            }
            Carrier::Line { .. } | Carrier::Wire => return None,
        };
        let header = header(carrier)?;
        Some(Self { codec, header })
    }

    /// The receiver got a frame.
    pub(crate) fn receive(&mut self, frame: &[u8], mut sink: impl FnMut(&[u8])) {
        let header = self.header;
        let mut strip = |data: &[u8]| sink(data.get(header..).unwrap_or(&[]));
        match &mut self.codec {
            Receiving::Gse(receiver) => receiver.frame(frame, |pdu| {
                if pdu.protocol_type != SIGNALLING {
                    strip(pdu.data);
                }
            }),
            Receiving::Rle(receiver) => receiver.frame(frame, |sdu| strip(sdu.data)),
        }
    }

    /// The receiver missed a frame.
    pub(crate) fn miss(&mut self) {
        match &mut self.codec {
            Receiving::Gse(receiver) => receiver.frame_lost(),
            Receiving::Rle(receiver) => receiver.frame_lost(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dvb::rcs2::Waveform;

    /// Bursts that `packets` take, and the most that they were asked for.
    fn bursts(carrier: &Carrier, packets: &[usize]) -> (u64, u64) {
        let mut air = Encapsulator::new(carrier, (0, 1)).unwrap();
        let mut frame = vec![0; carrier.frame_payload()];
        let payload = frame.len() as u64;
        let bytes: usize = packets.iter().sum();
        let asked = air.on_air(bytes as u64, packets.len() as u64, payload);
        let mut waiting = packets.iter();
        let mut taken = 0;
        loop {
            let next = |packet: &mut Vec<u8>| {
                waiting.next().is_some_and(|&len| {
                    packet.resize(len, 0);
                    packet[0] = 0x45;
                    true
                })
            };
            if air.fill(&mut frame, next).used == 0 {
                return (taken, asked.div_ceil(payload));
            }
            taken += 1;
        }
    }

    #[test]
    fn what_a_terminal_asks_for_carries_what_waits() {
        let (symbol_rate, superframe, slots) = (1_000_000, 26_500_000, 8);
        for id in 3..=22 {
            let waveform = Waveform::by_id(id).unwrap();
            let standard = Carrier::Return {
                symbol_rate,
                waveform,
                superframe,
                slots,
            };
            let opensand = Carrier::OpenSandReturn {
                symbol_rate,
                waveform,
                superframe,
                slots,
            };
            for carrier in [standard, opensand] {
                for packets in [
                    &[40; 500][..],
                    &[1500; 40],
                    &[28; 1],
                    &[60, 1400, 300, 41, 1280],
                ] {
                    let (taken, asked) = bursts(&carrier, packets);
                    assert!(
                        taken <= asked,
                        "waveform {id}, {packets:?}: {taken} bursts, {asked} asked for"
                    );
                }
            }
        }
    }
}
