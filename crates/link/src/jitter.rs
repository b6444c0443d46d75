// SPDX-License-Identifier: GPL-3.0-or-later
//! Variation of the delay; packets keep their order.

use crate::random::{Process, fraction, generator};
use crate::{LinkError, Nanos};
use rand_pcg::Pcg64;
use std::f64::consts::{PI, TAU};

/// Time added to the delay of each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Jitter {
    /// None.
    #[default]
    None,
    /// Uniform between 0 and `most`.
    Uniform {
        /// Upper end.
        most: Nanos,
    },
    /// Normal distribution, in which negative values become 0.
    Normal {
        /// Mean of the uncut distribution.
        mean: Nanos,
        /// Standard deviation of the uncut distribution.
        sigma: Nanos,
    },
}

/// Longest jitter, ns: with it, no arithmetic of times overflows.
const LONGEST: Nanos = 3_600_000_000_000;

impl Jitter {
    /// Mean of the added time, ns, without the wait of a packet for an earlier one.
    #[must_use]
    pub fn mean_ns(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Uniform { most } => most as f64 / 2.0,
            Self::Normal { mean, sigma: 0 } => mean as f64,
            Self::Normal { mean, sigma } => {
                // E[max(0, X)] = integral of the survival function, by the midpoint rule over mean
                // +- 8 sigma.
                let (mean, sigma) = (mean as f64, sigma as f64);
                let steps = 4096;
                let width = 16.0 / f64::from(steps);
                (0..steps)
                    .map(|step| (f64::from(step) + 0.5) * width - 8.0)
                    .map(|z| (mean + sigma * z).max(0.0) * (-z * z / 2.0).exp() * width)
                    .sum::<f64>()
                    / (2.0 * PI).sqrt()
            }
        }
    }

    /// Largest jitter, ns. For the normal distribution, which has no bound, it is four standard
    /// deviations above the mean.
    #[must_use]
    pub fn most_ns(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Uniform { most } => most as f64,
            Self::Normal { mean, sigma } => mean as f64 + 4.0 * sigma as f64,
        }
    }

    pub(crate) fn check(self) -> Result<(), LinkError> {
        let longest = match self {
            Self::None => 0,
            Self::Uniform { most } => most,
            Self::Normal { mean, sigma } => mean.max(sigma),
        };
        if longest <= LONGEST {
            Ok(())
        } else {
            Err(LinkError::Jitter(longest))
        }
    }
}

/// Jitter at work.
#[derive(Debug)]
pub(crate) struct Jittering {
    jitter: Jitter,
    random: Pcg64,
}

impl Jittering {
    pub(crate) fn new(jitter: Jitter, seed: u64, generation: u64) -> Self {
        let random = generator(seed, Process::Jitter, generation);
        Self { jitter, random }
    }

    /// Time to add to the next packet.
    pub(crate) fn next(&mut self) -> Nanos {
        match self.jitter {
            Jitter::None => 0,
            Jitter::Uniform { most } => (fraction(&mut self.random) * most as f64) as Nanos,
            Jitter::Normal { mean, sigma } => {
                // Box and Muller 1958; 1 - u is never 0.
                let radius = (-2.0 * (1.0 - fraction(&mut self.random)).ln()).sqrt();
                let z = radius * (TAU * fraction(&mut self.random)).cos();
                // A negative value becomes 0 in the cast.
                (mean as f64 + sigma as f64 * z) as Nanos
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_they_say_and_nothing_is_negative_or_too_long() {
        let ms = 1_000_000;
        for jitter in [
            Jitter::None,
            Jitter::Uniform { most: 10 * ms },
            Jitter::Normal {
                mean: 20 * ms,
                sigma: 2 * ms,
            },
            Jitter::Normal {
                mean: ms,
                sigma: 5 * ms,
            },
            Jitter::Normal { mean: ms, sigma: 0 },
        ] {
            let mut running = Jittering::new(jitter, 7, 0);
            let drawn: Vec<_> = (0..200_000).map(|_| running.next() as f64).collect();
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!(
                (mean - jitter.mean_ns()).abs() < 0.03e6,
                "{jitter:?}: {mean}"
            );
            let beyond = drawn.iter().filter(|&&ns| ns > jitter.most_ns()).count();
            assert!(beyond < 20, "{jitter:?}: {beyond} beyond the bound");
        }
        // Half-normal: sigma / sqrt(2 pi).
        let cut = Jitter::Normal { mean: 0, sigma: ms };
        assert!((cut.mean_ns() - 1e6 / (2.0 * PI).sqrt()).abs() < 1.0);
        assert!(Jitter::Uniform { most: u64::MAX }.check().is_err());
    }
}
