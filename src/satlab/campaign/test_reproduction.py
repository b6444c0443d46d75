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
from satlab.campaign import dataset, engine, planner, reproduction, task_request
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.test_worker import record_end, run_task
from satlab.campaign.worker import Worker
from satlab.cli import app
from satlab.common import paths
from satlab.common.errors import ConfigError, ExitStatus
from satlab.papers import paper
from satlab.papers.judgement import Judgement
from satlab.papers.test_paper import outcome
from satlab.run import sandboxed_reader
from satlab.run.quiet_host import Patience

RUNS = 6
FCP_MS = {"h3": 1500.0, "h1": 2100.0}


@pytest.fixture
def measured(tmp_path: Path) -> tuple[CampaignFolder, Plan]:
    """Return a campaign of h3 and h1 without losses at GEO; the last run of h1 failed without
    records.
    """
    about = {"paper": "seed-002", "clock": "real"}
    cells: Any = {kind: about | {"cell": f"geo/0/{kind}"} for kind in FCP_MS}
    tasks = tuple(run_task(n, cell) for n in range(1, RUNS + 1) for cell in cells)
    plan = Plan(name="paper", deadline_s=60, cells=cells, tasks=tasks)
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(plan)
    for task in tasks:
        _run(where, task, sha256, None if task is tasks[-1] else FCP_MS[task.cell] + task.number)
    return where, plan


def judgements(where: CampaignFolder, plan: Plan) -> dict[str, Judgement]:
    """Return the conclusions for which there are runs."""
    collected = dataset.collect(plan, where)
    found = reproduction.judged(plan, where, collected, is_own=True).judgements
    return {one.conclusion.id: one for one in found if one.verdict != "not measured"}


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
        (place / "manifest.json").touch()
    record_end(where, task, sha256, "{}" if value else "")


def test_p259_conclusions_of_the_paper_are_judged_from_runs_of_all_hosts(
    measured: tuple[CampaignFolder, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def table(run: Path, **_: bool) -> collect.Collected:
        return collect.Collected(
            pl.scan_parquet(run / "records.parquet"), collect.Stored(loads=[], legs=[])
        )

    monkeypatch.setattr(sandboxed_reader, "without_writing", table)
    where, plan = measured
    (one,) = judgements(where, plan).values()
    assert (one.conclusion.id, one.verdict) == ("fcp/0", "holds")
    assert f"n = {RUNS} and {RUNS - 1}" in one.evidence[0]
    done = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert done.exit_code == 0, done.output
    document = json.loads((where.path / "report" / "results.json").read_text())
    verdicts = {row["id"]: row["verdict"] for row in document["conclusions"]}
    assert (verdicts["fcp/0"], verdicts["plt/0"]) == ("holds", "not measured")
    assert "Conclusions of the paper" in (where.path / "report" / "index.html").read_text()


def test_p259_a_run_whose_files_changed_is_not_counted(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    for number in (0, 2):
        (where.of(plan.tasks[number]) / "attempt-1" / "more").touch()
    (one,) = judgements(where, plan).values()
    assert f"n = {RUNS - 2} and {RUNS - 1}" in one.evidence[0]


def test_p259_other_campaigns_have_no_conclusions(tmp_path: Path) -> None:
    file = tmp_path / "c.yml"
    file.write_text("suite: etosat")
    assert not reproduction.is_of_paper(planner.plan(file))


def test_p259_flows_of_a_paper_are_judged_on_either_clock_with_its_deviations(
    tmp_path: Path,
) -> None:
    file = tmp_path / "handover.yml"
    file.write_text("paper: seed-003\nclock: real\ncells: test4/*\nrepetitions: 6")
    plan = planner.plan(file)
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
            outcome(task_request.files(task.request)["flows.json"], reno=rate) | {"calibration": []}
        )
        record_end(where, task, sha256, "" if task is plan.tasks[-1] else text)
    verdicts = {name: one.verdict for name, one in judgements(where, plan).items()}
    assert (verdicts["equal-at-one-bdp"], verdicts["survives"]) == ("does not hold", "holds")
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
        ("paper: seed-002\nclock: virtual", "seed-002 has no runs on the virtual clock"),
        ("paper: seed-004\nclock: real", "seed-004 has no runs on the real clock"),
        ("scenario: bulk_tcp\nclock: real", "clock: only with paper or suite"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError) as caught:
            planner.plan(file)
        assert reason in " ".join(
            [str(caught.value), *map(str, caught.value.faults), caught.value.hint]
        )


# --- satlab reproduce -----------------------------------------------------------------------------


def test_requests_that_cannot_be_are_refused(tmp_path: Path) -> None:
    def prepare(name: str, **options: Any) -> None:
        reproduction.prepare(reproduction.Request(name, **options))

    with pytest.raises(ConfigError, match="no runs on the real clock, only on the virtual"):
        prepare("seed-004", clock="real")
    with pytest.raises(ConfigError, match="no such cell") as refused:
        prepare("seed-003", cells=["test9/*"])
    assert str(refused.value.hint).startswith("test4/*, test3/*, ")
    with pytest.raises(ConfigError, match="holds no plan"):
        prepare("seed-003", resume=tmp_path)
    for text in ("0", "65", "-1", "many", ""):
        with pytest.raises(ConfigError, match="--parallel"):
            prepare("seed-003", parallel=text)
    (tmp_path / "c.yml").write_text("paper: seed-003\nquick: true\nseeds: [7, 9]")
    CampaignFolder(tmp_path / "c").begin(planner.plan(tmp_path / "c.yml"))
    with pytest.raises(ConfigError, match="seeds of a campaign's file"):
        prepare("seed-003", resume=tmp_path / "c")
    (tmp_path / "campaign.json").write_text("{}")
    with pytest.raises(ConfigError, match="earlier version"):
        prepare("seed-003", resume=tmp_path)


def test_a_dry_run_names_every_cell_and_touches_nothing(tmp_path: Path) -> None:
    request = reproduction.Request("seed-003", quick=True, out=tmp_path)
    plan = reproduction.prepare(request).document()
    assert (set(plan["runs"].values()), plan["runs_left"], plan["labs"]) == (
        {3},
        3 * len(plan["cells"]),
        0,
    )
    labs = reproduction.Request("seed-002", runs=3, cells=["geo/0/h1"], out=tmp_path)
    plan = reproduction.prepare(labs).document()
    assert (plan["runs_left"], plan["labs"], list(plan["cells"])) == (3, 3, ["geo/0/h1"])
    assert plan["cells"]["geo/0/h1"]["link"] == {
        "loss_unit": "frame",
        "timing": "opensand",
    }
    assert not list(tmp_path.iterdir())


def test_a_campaign_has_the_runs_of_the_file_unless_a_number_is_asked_for(tmp_path: Path) -> None:
    request = reproduction.Request("seed-001", "real", cells=["dvb/1/s10/cubic", "dvb/1/s5/cubic"])
    names = [task.id for task in reproduction.prepare(request).engine.plan.tasks]
    both = [f"dvb-1-{code}-cubic.{number}" for number in (1, 2, 3) for code in ("s10", "s5")]
    assert names == [*both, "dvb-1-s5-cubic.4", "dvb-1-s5-cubic.5"], "a long download three times"
    plan = reproduction.prepare(
        reproduction.Request("seed-001", "real", cells=["dvb/1/*/cubic"], parallel="1")
    ).document()
    assert (plan["labs"], plan["left"][0]["cell"]) == (16, "dvb/1/none/cubic")
    total_s = 3 * (405.91 + 291.02) + 5 * (31.11 + 24.67)
    assert plan["estimate_s"] == round(total_s + 16 * paper.LAB_S)


@pytest.mark.promise("P89")
def test_a_folder_is_resumed_and_may_grow(tmp_path: Path) -> None:
    def again(**options: Any) -> Plan:
        request = reproduction.Request("seed-003", resume=tmp_path / "c", **options)
        return reproduction.prepare(request).engine.plan

    request = reproduction.Request("seed-003", cells=["test4/newreno"], runs=2)
    first = reproduction.prepare(request).engine.plan
    where = CampaignFolder(tmp_path / "c")
    sha256 = where.begin(first)
    assert again() == first
    text = json.dumps(outcome(request_of(first, 0)))
    record_end(where, first.tasks[0], sha256, text)
    assert [len(again(runs=3).tasks), len(again(cells=["test4/*"]).tasks)] == [3, 8]
    where.begin(again(runs=3), replace=True)
    assert [task.number for task in where.left(again())] == [2, 3]
    changed = first.tasks[0].request.model_copy(
        update={"flows": request_of(first, 0) | {"bin_ms": 200}}
    )
    other = first.tasks[0].model_copy(update={"request": changed})
    where.begin(first.model_copy(update={"tasks": (other,)}), replace=True)
    assert not where.of(other).exists(), "what was asked for differently is done again"
    with pytest.raises(ConfigError, match="campaign of seed-003"):
        reproduction.prepare(reproduction.Request("seed-004", resume=tmp_path / "c"))
    with pytest.raises(ConfigError, match="on the virtual clock"):
        again(clock="real")


@pytest.mark.promise("P89")
def test_a_resumed_reproduction_repeats_what_is_out_of_calibration(
    tmp_path: Path, script: Path
) -> None:
    asked = reproduction.Request("seed-003", "real", cells=["test4/*"], runs=1, out=tmp_path)
    work = reproduction.prepare(asked)
    where, plan = work.engine.folder, work.engine.plan
    sha256 = where.begin(plan)

    def attempt(number: int, off: list[str]) -> None:
        found = json.dumps(outcome(request_of(plan, number)) | {"calibration": off})
        script.write_text(f"print('''{found}''')\nraise SystemExit({4 if off else 0})")
        task = plan.tasks[number]
        assert Worker(where, sha256, 0).work(task.id, threading.Event()) == ExitStatus.OK

    attempt(0, [])
    attempt(1, ["rtt_ms"])
    (marked,) = where.marked(plan)
    again = reproduction.prepare(reproduction.Request("seed-003", resume=where.path))
    assert again.document()["runs_left"] == 1 and where.is_done(marked), "a dry run changes nothing"
    where.reopen(marked)
    assert where.left(plan) == [marked] == [plan.tasks[1]]
    attempt(1, [])
    found = where.read(marked)
    assert found is not None and (found.status, found.counts) == ("ok", "attempt-2")
    assert [one.exit_status for one in found.attempts] == [4, 0] and not where.marked(plan)


def request_of(plan: Plan, number: int) -> dict[str, Any]:
    flows: dict[str, Any] = task_request.files(plan.tasks[number].request)["flows.json"]
    return flows


@pytest.mark.promise("P39")
def test_labs_wait_for_a_quiet_host_one_at_a_time() -> None:
    waits = reproduction.Request("seed-003", "real", patience=Patience(600, 2))
    words = reproduction.prepare(waits).engine.command("0" * 64)
    (worker,) = [word for word in words if word.startswith("worker=")]
    assert worker.endswith("--retries 2 --wait-quiet 600") and "labs=1" in words


@pytest.mark.promise("P34")
def test_a_stopped_reproduction_keeps_its_runs_and_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep = tmp_path / "kept.json"
    asked = reproduction.Request("seed-002", "real", quick=True, out=tmp_path, keep=keep)
    work = reproduction.prepare(asked)
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    stop = threading.Event()
    stop.set()
    assert work.run(stop) == ExitStatus.INTERRUPTED
    assert json.loads(keep.read_text())["runs"] == []
    command = f"satlab reproduce seed-002 --resume {work.engine.folder.path} --keep {keep}"
    assert f"stopped; go on with: {command}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "runs", "status"),
    [
        ({"calibration": []}, 5, ExitStatus.OK),
        ({"calibration": []}, 1, ExitStatus.UNDECIDED),
        ({"calibration": ["rtt_ms"]}, 6, ExitStatus.UNCALIBRATED),
        ({"calibration": ["rtt_ms"]}, 1, ExitStatus.UNDECIDED),
        (None, 5, ExitStatus.FAILED),
    ],
)
@pytest.mark.promise("P34")
def test_the_exit_status_is_that_of_the_worst_run(
    output: dict[str, Any] | None,
    runs: int,
    status: ExitStatus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = reproduction.Request("seed-003", "real", cells=["test4/*"], runs=runs, out=tmp_path)
    work = reproduction.prepare(asked)
    where, plan = work.engine.folder, work.engine.plan
    sha256 = where.begin(plan)
    for number, task in enumerate(plan.tasks):
        found = outcome(request_of(plan, number)) | {"calibration": []}
        is_last = number == len(plan.tasks) - 1
        found |= (output or {}) if is_last else {}
        text = json.dumps(found) if output or not is_last else ""
        record_end(where, task, sha256, text)
    monkeypatch.setattr(engine, "is_installed", lambda: True)
    assert work.run(threading.Event()) == status
    assert work.results is not None and work.results.planned == 2 * runs
    page = (where.path / "report" / "index.html").read_text()
    assert "runs done, on the real clock" in page and str(where.path) in page
    done = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert done.stdout == f"{where.path}/report/campaign.html\n"
    assert (where.path / "report" / "index.html").read_text() == page, "the paper's page stays"
