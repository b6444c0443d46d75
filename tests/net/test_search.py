# SPDX-License-Identifier: GPL-3.0-or-later
"""A search of a program in lock-step that has a planted fault."""

import shlex
import sys
from pathlib import Path

import pytest
import yaml

from satlab.check import check_run
from satlab.check.check_run import CheckRequest
from satlab.check.endpoint import lockstep
from satlab.check.endpoint.lockstep import LockstepPair
from satlab.check.search import search_run
from satlab.check.search.faults import Limits
from satlab.check.search.search_run import SearchRequest
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus

pytestmark = pytest.mark.net

PLANTED = paths.ROOT / "tests/endpoints/planted/lockstep.py"
LOSSES = {"loss_percent", "outage_s", "queue_bdp"}
"""What makes a link lose packets."""
QUIET = ProgressLog(quiet=True)
SUITE = {
    "schema": "satlab/suite/1",
    "name": "brief",
    "source": "the test",
    "link": {"rtt_ms": 650, "queue_bdp": 1.0},
    "marks_mb": [0.5],
    "cases": [{"id": "medium", "forward_mbps": 20, "return_mbps": 5, "targets_s": [None]}],
}


def planted(fault: str) -> LockstepPair:
    command = f"{Path(sys.executable).resolve()} {PLANTED} {shlex.quote(fault)}"
    return lockstep.parse(command, command)


def test_a_sender_that_stops_retransmitting_is_found_and_its_condition_is_simple(
    tmp_path: Path,
) -> None:
    file = tmp_path / "brief.yml"
    file.write_text(yaml.safe_dump(SUITE))
    check = CheckRequest(
        str(file), seed=3, out=tmp_path / "runs", jobs=2, programs=planted("losses")
    )
    found = search_run.run(
        SearchRequest(check, 60, Limits(share=0.1), largest_mb=2, most_findings=1), QUIET
    )
    [finding] = found.record.findings
    assert finding.kind == "stalls" and finding.is_shrunk
    assert LOSSES & finding.changes.keys() and len(finding.changes) <= 4, found.lines()
    assert finding.suite is not None
    again = CheckRequest(str(found.folder / finding.suite), out=tmp_path / "checks")
    for fault, status in (("losses", ExitStatus.FAILED), ("none", ExitStatus.OK)):
        one = check_run.run(
            CheckRequest(again.suite, out=tmp_path / fault, programs=planted(fault)), QUIET
        )
        assert one.status == status, (fault, found.lines(), one.samples)
