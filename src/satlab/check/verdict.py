# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on the samples of a suite: against its targets, and against the samples of an earlier
build.

A target is met when the upper limit of the median's 95 % bootstrap interval does not exceed it. A
build is slower than its baseline when its median exceeds the baseline's by more than the tolerance,
and a one-sided permutation test on rank sums (Wilcoxon, "Individual Comparisons by Ranking
Methods", Biometrics Bulletin 1, 1945; the statistic of Mann and Whitney) is significant at 5 % over
all comparisons together (Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scand. J.
Statist. 6, 1979).

Samples out of calibration are not counted. If more than half of the samples of a case are out of
calibration, the verdict is "not measurable". A test case that passed on a busy host or with late
packets is counted, because these do not change what the programs did; it is not counted if the link
differed from the request. A test case that failed there is not counted, because it may have lacked
time.
"""

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.check.trace import causes
from satlab.common.statistics import Interval, holm, interval, median, ranks

ALPHA = 0.05
"""Probability of a false alarm over all comparisons of a check."""
PERMUTATIONS = 10_000
POWER = 0.95
SEED = 20211222
MIN_CALIBRATED_SHARE = 0.5
TIMING = (
    "cpu_others_ratio",
    "cpu_steal_ratio",
    "cpu_wait_ratio.",
    "memory_wait_ratio",
    "late_packet_ratio.",
    "forward_udp_goodput_bps",
)
"""Prefixes of the names of calibration checks of times and rates. They do not matter for a test
case without times. The round-trip time and the host's losses do matter, because they can change
what a program sends.
"""
Result = Literal["pass", "fail", "to be determined", "unsupported", "not measurable"]
ComparisonResult = Literal["slower", "no slower", "undecided", "not measurable"]
Samples = Mapping[str, Sequence[Sample]]
"""By case."""


@dataclass(frozen=True)
class TargetVerdict:
    """Verdict on a case at one mark.

    Median and interval in s; infinite where too many samples never reached the mark.

    `mark_mb` None: a test case as a whole, which has no time limit. `died` has the reasons of
    failed connections. `off` is the number of samples out of calibration. They are counted only if
    there are no others, or for a test case that passed (`spoilt_by`).
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
        """Whether more samples could change the result."""
        if self.result not in ("pass", "fail") or self.target_s is None or self.died:
            return False
        return self.interval_s.low <= self.target_s < self.interval_s.high


def against_targets(suite: Suite, cases: Sequence[Case], samples: Samples) -> list[TargetVerdict]:
    """Return one verdict per case and mark; one per case for a suite of test cases."""
    if not suite.marks_mb:
        return [_against_target(case, None, math.inf, 0, samples[case.id]) for case in cases]
    return [
        _against_target(case, mark, case.targets_s[index], index, samples[case.id])
        for case in cases
        for index, mark in enumerate(suite.marks_mb)
    ]


def met(found: Iterable[tuple[float | None, float | None, str]]) -> tuple[int, int, str]:
    """Return the number of targets met, their total, and their name.

    `found`: mark, target and result of each verdict. Without targets, supported test cases (no
    mark) are counted.
    """
    every = list(found)
    judged, what = [result for _, target, result in every if target is not None], "targets met"
    if not judged:
        judged = [result for mark, _, result in every if mark is None and result != "unsupported"]
        what = "test cases passed"
    return judged.count("pass"), len(judged), what


def _against_target(
    case: Case, mark_mb: float | None, target: float | None, mark: int, samples: Sequence[Sample]
) -> TargetVerdict:
    is_test = mark_mb is None
    counted = counted_of(samples, is_test=is_test)
    times = sorted_times(counted, mark)
    spread = interval(times, median)
    died = {one.reason for one in counted if one.status in ("failed", "unsupported")}
    result: Result
    if any(one.status == "unsupported" for one in counted):
        result = "unsupported"
    elif not is_measurable(samples, is_test=is_test):
        result = "not measurable"
    elif counted and all(one.status == "failed" for one in counted):
        result = "fail"  # also without a target: an empty baseline would accept any result
    elif target is None:
        result = "to be determined"
    else:
        result = "pass" if not died and spread.high <= target else "fail"
    return TargetVerdict(
        case=case.id,
        mark_mb=mark_mb,
        target_s=None if is_test else target,
        median_s=median(times),
        interval_s=spread,
        n=len(times),
        censored=times.count(math.inf),
        died=tuple(sorted(died)),
        result=result,
        off=_off(samples),
    )


def spoilt_by(sample: Sample, *, is_test: bool) -> str:
    """Return the failed calibration checks that exclude a sample; empty if the sample counts.

    `is_test`: a test case.
    """
    if not is_test or sample.status != "ok":
        return sample.calibration
    return ", ".join(name for name in sample.calibration.split(", ") if not name.startswith(TIMING))


def calibrated(samples: Sequence[Sample], *, is_test: bool = False) -> list[Sample]:
    """Return the samples that were taken over a calibrated link."""
    return [one for one in samples if not spoilt_by(one, is_test=is_test)]


def counted_of(samples: Sequence[Sample], *, is_test: bool = False) -> Sequence[Sample]:
    """Return the calibrated samples. If there is none, return all samples, which are then shown but
    not judged.
    """
    return calibrated(samples, is_test=is_test) or samples


def _off(samples: Sequence[Sample]) -> int:
    return len(samples) - len(calibrated(samples))


def is_measurable(samples: Sequence[Sample], *, is_test: bool = False) -> bool:
    """Whether enough of the samples are in calibration for a verdict."""
    return len(calibrated(samples, is_test=is_test)) >= MIN_CALIBRATED_SHARE * len(samples)


def sorted_times(samples: Sequence[Sample], index: int) -> list[float]:
    """Return the times until a mark, ascending; infinite for a sample that never reached it."""
    times = [one.times_s[index] for one in samples]
    return sorted(math.inf if time is None else time for time in times)


@dataclass(frozen=True)
class BaselineComparison:
    """A case at one mark, compared with the baseline.

    `p` is one-sided. `detectable` is the smallest relative slowdown that would be found with
    probability POWER. If that is above 1, it is None and a case that is not slower is "undecided".
    Both are None if the result is "not measurable". `n` and `n_baseline` count samples in the
    comparison, `off` and `off_baseline` samples out of calibration. `grown_s` is the growth of the
    mean seconds per cause over whole transfers, for every mark the same; None: one side was not
    traced.
    """

    case: str
    mark_mb: float
    median_s: float
    baseline_s: float
    p: float | None
    n: int
    n_baseline: int
    detectable: float | None
    result: ComparisonResult
    off: int = 0
    off_baseline: int = 0
    grown_s: Mapping[str, float] | None = None

    @property
    def is_slower(self) -> bool:
        return self.result == "slower"

    @property
    def grew(self) -> str | None:
        """The cause that grew most, of a slower case; None if it is unknown."""
        return causes.largest(self.grown_s) if self.is_slower and self.grown_s else None

    @property
    def ratio(self) -> float:
        """Median / median of the baseline; 1 where both are infinite."""
        if math.isinf(self.baseline_s):
            return 1.0 if math.isinf(self.median_s) else 0.0
        return self.median_s / self.baseline_s


def against_baseline(
    marks_mb: Sequence[float], samples: Samples, baseline: Samples, tolerance: float
) -> list[BaselineComparison]:
    """Compare the cases that both checks have; `tolerance` is the tolerated relative slowdown. The
    probability of a false alarm is divided among the measurable comparisons only.
    """
    source = random.Random(SEED)  # noqa: S311 - statistics, not a secret
    compared: dict[tuple[str, int], BaselineComparison] = {}
    times: dict[tuple[str, int], tuple[list[float], list[float]]] = {}
    for case in samples:
        if case not in baseline:
            continue
        sides = samples[case], baseline[case]
        for mark, mark_mb in enumerate(marks_mb):
            now, before = (sorted_times(counted_of(side), mark) for side in sides)
            compared[case, mark] = BaselineComparison(
                case=case,
                mark_mb=mark_mb,
                median_s=median(now),
                baseline_s=median(before),
                p=None,
                n=len(now),
                n_baseline=len(before),
                detectable=None,
                result="not measurable",
                off=_off(samples[case]),
                off_baseline=_off(baseline[case]),
                grown_s=grown_s(*sides),
            )
            if all(is_measurable(side) for side in sides):
                times[case, mark] = now, before
    p_values = [p_slower(now, before, source) for now, before in times.values()]
    for key, p, adjusted in zip(times, p_values, holm(p_values), strict=True):
        now, before = times[key]
        is_slower = adjusted <= ALPHA and median(now) > median(before) * (1 + tolerance)
        smallest = detectable(before, len(now), tolerance, len(times), source)
        result: ComparisonResult = "no slower"
        if is_slower:
            result = "slower"
        elif smallest is None:
            result = "undecided"
        compared[key] = replace(compared[key], result=result, p=p, detectable=smallest)
    return list(compared.values())


def grown_s(now: Sequence[Sample], before: Sequence[Sample]) -> dict[str, float] | None:
    """Return the growth of the mean seconds per cause of the counted samples; None if one side was
    not traced.
    """
    sides = [
        [one.spent_s for one in counted_of(samples) if one.spent_s] for samples in (now, before)
    ]
    if not all(sides):
        return None
    after, earlier = map(causes.mean, sides)
    return {cause: after[cause] - earlier[cause] for cause in causes.CAUSES}


def p_slower(now: Sequence[float], before: Sequence[float], source: random.Random) -> float:
    """Return the probability of a rank sum of `now` this high or higher if both had the same
    distribution.

    Monte Carlo over permutations. The observed permutation is counted, so the result is never 0.
    """
    pooled = ranks([*now, *before])
    observed = sum(pooled[: len(now)])
    # Mean ranks of ties are multiples of one half: exact in binary.
    higher = sum(sum(source.sample(pooled, len(now))) >= observed for _ in range(PERMUTATIONS))
    return (higher + 1) / (PERMUTATIONS + 1)


def detectable(
    before: Sequence[float], n: int, tolerance: float, comparisons: int, source: random.Random
) -> float | None:
    """Return the smallest relative slowdown that is found with probability POWER; None above 1.

    By resampling the baseline. A normal approximation of the rank sum replaces the permutations:
    good enough for planning.
    """
    steps = [step / 100 for step in range(1, 101) if step / 100 > tolerance]
    sizes = (n, len(before))
    return next(
        (step for step in steps if _has_power(before, sizes, 1 + step, comparisons, source)), None
    )


def runs_for(
    pilot: Sequence[Sequence[float]], sizes: Sequence[int], slowdown: float, comparisons: int
) -> int:
    """Return the smallest of `sizes` that finds a slowdown with probability POWER at each mark; the
    last size if none does.

    `pilot` has the times of a pilot for each mark; both sides are assumed to have as many samples.
    A mark that most samples of the pilot never reached is ignored.
    """
    source = random.Random(SEED)  # noqa: S311 - statistics, not a secret
    reached = [times for times in pilot if math.isfinite(median(times))]
    for n in sizes:
        if all(_has_power(times, (n, n), 1 + slowdown, comparisons, source) for times in reached):
            return n
    return sizes[-1]


def _has_power(
    before: Sequence[float],
    sizes: tuple[int, int],
    factor: float,
    comparisons: int,
    source: random.Random,
) -> bool:
    critical = NormalDist().inv_cdf(1 - ALPHA / comparisons)
    detected = sum(_is_detected(before, sizes, factor, critical, source) for _ in range(100))
    return detected >= POWER * 100


def _is_detected(
    before: Sequence[float],
    sizes: tuple[int, int],
    factor: float,
    critical: float,
    source: random.Random,
) -> bool:
    """Draw both sides from `before`, one of them `factor` times as long, and test the draw."""
    n, m = sizes
    drawn_before = sorted(source.choices(before, k=m))
    drawn_now = [time * factor for time in source.choices(before, k=n)]
    lower = sum(bisect_left(drawn_before, time) for time in drawn_now)
    lower_or_equal = sum(bisect_right(drawn_before, time) for time in drawn_now)
    wins = (lower + lower_or_equal) / 2  # a tie is half a win
    deviation = math.sqrt(n * m * (n + m + 1) / 12)
    return (wins - n * m / 2) / deviation > critical
