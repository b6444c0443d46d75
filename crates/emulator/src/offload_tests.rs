// SPDX-License-Identifier: GPL-3.0-or-later
//! Segments compared with packets that are built one by one, with an independent checksum.

use super::*;
use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// What a test packet is made of.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) is_ipv4: bool,
    pub(crate) is_tcp: bool,
    pub(crate) id: u16,
    pub(crate) port: u16,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
    /// Bytes of TCP options, a multiple of 4.
    pub(crate) options: usize,
    pub(crate) payload: Vec<u8>,
}

/// RFC 1071 word by word: the complement of the one's complement sum.
fn reference(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut total: u16 = 0;
    for at in (0..bytes.len()).step_by(2) {
        let word = u16::from_be_bytes([bytes[at], *bytes.get(at + 1).unwrap_or(&0)]);
        let (sum, carry) = total.overflowing_add(word);
        total = sum + u16::from(carry);
    }
    !total
}

impl Sample {
    /// The IP packet, checksums and all.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut transport = self.transport();
        let mut packet = self.network(transport.len());
        let addresses = if self.is_ipv4 { 12 } else { 8 };
        let protocol = if self.is_tcp { 6 } else { 17 };
        let length = (transport.len() as u16).to_be_bytes();
        let place = if self.is_tcp { 16 } else { 6 };
        let sum = match reference(&[&packet[addresses..], &[0, protocol], &length, &transport]) {
            0 => 0xffff,
            sum => sum,
        };
        transport[place..place + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(transport);
        packet
    }

    fn transport(&self) -> Vec<u8> {
        let mut bytes = [self.port.to_be_bytes(), 5299u16.to_be_bytes()].concat();
        if self.is_tcp {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend([1, 2, 3, 4, (5 + self.options as u8 / 4) << 4, self.flags]);
            bytes.extend([0x20, 0, 0, 0, 0, 0]);
            bytes.extend(vec![1; self.options]);
        } else {
            bytes.extend((self.payload.len() as u16 + 8).to_be_bytes());
            bytes.extend([0, 0]);
        }
        bytes.extend(&self.payload);
        bytes
    }

    fn network(&self, rest: usize) -> Vec<u8> {
        let protocol = if self.is_tcp { 6 } else { 17 };
        if !self.is_ipv4 {
            let mut bytes = vec![0x60, 0, 0, 9];
            bytes.extend((rest as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend([0x20; 16]);
            bytes.extend([0x21; 16]);
            return bytes;
        }
        let mut bytes = vec![0x45, 0];
        bytes.extend((rest as u16 + 20).to_be_bytes());
        bytes.extend(self.id.to_be_bytes());
        bytes.extend([0, 0, 64, protocol, 0, 0, 198, 18, 4, 2, 198, 18, 1, 2]);
        let sum = reference(&[&bytes]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    /// Where the transport header and the payload start.
    fn starts(&self) -> (usize, usize) {
        let transport = if self.is_ipv4 { 20 } else { 40 };
        let header = if self.is_tcp { 20 + self.options } else { 8 };
        (transport, transport + header)
    }
}

pub(crate) fn sample(random: &mut Pcg64, length: usize) -> Sample {
    let mut payload = vec![0; length];
    random.fill_bytes(&mut payload);
    let pick = random.next_u32();
    Sample {
        is_ipv4: pick & 1 == 0,
        is_tcp: pick & 2 == 0,
        id: random.next_u32() as u16,
        port: 1024 + (pick >> 16) as u16 / 2,
        sequence: random.next_u32(),
        flags: 0x10,
        options: (pick >> 4) as usize % 4 * 4,
        payload,
    }
}

/// The large packet that the kernel would hand over, with the sum of the pseudo-header where the
/// checksum belongs.
fn large(whole: &Sample, segment: usize) -> (Header, Vec<u8>) {
    let mut packet = whole.packet();
    let (transport, payload) = whole.starts();
    let (protocol, offset) = if whole.is_tcp { (6, 16) } else { (17, 6) };
    let addresses = if whole.is_ipv4 { 12..20 } else { 8..40 };
    let length = ((packet.len() - transport) as u16).to_be_bytes();
    let pseudo = !reference(&[&packet[addresses], &[0, protocol], &length]);
    packet[transport + offset..][..2].copy_from_slice(&pseudo.to_be_bytes());
    let kind = match (whole.is_tcp, whole.is_ipv4) {
        (true, true) => TCP4,
        (true, false) => TCP6,
        (false, _) => UDP,
    };
    let header = Header {
        flags: NEEDS_CHECKSUM,
        kind,
        length: payload as u16,
        segment: segment as u16,
        start: transport as u16,
        offset: offset as u16,
    };
    (header, packet)
}

pub(crate) fn cut(header: &Header, packet: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Segments::default();
    segments.load(header, packet);
    let mut buffer = vec![0; 65_535];
    let next = || {
        segments
            .next(&mut buffer)
            .map(|length| buffer[..length].to_vec())
    };
    std::iter::from_fn(next).collect()
}

#[test]
// promise: P6
fn segments_are_the_packets_that_the_kernel_would_have_made() {
    let mut random = Pcg64::seed_from_u64(1);
    for _ in 0..300 {
        let length = 1 + random.next_u32() as usize % 20_000;
        let segment = 1 + random.next_u32() as usize % 1460;
        let mut whole = sample(&mut random, length);
        whole.flags = [0x10, 0x18, 0x19, 0x11][random.next_u32() as usize % 4];
        let (header, packet) = large(&whole, segment);
        let mut expected: Vec<_> = whole
            .payload
            .chunks(segment)
            .enumerate()
            .map(|(index, payload)| Sample {
                id: whole.id.wrapping_add(index as u16),
                sequence: whole.sequence.wrapping_add((index * segment) as u32),
                flags: whole.flags & !0x09,
                payload: payload.to_vec(),
                ..whole.clone()
            })
            .collect();
        expected.last_mut().unwrap().flags = whole.flags;
        let expected: Vec<_> = expected.iter().map(Sample::packet).collect();
        assert_eq!(cut(&header, &packet), expected);
    }
}

#[test]
fn checksums_left_to_the_reader_are_completed() {
    let mut random = Pcg64::seed_from_u64(2);
    for length in 1..300 {
        let whole = sample(&mut random, length);
        let (header, mut packet) = large(&whole, 0);
        complete(&header, &mut packet);
        assert_eq!(packet, whole.packet());
        let plain = packet.clone();
        complete(&Header::default(), &mut packet);
        assert_eq!(packet, plain);
    }
}

#[test]
fn headers_are_read_as_they_are_written() {
    let header = Header {
        flags: 1,
        kind: 5,
        length: 0x1234,
        segment: 1448,
        start: 20,
        offset: 6,
    };
    assert_eq!(Header::parse(&header.bytes()), header);
    assert_eq!(Header::default().bytes(), [0; Header::BYTES]);
}

#[test]
fn inconsistent_headers_yield_no_segment() {
    let mut random = Pcg64::seed_from_u64(3);
    let whole = sample(&mut random, 3000);
    let (good, packet) = large(&whole, 1000);
    let lies = [
        Header { segment: 0, ..good },
        Header { start: 0, ..good },
        Header {
            start: 60_000,
            ..good
        },
        Header { kind: 3, ..good },
        Header {
            kind: if whole.is_ipv4 { TCP6 } else { TCP4 },
            ..good
        },
    ];
    for header in lies {
        assert!(cut(&header, &packet).is_empty(), "{header:?}");
    }
    for length in 0..packet.len().min(80) {
        for packet in cut(&good, &packet[..length]) {
            assert!(packet.len() <= length);
        }
    }
    for _ in 0..20_000 {
        let mut bytes = [0; Header::BYTES];
        random.fill_bytes(&mut bytes);
        bytes[1] %= 6;
        let mut packet = vec![0; random.next_u32() as usize % 200];
        random.fill_bytes(&mut packet);
        let header = Header::parse(&bytes);
        complete(&header, &mut packet);
        let _ = cut(&header, &packet);
    }
}
