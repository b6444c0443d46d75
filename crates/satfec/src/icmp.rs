// SPDX-License-Identifier: GPL-3.0-or-later
//! The answer to an IPv4 packet that is too long for the path: "fragmentation needed" (RFC 792, RFC
//! 1191 section 4).

const HEADER: usize = 20;
/// Bytes of the packet that the answer quotes: the header with options and at least 8 bytes of
/// payload.
const QUOTED: usize = 68;
const ICMP: u8 = 1;
const TTL: u8 = 64;
/// Types of ICMP messages that are never answered (RFC 1122 section 3.2.2).
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];

/// The answer to `packet` with the MTU of the path; `None` for what is not answered: no IPv4, ICMP
/// errors, later fragments.
///
/// It comes from the packet's destination, as the tunnel has no address of its own on the path.
#[must_use]
pub fn fragmentation_needed(packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let header: &[u8; HEADER] = packet.first_chunk()?;
    let is_later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let payload = packet.get(4 * usize::from(header[0] & 15)..)?;
    let is_error = header[9] == ICMP && payload.first().is_none_or(|kind| ERRORS.contains(kind));
    if header[0] >> 4 != 4 || is_error || is_later_fragment {
        return None;
    }
    let quoted = &packet[..packet.len().min(QUOTED)];
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend_from_slice(&mtu.to_be_bytes());
    message.extend_from_slice(quoted);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut answer = vec![0x45, 0, 0, 0, 0, 0, 0, 0, TTL, ICMP, 0, 0];
    answer.extend_from_slice(&header[16..20]);
    answer.extend_from_slice(&header[12..16]);
    let length = (HEADER + message.len()) as u16;
    answer[2..4].copy_from_slice(&length.to_be_bytes());
    let sum = checksum(&answer);
    answer[10..12].copy_from_slice(&sum.to_be_bytes());
    answer.extend_from_slice(&message);
    Some(answer)
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(length: usize) -> Vec<u8> {
        let mut packet = vec![0; length];
        packet[0] = 0x45;
        packet[9] = 17;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        packet
    }

    #[test]
    fn the_sender_learns_the_mtu_from_the_other_end_s_address() {
        let answer = fragmentation_needed(&udp(1400), 1240).unwrap();
        assert_eq!(answer.len(), 20 + 8 + 68);
        assert_eq!(answer[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        assert_eq!(answer[20..22], [3, 4]);
        assert_eq!(u16::from_be_bytes([answer[26], answer[27]]), 1240);
        assert_eq!(answer[28..48], udp(1400)[..20]);
        // A sum over a header or message with its checksum is zero.
        assert_eq!((checksum(&answer[..20]), checksum(&answer[20..])), (0, 0));
    }

    #[test]
    fn errors_fragments_and_others_are_not_answered() {
        let mut icmp = udp(100);
        icmp[9] = ICMP;
        icmp[20] = 8;
        assert!(fragmentation_needed(&icmp, 1240).is_some());
        icmp[20] = 3;
        let mut fragment = udp(100);
        fragment[7] = 1;
        let mut six = udp(100);
        six[0] = 0x60;
        for packet in [icmp, fragment, six, vec![0x45; 19], vec![]] {
            assert_eq!(fragmentation_needed(&packet, 1240), None);
        }
    }
}
