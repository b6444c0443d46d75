# SPDX-License-Identifier: GPL-3.0-or-later
"""Statistics of reproductions and checks: medians with censored samples, bootstrap intervals,
verdicts.

Intervals are percentile bootstrap intervals (Efron, "Bootstrap Methods: Another Look at the
Jackknife", Ann. Statist. 7, 1979; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993,
section 13.3). Draws are seeded: equal samples have equal intervals. Intervals of means of few runs
are Student's (Biometrika 6, 1908); for two means with Welch's degrees of freedom (Biometrika 34,
1947). We do not use scipy.stats: it takes 0.9 s to import and 216 MB with numpy, and has no
censored medians.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import median as plain_median
from typing import Literal, TypeVar

RESAMPLES = 2000
CONFIDENCE = 0.95
MIN_RUNS = 5
"""Fewest samples of a bootstrap interval. With fewer it is at most their range."""
SEED = 20220613

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """A confidence interval. A limit is infinite if too many samples are censored."""

    low: float
    high: float


@dataclass(frozen=True)
class Samples:
    """Values of equal runs.

    Censored samples are larger than all values; failed ones are not counted.
    """

    values: tuple[float, ...] = ()
    censored: int = 0
    failed: int = 0

    @property
    def ordered(self) -> tuple[float, ...]:
        """Values, ascending, and censored samples as infinite."""
        return (*sorted(self.values), *[math.inf] * self.censored)

    @property
    def n(self) -> int:
        """Number of values and censored samples."""
        return len(self.values) + self.censored


STUDENT = (
    (1, 12.706),
    (2, 4.303),
    (3, 3.182),
    (4, 2.776),
    (5, 2.571),
    (6, 2.447),
    (8, 2.306),
    (10, 2.228),
    (15, 2.131),
    (20, 2.086),
    (30, 2.042),
    (60, 2.000),
    (math.inf, 1.960),
)
"""Quantile 0.975 of Student's distribution by degrees of freedom."""


def student(freedom: float) -> float:
    """Return this quantile, between two entries of the table by the inverse of the degrees;
    `freedom` is at least 1.
    """
    above = next(index for index, (degrees, _) in enumerate(STUDENT) if freedom <= degrees)
    if above == 0:
        return STUDENT[0][1]
    (low, at_low), (high, at_high) = STUDENT[above - 1 : above + 1]
    share = (1 / low - 1 / freedom) / (1 / low - 1 / high)
    return at_low + share * (at_high - at_low)


def around(value: float, parts: Sequence[tuple[float, int]]) -> Interval | None:
    """Return the interval around a value that is a sum of independent means.

    `parts`: for each mean, the variance that it adds and its number of samples. A mean of one
    sample has no variance and is left out; if no others remain there is no interval.
    """
    known = [(variance, runs) for variance, runs in parts if runs > 1]
    whole = sum(variance for variance, _ in known)
    if not known:
        return None
    weights = sum(variance**2 / (runs - 1) for variance, runs in known)
    half = student(max(1.0, whole**2 / weights)) * math.sqrt(whole) if weights else 0.0
    return Interval(value - half, value + half)


def median(ordered: Sequence[float]) -> float:
    """Return the median; infinite if half of the samples or more are censored.

    Raises ValueError without samples.
    """
    if not ordered:
        raise ValueError("no samples: no median")
    return plain_median(ordered)


def interval(samples: Sequence[T], estimate: Callable[[Sequence[T]], float]) -> Interval:
    """Return the bootstrap interval of an estimate on one set of samples."""
    source = random.Random(SEED)  # noqa: S311 - statistics, not secrets
    return _percentiles(
        [estimate(source.choices(samples, k=len(samples))) for _ in range(RESAMPLES)]
    )


def interval_of_two(
    a: Sequence[T], b: Sequence[T], estimate: Callable[[Sequence[T], Sequence[T]], float]
) -> Interval:
    """Return the bootstrap interval of an estimate on two independent sets of samples."""
    source = random.Random(SEED)  # noqa: S311
    draws = ((source.choices(a, k=len(a)), source.choices(b, k=len(b))) for _ in range(RESAMPLES))
    return _percentiles([estimate(x, y) for x, y in draws])


def _percentiles(estimates: list[float]) -> Interval:
    estimates.sort()
    tail = (1 - CONFIDENCE) / 2
    return Interval(
        estimates[math.floor(tail * len(estimates))],
        estimates[math.ceil((1 - tail) * len(estimates)) - 1],
    )


def median_difference(a: Sequence[float], b: Sequence[float]) -> float:
    """Return median(a) - median(b); 0 if both are infinite."""
    first, second = median(a), median(b)
    return 0.0 if math.isinf(first) and math.isinf(second) else first - second


def mean_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Return mean(a) / mean(b); infinite if mean(b) is 0."""
    mean_b = fmean(b)
    return fmean(a) / mean_b if mean_b else math.inf


def kruskal_wallis(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return H, corrected for ties, of independent groups, and the share of permutations with no
    smaller H: p.

    Kruskal and Wallis, "Use of Ranks in One-Criterion Variance Analysis", JASA 47, 1952, equations
    1.1 and 1.2. The permutations are seeded; with them p is also right for groups of few values,
    for which chi-squared is not. p is at least 1 / (RESAMPLES + 1). Raises ValueError for fewer
    than two groups or an empty one.
    """
    if len(groups) < 2 or not all(groups):
        raise ValueError("Kruskal-Wallis needs two groups with values")
    pooled = ranks([value for group in groups for value in group])
    sizes = [len(group) for group in groups]
    observed = _h(pooled, sizes)
    source = random.Random(SEED)  # noqa: S311
    count = 0
    for _ in range(RESAMPLES):
        source.shuffle(pooled)
        count += _h(pooled, sizes) >= observed - 1e-9
    return observed, (count + 1) / (RESAMPLES + 1)


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value, from 1; equal values have their mean rank."""
    places: dict[float, list[int]] = {}
    for rank, value in enumerate(sorted(values), start=1):
        places.setdefault(value, []).append(rank)
    return [fmean(places[value]) for value in values]


def _h(ranks: Sequence[float], sizes: Sequence[int]) -> float:
    n = len(ranks)
    spread = sum((rank - (n + 1) / 2) ** 2 for rank in ranks)
    if not spread:
        return 0.0
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    means = [fmean(ranks[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    between = sum(size * (mean - (n + 1) / 2) ** 2 for size, mean in zip(sizes, means, strict=True))
    return (n - 1) * between / spread


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number (Holm, Scand. J. Statist. 6, 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, p_values[index] * (len(p_values) - place)))
        adjusted[index] = largest
    return adjusted


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim with several parts: the worst verdict of the parts."""
    worst_first: tuple[Verdict, ...] = ("does not hold", "not measured", "undecided", "holds")
    return next(verdict for verdict in worst_first if verdict in verdicts)
