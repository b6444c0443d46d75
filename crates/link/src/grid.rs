// SPDX-License-Identifier: GPL-3.0-or-later
//! When frames start and end, in exact arithmetic.

use crate::{Carrier, Nanos};

/// A grid of frames: frame `k` starts at `k * num / den` ns, rounded down. Nothing accumulates, so nothing drifts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    num: u128,
    den: u128,
    /// Time on air; `None`: up to the start of the next frame.
    burst: Option<Nanos>,
}

impl Grid {
    /// The grid of a carrier; `None` for a wire.
    ///
    /// Forward: PLFRAMEs back to back. Return: slot `i` of a superframe of `n` slots starts `i / n` into it.
    pub(crate) fn new(carrier: &Carrier) -> Option<Self> {
        match *carrier {
            Carrier::Forward {
                symbol_rate,
                modcod,
                frame_size,
                pilots,
                ..
            } => {
                let symbols = modcod.plframe_symbols(frame_size, pilots);
                Some(Self {
                    num: u128::from(symbols) * 1_000_000_000,
                    den: u128::from(symbol_rate),
                    burst: None,
                })
            }
            Carrier::Return {
                superframe, slots, ..
            } => Some(Self {
                num: u128::from(superframe),
                den: u128::from(slots),
                burst: Some(carrier.frame_duration()),
            }),
            Carrier::Wire => None,
        }
    }

    /// Start of frame `k`.
    pub(crate) fn start(&self, k: u64) -> Nanos {
        Nanos::try_from(u128::from(k) * self.num / self.den).unwrap_or(Nanos::MAX)
    }

    /// End of frame `k`.
    pub(crate) fn end(&self, k: u64) -> Nanos {
        match self.burst {
            Some(duration) => self.start(k).saturating_add(duration),
            None => self.start(k.saturating_add(1)),
        }
    }

    /// First frame that starts at or after `time`.
    pub(crate) fn first_from(&self, time: Nanos) -> u64 {
        // floor(k * num / den) >= time holds for whole `time` exactly when k * num / den >= time.
        u64::try_from((u128::from(time) * self.den).div_ceil(self.num)).unwrap_or(u64::MAX)
    }

    /// Distance of two frame starts in ns.
    pub(crate) fn spacing(&self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_does_not_drift() {
        // 32 490 symbols at 40 Mbaud are 812.25 us: every fourth start is a whole number of microseconds.
        let grid = Grid {
            num: 32_490_000_000_000,
            den: 40_000_000,
            burst: None,
        };
        assert_eq!(
            [0, 1, 2, 3, 4].map(|k| grid.start(k)),
            [0, 812_250, 1_624_500, 2_436_750, 3_249_000]
        );
        assert_eq!(grid.start(4_000_000_000), 3_249_000_000_000_000);
        // 3 Mbaud: 10.83 ms; 7 Mbaud does not divide.
        let grid = Grid {
            num: 32_490_000_000_000,
            den: 7_000_000,
            burst: None,
        };
        assert_eq!(
            [1, 2, 3, 7].map(|k| grid.start(k)),
            [4_641_428, 9_282_857, 13_924_285, 32_490_000]
        );
    }

    #[test]
    fn first_from_is_the_first_start_not_before() {
        for (num, den) in [
            (32_490_000_000_000, 7_000_000),
            (26_500_000, 3),
            (26_500_000, 1000),
            (1, 1),
        ] {
            let grid = Grid {
                num,
                den,
                burst: None,
            };
            for time in [
                0, 1, 4_641_427, 4_641_428, 4_641_429, 8_833_333, 8_833_334, 26_500_000,
            ] {
                let k = grid.first_from(time);
                assert!(grid.start(k) >= time);
                assert!(k == 0 || grid.start(k - 1) < time);
            }
        }
    }

    #[test]
    fn far_future_saturates() {
        let grid = Grid {
            num: 32_490_000_000_000,
            den: 1,
            burst: Some(7),
        };
        assert_eq!(grid.end(u64::MAX), Nanos::MAX);
        let k = grid.first_from(Nanos::MAX);
        assert!(grid.start(k) >= Nanos::MAX - 1);
    }
}
