# SPDX-License-Identifier: GPL-3.0-or-later
"""All statistics of reproductions and checks: medians with censored samples, bootstrap intervals, verdicts on an order.

Intervals are percentile bootstrap intervals (Efron, "Bootstrap Methods: Another Look at the Jackknife", Ann. Statist.
7, 1979; Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3). Draws are seeded: the same
samples result in the same interval.
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
"""Below this an interval from the bootstrap says nothing: it is the range of the samples, or narrower."""
SEED = 20220613

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """A confidence interval; an end may be infinite where samples were cut off."""

    low: float
    high: float


@dataclass(frozen=True)
class Samples:
    """The values of one cell. Censored samples lie above all values; failed ones have no place in the order."""

    values: tuple[float, ...] = ()
    censored: int = 0
    failed: int = 0

    @property
    def ordered(self) -> tuple[float, ...]:
        """Return values and censored samples, the latter as infinite."""
        return (*sorted(self.values), *[math.inf] * self.censored)

    @property
    def n(self) -> int:
        """Return the number of samples that have a place in the order."""
        return len(self.values) + self.censored


def median(ordered: Sequence[float]) -> float:
    """Return the median; infinite when half of the samples or more were cut off. Raises ValueError for no samples."""
    if not ordered:
        raise ValueError("no samples have no median")
    return plain_median(ordered)


def interval(samples: Sequence[T], estimate: Callable[[Sequence[T]], float]) -> Interval:
    """Return the bootstrap interval of an estimate over one set of samples."""
    source = random.Random(SEED)  # noqa: S311 - statistics, not secrets
    return _percentiles([estimate(source.choices(samples, k=len(samples))) for _ in range(RESAMPLES)])


def interval_of_two(a: Sequence[T], b: Sequence[T], estimate: Callable[[Sequence[T], Sequence[T]], float]) -> Interval:
    """Return the bootstrap interval of an estimate over two independent sets of samples, each drawn anew."""
    source = random.Random(SEED)  # noqa: S311
    draws = ((source.choices(a, k=len(a)), source.choices(b, k=len(b))) for _ in range(RESAMPLES))
    return _percentiles([estimate(x, y) for x, y in draws])


def _percentiles(estimates: list[float]) -> Interval:
    estimates.sort()
    tail = (1 - CONFIDENCE) / 2
    return Interval(estimates[math.floor(tail * len(estimates))], estimates[math.ceil((1 - tail) * len(estimates)) - 1])


def median_difference(a: Sequence[float], b: Sequence[float]) -> float:
    """Return median(a) - median(b); both infinite count as equal."""
    first, second = median(a), median(b)
    return 0.0 if math.isinf(first) and math.isinf(second) else first - second


def mean_ratio(a: Sequence[float], b: Sequence[float]) -> float:
    """Return mean(a) / mean(b); infinite for a mean of 0 below."""
    below = fmean(b)
    return fmean(a) / below if below else math.inf


def is_below(difference: Interval, runs: int, reference: float = 0.0) -> Verdict:
    """Judge "the difference is below the reference" by its interval and the smaller number of runs."""
    if runs == 0:
        return "not measured"
    if runs < MIN_RUNS or difference.low <= reference <= difference.high:
        return "undecided"
    return "holds" if difference.high < reference else "does not hold"


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Judge a claim that is made of several: the worst decides."""
    order: tuple[Verdict, ...] = ("does not hold", "not measured", "undecided", "holds")
    return next(verdict for verdict in order if verdict in verdicts)
