// SPDX-License-Identifier: GPL-3.0-or-later
//! What takes packets and frames away: loss processes as small state machines, each with its own
//! generator.

use crate::random::{Process, fraction, generator, hits};
use crate::{LinkError, Nanos};
use rand_pcg::Pcg64;
use std::ops::Range;
use std::sync::Arc;

/// One loss process. Several may act on a link: a unit is lost if any of them says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// Model that decides whether a unit is lost.
    pub model: LossModel,
    /// What is lost at a time.
    pub unit: LossUnit,
}

/// Unit that a loss takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossUnit {
    /// One IP packet, after it crossed the carrier.
    Packet,
    /// One BBFRAME or burst with all fragments in it. On a wire, where a frame is a packet, the
    /// same as `Packet`.
    Frame,
}

/// Model of a loss process. It acts on a packet or frame at the end of its transmission.
#[derive(Clone, Debug, PartialEq)]
pub enum LossModel {
    /// Independent losses of this ratio, 0 to 1.
    Bernoulli {
        /// Probability that one unit is lost.
        ratio: f64,
    },
    /// Two states with a loss ratio each.
    GilbertElliott(GilbertElliott),
    /// Everything is lost for `duration` of every `period`, the first time at `first`.
    Bursts {
        /// Distance of two bursts.
        period: Nanos,
        /// Length of a burst, at most the period.
        duration: Nanos,
        /// Start of the first burst.
        first: Nanos,
    },
    /// Everything is lost within these spans of time: outages, or a recorded trace. They are in
    /// order and do not overlap.
    Windows(Arc<[Range<Nanos>]>),
    /// Unit `k` is lost if entry `k` is true; after the last entry the first follows again.
    Units(Arc<[bool]>),
    /// The units of these numbers are lost, counted from 1 since the process started; rising.
    Numbers(Arc<[u64]>),
}

/// Two-state Markov chain (Gilbert 1960, Elliott 1963), in the good state at time 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability of a step from the good state to the bad one.
    pub p: f64,
    /// Probability of a step from the bad state to the good one.
    pub r: f64,
    /// Loss ratio in the good state; 0 in the simple Gilbert model.
    pub good: f64,
    /// Loss ratio in the bad state; 1 in the simple Gilbert model.
    pub bad: f64,
    /// The chain steps once in this time; `None`: once per unit.
    pub step: Option<Nanos>,
    /// Bad periods shorter than this count as good; needs a `step`. 0: every bad period counts.
    pub shortest: Nanos,
}

impl Loss {
    /// Independent losses.
    #[must_use]
    pub const fn random(ratio: f64, unit: LossUnit) -> Self {
        let model = LossModel::Bernoulli { ratio };
        Self { model, unit }
    }
}

impl LossModel {
    /// Share of units lost in the long run; 0 for windows and numbers, which end.
    #[must_use]
    pub fn mean_ratio(&self) -> f64 {
        match self {
            Self::Bernoulli { ratio } => *ratio,
            Self::GilbertElliott(chain) => {
                let bad = chain.share_of_bad();
                chain.bad * bad + chain.good * (1.0 - bad)
            }
            Self::Bursts {
                period, duration, ..
            } => *duration as f64 / *period as f64,
            Self::Windows(_) | Self::Numbers(_) => 0.0,
            Self::Units(units) => {
                units.iter().filter(|&&lost| lost).count() as f64 / units.len() as f64
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let probability = |value: f64| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                Err(LinkError::LossRatio(value))
            }
        };
        match self {
            Self::Bernoulli { ratio } => probability(*ratio),
            Self::GilbertElliott(chain) => {
                if chain.step == Some(0) || (chain.shortest > 0 && chain.step.is_none()) {
                    return Err(LinkError::LossTime);
                }
                [chain.p, chain.r, chain.good, chain.bad]
                    .into_iter()
                    .try_for_each(probability)
            }
            Self::Bursts {
                period, duration, ..
            } if *period == 0 || duration > period => Err(LinkError::LossTime),
            Self::Windows(windows)
                if windows.iter().any(|window| window.end < window.start)
                    || windows.windows(2).any(|pair| pair[1].start < pair[0].end) =>
            {
                Err(LinkError::LossTime)
            }
            Self::Units(units) if units.is_empty() => Err(LinkError::LossTime),
            Self::Numbers(numbers) if !numbers.is_sorted_by(|a, b| a < b) => {
                Err(LinkError::LossTime)
            }
            Self::Bursts { .. } | Self::Windows(_) | Self::Units(_) | Self::Numbers(_) => Ok(()),
        }
    }
}

impl GilbertElliott {
    /// Share of steps in the bad state in the long run: with `m` the fewest steps of a burst, a bad
    /// time reaches `m` with probability (1 - r)^(m - 1), and then lasts m - 1 + 1/r on average.
    fn share_of_bad(&self) -> f64 {
        if self.p == 0.0 {
            return 0.0;
        }
        let cut = self.fewest_steps().saturating_sub(1) as f64;
        let kept = (1.0 - self.r).powf(cut) * (1.0 + cut * self.r);
        kept * self.p / (self.p + self.r)
    }

    /// Steps of the shortest bad time that counts.
    fn fewest_steps(&self) -> u64 {
        self.step.map_or(0, |step| self.shortest.div_ceil(step))
    }

    /// Probability of the bad state `steps` after a known one.
    fn bad_after(&self, steps: u64, is_bad: bool) -> f64 {
        let share = self.share_of_bad();
        let start = f64::from(u8::from(is_bad));
        let memory = (1.0 - self.p - self.r).powf(steps as f64);
        (share + (start - share) * memory).clamp(0.0, 1.0)
    }
}

/// The loss processes of a link at work.
#[derive(Debug)]
pub(crate) struct Losses(Vec<Running>);

#[derive(Debug)]
struct Running {
    loss: Loss,
    random: Pcg64,
    is_bad: bool,
    /// Steps of the chain made, or units judged.
    steps: u64,
    /// With a shortest burst: the steps of the present or next burst.
    burst: Range<u64>,
}

/// Largest number of steps that a chain with a shortest burst catches up. A chain that no unit has
/// used for longer starts so many steps ago.
const MOST_STEPS: u64 = 1 << 20;

impl Losses {
    pub(crate) fn new(losses: &[Loss], seed: u64, generation: u64) -> Self {
        let start = |(index, loss): (usize, &Loss)| Running {
            loss: loss.clone(),
            random: generator(seed, Process::Loss(index), generation),
            is_bad: false,
            steps: 0,
            burst: 0..0,
        };
        Self(losses.iter().enumerate().map(start).collect())
    }

    /// Whether a packet or frame whose transmission ends at `now` is lost. All processes advance,
    /// also if one loses it.
    pub(crate) fn lose(&mut self, unit: LossUnit, now: Nanos) -> bool {
        let mut lost = false;
        for running in &mut self.0 {
            lost |= running.loss.unit == unit && running.next(now);
        }
        lost
    }
}

impl Running {
    fn next(&mut self, now: Nanos) -> bool {
        match &self.loss.model {
            LossModel::Bernoulli { ratio } => hits(&mut self.random, *ratio),
            LossModel::GilbertElliott(chain) => {
                let chain = *chain;
                self.step(chain, now);
                let ratio = if self.is_bad { chain.bad } else { chain.good };
                hits(&mut self.random, ratio)
            }
            LossModel::Bursts {
                period,
                duration,
                first,
            } => now
                .checked_sub(*first)
                .is_some_and(|time| time % period < *duration),
            LossModel::Windows(windows) => {
                let next = windows.partition_point(|window| window.end <= now);
                windows.get(next).is_some_and(|window| window.start <= now)
            }
            LossModel::Units(units) => {
                let lost = units[(self.steps % units.len() as u64) as usize];
                self.steps += 1;
                lost
            }
            LossModel::Numbers(numbers) => {
                self.steps += 1;
                numbers.binary_search(&self.steps).is_ok()
            }
        }
    }

    /// Brings the chain to `now`. Steps that no unit saw are made in one draw, with the probability
    /// of them all.
    fn step(&mut self, chain: GilbertElliott, now: Nanos) {
        let due = chain
            .step
            .map_or(self.steps.saturating_add(1), |step| now / step);
        if chain.shortest > 0 {
            self.walk(chain, due);
        } else if due > self.steps {
            let bad = chain.bad_after(due - self.steps, self.is_bad);
            self.is_bad = hits(&mut self.random, bad);
            self.steps = due;
        }
    }

    /// The same burst by burst: whether one is long enough is known at its start.
    fn walk(&mut self, chain: GilbertElliott, due: u64) {
        let due = due.min(u64::MAX - 1); // a burst without an end has it at u64::MAX
        if due.saturating_sub(self.burst.end) > MOST_STEPS {
            self.burst = due - MOST_STEPS..due - MOST_STEPS;
        }
        while self.burst.end <= due && self.burst.end < u64::MAX {
            let wait = geometric(&mut self.random, chain.p);
            let start = self.burst.end.saturating_add(wait);
            let end = start.saturating_add(geometric(&mut self.random, chain.r));
            let is_long = end - start >= chain.fewest_steps();
            self.burst = if is_long { start..end } else { end..end };
        }
        self.is_bad = self.burst.contains(&due);
    }
}

/// Number of the first step that hits with this probability, from 1 on.
fn geometric(random: &mut Pcg64, probability: f64) -> u64 {
    let kept = 1.0 - fraction(random);
    if probability == 0.0 {
        return u64::MAX;
    }
    ((kept.ln() / (-probability).ln_1p()).ceil() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn losses(model: LossModel, seed: u64) -> Losses {
        model.check().unwrap();
        let unit = LossUnit::Packet;
        Losses::new(&[Loss { model, unit }], seed, 0)
    }

    /// Which of `units` units, one each `gap`, are lost.
    fn pattern(model: LossModel, seed: u64, units: u64, gap: Nanos) -> Vec<bool> {
        let mut losses = losses(model, seed);
        let mut lose = |unit: u64| losses.lose(LossUnit::Packet, unit * gap);
        (0..units).map(&mut lose).collect()
    }

    fn ratio(pattern: &[bool]) -> f64 {
        pattern.iter().filter(|&&lost| lost).count() as f64 / pattern.len() as f64
    }

    /// Mean length of the runs of losses.
    fn burst(pattern: &[bool]) -> f64 {
        let runs = pattern.chunk_by(|a, b| a == b).filter(|run| run[0]);
        let lengths: Vec<_> = runs.map(<[bool]>::len).collect();
        lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
    }

    fn chain(p: f64, r: f64, step: Option<Nanos>) -> LossModel {
        LossModel::GilbertElliott(GilbertElliott {
            p,
            r,
            good: 0.0,
            bad: 1.0,
            step,
            shortest: 0,
        })
    }

    #[test]
    fn bernoulli_holds_the_ratio_within_three_sigma() {
        const TRIALS: u64 = 1_000_000;
        for (seed, expected) in [(1, 0.001), (2, 0.01), (3, 0.1), (4, 0.5), (5, 0.9)] {
            let got = ratio(&pattern(
                LossModel::Bernoulli { ratio: expected },
                seed,
                TRIALS,
                1,
            ));
            let sigma = (expected * (1.0 - expected) / TRIALS as f64).sqrt();
            assert!((got - expected).abs() <= 3.0 * sigma, "{got} at {expected}");
        }
        let of = |ratio| pattern(LossModel::Bernoulli { ratio }, 1, 10_000, 1);
        assert!(of(0.0).iter().all(|lost| !lost) && of(1.0).iter().all(|&lost| lost));
    }

    #[test]
    fn gilbert_elliott_has_its_share_and_burst_length() {
        let model = chain(0.01, 0.167, None);
        let mean = model.mean_ratio();
        assert!((mean - 0.01 / 0.177).abs() < 1e-12);
        let got = pattern(model, 1, 1_000_000, 1);
        assert!((ratio(&got) - mean).abs() < 0.002, "{}", ratio(&got));
        assert!((burst(&got) - 1.0 / 0.167).abs() < 0.1, "{}", burst(&got));
        let noisy = LossModel::GilbertElliott(GilbertElliott {
            p: 0.1,
            r: 0.3,
            good: 0.01,
            bad: 0.5,
            step: None,
            shortest: 0,
        });
        let mean = 0.25 * 0.5 + 0.75 * 0.01;
        assert!((noisy.mean_ratio() - mean).abs() < 1e-12);
        assert!((ratio(&pattern(noisy, 2, 1_000_000, 1)) - mean).abs() < 0.002);
    }

    #[test]
    fn chain_with_a_time_step_changes_on_its_boundaries_alone_and_unseen_steps_count() {
        let model = chain(0.05, 0.5, Some(10 * MS));
        let mean = model.mean_ratio();
        // Ten units per step: all of a step share its state.
        let got = pattern(model.clone(), 3, 1_000_000, MS);
        assert!(
            got.chunks(10)
                .all(|step| step.iter().all(|&lost| lost == step[0]))
        );
        assert!((ratio(&got) - mean).abs() < 0.005, "{}", ratio(&got));
        assert!((burst(&got) - 20.0).abs() < 1.0, "{}", burst(&got));
        // One unit in seven steps sees the same share.
        let sparse = ratio(&pattern(model, 4, 200_000, 70 * MS));
        assert!((sparse - mean).abs() < 0.003, "{sparse}");
        // The end of time is one draw away.
        assert!(!losses(chain(0.0, 1.0, Some(1)), 1).lose(LossUnit::Packet, Nanos::MAX));
    }

    /// Petrou et al., ASMS/SPSC 2022, section III-B1: p = 0.01, q = 0.167, bursts of 10 to 43 ms,
    /// mean 16.7 ms, 2.56 % of 30 s; 2.70 % of the packets of 10 Mbit/s over 10 minutes.
    fn optical() -> LossModel {
        LossModel::GilbertElliott(GilbertElliott {
            p: 0.01,
            r: 0.167,
            good: 0.0,
            bad: 1.0,
            step: Some(MS),
            shortest: 10 * MS,
        })
    }

    #[test]
    fn optical_scenario_has_the_bursts_of_the_paper() {
        assert!((optical().mean_ratio() - 0.0273).abs() < 0.0001);
        // One unit each ms: a burst of n units lasts n ms.
        let mut longest = Vec::new();
        for seed in 0..20 {
            let got = pattern(optical(), seed, 30_000, MS);
            let runs = got.chunk_by(|a, b| a == b).filter(|run| run[0]);
            let lengths: Vec<_> = runs.map(<[bool]>::len).collect();
            assert!(lengths.iter().all(|&length| length >= 10), "{lengths:?}");
            longest.extend(lengths.iter().copied().max());
        }
        longest.sort_unstable();
        assert!((25..=46).contains(&longest[10]), "{longest:?}");
        let long = pattern(optical(), 1, 3_000_000, MS);
        assert!((ratio(&long) - 0.0273).abs() < 0.001, "{}", ratio(&long));
        assert!((burst(&long) - 14.99).abs() < 0.2, "{}", burst(&long));
        // Packets of 1400 bytes at 10 Mbit/s for 10 minutes.
        let packets = pattern(optical(), 2, 535_714, 1_120_000);
        assert!(
            (ratio(&packets) - 0.027).abs() < 0.006,
            "{}",
            ratio(&packets)
        );
    }

    #[test]
    fn a_shortest_burst_that_all_reach_changes_no_share_and_the_end_of_time_is_near() {
        let LossModel::GilbertElliott(chain) = optical() else {
            unreachable!()
        };
        let shortest = MS;
        let all = LossModel::GilbertElliott(GilbertElliott { shortest, ..chain });
        assert!((all.mean_ratio() - 0.01 / 0.177).abs() < 1e-12);
        let got = ratio(&pattern(all, 3, 3_000_000, MS));
        assert!((got - 0.01 / 0.177).abs() < 0.002, "{got}");
        for (p, is_lost) in [(0.0, false), (1.0, true)] {
            let (r, step, shortest) = (1e-18, Some(1), 1);
            let model = LossModel::GilbertElliott(GilbertElliott {
                p,
                r,
                step,
                shortest,
                ..chain
            });
            assert_eq!(losses(model, 1).lose(LossUnit::Packet, Nanos::MAX), is_lost);
        }
    }

    #[test]
    fn chain_that_alternates_keeps_its_parity() {
        let got = pattern(chain(1.0, 1.0, None), 1, 6, 1);
        assert_eq!(got, [true, false, true, false, true, false]);
        let skipping = pattern(chain(1.0, 1.0, Some(1)), 1, 4, 3);
        assert_eq!(skipping, [false, true, false, true]);
    }

    #[test]
    fn bursts_and_windows_are_half_open_spans() {
        let bursts = LossModel::Bursts {
            period: 10,
            duration: 2,
            first: 5,
        };
        let lost = |model: LossModel| -> Vec<u64> {
            let got = pattern(model, 1, 30, 1);
            (0..30).filter(|&at| got[at as usize]).collect()
        };
        assert!((bursts.mean_ratio() - 0.2).abs() < 1e-12);
        assert_eq!(lost(bursts), [5, 6, 15, 16, 25, 26]);
        let windows = LossModel::Windows([3..5, 5..5, 7..8, 20..1000].into());
        assert_eq!(lost(windows)[..4], [3, 4, 7, 20]);
    }

    #[test]
    fn units_repeat_and_processes_add_up() {
        let units = LossModel::Units([true, false, false].into());
        assert_eq!(pattern(units.clone(), 1, 4, 1), [true, false, false, true]);
        let unit = LossUnit::Packet;
        let both = [
            Loss { model: units, unit },
            Loss {
                model: LossModel::Units([false, true].into()),
                unit,
            },
        ];
        let mut losses = Losses::new(&both, 1, 0);
        let got: Vec<_> = (0..6).map(|now| losses.lose(unit, now)).collect();
        assert_eq!(got, [true, true, false, true, false, true]);
        assert!(!losses.lose(LossUnit::Frame, 0));
    }

    #[test]
    fn numbers_are_lost_once_and_counted_from_one() {
        let got = pattern(LossModel::Numbers([1, 3, 4].into()), 1, 8, 1);
        let lost: Vec<_> = (1..)
            .zip(got)
            .filter_map(|it| it.1.then_some(it.0))
            .collect();
        assert_eq!(lost, [1, 3, 4]);
    }

    #[test]
    fn impossible_models_are_refused() {
        for model in [
            LossModel::Bernoulli { ratio: 1.5 },
            LossModel::Bernoulli { ratio: f64::NAN },
            chain(-0.1, 0.5, None),
            chain(0.1, 0.5, Some(0)),
            LossModel::GilbertElliott(GilbertElliott {
                p: 0.1,
                r: 0.5,
                good: 0.0,
                bad: 1.0,
                step: None,
                shortest: 1,
            }),
            LossModel::Bursts {
                period: 5,
                duration: 6,
                first: 0,
            },
            LossModel::Windows([3..5, 4..6].into()),
            LossModel::Windows(std::iter::once(Range { start: 5, end: 3 }).collect()),
            LossModel::Units([].into()),
            LossModel::Numbers([2, 2].into()),
        ] {
            assert!(model.check().is_err(), "{model:?}");
        }
    }
}
