# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign over the cells of seed-002 judges the paper's conclusions as `satlab reproduce` does."""

import json
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import collect
from satlab.campaign import conclusions, dataset, record
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.plan import Cell, Plan, Task
from satlab.campaign.record import Host
from satlab.campaign.worker import Worker
from satlab.cli import app

RUNS = 6
FCP_MS = {"h3": 1500.0, "h1": 2100.0}


@pytest.fixture
def measured(tmp_path: Path) -> tuple[CampaignFolder, Plan]:
    """Return a campaign of h3 and h1 without losses at GEO; the last run of h1 failed without records."""
    cells = tuple(Cell(id=kind, factors={"orbit": "geo", "loss": "0", "type": kind}) for kind in FCP_MS)
    tasks = tuple(
        Task(
            id=f"{cell.id}.{n}", cell=cell.id, number=n, rule="run", lab="netns", seed=n, estimate_s=30, cores=2,
            argv=("satlab", "run", "web_quic"),
        )
        for n in range(1, RUNS + 1)
        for cell in cells
    )  # fmt: skip
    plan = Plan(name="paper", deadline_s=60, cells=cells, tasks=tasks)
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(plan)
    for task in tasks:
        _run(where, task, sha256, None if task is tasks[-1] else FCP_MS[task.cell] + task.number)
    return where, plan


def _run(where: CampaignFolder, task: Task, sha256: str, value: float | None) -> None:
    place = where.of(task) / "attempt-1"
    (place / "run-1").mkdir(parents=True)
    (place / record.OUTPUT).write_text("{}" if value else "")
    if value:
        row = ["r", "s", "geo", "netns", "first_contentful_paint_ms", value, None, "ok", "", json.dumps({"load": "0"})]
        frame = pl.DataFrame([row], schema=collect.SCHEMA, orient="row")
        frame.write_parquet(place / "run-1" / "records.parquet")
    ended = record.Attempt(
        number=1, host=Host(name="node-a", stamp="s", facts={}), began_unix_s=0, ended_unix_s=5,
        exit_status=0 if value else 1, reason="" if value else "no page",
    )  # fmt: skip
    (place / record.ATTEMPT).write_text(ended.model_dump_json())
    assert Worker(where, sha256, 0).work(task.id, threading.Event()) == 0


def test_p262_conclusions_of_the_paper_are_judged_from_runs_of_all_hosts(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    judged = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert [(one.name, one.loss, one.verdict, one.runs) for one in judged] == [
        ("First Contentful Paint", "0", "holds", RUNS - 1),
    ]
    done = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads((where.path / "report" / conclusions.FILE).read_text())
    assert [(row["claim"], row["verdict"], row["n"]) for row in rows] == [
        ("First Contentful Paint: h3 < h1", "holds", RUNS - 1),
    ]
    assert "Conclusions of the paper" in (where.path / "report" / "index.html").read_text()


def test_p262_a_run_whose_files_changed_is_not_counted(measured: tuple[CampaignFolder, Plan]) -> None:
    where, plan = measured
    (where.of(plan.tasks[0]) / "attempt-1" / "more").touch()
    judged = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert [one.runs for one in judged] == [RUNS - 1]
    (where.of(plan.tasks[2]) / "attempt-1" / "more").touch()
    judged = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert [one.runs for one in judged] == [RUNS - 2]


def test_p262_other_campaigns_have_no_conclusions(tmp_path: Path) -> None:
    task = Task(
        id="geo.1", cell="geo", number=1, rule="run", lab="netns", seed=1, argv=("satlab", "run", "bulk_tcp"),
        estimate_s=25, cores=1,
    )  # fmt: skip
    plan = Plan(name="x", deadline_s=30, cells=(Cell(id="geo", factors={"loss": 0.5}),), tasks=(task,))
    where = CampaignFolder(tmp_path / "c")
    _run(where, task, where.begin(plan), 7.0)
    judged = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert judged == []
    conclusions.write(where.path, judged)
    assert not (where.path / "report" / conclusions.FILE).exists()
