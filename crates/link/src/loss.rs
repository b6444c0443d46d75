// SPDX-License-Identifier: GPL-3.0-or-later
//! Random losses.

use rand_core::{RngCore, SeedableRng};
use rand_pcg::Pcg64;

/// Bernoulli trials of one link, from one seeded generator.
#[derive(Debug)]
pub(crate) struct Bernoulli {
    /// The ratio in units of 2^-64, so that 0 never and 1 always loses.
    threshold: u128,
    random: Pcg64,
}

impl Bernoulli {
    pub(crate) fn new(ratio: f64, seed: u64) -> Self {
        let threshold = (ratio * 2f64.powi(64)) as u128;
        Self {
            threshold,
            random: Pcg64::seed_from_u64(seed),
        }
    }

    /// Whether the next unit is lost.
    pub(crate) fn next(&mut self) -> bool {
        u128::from(self.random.next_u64()) < self.threshold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_holds_within_three_sigma() {
        const TRIALS: u32 = 1_000_000;
        for (seed, ratio) in [(1, 0.001), (2, 0.01), (3, 0.1), (4, 0.5), (5, 0.9)] {
            let mut trials = Bernoulli::new(ratio, seed);
            let lost = f64::from((0..TRIALS).map(|_| u32::from(trials.next())).sum::<u32>());
            let (mean, sigma) = (
                f64::from(TRIALS) * ratio,
                (f64::from(TRIALS) * ratio * (1.0 - ratio)).sqrt(),
            );
            assert!(
                (lost - mean).abs() <= 3.0 * sigma,
                "{lost} lost of {TRIALS} at {ratio}"
            );
        }
    }

    #[test]
    fn nothing_and_everything() {
        let (mut none, mut all) = (Bernoulli::new(0.0, 1), Bernoulli::new(1.0, 1));
        assert!((0..10_000).all(|_| !none.next() && all.next()));
    }
}
