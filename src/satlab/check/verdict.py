# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on the samples of a suite: against its targets, and against the samples of an earlier
build.

A target is met when the upper limit of the median's 95 % bootstrap interval does not exceed it;
with fewer than five samples, when the slowest one does not. A build is slower than its baseline
when its median exceeds the baseline's by more than the tolerance, and a one-sided permutation test
on rank sums (Wilcoxon, "Individual Comparisons by Ranking Methods", Biometrics Bulletin 1, 1945;
the statistic of Mann and Whitney) is significant at 5 % over all comparisons together (Holm, "A
Simple Sequentially Rejective Multiple Test Procedure", Scand. J. Statist. 6, 1979).

A build fails against its baseline when a transfer does not complete and all of the baseline's did,
whatever the number of samples. If some of the baseline's did not complete either, Fisher's exact
test ("The Logic of Inductive Inference", J. R. Statist. Soc. 98, 1935) says whether more are too
many. A transfer that still made progress at its time limit is only known to be slower than the
limit: it counts as failed if the limit is more than twice the time of the baseline's slowest.

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
from typing import Literal, NamedTuple

from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.check.trace import causes
from satlab.common.statistics import MIN_RUNS, Interval, holm, interval, median, ranks

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
ComparisonResult = Literal[
    "failed", "slower", "no slower", "undecided", "unsupported", "not measurable"
]
LIMIT_FACTOR = 2.0
"""A transfer that is this much slower than every one of the baseline has failed. "Undecided" has
the same factor: it says that twice the time could not be detected.
"""
Samples = Mapping[str, Sequence[Sample]]
"""By case."""


@dataclass(frozen=True)
class TargetVerdict:
    """Verdict on a case at one mark.

    Median and interval in s; infinite where too many samples never reached the mark. With fewer
    than MIN_RUNS samples `interval_s` is their range, and no confidence interval.

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
    def has_interval(self) -> bool:
        """Whether there are enough samples for a confidence interval."""
        return self.n >= MIN_RUNS

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
    has_interval = len(times) >= MIN_RUNS
    spread = interval(times, median) if has_interval else Interval(times[0], times[-1])
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

    `p` is one-sided: of the times or, if some of the baseline's transfers did not complete, of the
    number of these, whichever is smaller. `p_adjusted` is corrected for all comparisons together.
    `detectable` is the smallest relative slowdown that would be found with probability POWER. If
    that is above 1, it is None and a case that is not slower is "undecided". All three are None if
    no test was made: the result is "failed" by rule, "unsupported" or "not measurable". `n` and
    `n_baseline` count samples in the comparison, `off` and `off_baseline` samples out of
    calibration; `incomplete` and `incomplete_baseline` count those of `n` that did not complete up
    to this mark, and `reasons` says why (of this check). `grown_s` is the growth of the mean
    seconds per cause over whole transfers, for every mark the same; None: one side was not traced.
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
    p_adjusted: float | None = None
    tolerance: float = 0.0
    incomplete: int = 0
    incomplete_baseline: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def is_slower(self) -> bool:
        """Whether the build is worse than its baseline: slower, or failed."""
        return self.result in ("slower", "failed")

    @property
    def is_tolerated(self) -> bool:
        """Whether the build is slower beyond chance, but by no more than the tolerance."""
        is_beyond_chance = self.p_adjusted is not None and self.p_adjusted <= ALPHA
        return self.result == "no slower" and is_beyond_chance

    @property
    def grew(self) -> str | None:
        """The cause that grew most, of a slower case; None if none did, or it is unknown."""
        if not self.is_slower or not self.grown_s or max(self.grown_s.values()) <= 0:
            return None
        return causes.largest(self.grown_s)

    @property
    def ratio(self) -> float | None:
        """Median / median of the baseline; None if one of them was never reached."""
        if math.isinf(self.baseline_s) or math.isinf(self.median_s):
            return None
        return self.median_s / self.baseline_s


class Failures(NamedTuple):
    """How many of a side's transfers failed."""

    failed: int
    transfers: int


@dataclass(frozen=True)
class _Side:
    """The counted samples of a case on one side, at one mark."""

    samples: Sequence[Sample]
    mark: int
    is_last: bool

    @property
    def times(self) -> list[float]:
        return sorted_times(self.samples, self.mark)

    @property
    def incomplete(self) -> list[Sample]:
        """Samples that did not reach the mark or, at the last one, did not end well."""
        return [
            one
            for one in self.samples
            if one.times_s[self.mark] is None or (self.is_last and one.status != "ok")
        ]

    @property
    def failures(self) -> Failures:
        return Failures(len(self.incomplete), len(self.samples))

    @property
    def is_unsupported(self) -> bool:
        return any(one.status == "unsupported" for one in self.samples)

    @property
    def none_completes(self) -> bool:
        return len(self.incomplete) == len(self.samples)

    def reasons(self) -> tuple[str, ...]:
        return tuple(sorted({one.reason or one.status for one in self.incomplete}))


def against_baseline(
    marks_mb: Sequence[float],
    samples: Samples,
    baseline: Samples,
    tolerance: float,
    limits_s: Mapping[str, float] | None = None,
) -> list[BaselineComparison]:
    """Compare the cases that both checks have.

    `tolerance` is the tolerated relative slowdown, `limits_s` the time limits of the cases. The
    probability of a false alarm is divided among the tests only, not among comparisons without one.
    """
    source = random.Random(SEED)  # noqa: S311 - statistics, not a secret
    compared: dict[tuple[str, int], BaselineComparison] = {}
    tested: dict[tuple[str, int], tuple[_Side, _Side]] = {}
    for case in samples:
        if case not in baseline:
            continue
        for mark, mark_mb in enumerate(marks_mb):
            is_last = mark + 1 == len(marks_mb)
            now, before = (
                _Side(counted_of(side), mark, is_last) for side in (samples[case], baseline[case])
            )
            result = _without_test(
                now,
                before,
                is_measurable=is_measurable(samples[case]) and is_measurable(baseline[case]),
                limit_s=(limits_s or {}).get(case, math.inf),
            )
            compared[case, mark] = BaselineComparison(
                case=case,
                mark_mb=mark_mb,
                median_s=median(now.times),
                baseline_s=median(before.times),
                p=None,
                n=len(now.samples),
                n_baseline=len(before.samples),
                detectable=None,
                result=result or "undecided",
                off=_off(samples[case]),
                off_baseline=_off(baseline[case]),
                grown_s=grown_s(samples[case], baseline[case]),
                tolerance=tolerance,
                incomplete=len(now.incomplete),
                incomplete_baseline=len(before.incomplete),
                reasons=now.reasons(),
            )
            if result is None:
                tested[case, mark] = now, before
    compared |= _tested(compared, tested, tolerance, source)
    return list(compared.values())


def _without_test(
    now: _Side, before: _Side, *, is_measurable: bool, limit_s: float
) -> ComparisonResult | None:
    """Return the result that needs no test; None if one is needed."""
    if now.is_unsupported and before.none_completes:
        return "unsupported"
    if not is_measurable:
        return "not measurable"
    # If the baseline is as dead, too: it would accept any result.
    if now.is_unsupported or all(one.status == "failed" for one in now.samples):
        return "failed"
    if before.incomplete:
        return "no slower" if before.none_completes and not now.incomplete else None
    is_far = limit_s > LIMIT_FACTOR * before.times[-1]
    has_failed = any(
        one.status != "censored" or one.stalled_after_s is not None or is_far
        for one in now.incomplete
    )
    return "failed" if has_failed else None


def _tested(
    compared: Mapping[tuple[str, int], BaselineComparison],
    sides: Mapping[tuple[str, int], tuple[_Side, _Side]],
    tolerance: float,
    source: random.Random,
) -> dict[tuple[str, int], BaselineComparison]:
    """Return the comparisons of `sides`, with their tests."""
    of_times = [p_slower(now.times, before.times, source) for now, before in sides.values()]
    of_failures = {
        key: p_more_fail(now.failures, before.failures)
        for key, (now, before) in sides.items()
        if before.incomplete and now.incomplete
    }
    adjusted = holm([*of_times, *of_failures.values()])
    adjusted_failures = dict(zip(of_failures, adjusted[len(sides) :], strict=True))
    found = {}
    for key, p, p_adjusted in zip(sides, of_times, adjusted, strict=False):
        now, before = sides[key]
        smallest = detectable(before.times, len(now.samples), tolerance, len(adjusted))
        result: ComparisonResult = "no slower"
        if adjusted_failures.get(key, 1.0) <= ALPHA:
            result = "failed"
        elif p_adjusted <= ALPHA and median(now.times) > median(before.times) * (1 + tolerance):
            result = "slower"
        elif smallest is None:
            result = "undecided"
        found[key] = replace(
            compared[key],
            result=result,
            p=min(p, of_failures.get(key, 1.0)),
            p_adjusted=min(p_adjusted, adjusted_failures.get(key, 1.0)),
            detectable=smallest,
        )
    return found


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


def p_more_fail(now: Failures, before: Failures) -> float:
    """Return Fisher's exact one-sided p: the probability that so many of the failed transfers, or
    more, are of this build if both fail equally often.
    """
    failed = now.failed + before.failed
    ways = sum(
        math.comb(now.transfers, k) * math.comb(before.transfers, failed - k)
        for k in range(now.failed, min(failed, now.transfers) + 1)
    )
    return ways / math.comb(now.transfers + before.transfers, failed)


def detectable(before: Sequence[float], n: int, tolerance: float, comparisons: int) -> float | None:
    """Return the smallest relative slowdown that is found with probability POWER; None above 1.

    By resampling the baseline, always with the same draws. A normal approximation of the rank sum
    replaces the permutations: good enough for planning.
    """
    source = random.Random(SEED)  # noqa: S311 - statistics, not a secret
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
