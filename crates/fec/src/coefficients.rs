// SPDX-License-Identifier: GPL-3.0-or-later
//! Coding coefficients of a repair symbol.

use crate::TinyMt32;

/// Density threshold at which no coefficient is zero.
pub const FULL_DENSITY: u8 = 15;

/// The coefficients of a repair symbol over GF(2^8) (RFC 8681 section 3.6), one for each of its
/// `count` source symbols.
///
/// A coefficient is non-zero with probability (`density` + 1) / 16; `density` is 0 to 15.
pub fn coefficients(repair_key: u16, density: u8, count: usize, out: &mut Vec<u8>) {
    let mut random = TinyMt32::new(u32::from(repair_key));
    out.clear();
    for _ in 0..count {
        let is_zero = density < FULL_DENSITY && random.next_16() > density;
        out.push(if is_zero { 0 } else { non_zero(&mut random) });
    }
}

fn non_zero(random: &mut TinyMt32) -> u8 {
    loop {
        let value = random.next_256();
        if value != 0 {
            return value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_density_takes_the_bytes_of_the_generator_and_skips_zeros() {
        let mut got = Vec::new();
        coefficients(1, FULL_DENSITY, 10, &mut got);
        // RFC 8681 appendix A, seed 1.
        assert_eq!(got, [37, 225, 177, 176, 21, 246, 54, 139, 168, 237]);
        for key in 0..1000 {
            coefficients(key, FULL_DENSITY, 1000, &mut got);
            assert!(got.iter().all(|&value| value != 0));
        }
    }

    #[test]
    fn share_of_non_zero_coefficients_follows_the_density() {
        let mut got = Vec::new();
        for density in 0..FULL_DENSITY {
            coefficients(7, density, 100_000, &mut got);
            let share = got.iter().filter(|&&value| value != 0).count() as f64 / 1e5;
            let expected = f64::from(density + 1) / 16.0;
            assert!((share - expected).abs() < 0.006, "{density}: {share}");
        }
    }
}
