# SPDX-License-Identifier: GPL-3.0-or-later
"""The findings that are shipped: suites of suites/found."""

from pathlib import Path

import pytest

from satlab.check import check_run, suite
from satlab.check.check_run import CheckRequest
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus

FOUND = sorted((paths.SUITES / "found").glob("*.yml"))


@pytest.mark.parametrize("file", FOUND, ids=lambda file: str(file.stem))
def test_a_finding_is_one_case_with_its_seed_and_where_it_comes_from(file: Path) -> None:
    found = suite.load(file)
    [case] = found.cases
    assert found.name == f"found-{file.stem}" and found.seed >= 1 and found.runs == 1
    assert all(target is not None for target in case.targets_s)
    comment = file.read_text().splitlines()[:2]
    assert "found on" in comment[0] and "reference" in comment[0] and "other seeds" in comment[1]


def test_quinn_is_slow_after_a_short_outage_in_slow_start(tmp_path: Path) -> None:
    """The finding that needs no program of others: it fails until quinn is faster there."""
    request = CheckRequest(str(paths.SUITES / "found" / "quinn.yml"), out=tmp_path)
    found = check_run.run(request, ProgressLog(quiet=True))
    assert found.status == ExitStatus.FAILED
    [[sample]] = found.samples.values()
    assert sample.status == "ok" and sample.times_s[0] == pytest.approx(20.3, abs=0.5)
