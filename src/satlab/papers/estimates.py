# SPDX-License-Identifier: GPL-3.0-or-later
"""Means of a cell's runs with their intervals, differences and ratios of two, and bounds judged by
them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from satlab.common import statistics
from satlab.common.statistics import Interval


@dataclass(frozen=True)
class Ours:
    """A figure over the runs of a cell: mean, mean deviation in time, deviation between runs (None
    with one run).

    `censored` of the `runs` did not complete and count with the time that they had, so the mean is
    a lower bound. With `samples` (infinite if censored), `mean` is the estimate of `bootstrap`,
    with bootstrap intervals.
    """

    mean: float
    in_time: float | None
    between: float | None
    runs: int
    censored: int = 0
    samples: tuple[float, ...] = ()
    bootstrap: Literal["median", "mean"] | None = None

    @property
    def is_least(self) -> bool:
        """Return whether the mean is a lower bound, without infinite samples that show it."""
        return bool(self.censored) and not self.samples

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the mean; None with one run."""
        if self.samples:
            one = self.runs == 1
            return None if one else statistics.interval(self.samples, _estimate(self.bootstrap))
        return statistics.around(self.mean, [(self.variance, self.runs)])

    @property
    def variance(self) -> float:
        """Return the variance of the mean; 0 for a single run, whose variance is unknown."""
        return 0.0 if self.between is None else self.between**2 / self.runs


@dataclass(frozen=True)
class Estimate:
    """A figure, or a difference or ratio of two. One run has no interval.

    `is_least`: the true value is at least this; `is_most`: at most.
    """

    value: float
    interval: Interval | None
    runs: tuple[int, ...]
    is_least: bool = False
    is_most: bool = False


def of_runs(values: Sequence[float], in_time: Sequence[float], censored: int = 0) -> Ours | None:
    """Return the mean over the runs; None without any."""
    if not values:
        return None
    between = stdev(values) if len(values) > 1 else None
    return Ours(fmean(values), fmean(in_time) if in_time else None, between, len(values), censored)


def of_samples(samples: Sequence[float], bootstrap: Literal["median", "mean"]) -> Ours | None:
    """Return the estimate of samples, infinite where censored; None without any."""
    if not samples:
        return None
    ordered = tuple(sorted(samples))
    censored = sum(map(math.isinf, ordered))
    value = _estimate(bootstrap)(ordered)
    return Ours(value, None, None, len(ordered), censored, ordered, bootstrap)


def _estimate(bootstrap: Literal["median", "mean"] | None) -> Callable[[Sequence[float]], float]:
    return statistics.median if bootstrap == "median" else fmean


def alone(one: Ours) -> Estimate:
    """Return a figure as an estimate."""
    return Estimate(one.mean, one.interval, (one.runs,), one.is_least)


def difference(one: Ours, other: Ours) -> Estimate:
    """Return the difference of two estimates."""
    value = one.mean - other.mean
    if one.samples and other.samples:
        if 1 in (one.runs, other.runs):
            return Estimate(value, None, (one.runs, other.runs))
        interval = statistics.interval_of_two(
            one.samples, other.samples, statistics.median_difference
        )
        return Estimate(value, interval, (one.runs, other.runs))
    around = statistics.around(value, [(one.variance, one.runs), (other.variance, other.runs)])
    return Estimate(value, around, (one.runs, other.runs), one.is_least, other.is_least)


def ratio(one: Ours, other: Ours) -> Estimate:
    """Return the ratio of two estimates; infinite if the second is 0.

    Its variance is of first order.
    """
    if not other.mean:
        return Estimate(float("inf"), None, (one.runs, other.runs))
    value = one.mean / other.mean
    if one.samples and other.samples:
        if 1 in (one.runs, other.runs):
            return Estimate(value, None, (one.runs, other.runs))
        turned = statistics.interval_of_two(other.samples, one.samples, statistics.mean_ratio)
        ends = (1 / end if end else float("inf") for end in (turned.high, turned.low))
        return Estimate(value, Interval(*ends), (one.runs, other.runs))
    parts = [
        (one.variance / other.mean**2, one.runs),
        (other.variance * (value / other.mean) ** 2, other.runs),
    ]
    interval = statistics.around(value, parts)
    return Estimate(value, interval, (one.runs, other.runs), one.is_least, other.is_least)


def within(estimate: Estimate, at_least: float | None, at_most: float | None) -> bool | None:
    """Return whether a value is within its bounds; None if its interval or censored runs leave that
    open.
    """
    low, high = estimate.value, estimate.value
    if estimate.interval is not None:
        low, high = estimate.interval.low, estimate.interval.high
    low = float("-inf") if estimate.is_most else low
    high = float("inf") if estimate.is_least else high
    states = []
    if at_least is not None:
        states.append(True if low >= at_least else False if high < at_least else None)
    if at_most is not None:
        states.append(True if high <= at_most else False if low > at_most else None)
    return False if False in states else None if None in states else True
