// SPDX-License-Identifier: GPL-3.0-or-later
//! Adaptive coding and modulation: which MODCOD or waveform a measured `Es/N0` allows, and whether
//! a frame that needs more is received.
//!
//! The selection follows ETSI EN 302 307-1 annex D in spirit: down at once, up with hysteresis.
//! Thresholds are the ideal `Es/N0` of table 13.

use crate::modcod::{FrameSize, ModCod};

/// A MODCOD or waveform to choose from.
#[derive(Clone, Copy, Debug)]
pub struct Rung<C> {
    /// The MODCOD or waveform.
    pub coding: C,
    /// `Es/N0` that it needs, hundredths of a dB.
    pub threshold_centi_db: i16,
    /// Bits per symbol.
    pub efficiency: f64,
}

/// Chooses the MODCOD or waveform of one terminal from its `Es/N0` reports.
#[derive(Clone, Debug)]
pub struct Selector<C> {
    /// Least efficient first; thresholds rise too, for nothing is dominated by another.
    ladder: Vec<Rung<C>>,
    margin_db: f64,
    hysteresis_db: f64,
    current: usize,
}

impl Selector<ModCod> {
    /// [`Selector::of`] those MODCODs that have a frame of this size.
    #[must_use]
    pub fn new(
        allowed: &[ModCod],
        size: FrameSize,
        pilots: bool,
        margin_db: f64,
        hysteresis_db: f64,
    ) -> Option<Self> {
        let sent = allowed.iter().filter(|modcod| modcod.kbch(size).is_some());
        let rung = |&modcod: &ModCod| Rung {
            coding: modcod,
            threshold_centi_db: modcod.es_n0_centi_db,
            efficiency: modcod.efficiency(size, pilots),
        };
        Self::of(sent.map(rung).collect(), margin_db, hysteresis_db)
    }
}

impl<C: Copy> Selector<C> {
    /// A selector that starts at the most robust of the `allowed`; `None` if there is none.
    ///
    /// `margin_db` is added to every threshold: a fade of s dB/s seen t seconds late needs s * t.
    /// `hysteresis_db` is added to that for a change to a higher efficiency. A coding with a lower
    /// efficiency and a higher threshold than another one is never chosen.
    #[must_use]
    pub fn of(mut allowed: Vec<Rung<C>>, margin_db: f64, hysteresis_db: f64) -> Option<Self> {
        // Of equal thresholds the most efficient comes first, so that the others are seen as
        // dominated.
        allowed.sort_by(|a, b| {
            a.threshold_centi_db
                .cmp(&b.threshold_centi_db)
                .then(b.efficiency.total_cmp(&a.efficiency))
        });
        let mut ladder: Vec<Rung<C>> = Vec::new();
        for rung in allowed {
            if ladder
                .last()
                .is_none_or(|best| rung.efficiency > best.efficiency)
            {
                ladder.push(rung);
            }
        }
        (!ladder.is_empty()).then_some(Self {
            ladder,
            margin_db,
            hysteresis_db,
            current: 0,
        })
    }

    /// The same, with the nearest in use that needs no more `Es/N0` than this, in hundredths of a
    /// dB.
    #[must_use]
    pub fn starting_at(mut self, threshold_centi_db: i16) -> Self {
        let robust = |step: &Rung<C>| step.threshold_centi_db <= threshold_centi_db;
        self.current = self.ladder.iter().rposition(robust).unwrap_or(0);
        self
    }

    /// What is in use.
    #[must_use]
    pub fn current(&self) -> C {
        self.ladder[self.current].coding
    }

    /// Returns the coding to use after an `Es/N0` report in dB. If the current one no longer fits:
    /// the most efficient that fits, or the most robust if none does. Else a more efficient one
    /// only if it fits with hysteresis.
    pub fn report(&mut self, es_n0_db: f64) -> C {
        if self.fits(self.current, es_n0_db) {
            let climbed = self.highest(es_n0_db - self.hysteresis_db);
            self.current = self.current.max(climbed);
        } else {
            self.current = self.highest(es_n0_db);
        }
        self.current()
    }

    fn fits(&self, step: usize, es_n0_db: f64) -> bool {
        f64::from(self.ladder[step].threshold_centi_db) / 100.0 + self.margin_db <= es_n0_db
    }

    /// The highest step that fits, else the lowest there is.
    fn highest(&self, es_n0_db: f64) -> usize {
        (0..self.ladder.len())
            .rev()
            .find(|&step| self.fits(step, es_n0_db))
            .unwrap_or(0)
    }
}

/// What becomes of a frame at an `Es/N0` around its threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ErrorModel {
    /// Lost below the threshold, whole from there on.
    #[default]
    Gate,
    /// A logistic curve: 1e-7, the definition of the threshold, at the threshold; 1 - 1e-7
    /// `width_db` below it.
    Logistic {
        /// Width of the slope in dB, above 0; the standard's codes have some tenths.
        width_db: f64,
    },
}

/// Frame error ratio that defines a threshold (EN 302 307-1 table 13).
const QUASI_ERROR_FREE: f64 = 1e-7;

impl ErrorModel {
    /// Probability that a frame is lost, 0 to 1.
    #[must_use]
    pub fn frame_error_ratio(self, es_n0_db: f64, threshold_db: f64) -> f64 {
        match self {
            Self::Gate => f64::from(u8::from(es_n0_db < threshold_db)),
            Self::Logistic { width_db } => {
                let span = 2.0 * (1.0 / QUASI_ERROR_FREE - 1.0).ln();
                let below_middle = (threshold_db - es_n0_db) / width_db - 0.5;
                1.0 / (1.0 + (-span * below_middle).exp())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modcod::MODCODS;

    fn selector(margin_db: f64, hysteresis_db: f64) -> Selector<ModCod> {
        Selector::new(&MODCODS, FrameSize::Normal, false, margin_db, hysteresis_db).unwrap()
    }

    #[test]
    fn dominated_ids_are_never_chosen() {
        let mut chosen = std::collections::BTreeSet::new();
        let mut selector = selector(0.0, 0.0);
        for centi_db in (-500..2000).chain((-500..2000).rev()) {
            let id = selector.report(f64::from(centi_db) / 100.0).id;
            chosen.insert(id);
        }
        let dominated = [10, 15, 16, 17, 22, 23];
        assert_eq!(chosen.len(), 28 - dominated.len());
        assert!(dominated.iter().all(|id| !chosen.contains(id)));
    }

    #[test]
    fn choice_is_the_most_efficient_that_fits() {
        for centi_db in -500..2000 {
            let es_n0_db = f64::from(centi_db) / 100.0;
            let chosen = selector(0.0, 0.0).report(es_n0_db);
            let efficiency = |modcod: ModCod| modcod.efficiency(FrameSize::Normal, false);
            let best = MODCODS
                .into_iter()
                .filter(|modcod| modcod.es_n0_db() <= es_n0_db)
                .map(efficiency)
                .fold(efficiency(MODCODS[0]), f64::max);
            assert!(
                (efficiency(chosen) - best).abs() < 1e-12,
                "{es_n0_db} dB: {chosen}"
            );
        }
    }

    #[test]
    fn down_at_once_and_up_only_beyond_the_hysteresis() {
        let mut selector = selector(1.0, 0.5);
        // QPSK 1/2 needs 1.00 dB, QPSK 3/5 2.23 dB.
        assert_eq!(selector.report(2.5).id, 4);
        assert_eq!(selector.report(3.72).id, 4);
        assert_eq!(selector.report(3.74).id, 5);
        assert_eq!(selector.report(3.24).id, 5);
        assert_eq!(selector.report(3.22).id, 4);
        assert_eq!(selector.report(-20.0).id, 1);
        assert_eq!(selector.report(17.6).id, 28);
    }

    #[test]
    fn only_allowed_ids_and_sizes_are_used() {
        let allowed = [4, 11, 28].map(|id| ModCod::by_id(id).unwrap());
        let with = |size| Selector::new(&allowed, size, false, 0.0, 0.0);
        assert_eq!(with(FrameSize::Normal).unwrap().report(10.0).id, 11);
        // 9/10 has no short frame.
        assert_eq!(with(FrameSize::Short).unwrap().report(30.0).id, 4);
        assert!(Selector::new(&allowed[1..], FrameSize::Short, false, 0.0, 0.0).is_none());
    }

    #[test]
    fn error_models_meet_the_definition_of_the_threshold() {
        let gate = |es_n0_db: f64| ErrorModel::Gate.frame_error_ratio(es_n0_db, 1.0);
        assert!(gate(0.999) > 0.5 && gate(1.0) < 0.5);
        let slope = ErrorModel::Logistic { width_db: 0.4 };
        let ratio = |es_n0_db: f64| slope.frame_error_ratio(es_n0_db, 1.0);
        assert!((ratio(1.0) / 1e-7 - 1.0).abs() < 1e-6);
        assert!((ratio(0.8) - 0.5).abs() < 1e-9);
        assert!((1.0 - ratio(0.6) - 1e-7).abs() < 1e-9);
        assert!(ratio(0.7) > ratio(0.75) && ratio(-50.0) > 0.999 && ratio(50.0) < 1e-9);
    }
}
