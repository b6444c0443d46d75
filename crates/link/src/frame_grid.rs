// SPDX-License-Identifier: GPL-3.0-or-later
//! When frames start and end, in exact arithmetic.

use crate::{Carrier, Nanos};

/// Time from a tick of `OpenSAND` to the release, propagation left out: two polls of a delay FIFO,
/// once each ms, and processing. Both ways together are the 4 ms that measured round-trip times
/// show.
const OPENSAND_POLLS: Nanos = 2_000_000;

/// A grid of openings: opening `k` is at `origin + k * num / den` ns, rounded down. Nothing
/// accumulates, so nothing drifts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    origin: Nanos,
    num: u128,
    den: u128,
    /// Time on air; `None`: up to the start of the next frame.
    burst: Option<Nanos>,
}

impl Grid {
    /// The grid of a carrier that starts at `origin`; `None` for a wire.
    ///
    /// Forward: PLFRAMEs back to back. Return: slot `i` of a superframe of `n` slots starts `i / n`
    /// into it. `OpenSAND`: ticks.
    pub(crate) fn new(carrier: &Carrier, origin: Nanos) -> Option<Self> {
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
                    origin,
                    num: u128::from(symbols) * 1_000_000_000,
                    den: u128::from(symbol_rate),
                    burst: None,
                })
            }
            Carrier::Return {
                superframe, slots, ..
            } => Some(Self {
                origin,
                num: u128::from(superframe),
                den: u128::from(slots),
                burst: Some(carrier.frame_duration()),
            }),
            Carrier::OpenSandForward { tick, drift, .. } => {
                Some(Self::ticks(origin, tick.saturating_add(drift)))
            }
            Carrier::OpenSandReturn { superframe, .. } => Some(Self::ticks(origin, superframe)),
            Carrier::Line { .. } | Carrier::Wire => None,
        }
    }

    /// Ticks of `OpenSAND`.
    fn ticks(origin: Nanos, distance: Nanos) -> Self {
        Self {
            origin,
            num: u128::from(distance),
            den: 1,
            burst: Some(OPENSAND_POLLS),
        }
    }

    /// Keeps the openings, and sets the duration of frames to that of `carrier`.
    pub(crate) fn retime(&mut self, carrier: &Carrier) {
        self.burst = Self::new(carrier, self.origin).and_then(|it| it.burst);
    }

    /// Start of the frame, or the batch of frames, of opening `k`.
    pub(crate) fn start(&self, k: u64) -> Nanos {
        let start = u128::from(self.origin) + u128::from(k) * self.num / self.den;
        Nanos::try_from(start).unwrap_or(Nanos::MAX)
    }

    /// Start and end of slot or frame `k`.
    pub(crate) fn span(&self, k: u64) -> (Nanos, Nanos) {
        let start = self.start(k);
        let end = match self.burst {
            Some(duration) => start.saturating_add(duration),
            None => self.start(k.saturating_add(1)),
        };
        (start, end)
    }

    /// Time on air of a burst; `None`: up to the start of the next frame.
    pub(crate) const fn burst(&self) -> Option<Nanos> {
        self.burst
    }

    /// First opening that starts at or after `time`.
    pub(crate) fn first_from(&self, time: Nanos) -> u64 {
        let time = time.saturating_sub(self.origin);
        // floor(k * num / den) >= time holds for whole `time` exactly when k * num / den >= time.
        u64::try_from((u128::from(time) * self.den).div_ceil(self.num)).unwrap_or(u64::MAX)
    }

    /// Distance of two openings in ns.
    pub(crate) fn spacing(&self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

/// How many frames an opening sends. The standards open frames one by one; `OpenSAND` opens
/// batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    per_opening: u64,
    per_frame: u64,
    left: u64,
}

impl Quota {
    pub(crate) fn new(carrier: &Carrier) -> Self {
        let (per_opening, per_frame) = match *carrier {
            Carrier::OpenSandForward { modcod, .. } => (
                carrier.symbols_per_tick(),
                dvb::opensand::bbframe_symbols(modcod),
            ),
            Carrier::OpenSandReturn { slots, .. } => (u64::from(slots), 1),
            Carrier::Forward { .. }
            | Carrier::Return { .. }
            | Carrier::Line { .. }
            | Carrier::Wire => (1, 1),
        };
        Self {
            per_opening,
            per_frame,
            left: 0,
        }
    }

    /// Largest number of frames of one opening.
    pub(crate) fn most(&self) -> u64 {
        self.per_opening / self.per_frame + 1
    }

    pub(crate) fn open(&mut self) {
        self.left += self.per_opening;
    }

    /// Takes the cost of a frame from the quota. Returns false if too little is left.
    pub(crate) fn take(&mut self) -> bool {
        let enough = self.left >= self.per_frame;
        if enough {
            self.left -= self.per_frame;
        }
        enough
    }

    /// Unused capacity counts at the next opening while a packet waits; else it is lost.
    pub(crate) fn close(&mut self, something_waits: bool) {
        if !something_waits {
            self.left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grid_does_not_drift() {
        // 32 490 symbols at 40 Mbaud are 812.25 us: every fourth start is a whole number of
        // microseconds.
        let grid = Grid {
            origin: 0,
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
            origin: 0,
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
                origin: 3,
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
            origin: 0,
            num: 32_490_000_000_000,
            den: 1,
            burst: Some(7),
        };
        assert_eq!(grid.span(u64::MAX).1, Nanos::MAX);
        let k = grid.first_from(Nanos::MAX);
        assert!(grid.start(k) >= Nanos::MAX - 1);
    }
}
