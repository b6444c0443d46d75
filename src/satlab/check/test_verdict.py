# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts on targets, and comparisons with a baseline."""

import math
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check import check_run, verdict
from satlab.check.conftest import one, small
from satlab.check.samples import Sample, Status
from satlab.check.suite import Case
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison
from satlab.common.statistics import Interval
from satlab.run import calibrate, host_load


def test_a_test_case_passes_when_all_its_samples_did() -> None:
    case = {"id": "a", "forward_mbps": 10, "return_mbps": 2}
    tests = small(marks_mb=[], cases=[case | {"files_bytes": [1024]}])
    for samples, result in (
        ([one("a", 2.0)] * 3, "pass"),
        ([one("a", 2.0), one("a", None, status="failed", reason="wrong file")], "fail"),
    ):
        [found] = verdict.against_targets(tests, tests.cases, {"a": samples})
        assert (found.result, found.mark_mb, found.target_s) == (result, None, None)
    with pytest.raises(ValueError, match="lacking"):
        small(marks_mb=[], cases=[case])


@pytest.mark.parametrize(
    ("times", "target", "result"),
    [
        ((2.9, 2.8, 2.9, 2.7, 2.9), 3.0, "pass"),
        ((3.0, 3.0, 3.0, 3.0, 3.0), 3.0, "pass"),
        ((2.9, 3.4, 2.8, 3.3, 3.5), 3.0, "fail"),
        ((3.9, 3.8, 3.9, 3.7, 3.9), 3.0, "fail"),
        ((2.9, None, None, None, 2.0), 3.0, "fail"),
        ((2.9, 2.8, 2.9, 2.7, 2.9), None, "to be determined"),
    ],
)
@pytest.mark.promise("P75")
def test_a_target_is_met_by_the_upper_end(
    times: tuple[float | None, ...], target: float | None, result: str
) -> None:
    case = Case(id="a", forward_mbps=10, return_mbps=2, targets_s=(target,))
    [found] = verdict.against_targets(small(), [case], {"a": [one("a", time) for time in times]})
    assert (found.result, found.censored) == (result, times.count(None))


def test_a_failed_connection_fails_its_case() -> None:
    samples = [one("a", 1.0), one("a", 1.0, status="failed", reason="timed out")]
    [found] = verdict.against_targets(small(), small().cases, {"a": samples})
    assert (found.result, found.died, found.is_open) == ("fail", ("timed out",), False)


@pytest.mark.parametrize(
    ("statuses", "result"), [(("failed",) * 2, "fail"), (("ok", "failed"), "to be determined")]
)
def test_a_case_without_a_target_fails_if_nothing_arrives(
    statuses: tuple[Status, ...], result: str
) -> None:
    """A first run without a baseline would be green otherwise, and its check a baseline that
    accepts anything.
    """
    case = Case(id="a", forward_mbps=10, return_mbps=2, targets_s=(None,))
    samples = [one("a", None if status == "failed" else 1.0, status=status) for status in statuses]
    [found] = verdict.against_targets(small(), [case], {"a": samples})
    assert found.result == result


def judged(*samples: Sample) -> verdict.TargetVerdict:
    [found] = verdict.against_targets(small(), small().cases, {"a": samples})
    return found


@pytest.mark.promise("P34")
def test_samples_over_a_link_out_of_calibration_are_kept_and_not_counted() -> None:
    good, off = one("a", 1.0), one("a", 9.0, calibration="rtt_ms")
    mixed = judged(good, good, off)
    assert (mixed.result, mixed.n, mixed.off, mixed.median_s) == ("pass", 2, 1, 1.0)
    most = judged(good, off, off)
    assert (most.result, most.off, most.is_open) == ("not measurable", 2, False)
    assert judged(off, off).median_s == 9.0


def functional(*samples: Sample) -> verdict.TargetVerdict:
    """Return the verdict on a test case."""
    cases = [
        {"id": "a", "forward_mbps": 10, "return_mbps": 2, "test": "retry", "files_bytes": [1024]}
    ]
    tests = small(marks_mb=[], cases=cases)
    [found] = verdict.against_targets(tests, tests.cases, {"a": samples})
    return found


BUSY = (
    "cpu_others_ratio, cpu_steal_ratio, memory_wait_ratio, cpu_wait_ratio.client,"
    " late_packet_ratio.forward, forward_udp_goodput_bps"
)


def test_a_test_case_that_passed_on_a_busy_host_has_passed() -> None:
    """Its exit status, files and packets are what they are, however late they were."""
    found = functional(one("a", 2.0, calibration=BUSY))
    assert (found.result, found.n, found.off, found.died) == ("pass", 1, 1, ())
    assert judged(one("a", 2.0, calibration=BUSY)).result == "not measurable"  # a time


def test_a_test_case_that_failed_on_a_busy_host_is_not_measurable() -> None:
    failed = one(
        "a", None, status="failed", reason="no Retry was sent", calibration="cpu_others_ratio"
    )
    found = functional(failed)
    assert (found.result, found.off, found.died) == ("not measurable", 1, ("no Retry was sent",))
    assert functional(replace(failed, calibration="")).result == "fail"
    passed = one("a", 2.0, calibration="cpu_others_ratio")
    assert functional(passed, failed).result == "pass"
    assert functional(passed, failed, failed).result == "not measurable"


@pytest.mark.parametrize(
    "check",
    [
        "rtt_ms",
        "forward_loss_ratio",
        "host_loss_ratio",
        "host_loss_ratio.return",
        "opensand_losses.queue",
        "another",
    ],
)
def test_a_test_case_over_another_link_than_requested_is_not_measurable(check: str) -> None:
    found = functional(one("a", 2.0, calibration=f"cpu_others_ratio, {check}"))
    assert (found.result, found.died) == ("not measurable", ())
    assert verdict.spoilt_by(one("a", 2.0, calibration=f"{BUSY}, {check}"), is_test=True) == check


def test_the_names_of_checks_of_times_are_those_of_the_calibration() -> None:
    """A check that is renamed would spoil test cases again."""
    state = host_load.state([], lambda _, work: work())
    whole = [
        *host_load.between(
            state, replace(state, total_ticks=state.total_ticks + 100, uptime_s=1e9, memory_us=0)
        )
    ]
    checks = [*whole, *host_load.of_programs({"client": 1.0}, 1.0)]
    line = {
        "type": "sample",
        "t_unix_s": 1.0,
        "forward": {"out_packets": 1, "late_packets": 0, "late_max_us": 0.0},
    }
    watched: Any = SimpleNamespace(watched=("forward",))
    checks += calibrate.during([line, {"type": "end"}], watched)
    names = {check.name for check in checks}
    assert {name for name in names if not name.startswith(verdict.TIMING)} == {"host_loss_ratio"}
    assert len(names) >= 5


@pytest.mark.parametrize("calibration", ["", "rtt_ms"])
def test_an_unsupported_case_is_no_failure_over_any_link(calibration: str) -> None:
    refused = one("a", None, status="unsupported", reason="no 0-RTT", calibration=calibration)
    found = judged(refused)
    assert (found.result, found.died) == ("unsupported", ("no 0-RTT",))


@pytest.mark.parametrize(
    ("low", "high", "changes", "is_open"),
    [
        (2.9, 3.1, {}, True),
        (3.0, 3.1, {}, True),
        (3.01, 3.1, {}, False),
        (2.9, 3.0, {"result": "pass"}, False),
        (2.9, 3.1, {"died": ("reset",)}, False),
        (2.9, 3.1, {"result": "not measurable"}, False),
        (2.9, 3.1, {"target_s": None, "result": "to be determined"}, False),
    ],
)
def test_a_verdict_is_open_while_its_interval_contains_the_target(
    low: float, high: float, changes: dict[str, Any], is_open: bool
) -> None:
    found = verdict.TargetVerdict("a", 2, 3.0, 3.05, Interval(low, high), 5, 0, (), "fail")
    assert replace(found, **changes).is_open is is_open


def test_the_rank_sum_test_agrees_with_counting() -> None:
    # All 4 of 4 above all 4 of 4: one of 70 arrangements, so 1/70 one-sided.
    source = random.Random(1)  # noqa: S311
    assert verdict.p_slower([5, 6, 7, 8], [1, 2, 3, 4], source) == pytest.approx(1 / 70, abs=0.005)
    assert verdict.p_slower([1, 2, 3, 4], [5, 6, 7, 8], source) == pytest.approx(1.0)
    assert verdict.p_slower([1, 1, 1], [1, 1, 1], source) == pytest.approx(1.0)
    assert verdict.p_slower(range(50, 100), range(50), source) == 1 / 10_001  # never 0


def noisy(case: str, center: float, spread: float, seed: int, n: int = 10) -> list[Sample]:
    source = random.Random(seed)  # noqa: S311
    return [one(case, source.gauss(center, spread)) for _ in range(n)]


def compare(now: list[Sample], before: list[Sample]) -> BaselineComparison:
    [found] = verdict.against_baseline([2], {"a": now}, {"a": before}, 0.03)
    return found


@pytest.mark.promise("P75")
def test_a_slowdown_is_found_and_noise_is_not() -> None:
    before = noisy("a", 10, 0.2, 1)
    found = compare(noisy("a", 11, 0.2, 2), before)
    assert found.is_slower and found.detectable is not None and found.detectable < 0.1
    assert not compare(noisy("a", 10, 0.2, 3), before).is_slower
    # Within the tolerance.
    assert not compare(noisy("a", 10.2, 0.001, 3), noisy("a", 10, 0.001, 4)).is_slower


def off(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, calibration="release_error") for sample in samples]


@pytest.mark.parametrize("side", ["now", "before"])
def test_a_comparison_of_uncalibrated_samples_is_not_measurable(side: str) -> None:
    now, before = noisy("a", 11, 0.2, 2), noisy("a", 10, 0.2, 1)
    assert compare(now, before).result == "slower"
    comparison = compare(off(now), before) if side == "now" else compare(now, off(before))
    assert comparison.result == "not measurable"
    assert comparison.is_slower is False
    assert comparison.p is None
    assert comparison.detectable is None
    assert comparison.ratio == pytest.approx(1.1, abs=0.02)


def test_a_comparison_counts_calibrated_samples_alone() -> None:
    before = noisy("a", 10, 0.2, 1)
    mixed = compare([*noisy("a", 10, 0.2, 3), *off(noisy("a", 20, 0.2, 4))], before)
    assert (mixed.result, mixed.n, mixed.off) == ("no slower", 10, 10)
    # Fewer than half.
    assert compare([*before[:4], *off(before[4:])], before).result == "not measurable"
    assert compare(before, [*before[:5], *off(noisy("a", 1, 0.1, 5, 5))]).n_baseline == 5


@pytest.mark.promise("P75")
def test_what_is_not_slower_is_undecided_where_twice_the_time_would_not_be_detected() -> None:
    """Two samples of each side: the smallest p-value of a rank sum is 1/6."""
    few = compare(noisy("a", 30, 0.2, 3)[:2], noisy("a", 10, 0.2, 1)[:2])
    assert (few.result, few.is_slower, few.detectable) == ("undecided", False, None)
    enough = compare(noisy("a", 10, 0.2, 3), noisy("a", 10, 0.2, 1))
    assert enough.result == "no slower" and enough.detectable is not None


def test_an_unmeasurable_comparison_takes_nothing_from_the_others() -> None:
    """Eight comparisons, of which one can be judged, have the p-value and the limits of that one
    alone.
    """
    names = "abcdefgh"
    now = {name: noisy(name, 10.5, 0.3, 5) for name in names}
    before = {name: noisy(name, 10, 0.3, 6) for name in names}
    mixed = now | {name: off(now[name]) for name in names[1:]}
    [alone] = verdict.against_baseline([2], {"a": now["a"]}, before, 0.03)
    # The others would make it insignificant.
    assert 0.05 / 8 < (alone.p or 0) < 0.05 and alone.is_slower
    assert verdict.against_baseline([2], mixed, before, 0.03)[0] == alone


STALLED = one("a", None, status="censored", reason="not complete within 120 s")
DIED = one("a", None, status="failed", reason="it ended with status 1")


@pytest.mark.parametrize("after", [1, 2, 3, 5])
@pytest.mark.parametrize("before", [1, 2, 3, 5])
@pytest.mark.parametrize("dead", [STALLED, DIED])
@pytest.mark.promise("P75")
def test_a_build_that_does_not_complete_fails_with_any_number_of_samples(
    after: int, before: int, dead: Sample
) -> None:
    """With few samples no test of ranks is significant: 1 in 6 with two on either side."""
    baseline = noisy("a", 10, 0.2, 1, before)
    whole = compare([dead] * after, baseline)
    assert (whole.result, whole.is_slower, whole.p) == ("failed", True, None)
    assert (whole.incomplete, whole.n, whole.reasons) == (after, after, (dead.reason,))
    one_of_them = compare([*noisy("a", 10, 0.2, 2, after - 1), dead], baseline)
    assert (one_of_them.result, one_of_them.incomplete) == ("failed", 1)
    assert not compare(noisy("a", 10, 0.2, 3, after), baseline).is_slower


def test_a_transfer_that_arrived_whole_and_failed_has_failed() -> None:
    """Another file than was sent, for example: the last mark was reached."""
    wrong = one("a", 10.0, status="failed", reason="wrong file")
    found = compare([*noisy("a", 10, 0.2, 2, 4), wrong], noisy("a", 10, 0.2, 1))
    assert (found.result, found.incomplete) == ("failed", 1)


def test_a_transfer_that_fails_late_does_not_fail_its_earlier_marks() -> None:
    now = [one("a", 1.0 + step / 100, None, status="failed") for step in range(4)]
    now.append(one("a", 1.0, 2.0))
    before = [one("a", 1.0 + step / 100, 2.0) for step in range(5)]
    early, late = verdict.against_baseline([1, 2], {"a": now}, {"a": before}, 0.03)
    assert (early.result, late.result) == ("no slower", "failed")
    # If none completes, the case has failed as a whole, as it does without a baseline.
    every = verdict.against_baseline([1, 2], {"a": now[:4]}, {"a": before}, 0.03)
    assert [each.result for each in every] == ["failed", "failed"]


@pytest.mark.parametrize(
    ("failed", "failed_before", "result"),
    [
        (1, 1, "no slower"),
        (3, 1, "no slower"),
        (10, 1, "failed"),
        (9, 2, "failed"),
        (1, 0, "failed"),
    ],
)
def test_a_baseline_that_fails_sometimes_is_compared_by_the_number_of_failures(
    failed: int, failed_before: int, result: str
) -> None:
    now = [*noisy("a", 10, 0.2, 3, 10 - failed), *[STALLED] * failed]
    before = [*noisy("a", 10, 0.2, 1, 10 - failed_before), *[DIED] * failed_before]
    found = compare(now, before)
    assert (found.result, found.incomplete, found.incomplete_baseline) == (
        result,
        failed,
        failed_before,
    )


def test_a_baseline_that_never_completes_accepts_no_dead_build() -> None:
    assert compare([DIED] * 3, [DIED] * 3).result == "failed"
    slow = compare([STALLED] * 3, [STALLED] * 3)
    assert (slow.result, slow.ratio) == ("undecided", None)
    repaired = compare(noisy("a", 10, 0.2, 1), [DIED] * 10)
    assert (repaired.result, repaired.ratio, repaired.p) == ("no slower", None, None)


def test_a_dead_transfer_out_of_calibration_is_not_judged() -> None:
    now, before = noisy("a", 10, 0.2, 2), noisy("a", 10, 0.2, 1)
    found = compare([*now, *off([DIED, STALLED])], before)
    assert (found.result, found.incomplete, found.off) == ("no slower", 0, 2)
    assert compare(off([DIED] * 3), before).result == "not measurable"


@pytest.mark.parametrize(
    ("limit_s", "stalled_after_s", "result"),
    [(15, None, "undecided"), (15, 9.0, "failed"), (25, None, "failed")],
)
def test_a_transfer_that_still_moves_at_a_narrow_limit_is_only_slow(
    limit_s: float, stalled_after_s: float | None, result: str
) -> None:
    """A baseline just below its time limit would raise false alarms otherwise."""
    now = [replace(STALLED, stalled_after_s=stalled_after_s), one("a", 14.9)]
    before = [one("a", 12.0), one("a", 11.0)]
    [found] = verdict.against_baseline([2], {"a": now}, {"a": before}, 0.03, {"a": limit_s})
    assert found.result == result


def test_a_case_that_a_build_no_longer_supports_has_failed() -> None:
    refused = one("a", None, status="unsupported", reason="no 0-RTT")
    lost = compare([refused], noisy("a", 10, 0.2, 1))
    assert (lost.result, lost.reasons) == ("failed", ("no 0-RTT",))
    assert compare([refused], [refused]).result == "unsupported"
    assert compare(noisy("a", 10, 0.2, 1), [refused]).result == "no slower"


def test_fisher_s_p_agrees_with_its_tea() -> None:
    """The lady who names 3 of 4 cups: 17/70 (Fisher, "The Design of Experiments", 1935)."""
    assert verdict.p_more_fail(verdict.Failures(3, 4), verdict.Failures(1, 4)) == pytest.approx(
        17 / 70
    )
    assert verdict.p_more_fail(verdict.Failures(4, 4), verdict.Failures(0, 4)) == pytest.approx(
        1 / 70
    )
    assert verdict.p_more_fail(verdict.Failures(0, 4), verdict.Failures(4, 4)) == pytest.approx(1.0)


def test_a_slowdown_within_the_tolerance_is_named_as_such() -> None:
    found = compare(noisy("a", 10.2, 0.01, 3), noisy("a", 10, 0.01, 4))
    assert (found.result, found.is_tolerated) == ("no slower", True)
    assert found.p_adjusted is not None and found.p_adjusted <= verdict.ALPHA
    assert not compare(noisy("a", 10, 0.2, 3), noisy("a", 10, 0.2, 4)).is_tolerated


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_fewer_than_five_samples_have_no_interval(n: int) -> None:
    """The slowest of them must meet the target."""
    times = [2.0] * (n - 1) + [2.9]
    found = judged(*(one("a", time) for time in times))
    assert found.has_interval is (n == 5)
    assert (found.result, found.interval_s.high) == ("pass", 2.9)
    slow = judged(*(one("a", time) for time in [*times[1:], 3.1]))
    assert slow.result == "fail"


def test_detectable_slowdowns_begin_above_the_tolerance_and_ties_are_no_slowdown() -> None:
    source = random.Random(1)  # noqa: S311
    assert verdict.detectable([10.0] * 10, 10, 0.05, 1) == 0.06
    assert not verdict._is_detected([10.0] * 10, (10, 10), 1.0, 1.0, source)


def test_samples_are_planned_with_the_calibrated_ones_of_the_baseline() -> None:
    steady, wild = noisy("a", 10, 0.1, 1), noisy("a", 10, 3, 2)
    fewest = [
        check_run._min_runs(small(), small().cases[0], {"a": [*steady, *more]}, 1)
        for more in (off(wild), wild)
    ]
    assert fewest[0] == check_run.BASELINE_RUNS < fewest[1]


def test_samples_are_planned_for_a_slowdown_of_a_tenth() -> None:
    sizes = range(10, 21, 5)
    steady, spread = (
        [[sample.times_s[0] or 0 for sample in noisy("a", 10, noise, 1)]] for noise in (0.1, 0.6)
    )
    assert verdict.runs_for(steady, sizes, 0.1, 4) == 10
    assert verdict.runs_for(spread, sizes, 0.1, 4) > 10
    assert verdict.runs_for([*steady, *spread], sizes, 0.1, 4) == verdict.runs_for(
        spread, sizes, 0.1, 4
    )
    # A mark that was never reached is ignored.
    assert verdict.runs_for([[math.inf] * 10], sizes, 0.1, 4) == 10


def test_a_baseline_of_before_a_cause_was_known_is_compared() -> None:
    now, before = one("a", 3.0), one("a", 2.0)
    spent: dict[str, float] = dict.fromkeys(causes.CAUSES, 0.0)
    old = replace(before, spent_s={"link": 2.0})
    grown = verdict.grown_s([replace(now, spent_s=spent | {"link": 2.5, "pacing": 0.5})], [old])
    assert grown is not None and (grown["link"], grown["pacing"], grown["host"]) == (0.5, 0.5, 0.0)
    off = replace(old, spent_s={"link": 9.0}, calibration="rtt_ms")
    assert verdict.grown_s([replace(now, spent_s=spent)], [old, off]) == spent | {"link": -2.0}
    assert verdict.grown_s([now], [old]) is None
