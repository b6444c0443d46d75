// SPDX-License-Identifier: GPL-3.0-or-later
//! Vector instructions. The only module with `unsafe`.
#![allow(unsafe_code)]

/// Products of a factor with the 16 low and the 16 high halves of a byte.
pub(crate) type Products = [[u8; 16]; 2];

/// Adds the products to `to` for as many whole vectors as both slices hold; returns how many bytes
/// it has done.
#[cfg(target_arch = "x86_64")]
pub(crate) fn add_product(to: &mut [u8], products: &Products, from: &[u8]) -> usize {
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { avx2(to, products, from) }
    } else {
        0
    }
}

/// Leaves all bytes to the plain arithmetic.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn add_product(_: &mut [u8], _: &Products, _: &[u8]) -> usize {
    0
}

/// Looks up the products of 32 bytes at once, their low and high halves in one table each.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(to: &mut [u8], [low, high]: &Products, from: &[u8]) -> usize {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
        _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256,
        _mm256_xor_si256,
    };
    const WIDTH: usize = 32;
    // SAFETY: the tables are 16 bytes each, and a chunk is as long as the vector that is loaded or
    // stored.
    unsafe {
        let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast()));
        let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast()));
        let mask = _mm256_set1_epi8(15);
        let chunks = to.chunks_exact_mut(WIDTH).zip(from.chunks_exact(WIDTH));
        let mut done = 0;
        for (to, from) in chunks {
            let bytes = _mm256_loadu_si256(from.as_ptr().cast());
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, mask));
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask);
            let product = _mm256_xor_si256(of_low, _mm256_shuffle_epi8(high, upper));
            let sum = _mm256_xor_si256(_mm256_loadu_si256(to.as_ptr().cast()), product);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), sum);
            done += WIDTH;
        }
        done
    }
}
