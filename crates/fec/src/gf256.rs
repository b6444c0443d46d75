// SPDX-License-Identifier: GPL-3.0-or-later
//! Arithmetic in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (RFC 8681 section 3.7.2).

use crate::sys::{self, Products};

const POLYNOMIAL: u16 = 0x11d;

static PRODUCTS: [Products; 256] = products();
static INVERSES: [u8; 256] = inverses();

const fn shift_and_add(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a as u16, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    sum as u8
}

const fn products() -> [Products; 256] {
    let mut table = [[[0; 16]; 2]; 256];
    let mut factor = 0;
    while factor < 256 {
        let mut half = 0;
        while half < 16 {
            table[factor][0][half] = shift_and_add(factor as u8, half as u8);
            table[factor][1][half] = shift_and_add(factor as u8, (half << 4) as u8);
            half += 1;
        }
        factor += 1;
    }
    table
}

/// By the powers of x, which generates all non-zero elements: the inverse of x^i is x^(255 - i).
const fn inverses() -> [u8; 256] {
    let mut powers = [1; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = shift_and_add(powers[i - 1], 2);
        i += 1;
    }
    let mut table = [0; 256];
    i = 0;
    while i < 255 {
        table[powers[i] as usize] = powers[255 - i];
        i += 1;
    }
    table
}

/// The product.
#[must_use]
pub fn mul(a: u8, b: u8) -> u8 {
    let [low, high] = &PRODUCTS[usize::from(a)];
    low[usize::from(b & 15)] ^ high[usize::from(b >> 4)]
}

/// The inverse; 0 for 0, which has none.
#[must_use]
pub fn inverse(a: u8) -> u8 {
    INVERSES[usize::from(a)]
}

/// Adds `factor` times `from` to `to`, as far as both reach; with AVX2 where the processor has it.
pub fn add_product(to: &mut [u8], factor: u8, from: &[u8]) {
    if factor == 0 {
        return;
    }
    let products = &PRODUCTS[usize::from(factor)];
    let done = sys::add_product(to, products, from);
    let (to, from) = (to.get_mut(done..), from.get(done..));
    add_product_plain(to.unwrap_or_default(), products, from.unwrap_or_default());
}

/// The same, byte by byte.
fn add_product_plain(to: &mut [u8], [low, high]: &Products, from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= low[usize::from(from & 15)] ^ high[usize::from(from >> 4)];
    }
}

/// Multiplies all of `values` by `factor`.
pub fn scale(values: &mut [u8], factor: u8) {
    if factor != 1 {
        for value in values {
            *value = mul(factor, *value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_a_field() {
        for a in 0..=255 {
            assert_eq!(mul(a, 1), a);
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b), shift_and_add(a, b));
            }
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1);
            }
        }
        assert_eq!(inverse(0), 0);
        // x^8 = x^4 + x^3 + x^2 + 1.
        assert_eq!(mul(0x80, 2), 0x1d);
    }

    proptest! {
        #[test]
        fn vectors_are_as_the_plain_arithmetic(
            factor: u8, mut to in prop::collection::vec(any::<u8>(), 0..300), from in prop::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut plain = to.clone();
            add_product_plain(&mut plain, &PRODUCTS[usize::from(factor)], &from);
            add_product(&mut to, factor, &from);
            prop_assert_eq!(to, plain);
        }

        #[test]
        fn scaling_is_undone_by_the_inverse(factor in 1..=255_u8, values in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut scaled = values.clone();
            scale(&mut scaled, factor);
            scale(&mut scaled, inverse(factor));
            prop_assert_eq!(scaled, values);
        }
    }
}
