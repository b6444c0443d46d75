# SPDX-License-Identifier: GPL-3.0-or-later
import math

import pytest

from satlab.common import statistics
from satlab.common.statistics import Interval
from satlab.papers import estimates
from satlab.papers.estimates import Estimate, Ours


def ours(*given: float, censored: int = 0) -> Ours:
    found = estimates.of_runs(given, [], censored)
    assert found is not None
    return found


def test_intervals_of_means_are_student_s() -> None:
    # Student's own example (Biometrika 6, section 9): ten differences of sleep, mean 1.58, standard
    # deviation 1.23.
    sleep = ours(1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)
    assert sleep.interval is not None
    assert sleep.interval.low == pytest.approx(0.700, abs=2e-3)
    assert sleep.interval.high == pytest.approx(2.460, abs=2e-3)
    assert statistics.student(1) == 12.706 and statistics.student(math.inf) == 1.960
    assert statistics.student(7) == pytest.approx(2.365, abs=0.003)
    assert statistics.student(12) == pytest.approx(2.179, abs=0.003)
    assert ours(3.0).interval is None and ours(3.0, 3.0).interval == Interval(3.0, 3.0)


def test_differences_and_ratios_have_the_variance_of_both() -> None:
    one, other = ours(10, 11, 12), ours(5, 5.5, 6)
    difference, ratio = estimates.difference(one, other), estimates.ratio(one, other)
    assert (difference.value, difference.runs, ratio.value) == (5.5, (3, 3), 2)
    # Welch: variances 1/3 and 1/12, degrees of freedom (5/12)^2 / ((1/9 + 1/144) / 2) = 2.94
    assert difference.interval is not None and ratio.interval is not None
    assert difference.interval.high - 5.5 == pytest.approx(3.21 * math.sqrt(5 / 12), rel=0.02)
    assert ratio.interval.high - 2 == pytest.approx(2.776 * math.sqrt(2 * 1 / 3) / 5.5, rel=0.01)
    assert estimates.ratio(one, ours(5)).interval is not None, "one run has no variance of its own"
    assert estimates.ratio(ours(1), ours(0)).value == math.inf


@pytest.mark.parametrize(
    ("estimate", "within"),
    [
        (Estimate(4, None, (1,)), True),
        (Estimate(2, None, (1,)), False),
        (Estimate(4, Interval(3.1, 4.9), (5,)), True),
        (Estimate(4, Interval(2.9, 5.1), (5,)), None),
        (Estimate(2, Interval(1.0, 2.9), (5,)), False),
        (Estimate(4, None, (1,), is_least=True), True),
        (Estimate(2, None, (1,), is_least=True), None),
        (Estimate(2, None, (1,), is_most=True), False),
        (Estimate(4, None, (1,), is_most=True), None),
        (Estimate(4, None, (1,), is_least=True, is_most=True), None),
    ],
)
def test_a_bound_is_judged_by_what_is_known(estimate: Estimate, within: bool | None) -> None:
    assert estimates.within(estimate, 3, None) is within
    mirrored = (
        None
        if estimate.interval is None
        else Interval(-estimate.interval.high, -estimate.interval.low)
    )
    other = Estimate(-estimate.value, mirrored, estimate.runs, estimate.is_most, estimate.is_least)
    assert estimates.within(other, None, -3) is within


def test_a_censored_sample_is_above_all_others() -> None:
    median = estimates.of_samples([math.inf, 2.0, 1.0], "median")
    assert median is not None and (median.mean, median.runs, median.censored) == (2.0, 3, 1)
    assert median.interval is not None and median.interval.high == math.inf
    assert estimates.of_samples([], "median") is None
    three, one = (estimates.of_samples([value] * 5, "mean") for value in (3.0, 1.0))
    assert three is not None and one is not None
    assert estimates.ratio(three, one).interval == Interval(3.0, 3.0)
    single = estimates.of_samples([2.0], "median")
    assert single is not None and single.interval is None
    assert estimates.difference(three, single).interval is None
    assert estimates.ratio(single, one).interval is None
