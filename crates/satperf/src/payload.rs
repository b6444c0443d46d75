// SPDX-License-Identifier: GPL-3.0-or-later
//! Payload whose bytes follow from stream and offset.
//!
//! The receiver generates the expected bytes and compares, which detects any loss, repetition,
//! exchange or damage without information from the sender. Words come from `SplitMix64` (Steele,
//! Lea, Flood 2014).

const WORD: usize = 8;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn word(stream: u64, index: u64) -> [u8; WORD] {
    // Streams start 2^44 words apart in one sequence, far beyond any transfer.
    let mut z = (stream << 44)
        .wrapping_add(index)
        .wrapping_add(1)
        .wrapping_mul(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Writes the payload of stream number `stream` (0, 1, ...) from `offset` on into `buffer`.
pub fn fill(stream: u64, offset: u64, buffer: &mut [u8]) {
    let skip = (offset % WORD as u64) as usize;
    let mut index = offset / WORD as u64;
    let first = buffer.len().min((WORD - skip) % WORD);
    let (head, body) = buffer.split_at_mut(first);
    if !head.is_empty() {
        head.copy_from_slice(&word(stream, index)[skip..skip + first]);
        index += 1;
    }
    for chunk in body.chunks_mut(WORD) {
        chunk.copy_from_slice(&word(stream, index)[..chunk.len()]);
        index += 1;
    }
}

/// Counts the bytes of `data` that differ from the payload of `stream` at `offset`.
pub fn differing(stream: u64, mut offset: u64, data: &[u8]) -> u64 {
    let mut expected = [0; 4096];
    let mut count = 0;
    for chunk in data.chunks(expected.len()) {
        let due = &mut expected[..chunk.len()];
        fill(stream, offset, due);
        if due != chunk {
            count += chunk
                .iter()
                .zip(due)
                .filter(|(got, due)| got != due)
                .count() as u64;
        }
        offset += chunk.len() as u64;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_has_the_same_bytes() {
        let mut whole = [0; 10_000];
        fill(3, 0, &mut whole);
        for (offset, len) in [
            (0, 1),
            (1, 3),
            (5, 3),
            (5, 9),
            (7, 1),
            (8, 8),
            (13, 9_000),
            (9_999, 1),
        ] {
            let mut part = vec![0; len];
            fill(3, offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{len} bytes at {offset}");
            assert_eq!(differing(3, offset as u64, &part), 0);
        }
    }

    #[test]
    // promise: P84
    fn every_misplaced_or_damaged_byte_shows() {
        let mut data = [0; 9_000];
        fill(0, 4_000, &mut data);
        assert!(differing(1, 4_000, &data) > 8_900, "another stream");
        assert!(differing(0, 4_001, &data) > 8_900, "another offset");
        data[8_999] ^= 1;
        data[0] ^= 1;
        assert_eq!(differing(0, 4_000, &data), 2);
    }
}
