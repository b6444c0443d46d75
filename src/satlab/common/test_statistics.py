# SPDX-License-Identifier: GPL-3.0-or-later
import math
import random
from statistics import NormalDist

import pytest

from satlab.common.statistics import (
    Samples,
    all_of,
    holm,
    interval,
    interval_of_two,
    kruskal_wallis,
    mean_ratio,
    median,
    median_difference,
)


def exact_median_interval(n: int) -> tuple[int, int]:
    """Ranks of the bootstrap interval of the median of n (odd) different samples.

    A resample's median is at most the k-th smallest value when at least half of its n draws, each
    of which is so with probability k/n, are: a binomial tail (Efron 1979, section 3).
    """
    half = (n + 1) // 2

    def at_most(k: int) -> float:
        return sum(
            math.comb(n, j) * (k / n) ** j * (1 - k / n) ** (n - j) for j in range(half, n + 1)
        )

    low = next(k for k in range(1, n + 1) if at_most(k) >= 0.025)
    high = next(k for k in range(1, n + 1) if at_most(k) >= 0.975)
    return low, high


@pytest.mark.parametrize("n", [3, 5, 11, 31, 101])
@pytest.mark.promise("P38")
def test_the_interval_of_a_median_is_the_exact_one_to_a_rank(n: int) -> None:
    found = interval([float(k) for k in range(1, n + 1)], median)
    low, high = exact_median_interval(n)
    assert abs(found.low - low) <= 1
    assert abs(found.high - high) <= 1


def test_the_interval_of_a_mean_is_the_normal_one_for_many_samples() -> None:
    source = random.Random(1)  # noqa: S311
    values = [source.gauss(100.0, 10.0) for _ in range(1000)]
    middle, spread = sum(values) / 1000, NormalDist.from_samples(values).stdev
    found = interval_of_two(values, [1.0], mean_ratio)
    assert found.low == pytest.approx(middle - 1.96 * spread / 1000**0.5, abs=0.1)
    assert found.high == pytest.approx(middle + 1.96 * spread / 1000**0.5, abs=0.1)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """100 sets of 25 samples; the percentile interval of a median is known to be a little narrow."""
    source = random.Random(2)  # noqa: S311
    hits = 0
    for _ in range(100):
        found = interval([source.gauss(0, 1) for _ in range(25)], median)
        hits += found.low <= 0 <= found.high
    assert 88 <= hits <= 99


def test_equal_samples_have_equal_intervals() -> None:
    assert interval([1.0, 5.0, 2.0, 9.0], median) == interval([1.0, 5.0, 2.0, 9.0], median)


def test_censored_samples_lie_above_all_values() -> None:
    samples = Samples((3.0, 1.0), censored=1, failed=4)
    assert (samples.ordered, samples.n, median(samples.ordered)) == ((1.0, 3.0, math.inf), 3, 3.0)
    assert median(Samples((1.0,), censored=2).ordered) == math.inf
    assert interval(Samples((1.0,) * 9, censored=2).ordered, median).low == 1.0


def test_no_samples_have_no_median() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median([])


def test_two_medians_that_were_cut_off_do_not_differ() -> None:
    assert median_difference([math.inf], [math.inf]) == 0
    assert median_difference([1.0], [math.inf]) == -math.inf


def test_the_worst_pair_decides() -> None:
    assert all_of(["holds", "undecided"]) == "undecided"
    assert all_of(["holds", "does not hold", "not measured"]) == "does not hold"
    assert all_of(["undecided", "not measured"]) == "not measured"
    assert all_of(["not measured", "does not hold"]) == "does not hold"
    assert all_of(["holds", "holds"]) == "holds"


def test_kruskal_wallis_of_its_paper() -> None:
    """Table 1.1 of Kruskal and Wallis (1952): bottle caps of three machines; H = 5.656, its exact p
    is 0.049.
    """
    caps = ((340, 345, 330, 342, 338), (339, 333, 344), (347, 343, 349, 355))
    h, p = kruskal_wallis(caps)
    assert round(h, 3) == 5.656
    assert abs(p - 0.049) < 0.015


def test_kruskal_wallis_knows_ties_and_equal_groups() -> None:
    assert kruskal_wallis([(1, 1), (1, 1)]) == (0.0, 1.0)
    h, p = kruskal_wallis([(1, 2, 2, 3), (1, 2, 2, 3)])
    assert (h, p) == (0.0, 1.0)
    with pytest.raises(ValueError, match="two groups"):
        kruskal_wallis([(1, 2), ()])


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
