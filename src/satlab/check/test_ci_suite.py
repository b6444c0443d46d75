# SPDX-License-Identifier: GPL-3.0-or-later
"""The suite `ci`, which a build server runs on each change: what it finds, what it costs, and that
it raises no alarm over equal builds.
"""

import resource
from pathlib import Path

import pytest

from satlab.check import check_file, check_run, verdict
from satlab.check.check_result import CheckResult
from satlab.check.check_run import CheckRequest
from satlab.check.samples import Options
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus

MOST_CPU_S = 120.0
"""A minute on two cores."""
COMPARISONS = 3
QUIET = ProgressLog(quiet=True)

pytestmark = pytest.mark.long


def cpu_s() -> float:
    """Return the processor time of this process and of its programs that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> CheckResult:
    return check_run.run(CheckRequest("ci", out=tmp_path_factory.mktemp("ci")), QUIET)


def test_the_suite_takes_less_than_a_minute_on_two_cores(
    tmp_path: Path, baseline: CheckResult
) -> None:
    """With its comparison, which costs processor time, too."""
    before = cpu_s()
    file = baseline.folder / check_file.NAME
    again = check_run.run(CheckRequest("ci", out=tmp_path, seed=5000, baseline=file), QUIET)
    assert cpu_s() - before < MOST_CPU_S
    assert again.status == ExitStatus.OK
    assert {case: len(samples) for case, samples in again.samples.items()} == {
        "medium": 10,
        "congested": 10,
        "second": 10,
        "reordered": 10,
        "lossy": 20,
    }


@pytest.mark.parametrize(
    ("client", "server", "grew"),
    [
        ({"receive_window": 1_000_000}, {}, "flow control"),
        ({"stream_receive_window": 1_000_000}, {}, "flow control"),
        ({}, {"send_window": 1_000_000}, "flow control"),
        ({}, {"max_ack_delay_ms": 200, "ack_threshold": 1000}, "late acks"),
        ({}, {"initial_window": 2}, "slow start"),
    ],
)
@pytest.mark.promise("P75")
def test_a_planted_fault_is_red(
    client: Options, server: Options, grew: str, baseline: CheckResult, tmp_path: Path
) -> None:
    """A megabyte is a quarter of the bandwidth-delay product."""
    request = CheckRequest(
        "ci",
        cases=["medium", "congested"],
        client=client,
        server=server,
        seed=6000,
        baseline=baseline.folder / check_file.NAME,
        out=tmp_path,
    )
    found = check_run.run(request, QUIET)
    assert found.status == ExitStatus.FAILED
    slow = [one for one in found.comparisons or () if one.is_slower]
    assert {one.case for one in slow} == {"medium", "congested"}
    named = {one.case: one.grew for one in slow}
    assert named["medium"] == grew
    # A receiver that waits sends fewer acknowledgements, which relieves the congested return link.
    assert named["congested"] == grew or grew == "late acks"


@pytest.mark.parametrize("number", range(COMPARISONS))
@pytest.mark.promise("P75")
def test_equal_builds_raise_no_alarm(number: int, baseline: CheckResult, tmp_path: Path) -> None:
    """Three comparisons with other seeds: 45 tests, of which 5 % would be 2 without Holm."""
    request = CheckRequest("ci", out=tmp_path, seed=10_000 + 100 * number)
    found = check_run.run(request, QUIET)
    compared = verdict.against_baseline(
        found.suite.marks_mb,
        found.samples,
        baseline.samples,
        request.tolerance,
        {case.id: case.timeout_s for case in found.suite.cases},
    )
    alarms = [(one.case, one.mark_mb, one.p) for one in compared if one.is_slower]
    assert len(compared) == 15 and not alarms
