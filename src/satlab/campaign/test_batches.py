# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks in batches: which are together, what a worker does with a batch, and what it refuses."""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from satlab.campaign import attempt, batches, planner
from satlab.campaign.batches import Batch
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_request import Check
from satlab.campaign.test_worker import campaign
from satlab.campaign.worker import Worker
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.papers import paper


def task(number: int, estimate_s: float = 1, cores: int = 1, lab: Any = "netns") -> Task:
    case = {
        "suite": "etosat",
        "case": "medium",
        "seed": number,
        "clock": "real" if lab == "netns" else "virtual",
    }
    asked = Check.model_validate({"verb": "check", **case})
    return Task(
        id=f"geo.{number}",
        cell="geo",
        number=number,
        request=asked,
        estimate_s=estimate_s,
        cores=cores,
    )


def together(where: CampaignFolder, plan: Plan) -> str:
    """Write one batch of all tasks, and return its id."""
    names = tuple(one.id for one in plan.tasks)
    name = batches.id_of(names)
    batches.write(where.path, {name: Batch(tasks=names, rule="run", cores=1, labs=1, minutes=1)})
    return name


@given(
    st.lists(
        st.tuples(st.floats(0.1, 500), st.integers(1, 2), st.sampled_from(["netns", "virtual"])),
        max_size=60,
    ),
    st.integers(1, 16),
)
def test_p257_each_task_is_in_one_batch_of_its_kind(
    kinds: list[tuple[float, int, str]], at_once: int
) -> None:
    tasks = [task(n, *kind) for n, kind in enumerate(kinds, start=1)]
    found = batches.group(tasks, at_once, 30)
    assert sorted(name for batch in found.values() for name in batch.tasks) == sorted(
        one.id for one in tasks
    )
    known = {one.id: one for one in tasks}
    limit_s = min(batches.BATCH_S, sum(one.estimate_s for one in tasks) / (batches.PARTS * at_once))
    for batch in found.values():
        members = [known[name] for name in batch.tasks]
        assert {(one.cores, int(one.lab == "netns")) for one in members} == {
            (batch.cores, batch.labs)
        }
        total_s = sum(one.estimate_s for one in members)
        assert len(members) == 1 or total_s <= limit_s * (1 + 1e-9)
        assert batch.minutes * 60 >= 30 + 2 * total_s


def test_p257_short_tasks_share_a_batch_and_long_ones_do_not() -> None:
    short = batches.group([task(n, 4) for n in range(1, 101)], 2, 1200)
    assert {len(batch.tasks) for batch in short.values()} <= {15, 10}
    long = batches.group([task(n, 90) for n in range(1, 11)], 2, 1200)
    assert [len(batch.tasks) for batch in long.values()] == [1] * 10


def test_p257_what_sets_hystart_of_the_host_has_all_labs() -> None:
    cells = paper.load("seed-001", "real").select(
        ["ideal/1/none/cubic", "ideal/1/hystart/cubic", "ideal/1/none/bbr"], quick=False
    )
    about = paper.load("seed-001", "real")
    drafts = [planner.of_paper(about, cell, (1,)) for cell in cells]
    plan = planner.of_drafts("x", drafts, "x", 30)
    found = batches.group(plan.tasks, 4, 30, labs=4)
    assert {batch.tasks[0]: batch.labs for batch in found.values()} == {
        "ideal-1-none-cubic.1": 4,
        "ideal-1-hystart-cubic.1": 4,
        "ideal-1-none-bbr.1": 1,
    }


def test_p257_a_batch_does_all_its_tasks_though_one_is_to_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, plan, digest = campaign(tmp_path / "c", count=3)
    name = together(where, plan)
    program = tmp_path / "command.py"
    program.write_text("import os; raise SystemExit(3 if 'geo.2' in os.getcwd() else 0)")
    monkeypatch.setattr(attempt, "command", lambda _: [sys.executable, str(program)])
    worker = Worker(where, digest, 1)
    assert worker.work_batch(name, threading.Event(), print) == ExitStatus.HOST
    assert [task.id for task in where.left(plan)] == ["geo.2"]
    assert not (where.path / "batches" / f"{name}.done").exists()
    program.write_text("")
    assert worker.work_batch(name, threading.Event(), print) == ExitStatus.OK
    assert (where.path / "batches" / f"{name}.done").is_file()
    assert [len(where.attempts(task)) for task in plan.tasks] == [1, 2, 1]


def test_p257_a_lost_host_does_not_keep_the_rest_of_a_batch(tmp_path: Path) -> None:
    where, plan, digest = campaign(tmp_path / "c", count=2)
    name = together(where, plan)
    asked: list[str] = []
    notes: list[str] = []

    def lost(one: Task, *_: object) -> None:
        asked.append(one.id)
        raise HostError("node-b was lost", "")

    assert (
        Worker(where, digest, 1, lost).work_batch(name, threading.Event(), notes.append)
        == ExitStatus.HOST
    )
    assert asked == ["geo.1", "geo.2"]
    assert notes == ["geo.1: node-b was lost", "geo.2: node-b was lost"]


def test_p257_a_stop_leaves_the_rest_of_a_batch(tmp_path: Path) -> None:
    where, plan, digest = campaign(tmp_path / "c", count=2)
    name = together(where, plan)
    asked: list[str] = []
    stop = threading.Event()

    def stopped(one: Task, *_: object) -> None:
        asked.append(one.id)
        stop.set()

    assert Worker(where, digest, 1, stopped).work_batch(name, stop, print) == ExitStatus.INTERRUPTED
    assert asked == ["geo.1"]


def test_p257_a_batch_whose_engine_was_killed_begins_no_further_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, plan, digest = campaign(tmp_path / "c", count=2)
    name = together(where, plan)
    program = tmp_path / "command.py"
    program.write_text("")
    monkeypatch.setattr(attempt, "command", lambda _: [sys.executable, str(program)])
    parents = iter([7, 7, 1])
    monkeypatch.setattr("os.getppid", lambda: next(parents))
    assert (
        Worker(where, digest, 1).work_batch(name, threading.Event(), print)
        == ExitStatus.INTERRUPTED
    )
    assert [one.id for one in where.left(plan)] == ["geo.2"]


def test_t34_a_batch_names_tasks_of_the_plan_alone(tmp_path: Path) -> None:
    where, plan, digest = campaign(tmp_path / "c", count=1)
    name = together(where, plan)
    file = where.path / batches.FOLDER / batches.ALL
    assert [one.id for one in batches.load(where.path, name, plan)] == ["geo.1"]
    worker = Worker(where, digest, 0)
    with pytest.raises(ConfigError, match="no batch"):
        worker.work_batch("../../x", threading.Event(), print)
    foreign = batches.id_of(["geo.7"])
    document = json.loads(file.read_text())
    file.write_text(json.dumps({foreign: document[name] | {"tasks": ["geo.7"]}}))
    with pytest.raises(ConfigError, match="not a task of the plan"):
        worker.work_batch(foreign, threading.Event(), print)
    file.write_text(json.dumps({name: document[name] | {"tasks": ["geo.1", "geo.1"]}}))
    with pytest.raises(ConfigError, match="no batch"):
        worker.work_batch(name, threading.Event(), print)
    file.write_text("{")
    with pytest.raises(ConfigError, match="holds no batches"):
        worker.work_batch(name, threading.Event(), print)


def test_what_the_engine_starts_is_replaced_with_what_was_done_before(tmp_path: Path) -> None:
    where, plan, _ = campaign(tmp_path / "c", count=3)
    name = together(where, plan)
    batches.end(where.path, name)
    batches.write(where.path, {})
    assert [file.name for file in (where.path / batches.FOLDER).iterdir()] == [batches.ALL]
    batches.end(where.path, name)
    assert (where.path / batches.FOLDER / f"{name}.done").is_file()
