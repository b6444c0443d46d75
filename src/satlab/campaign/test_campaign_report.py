# SPDX-License-Identifier: GPL-3.0-or-later
"""The dataset of all hosts, the effect of the host, and the report page."""

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from satlab.campaign import campaign_report, dataset, host_effect, task_samples
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.campaign_report import MetricInWords
from satlab.campaign.plan_file import Plan
from satlab.campaign.test_worker import record_end, run_task
from satlab.cli import app
from satlab.report import plot_svg, plotly
from satlab.report.page import Heat, Series, Text

HOSTS = ("alpha", "beta")
RUNS = 8
PAGE_LABELS = ({"load": "0"}, {"load": "1"}, {"stat": "min"}, {"stat": "max"})


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[CampaignFolder, Plan]:
    """Return a campaign of two cells over two hosts: beta is slower in the first cell; one task is
    not done.
    """
    cells: Any = {"slow": {"loss": 0.5}, "equal": {"loss": 0}}
    tasks = tuple(run_task(n, cell) for n in range(1, 2 * RUNS + 2) for cell in cells)
    plan = Plan(name="queues", deadline_s=30, cells=cells, tasks=tasks)
    where, source = CampaignFolder(tmp_path / "c"), random.Random(2)  # noqa: S311 - values
    sha256 = where.begin(plan)
    for task in tasks[:-1]:
        host = HOSTS[task.number % 2]
        value = source.gauss(10, 1) - (5 if host == "beta" and task.cell == "slow" else 0)
        row = {
            "metric": "goodput_bps",
            "value": value,
            "status": "ok",
            "reason": "",
            "labels": {"flow": "<i>1"},
        }
        failed = task.number == 2 * RUNS + 1
        record_end(where, task, sha256, "" if failed else json.dumps(row), host)
    monkeypatch.chdir(tmp_path)
    return where, plan


@pytest.mark.promise("P93")
def test_p208_every_task_is_one_row_also_failed_and_missing_ones(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    dataset.collect(plan, where)
    frame = pl.read_parquet(where.path / "dataset" / "**" / "*.parquet", hive_partitioning=True)
    of_tasks = frame.filter(pl.col("metric") == dataset.TASK_METRIC)
    assert sorted(of_tasks["task"].to_list()) == sorted(task.id for task in plan.tasks)
    by_status = dict(of_tasks["status"].value_counts().iter_rows())
    assert by_status == {"ok": 4 * RUNS, "failed": 1, "missing": 1}
    values = frame.filter(pl.col("metric") == "goodput_bps")
    assert len(values) == 4 * RUNS
    assert set(values["stamp"].to_list()) == {"alpha-stamp", "beta-stamp"}
    assert {path.name for path in (where.path / "dataset").iterdir()} == {"cell=slow", "cell=equal"}
    with (where.path / dataset.DICTIONARY).open() as file:
        assert [row["column"] for row in csv.DictReader(file)] == pl.read_parquet(
            where.path / "dataset" / "cell=slow" / "part.parquet", hive_partitioning=False
        ).columns


@pytest.mark.promise("P94")
def test_p209_a_host_that_differs_is_found_and_equal_ones_are_not(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    slow, equal = host_effect.effects(dataset.collect(plan, where).frame)
    assert (slow.cell, slow.is_significant) == ("slow", True)
    assert (equal.cell, equal.is_significant) == ("equal", False)
    assert [(host, n) for host, n, _ in slow.hosts] == [("alpha", RUNS), ("beta", RUNS)]


@pytest.mark.promise("P94")
def test_p210_the_page_shows_matrix_failures_hosts_and_plots_as_text(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    result = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert result.exit_code == 0, result.output
    text = (where.path / "report" / "index.html").read_text()
    for part in (
        f"{4 * RUNS + 1}/{len(plan.tasks)}",
        "no such &lt;script&gt; page",
        "alpha-stamp",
        "differs",
    ):
        assert part in text, part
    assert "<script> page" not in text
    assert "<i>1" not in text
    lines = (
        CliRunner()
        .invoke(app, ["campaign", "report", str(where.path), "--json"])
        .stdout.splitlines()
    )
    assert len([line for line in lines if line.startswith("{")]) == 8 * RUNS + 2


def test_what_is_measured_is_drawn_by_what_differs_within_a_task_answers_first() -> None:
    rows = [
        *(("job_ok", json.dumps({"start_s": task, "job": "iperf3"}), task, 1.0) for task in "ab"),
        *(
            ("link_out_bytes", json.dumps({"direction": way}), task, 7.0)
            for way in ("up", "down")
            for task in "ab"
        ),
        *(("page_load_time_ms", json.dumps(one), "a", 7e3) for one in PAGE_LABELS),
        *(
            ("goodput_bps", json.dumps({"start_s": task, "job": "iperf3"}), task, 1e7)
            for task in "ab"
        ),
    ]
    names = ("metric", "labels", "task", "value")
    common = {"cell": "a", "host": "h", "calibrated": True, "status": "ok"}
    frame = pl.DataFrame([common | dict(zip(names, row, strict=True)) for row in rows])
    assert [plot.title for plot in campaign_report.plots(frame, {})] == [
        "Goodput",
        "Page load time, load 0",
        "Page load time, load 1",
        "Link out, direction up",
        "Link out, direction down",
    ]
    goodput = campaign_report.plots(frame, {})[0]
    [boxes] = goodput.series
    assert isinstance(boxes, Series) and boxes.y == [10.0, 10.0], "in Mbit/s"
    assert goodput.y[0].title == "Mbit/s"


def test_the_first_answer_is_drawn_over_its_factors() -> None:
    cells: dict[str, dict[str, Any]] = {
        f"{loss}-{queue}": {"loss": loss, "queue_bdp": queue, "profile": "geo"}
        for loss in (0.0, 0.01, "<i>burst")
        for queue in (0.5, 2)
    }
    common = {"host": "h", "calibrated": True, "status": "ok", "labels": "{}"}
    frame = pl.DataFrame(
        [
            common
            | {"cell": cell, "metric": metric, "task": f"{cell}{run}"}
            | {"value": 1e6 * (1 + place + run / 10)}
            for place, cell in enumerate(cells)
            for run in range(3)
            for metric in ("goodput_bps", "sent_bytes")
            if cell != "0.01-2"
        ]
    )
    heat, factors, boxes, *_ = campaign_report.plots(frame, cells)
    assert (heat.title, factors.title, boxes.title) == (
        "Goodput: loss and queue_bdp",
        "Goodput: effect of each factor",
        "Goodput",
    )
    (grid,) = heat.series
    assert isinstance(grid, Heat)
    assert (list(grid.x), list(grid.y)) == (["0", "0.01", "<i>burst"], ["0.5", "2"])
    first, second = grid.values
    assert [round(each or 0, 6) for each in first] == [1.1, 3.1, 5.1]
    assert [None if each is None else round(each, 6) for each in second] == [2.1, None, 6.1]
    assert grid.shares()[0][0] == 0 and grid.shares()[1] == [pytest.approx(0.2), None, 1]
    loss, queue = factors.series
    assert isinstance(loss, Series) and isinstance(queue, Series)
    assert [round(each, 6) for each in loss.y] == [1.6, 3.1, 5.6]
    assert loss.interval[1] == pytest.approx(4.303 * 0.1 / 3**0.5)
    assert list(queue.x) == ["queue_bdp 0.5", "queue_bdp 2"], "profile does not differ"
    picture = plot_svg.drawing(heat)
    assert picture.count('fill="var(--heat)"') == 5 and "<i>" not in picture
    (drawn,) = plotly.document(heat)["data"]
    assert drawn["x"][2] == "&lt;i&gt;burst" and drawn["z"][1][1] is None


def test_t75_factors_of_very_many_values_are_not_drawn() -> None:
    """A heat map of n cells may have n² places."""
    cells: Any = {f"c{n}": {"a": n, "b": -n} for n in range(campaign_report.MOST_LEVELS + 1)}
    common = {"metric": "goodput_bps", "labels": "{}", "host": "h", "task": "t", "value": 1e7}
    common |= {"calibrated": True, "status": "ok"}
    (boxes,) = campaign_report.plots(pl.DataFrame([common | {"cell": c} for c in cells]), cells)
    assert boxes.title == "Goodput"


def test_values_over_decades_have_a_logarithmic_axis() -> None:
    common = {"host": "h", "calibrated": True, "status": "ok", "labels": "{}", "cell": "a"}
    for values, scale in (([1.0, 1000.0], "log"), ([1.0, 50.0], "linear"), ([0, 500.0], "linear")):
        rows = [
            common | {"metric": "time_s", "task": str(n), "value": value}
            for n, value in enumerate(values)
        ]
        (plot,) = campaign_report.plots(pl.DataFrame(rows), {})
        assert plot.y[0].scale == scale
        assert "nan" not in plot_svg.drawing(plot)


def test_metrics_without_a_unit_keep_their_values() -> None:
    assert campaign_report.in_words("jain_index") == MetricInWords("Jain index", "", 1.0)
    assert campaign_report.in_words("s") == MetricInWords("S", "", 1.0)
    assert campaign_report.in_words("tcp_rtt_ms").name == "TCP RTT"
    assert campaign_report.in_words("retransmits_count") == MetricInWords("Retransmits", "", 1.0)


def test_samples_of_a_check_are_its_times_to_each_mark() -> None:
    sample: dict[str, Any] = {
        "times_s": [1.5, None],
        "status": "censored",
        "reason": "late",
        "calibration": "",
    }
    sample |= dict.fromkeys(task_samples.OF_CHECK) | {"handshake_ms": 600.0}
    document = {"marks_mb": [2, 10], "cases": [{"samples": [sample]}]}
    found = task_samples.of("check", {}, document)
    assert [(one.metric, one.value, one.status, dict(one.labels)) for one in found] == [
        ("time_s", 1.5, "censored", {"mark_mb": "2"}),
        ("time_s", None, "censored", {"mark_mb": "10"}),
        ("handshake_ms", 600.0, "censored", {}),
    ]


@pytest.mark.parametrize("output", ["", "{}", "[]", "nothing"])
def test_an_output_that_cannot_be_read_is_a_failed_sample(output: str) -> None:
    with pytest.raises((ValueError, KeyError, IndexError, TypeError)):
        task_samples.of("check", {}, task_samples.parse("check", output))


@pytest.mark.parametrize(
    "change",
    [{"value": float("nan")}, {"value": 1e300}, {"labels": "x"}, {"metric": {}}],
    ids=["no number", "huge", "labels", "metric"],
)
def test_t75_a_record_of_another_shape_is_a_failed_task(
    change: dict[str, Any], measured: tuple[CampaignFolder, Plan]
) -> None:
    where, plan = measured
    row = {"metric": "goodput_bps", "value": 1.0, "status": "ok", "reason": "", "labels": {}}
    task, sha256 = plan.tasks[-1], where.begin(plan)  # not done yet
    record_end(where, task, sha256, json.dumps(row | change), HOSTS[0])
    result = CliRunner().invoke(app, ["campaign", "report", str(where.path)])
    assert result.exit_code == 0, result.output
    frame = dataset.collect(plan, where).frame.filter(pl.col("task") == task.id)
    assert (frame["status"].to_list(), frame["metric"].to_list()) == (
        ["failed"],
        [dataset.TASK_METRIC],
    )


def test_figures_out_of_calibration_are_drawn_with_a_warning(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    collected = dataset.collect(plan, where)
    off = collected.frame.with_columns(calibrated=pl.lit(value=False))
    warned = campaign_report.page(plan, replace(collected, frame=off), [], [])
    (shown,) = [section for section in warned.sections if section.title == "Plots"]
    assert isinstance(shown.parts[0], Text) and "--wait-quiet 600" in shown.parts[0].text
    assert len(shown.parts) > 1
    captions = [tile.caption for part in warned.lead for tile in getattr(part, "tiles", ())]
    assert not [text for text in captions if text.startswith("tests with an effect")]
    (usual,) = [
        section
        for section in campaign_report.page(plan, collected, [], []).sections
        if section.title == "Plots"
    ]
    assert not [part for part in usual.parts if isinstance(part, Text)]


def test_the_end_of_a_campaign_counts_what_did_not_succeed(
    measured: tuple[CampaignFolder, Plan],
) -> None:
    where, plan = measured
    assert campaign_report.summary(dataset.collect(plan, where)) == (
        f"1 of {4 * RUNS + 1} tasks failed: the report has the reasons"
    )
