# SPDX-License-Identifier: GPL-3.0-or-later
"""Reordering, duplicates, corruption and drop lists under the virtual clock: what a stack makes of
them, and what a comparison finds.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from satlab.check import check_run
from satlab.check.check_result import CheckResult
from satlab.check.check_run import CheckRequest
from satlab.check.conftest import small
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus

REORDERED = {"reorder": {"ratio": 0.02, "packets": 2, "ms": 50}}
"""Those of the case `reordered` of suites/ci.yml."""


def run(request: CheckRequest) -> CheckResult:
    return check_run.run(request, ProgressLog(quiet=True))


def outcome(tmp_path: Path, fields: dict[str, Any], **server: int) -> dict[str, Any]:
    """Return the outcome of one download of 1 MB at 10 Mbit/s."""
    suite = small(fields | {"targets_s": [None]}, marks_mb=[1])
    tmp_path.mkdir(parents=True, exist_ok=True)
    file = tmp_path / "suite.yml"
    file.write_text(suite.model_dump_json(by_alias=True, exclude_defaults=True))
    found = run(CheckRequest(str(file), runs=1, seed=1, server=server, out=tmp_path / "out"))
    [written] = found.folder.rglob("*.outcome.json")
    made: dict[str, Any] = json.loads(written.read_text())
    return made


def counted(made: dict[str, Any], name: str) -> dict[str, int]:
    return {one["name"]: one[name] for one in made["link"]}


def test_a_correct_stack_retransmits_nothing_where_packets_are_reordered(tmp_path: Path) -> None:
    """Not more than two packets overtake one, and 50 ms are less than an eighth of the RTT."""
    made = outcome(tmp_path, REORDERED)
    [done] = made["transfers"]
    assert done["status"] == "ok" and done["sender"]["lost_packets"] == 0
    reordered = counted(made, "reordered_packets")
    assert min(reordered["forward"], reordered["return"]) >= 2
    assert reordered["terrestrial_down"] == reordered["terrestrial_up"] == 0
    plain = outcome(tmp_path / "plain", {})
    assert set(counted(plain, "reordered_packets").values()) == {0}


def test_a_packet_threshold_of_one_takes_reordering_for_loss(tmp_path: Path) -> None:
    [plain] = outcome(tmp_path / "plain", {}, packet_threshold=1)["transfers"]
    assert plain["sender"]["lost_packets"] == 0, "without reordering the defect is not seen"
    made = outcome(tmp_path / "reordered", REORDERED, packet_threshold=1)
    assert made["transfers"][0]["sender"]["lost_packets"] >= 5
    assert counted(made, "lost_packets")["forward"] == 0
    assert made["transfers"][0]["duration_s"] > 1.2 * plain["duration_s"]


def test_a_comparison_finds_a_packet_threshold_of_one_and_two_equal_builds_are_equal(
    tmp_path: Path,
) -> None:
    def compared(**changes: Any) -> CheckResult:
        return run(CheckRequest("ci", cases=["reordered"], runs=10, **changes))

    before = compared(out=tmp_path / "before")
    file = before.folder / "check.json"
    again = compared(out=tmp_path / "again", baseline=file, seed=100)
    assert again.comparisons and not any(one.is_slower for one in again.comparisons)
    assert again.status == ExitStatus.OK
    wrong = compared(
        out=tmp_path / "wrong", baseline=file, seed=100, server={"packet_threshold": 1}
    )
    assert wrong.comparisons and any(one.is_slower for one in wrong.comparisons)
    assert wrong.status == ExitStatus.FAILED


def test_duplicates_are_received_once(tmp_path: Path) -> None:
    made = outcome(tmp_path, {"duplicate": 0.1})
    [done] = made["transfers"]
    assert (done["status"], done["bytes"], done["sender"]["lost_packets"]) == ("ok", 1_000_000, 0)
    [forward] = [one for one in made["link"] if one["name"] == "forward"]
    copies = forward["duplicated_packets"]
    assert 50 < copies < 100
    # At the end some packets are still on their way.
    assert forward["in_packets"] - 50 < forward["out_packets"] - copies <= forward["in_packets"]


def test_corrupted_datagrams_are_losses_for_a_quic_stack(tmp_path: Path) -> None:
    """A flipped bit fails the authentication of the packet; the transfer is repaired."""
    made = outcome(tmp_path, {"corrupt": 0.02})
    [done] = made["transfers"]
    corrupted = counted(made, "corrupted_packets")
    assert (done["status"], done["bytes"]) == ("ok", 1_000_000)
    assert counted(made, "lost_packets")["forward"] == 0
    assert 5 <= done["sender"]["lost_packets"] <= corrupted["forward"] + corrupted["return"]


@pytest.mark.parametrize(
    ("drops", "lost"),
    [({"return": [2, 3, 4]}, (0, 3)), ({"forward": [1, 5]}, (2, 0))],
)
def test_listed_packets_are_lost_and_no_others(
    tmp_path: Path, drops: dict[str, list[int]], lost: tuple[int, int]
) -> None:
    made = outcome(tmp_path, {"drops": drops})
    by_link = counted(made, "lost_packets")
    assert (by_link["forward"], by_link["return"]) == lost
    assert made["transfers"][0]["status"] == "ok"


def test_a_link_that_comes_and_goes_is_a_list_of_changes(tmp_path: Path) -> None:
    """Off from 1 to 2 s and from 3 to 4 s: what is sent then is lost."""
    off = [{"at_s": at_s, "outage_s": 1} for at_s in (1, 3)]
    made = outcome(tmp_path, {"changes": off})
    assert counted(made, "lost_packets")["forward"] > 0
    assert made["transfers"][0]["status"] == "ok"
