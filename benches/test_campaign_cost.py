# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of `python -m benches campaign`: from known times, and its loop with a program in place of
satvirtual.
"""

import json
from pathlib import Path

import pytest

from benches import campaign_cost as cost
from benches.campaign_cost import Spent
from satlab.campaign import task_request
from satlab.campaign.plan_file import load
from satlab.campaign.task_record import Attempt, Host
from satlab.common import paths
from satlab.common.errors import HostError


def attempts(*times: tuple[float, float, float]) -> list[Attempt]:
    """Return attempts with such a begin, end and CPU time, s."""
    host = Host(name="here", stamp="0", facts={})
    return [
        Attempt(
            host=host,
            number=1,
            began_unix_s=begin,
            ended_unix_s=end,
            cpu_s=cpu,
            exit_status=0,
            reason="",
        )
        for begin, end, cpu in times
    ]


def test_p258_figures_compare_the_engine_with_the_loop() -> None:
    ended = attempts(*((102.0 + 4.25 * n, 106.0 + 4.25 * n, 3.9) for n in range(10)))
    result = cost.figures(Spent(40, 39), engine_s=46, began_unix_s=100, attempts=ended, at_once=1)
    assert (result["wall_ratio"], result["added_ratio"]) == (0.15, 0.15)
    assert result["added_s_per_task"] == 0.6
    assert (result["start_s"], result["gap_s"]) == (2.0, 0.25)
    assert result["end_s"] == pytest.approx(1.75)
    result["planned"] = {"cells": 10_000, "s": 7.5}
    assert [promise.met for promise in cost.promises(result)] == [False, True, True]
    two = cost.figures(
        Spent(20, 39), 22, 100, attempts((101, 105, 4), (101, 105, 4), (105.5, 109.5, 4)), 2
    )
    assert (two["gap_s"], two["added_s_per_task"]) == (0.5, round((2 * 22 - 12 - 1) / 3, 3))


def test_p258_a_host_that_computes_more_slowly_is_not_counted_as_the_engine_s_cost() -> None:
    slow = attempts(*((101.0 + 5 * n, 106.0 + 5 * n, 4.9) for n in range(10)))
    result = cost.figures(Spent(40, 39), engine_s=52, began_unix_s=100, attempts=slow, at_once=1)
    assert (result["wall_ratio"], result["added_ratio"]) == (0.3, 0.05)


def test_p258_the_loop_runs_each_task_s_command_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "satvirtual"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "flows flows.json" ] && cat flows.json\n')
    program.chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", program)
    tasks = cost.plan_of(5, 60, 4).tasks
    cost.loop(tmp_path / "loop", tasks, 2)
    for task in tasks:
        found = json.loads((tmp_path / "loop" / task.id / "output.json").read_text())
        assert found == task_request.files(task.request)["flows.json"]
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(HostError, match="loop failed"):
        cost.loop(tmp_path / "again", tasks, 2)


def test_p258_a_matrix_of_many_cells_is_planned(tmp_path: Path) -> None:
    plan = cost.plan_matrix(tmp_path, 12)
    assert len(plan.cells) == len(plan.tasks) == 12
    assert load(tmp_path / "plan.json") == plan
    assert {tuple(task.request.words()[:3]) for task in plan.tasks} == {
        ("satlab", "run", "bulk_tcp")
    }
