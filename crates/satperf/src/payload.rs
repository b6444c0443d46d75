// SPDX-License-Identifier: GPL-3.0-or-later
//! Payload whose bytes follow from stream and offset.
//!
//! The receiver compares with the bytes due, which detects any loss, repetition, exchange or damage
//! without information from the sender. All streams read one table of random words, so that payload
//! that waits for its acknowledgement takes no memory, and stays in the processor's cache. The
//! table begins again after a prime number of bytes: no block or window is a multiple of it.

use std::sync::LazyLock;

use bytes::Bytes;

/// Most bytes of one slice.
pub const MOST: usize = 64 << 10;
/// Bytes after which the payload of a stream repeats.
const PERIOD: usize = 262_147;
/// Each stream begins so many bytes behind the one before.
const STREAM_STEP: u64 = 100_003;

/// One period, and what the slices at its end need. Words come from `SplitMix64` (Steele, Lea, Flood
/// 2014).
static TABLE: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 0_u64;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    });
    let period: Vec<u8> = words.flatten().take(PERIOD).collect();
    [&period[..], &period[..MOST]].concat().into()
});

/// Where the payload of a stream at `offset` is in the table.
fn position(stream: u64, offset: u64) -> usize {
    let period = PERIOD as u64;
    ((stream % period * STREAM_STEP + offset % period) % period) as usize
}

/// The payload of stream number `stream` (0, 1, ...) from `offset` on, at most [`MOST`] bytes.
#[must_use]
pub fn slice(stream: u64, offset: u64, len: usize) -> Bytes {
    let begin = position(stream, offset);
    TABLE.slice(begin..begin + len)
}

/// Counts the bytes of `data` that differ from the payload of `stream` at `offset`.
#[must_use]
pub fn differing(stream: u64, mut offset: u64, data: &[u8]) -> u64 {
    let mut count = 0;
    for chunk in data.chunks(MOST) {
        let due = &TABLE[position(stream, offset)..][..chunk.len()];
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
        let whole = slice(3, 0, MOST);
        for (offset, len) in [(0, 1), (1, 3), (5, 9), (13, 9_000), (65_535, 1)] {
            let part = slice(3, offset as u64, len);
            assert_eq!(part, whole[offset..offset + len], "{len} bytes at {offset}");
            assert_eq!(differing(3, offset as u64, &part), 0);
        }
    }

    #[test]
    fn payload_goes_on_where_the_table_begins_again() {
        for begin in (0..4 * PERIOD as u64).step_by(MOST) {
            let longer = [slice(1, begin, MOST), slice(1, begin + MOST as u64, MOST)].concat();
            assert_eq!(differing(1, begin, &longer), 0, "{begin}");
        }
    }

    #[test]
    // promise: P84
    fn every_misplaced_or_damaged_byte_shows() {
        let mut data = slice(0, 4_000, 9_000).to_vec();
        assert!(differing(1, 4_000, &data) > 8_900, "another stream");
        assert!(differing(0, 4_001, &data) > 8_900, "another offset");
        for power in 0..40 {
            let elsewhere = 4_000 + (1 << power);
            assert!(differing(0, elsewhere, &data) > 8_900, "2^{power} further");
        }
        data[8_999] ^= 1;
        data[0] ^= 1;
        assert_eq!(differing(0, 4_000, &data), 2);
    }
}
