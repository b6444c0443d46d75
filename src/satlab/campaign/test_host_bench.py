# SPDX-License-Identifier: GPL-3.0-or-later
"""How many labs a host bears: when the search ends, and which result a campaign takes."""

import json
import os
from pathlib import Path

import pytest

from satlab.campaign import engine, host_bench, task_record
from satlab.campaign.engine import Options
from satlab.campaign.host_bench import ReleaseErrors, TimerBaseline
from satlab.campaign.plan_file import Plan
from satlab.campaign.test_worker import run_task
from satlab.common.console import ProgressLog
from satlab.run import host_stamp

QUIET = ProgressLog(quiet=True)


@pytest.fixture
def bears(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Let labs of this host hold up to a number; it is changed by the list's element."""
    most = [4]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(host_bench, "wakes", lambda: TimerBaseline(ReleaseErrors(50, 70, 90), 3))

    def labs(count: int) -> list[list[str]]:
        return [["rtt_ms"] if number >= most[0] else [] for number in range(count)]

    monkeypatch.setattr(host_bench, "labs_at_once", labs)
    return most


@pytest.mark.promise("P95")
def test_p265_the_largest_number_of_labs_that_all_hold_is_kept(bears: list[int]) -> None:
    result = host_bench.measure(QUIET)
    assert (result["labs"], list(result["tried"])) == (4, ["1", "2", "4", "8"])
    assert task_record.this_host().facts["labs"] == 4
    assert json.loads(json.dumps(result)) == host_stamp.known(result["stamp"])
    bears[0] = 0
    assert host_bench.measure(QUIET)["labs"] == 0


def test_p265_the_search_ends_within_its_time(
    bears: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    bears[0] = 1000
    clock = iter(range(0, 10_000, 9))
    monkeypatch.setattr("satlab.campaign.host_bench.time.monotonic", lambda: float(next(clock)))
    result = host_bench.measure(QUIET)
    assert result["took_s"] <= host_bench.LIMIT_S
    assert result["labs"] < host_bench.MOST_LABS


def test_p265_a_campaign_has_as_many_labs_as_the_host_bears(
    bears: list[int], tmp_path: Path
) -> None:
    task = run_task()
    plan = Plan(name="c", deadline_s=30, cells={"geo": {}}, tasks=(task,))
    work = engine.choose(plan, tmp_path / "c", Options())
    default = max(1, (os.cpu_count() or 1) // 2)
    assert f"labs={default}" in work.command("0" * 64)
    host_bench.measure(QUIET)
    assert "labs=4" in work.command("0" * 64)
    file = next((tmp_path / "satlab").glob("host-*.json"))
    file.write_text(file.read_text().replace(host_stamp.stamp()[0], "0" * 12))  # of another host
    assert f"labs={default}" in work.command("0" * 64)
