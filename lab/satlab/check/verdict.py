# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on the samples of a suite: against targets, and against the samples of an earlier build.

A target is met when the upper end of the median's 95 % bootstrap interval is not above it. A build is slower than its
baseline when the medians differ by more than the tolerance and a one-sided permutation test on rank sums (Wilcoxon,
"Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945; the statistic of Mann and Whitney) says so at
5 % over all comparisons together (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist.
6, 1979).
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.common.statistics import Interval, interval, median

ALPHA = 0.05
"""Chance of a false alarm of a whole comparison."""
PERMUTATIONS = 10_000
POWER = 0.95
SEED = 20211222
CALIBRATED = 0.5
"""Share of samples that must have been taken over a calibrated link; with fewer there is no verdict."""
Result = Literal["pass", "fail", "to be determined", "unsupported", "not measurable"]
Samples = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True)
class TargetVerdict:
    """A case at one mark: median and interval in s (infinite where too many samples never came so far).

    `mark_mb` None is a test case as a whole, which may take as long as it takes. `off` samples were taken while the
    link was out of calibration: they count only where there are no others.
    """

    case: str
    mark_mb: float | None
    target_s: float | None
    median_s: float
    interval_s: Interval
    n: int
    censored: int
    died: tuple[str, ...]
    result: Result
    off: int = 0

    @property
    def is_open(self) -> bool:
        """Return whether more samples could change the result."""
        target = self.target_s
        judged = self.result in ("pass", "fail") and target is not None and not self.died
        return judged and target is not None and self.interval_s.low <= target < self.interval_s.high


def against_targets(suite: Suite, cases: Sequence[Case], samples: Samples) -> list[TargetVerdict]:
    """Judge every case at every mark."""
    if not suite.marks_mb:
        return [_judged(case, None, math.inf, 0, samples[case.id]) for case in cases]
    return [
        _judged(case, mark, case.targets_s[index], index, samples[case.id])
        for case in cases
        for index, mark in enumerate(suite.marks_mb)
    ]


def _judged(
    case: Case, mark: float | None, target: float | None, index: int, samples: Sequence[Sample]
) -> TargetVerdict:
    calibrated = [one for one in samples if not one.calibration]
    counted = calibrated or samples
    times = ordered(counted, index)
    spread = interval(times, median)
    died = tuple(sorted({one.reason for one in counted if one.status in ("failed", "unsupported")}))
    result = _result(target, met=not died and target is not None and spread.high <= target)
    if any(one.status == "unsupported" for one in counted):
        result = "unsupported"
    elif len(calibrated) < CALIBRATED * len(samples):
        result = "not measurable"
    off = len(samples) - len(calibrated)
    shown = None if mark is None else target
    return TargetVerdict(
        case.id, mark, shown, median(times), spread, len(times), times.count(math.inf), died, result, off
    )


def _result(target: float | None, *, met: bool) -> Result:
    if target is None:
        return "to be determined"
    return "pass" if met else "fail"


def ordered(samples: Sequence[Sample], index: int) -> list[float]:
    """Return the times of a mark, rising; infinite for a sample that never came so far."""
    times = [one.times_s[index] for one in samples]
    return sorted(math.inf if time is None else time for time in times)


@dataclass(frozen=True)
class BaselineComparison:
    """A case at one mark, now and in the baseline; `p` is one-sided; `detectable` the least slowdown that is found."""

    case: str
    mark_mb: float
    median_s: float
    baseline_s: float
    p: float
    n: int
    n_baseline: int
    detectable: float | None
    is_slower: bool

    @property
    def ratio(self) -> float:
        """Return median now / median of the baseline."""
        if math.isinf(self.baseline_s):
            return 1.0 if math.isinf(self.median_s) else 0.0
        return self.median_s / self.baseline_s


def against_baseline(
    marks_mb: Sequence[float], samples: Samples, baseline: Samples, tolerance: float
) -> list[BaselineComparison]:
    """Compare what both have; `tolerance` is the relative slowdown that nobody minds."""
    source = random.Random(SEED)  # noqa: S311 - statistics, no secret
    pairs = [
        (case, index, ordered(samples[case], index), ordered(baseline[case], index))
        for case in samples
        if case in baseline
        for index in range(len(marks_mb))
    ]
    values = [p_slower(now, before, source) for _, _, now, before in pairs]
    significant = holm(values)
    found = []
    for (case, index, now, before), p, is_significant in zip(pairs, values, significant, strict=True):
        beyond = median(now) > median(before) * (1 + tolerance)
        least = detectable(before, len(now), tolerance, len(pairs), source)
        here = (case, marks_mb[index], median(now), median(before), p, len(now), len(before), least)
        found.append(BaselineComparison(*here, is_slower=is_significant and beyond))
    return found


def p_slower(now: Sequence[float], before: Sequence[float], source: random.Random) -> float:
    """Return the chance of a rank sum of `now` this high or higher when both are samples of the same.

    Monte Carlo over permutations, with the one that was seen counted in, so never 0.
    """
    ranks = _ranks([*now, *before])
    seen = sum(ranks[: len(now)])
    # Means of tied ranks are halves: exact in binary.
    higher = sum(sum(source.sample(ranks, len(now))) >= seen for _ in range(PERMUTATIONS))
    return (higher + 1) / (PERMUTATIONS + 1)


def _ranks(values: Sequence[float]) -> list[float]:
    rising = sorted(values)
    return [(2 * rising.index(value) + rising.count(value) + 1) / 2 for value in values]


def holm(values: Sequence[float]) -> list[bool]:
    """Return which of several p-values are significant at ALPHA over all of them."""
    rising = sorted(range(len(values)), key=values.__getitem__)
    verdicts = [False] * len(values)
    for place, index in enumerate(rising):
        if values[index] > ALPHA / (len(values) - place):
            break
        verdicts[index] = True
    return verdicts


def detectable(
    before: Sequence[float], n: int, tolerance: float, comparisons: int, source: random.Random
) -> float | None:
    """Return the least relative slowdown that is found with POWER, by resampling the baseline; None above 1.

    The normal approximation of the rank sum stands in for permutations: this figure is for planning.
    """
    steps = [step / 100 for step in range(1, 101) if step / 100 > tolerance]
    sizes = (n, len(before))
    return next((step for step in steps if _is_found(before, sizes, 1 + step, comparisons, source)), None)


def runs_for(before: Sequence[Sequence[float]], sizes: Sequence[int], slowdown: float, comparisons: int) -> int:
    """Return the least of `sizes` that, on both sides, finds a slowdown with POWER at each mark; else the last.

    `before` are times of a pilot, by mark. A mark that most never came to says nothing.
    """
    source = random.Random(SEED)  # noqa: S311 - statistics, no secret
    known = [times for times in before if math.isfinite(median(times))]
    for n in sizes:
        if all(_is_found(times, (n, n), 1 + slowdown, comparisons, source) for times in known):
            return n
    return sizes[-1]


def _is_found(
    before: Sequence[float], sizes: tuple[int, int], slower: float, comparisons: int, source: random.Random
) -> bool:
    critical = NormalDist().inv_cdf(1 - ALPHA / comparisons)
    return sum(_finds(before, sizes, slower, critical, source) for _ in range(100)) >= POWER * 100


def _finds(
    before: Sequence[float], sizes: tuple[int, int], slower: float, critical: float, source: random.Random
) -> bool:
    n, m = sizes
    then = source.choices(before, k=m)
    now = [time * slower for time in source.choices(before, k=n)]
    pairs = [(a > b) + (a == b) / 2 for a in now for b in then]
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return (sum(pairs) - n * m / 2) / spread > critical
