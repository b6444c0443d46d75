# SPDX-License-Identifier: GPL-3.0-or-later
import csv
import json
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest
import typer

import collect
from satlab.cli import app
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, HostError
from satlab.papers import campaign as campaigns
from satlab.papers import executor, matrix, reproduction, reproduction_page, result_tables, results
from satlab.papers.campaign import Campaign, Task
from satlab.papers.concurrency import Concurrency, CpuTime
from satlab.papers.executor import Execution, RunningTask
from satlab.papers.matrix import Cell
from satlab.run import scenario_run
from satlab.run.quiet_host import Patience

H1, H3, H3_PEP = (Cell("geo", "0", kind) for kind in ("h1", "h3", "h3-pep"))
TCP, TCP_PEP = (Cell("geo", "0", kind) for kind in ("tcp", "tcp-pep"))


# --- the matrix -----------------------------------------------------------------------------------


def test_the_matrix_is_that_of_the_paper() -> None:
    assert len(matrix.ALL) == 2 * 4 * 8
    with results.TABLE_II.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 96
    found = {
        (cell.name, metric)
        for cell in matrix.ALL
        for metric in results.PAGE_METRICS
        if results.published_page(cell, metric) is not None
    }
    assert len(found) == 96, "each cell of Table II has a cell of the matrix"


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        *(
            (["geo/0/h1"], 1),
            (["*/0.01/h3*"], 4),
            (["geo/*/tcp", "geo/0/tcp"], 4),
            ([], 64),
            (["*"], 64),
        ),
        *((["geo/0/quic-warm"], 1), (["*/0/h3-warm", "geo/0/*"], 10)),
    ],
)
def test_cells_are_named_by_patterns(patterns: list[str], count: int) -> None:
    assert len(matrix.select(patterns)) == count


def test_types_of_ours_are_scenarios_with_a_warm_proxy() -> None:
    for kind, name in (("quic-warm", "quic"), ("h3-warm", "web_quic")):
        request = Cell("geo", "0", kind).request(1, Path("x"))
        assert (request.scenario.stem, request.settings["pep"]) == (name, "quic-warm")
        assert results.published_page(Cell("geo", "0", kind), "page_load_time_ms") is None


def test_types_with_the_defects_of_opensand_stand_next_to_the_paper_s() -> None:
    assert len(matrix.select(["geo/0/tcp-defects", "leo/0/h1-pep-defects"])) == 2
    cell = Cell("geo", "0", "h1-defects")
    assert "--opensand-defects" in matrix.arguments(cell.request(1, Path("x")))
    assert "--opensand-defects" not in matrix.arguments(
        Cell("geo", "0", "h1").request(1, Path("x"))
    )
    metric = "page_load_time_ms"
    published = results.published_page(cell, metric)
    assert published is not None
    assert published == results.published_page(Cell("geo", "0", "h1"), metric)


def test_a_pattern_that_names_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="geo/2/h1"):
        matrix.select(["geo/0/h1", "geo/2/h1"])


def test_a_run_loses_whole_frames_on_opensand_s_ticks() -> None:
    words = matrix.arguments(Cell("leo", "0.01", "h1-pep").request(7, Path("x")))
    text = " ".join(words)
    for part in (
        "--loss 0.0001",
        "--loss-unit frame",
        "--timing opensand",
        "--seed 7",
        "--profile leo",
    ):
        assert part in text
    assert "--set pep=haproxy" in text
    command = typer.main.get_command(app)
    command.make_context("satlab", words, resilient_parsing=True)


# --- how many at once -----------------------------------------------------------------------------


def test_the_pace_grows_while_green_and_falls_after_a_run_out_of_tolerance() -> None:
    pace = Concurrency(cores=8)
    assert pace.level == 4
    for _ in range(12):
        pace.ended(calibrated=True)
    assert pace.level == 5
    pace.ended(calibrated=False)
    assert pace.level == 4
    for _ in range(100):
        pace.ended(calibrated=False)
    assert pace.level == 1
    for _ in range(1000):
        pace.ended(calibrated=True)
    assert pace.level == 8, "never more labs than cores"


def test_a_busy_host_is_given_fewer_labs_however_green_the_link() -> None:
    pace = Concurrency(cores=8)
    pace.ended(calibrated=True, idle=0.02)
    assert pace.level == 3
    for _ in range(9):
        pace.ended(calibrated=True, idle=0.4)
    assert pace.level == 4
    fixed = Concurrency(cores=8, fixed=6)
    fixed.ended(calibrated=True, idle=0.0)
    assert fixed.level == 6, "a person has said so"


def test_the_idle_share_is_that_of_the_time_since() -> None:
    before = CpuTime(total=1000, idle=900)
    assert CpuTime(total=1200, idle=920).idle_since(before) == pytest.approx(0.1)
    assert before.idle_since(before) is None
    now = executor.cpu_time()
    assert 0 < now.idle <= now.total


@pytest.mark.parametrize(("cell", "level"), [(H1, 1), (TCP, 2)])
def test_only_a_browser_asks_for_idle_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: Cell, level: int
) -> None:
    made = campaign(tmp_path, cell, runs=1)
    busy = iter([CpuTime(0, 0), CpuTime(100, 1)])
    monkeypatch.setattr(executor, "cpu_time", lambda: next(busy))
    execution = Execution(made, Concurrency(cores=4), ProgressLog(quiet=True))
    (task,) = execution.todo
    run_folder(made, task, load(1200, 3800, 10800))
    process = subprocess.Popen(["true"])
    process.wait()
    execution._take(RunningTask(task, process, tmp_path / "log", 0.0, executor.cpu_time()))
    assert execution.pace.level == level


def test_browsers_have_two_cores_each() -> None:
    pace = Concurrency(cores=4, fixed=4)
    assert pace.has_room(1, 1, browser=True)
    assert not pace.has_room(2, 2, browser=True)
    assert pace.has_room(2, 2, browser=False)
    assert not pace.has_room(4, 0, browser=False)
    assert Concurrency(cores=1).has_room(0, 0, browser=True)


@pytest.mark.parametrize("text", ["0", "65", "-1", "many", ""])
def test_other_numbers_of_labs_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        reproduction.parallel(text)


# --- what is done ---------------------------------------------------------------------------------


def campaign(tmp_path: Path, *cells: Cell, runs: int = 2) -> Campaign:
    made = campaigns.begin(tmp_path / "campaign", cells, runs)
    made.save()
    return made


def record(
    metric: str, value: float | None, t_s: float | None = None, status: str = "ok", **labels: str
) -> list[Any]:
    return ["r", "s", "geo", "netns", metric, value, t_s, status, "", json.dumps(labels)]


def run_folder(
    made: Campaign,
    task: Task,
    rows: list[list[Any]] | None,
    status: str = "ok",
    exit_status: int | None = 0,
) -> Path:
    number = len(list(made.runs_of(task.cell).glob("*")))
    folder = made.runs_of(task.cell) / f"run-{number}"
    folder.mkdir(parents=True)
    manifest = {
        **{
            "schema": "satlab/manifest/1",
            "run_id": folder.name,
            "satlab_version": "1",
            "scenario": "s",
        },
        **{
            "scenario_sha256": "",
            "profile": "geo",
            "profile_sha256": "",
            "lab": "netns",
            "emulator": "satlink",
        },
        **{
            "arguments": {},
            "seed": task.number,
            "started_unix_s": 1000.0,
            "ended_unix_s": 1030.0,
            "status": status,
        },
        **{"reason": "", "exit_status": exit_status, "host": {}, "versions": {}, "files": {}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if rows is not None:
        pl.DataFrame(rows, schema=collect.SCHEMA, orient="row").write_parquet(
            folder / "records.parquet"
        )
    return folder


def load(rs: float, fcp: float, plt: float | None) -> list[list[Any]]:
    shown = [
        ("response_start_ms", rs),
        ("first_contentful_paint_ms", fcp),
        ("page_load_time_ms", plt),
    ]
    each = [
        record(name, value, status="ok" if value else "censored", load="0") for name, value in shown
    ]
    return [record("response_start_ms", 1.0, stat="median"), *each]


def bulk(*rates_bps: float, job: str = "satlab_iperf3") -> list[list[Any]]:
    series = [
        record("goodput_bps", rate, 10 + 0.1 * i, job=job)
        for i, rate in enumerate(rates_bps, start=1)
    ]
    return [record("goodput_bps", 1.0, job=job), *series]


def test_a_run_is_done_when_it_ended_and_its_records_are_there(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1, runs=6)
    good = run_folder(made, Task(H1, 1), [])
    run_folder(made, Task(H1, 2), None)  # killed before its records
    run_folder(made, Task(H1, 3), [], status="running", exit_status=None)
    run_folder(made, Task(H1, 4), [], status="interrupted", exit_status=130)
    run_folder(made, Task(H1, 5), [], status="failed", exit_status=1)  # a failed sample is a sample
    (made.runs_of(H1) / "torn").mkdir()
    assert {number: done.folder.name for number, done in made.done(H1).items()} == {
        1: good.name,
        5: "run-4",
    }
    assert [task.number for task in made.todo()] == [2, 3, 4, 6]
    assert len(made.halves()) == 4
    assert made.done(H1)[1].took_s == 30


@pytest.mark.parametrize(
    ("statuses", "used"), [([4, 0], 1), ([4, 4], 1), ([0, 4], 0), ([4, 1, 4], 1)]
)
def test_of_repeated_runs_the_one_in_calibration_counts(
    tmp_path: Path, statuses: list[int], used: int
) -> None:
    made = campaign(tmp_path, H1, runs=1)
    folders = [run_folder(made, Task(H1, 1), [], exit_status=status) for status in statuses]
    assert made.done(H1)[1].folder == folders[used]


@pytest.mark.promise("P39")
def test_the_patience_of_a_campaign_is_that_of_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario_run, "prepare", lambda _: None)
    request = reproduction.ReproduceRequest(
        cells=["geo/0/h1"], out=tmp_path, patience=Patience(600, 2)
    )
    execution, _ = reproduction.prepare(request)
    [words] = json.loads(reproduction.plan(execution))["cells"].values()
    assert words[-4:] == ["--wait-quiet", "600", "--retries", "2"]
    command = typer.main.get_command(app).make_context("satlab", words[1:], resilient_parsing=True)
    assert command is not None and execution.pace.level == 1, (
        "labs at the same time make a host busy"
    )
    plain, _ = reproduction.prepare(replace(request, patience=Patience()))
    assert "--retries" not in plain.arguments(
        Task(H1, 1)
    ) and "--wait-quiet" not in plain.arguments(Task(H1, 1))


def test_the_first_run_of_every_cell_comes_before_the_second_of_any(tmp_path: Path) -> None:
    made = campaign(tmp_path, H3, H1, runs=2)
    assert made.todo() == [Task(H3, 1), Task(H1, 1), Task(H3, 2), Task(H1, 2)]


def test_a_campaign_is_resumed_and_may_grow(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1)
    assert campaigns.resume(made.folder, None, None) == made
    grown = campaigns.resume(made.folder, [H1, H3], 5)
    assert (len(grown.cells), grown.plan.runs) == (2, 5)
    schema = json.loads((paths.SCHEMAS / "campaign.schema.json").read_text())
    jsonschema.validate(json.loads((made.folder / "campaign.json").read_text()), schema)
    with pytest.raises(ConfigError, match="holds no campaign"):
        campaigns.resume(tmp_path, None, None)


def test_a_folder_in_use_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = campaign(tmp_path, H1)
    monkeypatch.setattr(campaigns, "LOCK_DEADLINE_S", 0.05)
    with made.locked(), pytest.raises(HostError, match="is in use"), made.locked():
        pass
    with made.locked():
        pass


def test_the_time_left_comes_from_the_runs_so_far(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1, TCP, runs=3)
    run_folder(made, Task(H1, 1), [])
    execution = Execution(made, Concurrency(2, 2), ProgressLog(quiet=True))
    assert execution.left_s() == pytest.approx((2 * 30 + 3 * matrix.KINDS["tcp"].guess_s) / 2)


# --- what was found -------------------------------------------------------------------------------


def filled(tmp_path: Path) -> Campaign:
    made = campaign(tmp_path, H3_PEP, H3, H1, TCP, TCP_PEP, runs=6)
    for number in range(1, 7):
        run_folder(made, Task(H1, number), load(1200 + number, 3800 + number, 10800 + number))
        run_folder(made, Task(H3, number), load(1300 + number, 2700 + number, 7600 + number))
        run_folder(
            made, Task(H3_PEP, number), load(2700, 3500, None if number == 1 else 7300 + number)
        )
        run_folder(made, Task(TCP, number), bulk(*[1e6] * 150))
        run_folder(made, Task(TCP_PEP, number), bulk(*[3e6] * 150))
    return made


def test_medians_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    found = results.read(filled(tmp_path))
    lines = {(one.cell.kind, one.metric): one for one in found.pages}
    h1 = lines["h1", "response_start_ms"]
    assert (h1.published, h1.median, h1.n, h1.censored, h1.failed) == (1222, 1203.5, 6, 0, 0)
    assert h1.deviation == pytest.approx(1203.5 / 1222 - 1)
    slow = lines["h3-pep", "page_load_time_ms"]
    assert (slow.n, slow.censored, slow.median) == (6, 1, 7304.5)
    assert slow.interval is not None


def test_runs_out_of_calibration_are_shown_and_not_counted(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1, TCP, runs=2)
    for number, scale, status in ((1, 1, 0), (2, 10, 4)):
        run_folder(made, Task(H1, number), load(1200 * scale, 3800, 10800), "ok", status)
        run_folder(made, Task(TCP, number), bulk(*[1e6] * 150), "ok", status)
    found = results.read(made)
    first = found.pages[0]
    assert (first.median, first.n, first.failed, first.uncalibrated) == (1200, 1, 0, 1)
    assert len(found.of("geo", "0", "tcp").curves) == 1


@pytest.mark.promise("P90")
def test_the_conclusions_are_judged_by_name(tmp_path: Path) -> None:
    found = results.read(filled(tmp_path))
    verdicts = {(one.name, one.loss): one.verdict for one in found.conclusions}
    assert verdicts["First Contentful Paint", "0"] == "holds"
    assert verdicts["Page Load Time", "0"] == "undecided", (
        "one load of six was cut off: the interval has no end"
    )
    assert verdicts["TCP PEP", "0"] == "holds"
    assert verdicts["QUIC PEP", "0"] == "not measured"
    assert verdicts["First Contentful Paint", "1"] == "not measured"
    assert (
        next(c.evidence for c in found.conclusions if c.name == "TCP PEP") == "ratio 3.00 to 3.00"
    )


@pytest.mark.promise("P65")
def test_a_leg_that_was_not_as_asked_for_fails_every_figure_of_its_run(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1, runs=1)
    run_folder(
        made,
        Task(H1, 1),
        [*load(1200, 3800, 10800), record("tcp_leg_ok", None, status="failed")],
        "failed",
        1,
    )
    (first, *_) = results.read(made).pages
    assert (first.n, first.failed, first.median) == (0, 1, None)


def test_a_run_without_the_figure_is_a_failed_sample(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1, runs=1)
    run_folder(made, Task(H1, 1), [record("run_ok", None, status="failed")], "failed", 1)
    assert [(one.n, one.failed) for one in results.read(made).pages] == [(0, 1)] * 3


@pytest.mark.parametrize(
    ("points", "seconds", "expected"),
    [
        ([(5.1, 8e6), (5.2, 8e6)], 0.1, 100_000),
        ([(5.1, 8e6), (5.2, 8e6)], 15, 200_000),
        ([(5.1, 0.0), (5.3, 8e6)], 0.2, 100_000),  # a double interval: half of it by its middle
    ],
)
def test_rates_are_summed_to_bytes(
    points: list[tuple[float, float]], seconds: float, expected: int
) -> None:
    curve = results.cumulate(points)
    assert len(curve) == 150
    assert curve[round(seconds / 0.1) - 1] == pytest.approx(expected)


def test_the_time_to_a_size_is_censored_when_it_was_not_reached(tmp_path: Path) -> None:
    made = campaign(tmp_path, TCP, runs=1)
    run_folder(made, Task(TCP, 1), bulk(*[16e5] * 150))  # 200 kB/s: 2 MB after 10 s, never 10 MB
    lines = {one.metric: one for one in results.read(made).bulk}
    assert lines["reached_2mb_s"].median == pytest.approx(10.0, abs=0.11)
    assert (lines["reached_10mb_s"].censored, lines["reached_10mb_s"].median) == (1, None)


# --- files and page -------------------------------------------------------------------------------


def test_tables_and_page_are_written_and_follow_the_schema(tmp_path: Path) -> None:
    made = filled(tmp_path)
    found = reproduction.report(made, ProgressLog(quiet=True))
    folder = made.folder / "report"
    document: Mapping[str, Any] = json.loads((folder / "results.json").read_text())
    jsonschema.validate(
        document, json.loads((paths.SCHEMAS / "reproduction.schema.json").read_text())
    )
    with (folder / "table2.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert rows[0]["published"]
    text = (folder / "index.html").read_text()
    assert "Table II" in text
    assert "tcp-pep / tcp" in text
    assert "http://" not in text.partition("<script")[0]
    assert reproduction_page.ReproductionPage(made, found).tiles()[0][0] == "30/30"
    assert (folder / "fig2.csv").read_text().count("\n") == 1 + 2 * 150


def test_deviations_are_shown_by_place(tmp_path: Path) -> None:
    made = filled(tmp_path)
    page = reproduction_page.ReproductionPage(made, results.read(made))
    places, rows = page.heat()
    assert rows
    assert all(len(cells) == len(places) for _, cells in rows)
    for one in (*page.measured.pages, *page.measured.bulk):
        if one.deviation is not None:
            cells = dict(rows)[f"{one.cell.kind}, {one.metric}"]
            text, nearness = cells[
                places.index(f"{one.cell.orbit.upper()}, {one.cell.loss} % loss")
            ]
            assert text[1:] == f"{abs(one.deviation):.0%}"
            assert (nearness == "near") == (abs(one.deviation) <= 0.1)
            assert (nearness == "far") == (abs(one.deviation) > 0.25)
    assert (
        '<table class="heat">'
        in reproduction_page.write(made, page.measured, tmp_path / "page.html").read_text()
    )


def test_too_few_runs_are_undecided_and_not_counted_as_failed(tmp_path: Path) -> None:
    made = campaign(tmp_path, TCP, TCP_PEP, runs=1)
    for cell in (TCP, TCP_PEP):
        run_folder(made, Task(cell, 1), bulk(*[16e5] * 150))
    page = reproduction_page.ReproductionPage(made, results.read(made))
    tile = page.tiles()[2]
    assert tile[0] == "undecided"
    assert "5 runs of each type" in tile[1]
    assert tile[2] == ""


def test_an_empty_campaign_has_a_page_too(tmp_path: Path) -> None:
    made = campaign(tmp_path, H1)
    reproduction.report(made, ProgressLog(quiet=True))
    assert "not measured" in (made.folder / "report" / "index.html").read_text()


def test_figures_are_worded_for_people() -> None:
    assert result_tables.number(None, 0) == "\N{EN DASH}"
    assert result_tables.number(float("inf"), 0) == "∞"
    assert result_tables.number(10806.4, 0) == "10,806"


def test_a_dry_run_touches_nothing(tmp_path: Path) -> None:
    execution, _ = reproduction.prepare(
        reproduction.ReproduceRequest(runs=3, cells=["geo/0/h1"], out=tmp_path / "none")
    )
    plan = json.loads(reproduction.plan(execution))
    assert (plan["runs_left"], list(plan["cells"])) == (3, ["geo/0/h1"])
    assert not (tmp_path / "none").exists()
    assert time.strftime("%Y", time.gmtime()) in plan["folder"]
