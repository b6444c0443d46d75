// SPDX-License-Identifier: GPL-3.0-or-later
//! Explicit congestion notification (RFC 3168).

/// Both ECN bits: congestion experienced. Not ECN-capable transport is 0.
const CE: u8 = 0b11;
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

/// ECN field of an IP packet; 0, not ECN-capable, of anything else.
pub(crate) fn field(packet: &[u8]) -> u8 {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) if packet.len() >= IPV4_HEADER => packet[1] & CE,
        // The traffic class lies across the first two bytes, its ECN bits in the upper half of the
        // second.
        Some(6) if packet.len() >= IPV6_HEADER => packet[1] >> 4 & CE,
        _ => 0,
    }
}

/// Marks an ECN-capable IP packet with congestion experienced; false, and nothing changed, if it is
/// none.
///
/// The header checksum of IPv4 is updated (RFC 1624 equation 3); IPv6 has none.
pub(crate) fn mark(packet: &mut [u8]) -> bool {
    if field(packet) == 0 {
        return false;
    }
    if packet[0] >> 4 == 6 {
        packet[1] |= CE << 4;
        return true;
    }
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= CE;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&updated(checksum, before, after).to_be_bytes());
    true
}

/// Internet checksum after a word of the header changed.
fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One's complement sum over a header: 0xffff if its checksum is right.
    fn sum(header: &[u8]) -> u16 {
        let words = header
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let total: u32 = words.sum();
        let folded = (total & 0xffff) + (total >> 16);
        (folded + (folded >> 16)) as u16
    }

    fn ipv4(traffic_class: u8, id: u16) -> Vec<u8> {
        let mut packet = vec![
            0x45,
            traffic_class,
            0,
            40,
            0,
            0,
            0x40,
            0,
            64,
            6,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ];
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        let checksum = !sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.resize(40, 7);
        packet
    }

    #[test]
    fn ipv4_is_marked_with_a_valid_checksum() {
        for id in 0..=u16::MAX {
            for ecn in [1, 2, 3] {
                let mut packet = ipv4(0xb8 | ecn, id);
                assert!(mark(&mut packet));
                assert_eq!((packet[1], sum(&packet[..20])), (0xbb, 0xffff));
            }
        }
    }

    #[test]
    fn ipv6_is_marked_in_its_traffic_class() {
        for ecn in [1, 2, 3] {
            let mut packet = vec![0; 60];
            packet[..4].copy_from_slice(&[0x6b, 0x80 | ecn << 4 | 0x0c, 0xaa, 0xbb]);
            assert!(mark(&mut packet));
            assert_eq!(packet[..4], [0x6b, 0xbc, 0xaa, 0xbb]);
        }
    }

    #[test]
    fn what_is_not_capable_or_no_ip_stays_as_it_is() {
        for packet in [
            ipv4(0xb8, 1),
            ipv4(2, 1)[..19].to_vec(),
            vec![0x60; 39],
            vec![0x6b, 0x8c],
            vec![0x52; 60],
            vec![],
        ] {
            let mut tried = packet.clone();
            assert!(!mark(&mut tried));
            assert_eq!(tried, packet);
        }
    }
}
