// SPDX-License-Identifier: GPL-3.0-or-later
//! `TinyMT32`, the generator of RFC 8682.

const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;

/// The generator, with the parameter set of RFC 8682 section 2.1.
#[derive(Clone, Debug)]
pub struct TinyMt32([u32; 4]);

impl TinyMt32 {
    /// A generator from a seed; 0 is allowed.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut state = [seed, MAT1, MAT2, TMAT];
        for i in 1..8_u32 {
            let before = state[(i as usize - 1) % 4];
            let mixed = (before ^ (before >> 30)).wrapping_mul(1_812_433_253);
            state[i as usize % 4] ^= mixed.wrapping_add(i);
        }
        let mut generator = Self(state);
        for _ in 0..8 {
            generator.step();
        }
        generator
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.step();
        let [first, _, third, fourth] = self.0;
        let sum = first.wrapping_add(third >> 8);
        fourth ^ sum ^ (TMAT * (sum & 1))
    }

    /// Uniform in 0 to 255: the low byte (RFC 8681 section 3.5, `tinymt32_rand256`).
    pub fn next_256(&mut self) -> u8 {
        self.next_u32() as u8
    }

    /// Uniform in 0 to 15: the low four bits (RFC 8681 section 3.5, `tinymt32_rand16`).
    pub fn next_16(&mut self) -> u8 {
        self.next_u32() as u8 & 0xf
    }

    fn step(&mut self) {
        let [first, second, third, fourth] = self.0;
        let mut x = (first & 0x7fff_ffff) ^ second ^ third;
        x ^= x << 1;
        let y = fourth ^ (fourth >> 1) ^ x;
        let odd = y & 1;
        self.0 = [
            second,
            third ^ (MAT1 * odd),
            x ^ (y << 10) ^ (MAT2 * odd),
            y,
        ];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8682 section 2.3, figure 2: seed 1.
    #[expect(clippy::unreadable_literal, reason = "as in the RFC")]
    const SEED_1: [u32; 50] = [
        2545341989, 981918433, 3715302833, 2387538352, 3591001365, 3820442102, 2114400566,
        2196103051, 2783359912, 764534509, 643179475, 1822416315, 881558334, 4207026366,
        3690273640, 3240535687, 2921447122, 3984931427, 4092394160, 44209675, 2188315343,
        2908663843, 1834519336, 3774670961, 3019990707, 4065554902, 1239765502, 4035716197,
        3412127188, 552822483, 161364450, 353727785, 140085994, 149132008, 2547770827, 4064042525,
        4078297538, 2057335507, 622384752, 2041665899, 2193913817, 1080849512, 33160901, 662956935,
        642999063, 3384709977, 1723175122, 3866752252, 521822317, 2292524454,
    ];

    #[test]
    // promise: P70
    fn values_are_those_of_rfc_8682() {
        let mut generator = TinyMt32::new(1);
        assert_eq!(SEED_1.map(|_| generator.next_u32()), SEED_1);
    }

    #[test]
    fn small_values_are_those_of_rfc_8681() {
        // RFC 8681 appendix A: the first ten of each list, seed 1.
        let mut generator = TinyMt32::new(1);
        let bytes = [37, 225, 177, 176, 21, 246, 54, 139, 168, 237];
        assert_eq!(bytes.map(|_| generator.next_256()), bytes);
        let mut generator = TinyMt32::new(1);
        let nibbles = [5, 1, 1, 0, 5, 6, 6, 11, 8, 13];
        assert_eq!(nibbles.map(|_| generator.next_16()), nibbles);
    }
}
