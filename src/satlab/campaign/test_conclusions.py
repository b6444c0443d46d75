# SPDX-License-Identifier: GPL-3.0-or-later
"""A campaign over the cells of a paper judges the paper's conclusions as `satlab reproduce` does."""

import json
import threading
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

import collect
from satlab.campaign import conclusions, dataset, planning, record, request
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.plan import Cell, Plan, Task
from satlab.campaign.record import Host
from satlab.campaign.request import Run
from satlab.campaign.worker import Worker
from satlab.cli import app
from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.papers.test_paper import outcome
from satlab.service.helper.verbs import RunLink

RUNS = 6
FCP_MS = {"h3": 1500.0, "h1": 2100.0}


@pytest.fixture
def measured(tmp_path: Path) -> tuple[CampaignFolder, Plan]:
    """Return a campaign of h3 and h1 without losses at GEO; the last run of h1 failed without
    records.
    """
    cells = tuple(
        Cell(id=kind, factors={"orbit": "geo", "loss": "0", "type": kind}) for kind in FCP_MS
    )
    tasks = tuple(
        Task(
            id=f"{cell.id}.{n}",
            cell=cell.id,
            number=n,
            request=Run(verb="run", scenario="web_quic", link=RunLink(seed=n)),
            estimate_s=30,
            cores=2,
        )
        for n in range(1, RUNS + 1)
        for cell in cells
    )
    plan = Plan(name="paper", deadline_s=60, cells=cells, tasks=tasks)
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(plan)
    for task in tasks:
        _run(where, task, sha256, None if task is tasks[-1] else FCP_MS[task.cell] + task.number)
    return where, plan


def judged(where: CampaignFolder, plan: Plan) -> tuple[conclusions.Judged, ...]:
    return conclusions.of_paper(plan, where, dataset.collect(plan, where)).judged


def _run(where: CampaignFolder, task: Task, sha256: str, value: float | None) -> None:
    place = where.of(task) / "attempt-1" / "run-1"
    if value:
        place.mkdir(parents=True)
        row = [
            "r",
            "s",
            "geo",
            "netns",
            "first_contentful_paint_ms",
            value,
            None,
            "ok",
            "",
            json.dumps({"load": "0"}),
        ]
        pl.DataFrame([row], schema=collect.SCHEMA, orient="row").write_parquet(
            place / "records.parquet"
        )
    _ended(where, task, sha256, "{}" if value else "")


def _ended(where: CampaignFolder, task: Task, sha256: str, output: str) -> None:
    """Record an attempt with such an output; without one it failed."""
    place = where.of(task) / "attempt-1"
    place.mkdir(parents=True, exist_ok=True)
    (place / record.OUTPUT).write_text(output)
    ended = record.Attempt(
        number=1,
        host=Host(name="node-a", stamp="s", facts={}),
        began_unix_s=0,
        ended_unix_s=5,
        exit_status=0 if output else 1,
        reason="" if output else "no page",
    )
    (place / record.ATTEMPT).write_text(ended.model_dump_json())
    assert Worker(where, sha256, 0).work(task.id, threading.Event()) == 0


def test_p259_conclusions_of_the_paper_are_judged_from_runs_of_all_hosts(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    found = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert [(one.title, one.verdict, one.n) for one in found.judged] == [
        ("First Contentful Paint: h3 < h1, loss 0 %", "holds", RUNS - 1),
    ]
    done = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert done.exit_code == 0, done.output
    rows: list[dict[str, Any]] = json.loads((where.path / "report" / conclusions.FILE).read_text())
    assert [(row["claim"], row["verdict"], row["n"]) for row in rows] == [
        ("First Contentful Paint: h3 < h1", "holds", RUNS - 1),
    ]
    assert "Conclusions of the paper" in (where.path / "report" / "index.html").read_text()


def test_p259_a_run_whose_files_changed_is_not_counted(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    (where.of(plan.tasks[0]) / "attempt-1" / "more").touch()
    assert [one.n for one in judged(where, plan)] == [RUNS - 1]
    (where.of(plan.tasks[2]) / "attempt-1" / "more").touch()
    assert [one.n for one in judged(where, plan)] == [RUNS - 2]


def test_p259_other_campaigns_have_no_conclusions(tmp_path: Path) -> None:
    task = Task(
        id="geo.1",
        cell="geo",
        number=1,
        request=Run(verb="run", scenario="bulk_tcp", link=RunLink(seed=1)),
        estimate_s=25,
        cores=1,
    )
    plan = Plan(
        name="x", deadline_s=30, cells=(Cell(id="geo", factors={"loss": 0.5}),), tasks=(task,)
    )
    where = CampaignFolder(tmp_path / "c")
    _run(where, task, where.begin(plan), 7.0)
    found = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    assert found == conclusions.Conclusions()
    found.write(where.path)
    assert not (where.path / "report" / conclusions.FILE).exists()


def test_p259_flows_of_a_paper_are_judged_on_either_clock_with_its_deviations(
    tmp_path: Path,
) -> None:
    file = tmp_path / "handover.yml"
    file.write_text("paper: seed-003\nclock: real\ncells: test4/*\nrepetitions: 6")
    plan = planning.plan(file)
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(plan)
    for task in plan.tasks:
        assert tuple(task.request.words()[:5]) == (
            "satlab",
            "flows",
            "flows.json",
            "--clock",
            "real",
        )
        rate = 8.0 if "bbr2" in task.cell else 9.6
        text = json.dumps(
            outcome(request.files(task.request)["flows.json"], reno=rate) | {"calibration": []}
        )
        _ended(where, task, sha256, "" if task is plan.tasks[-1] else text)
    found = conclusions.of_paper(plan, where, dataset.collect(plan, where))
    verdicts = {one.claim.partition(",")[0]: one.verdict for one in found.judged}
    assert verdicts["With the BDP of link 1 both carry the same within 3 %"] == "does not hold"
    assert verdicts["QUIC survives the change: no connection ends before its time."] == "holds"
    assert {one.n for one in found.judged} == {len(plan.tasks) - 1}
    assert CliRunner().invoke(app, ["campaign", "report", str(where.path)]).exit_code == 0
    results = json.loads((where.path / "report" / "results.json").read_text())
    jsonschema.validate(
        results, json.loads((paths.SCHEMAS / "paper-results.schema.json").read_text())
    )
    assert {(row["cell"], row["runs"]) for row in results["figures"]} == {
        ("test4/newreno", 6),
        ("test4/bbr2", 5),
    }


def test_p259_a_paper_without_runs_on_a_clock_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    for text, reason in (
        ("paper: seed-002\nclock: virtual", "seed-002 has real runs alone"),
        ("paper: seed-004\nclock: real", "seed-004 has virtual runs alone"),
        ("scenario: bulk_tcp\nclock: real", "clock: only with paper or suite"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            planning.plan(file)
        assert reason in " ".join(
            [str(caught.value), *map(str, caught.value.faults), caught.value.hint]
        )
