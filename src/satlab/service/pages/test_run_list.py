# SPDX-License-Identifier: GPL-3.0-or-later
"""The run list: filter, notes, pins, removal, key figures, runs of the command line, comparison,
export.
"""

import csv
import dataclasses
import gzip
import io
import json
import re
import shutil
import tarfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

import collect
from collect.fixtures import example_run
from satlab.report import plot_svg
from satlab.report.measurements import SummaryRecord
from satlab.report.run_names import RunSettings
from satlab.service.api import queue, run_notes
from satlab.service.api.conftest import Clock, FakeHelper
from satlab.service.api.dependencies import Context
from satlab.service.api.project_store import Project
from satlab.service.api.run_notes import RunNote
from satlab.service.pages import comparison, run_list, run_list_routes, run_pages
from satlab.service.pages.comparison import Compared
from satlab.service.pages.run_list import KeyFigures, Listed
from satlab.service.pages.test_pages import ORIGIN, ended, launch, post, text_of


@pytest.fixture
def others(context: Context, tmp_path: Path) -> Path:
    """Let the service show runs of the command line in a folder."""
    place = tmp_path / "others"
    place.mkdir()
    context.settings = dataclasses.replace(context.settings, other_runs=place)
    return place


# --- filter ---------------------------------------------------------------------------------------


def listed(number: int, note: str = "", **arguments: str) -> Listed:
    values = (
        run_pages.FINISHED,
        arguments,
        {"profile": "geo"},
        "alice",
        float(number),
        1.0,
        None,
    )
    return Listed(str(number), f"/runs/{number}", "ping", f"#{number}", *values, note=RunNote(note))


WORDS = st.lists(
    st.sampled_from(["ping", "#7", "loss=0.01", "GEO", "alice", "odd", "nothing"]), max_size=3
)


@given(WORDS)
def test_a_filter_shows_what_has_every_word(words: list[str]) -> None:
    runs = [listed(7, "an odd one"), listed(8, loss="0.01")]
    known = {"7": {"ping", "#7", "GEO", "alice", "odd"}, "8": {"ping", "loss=0.01", "GEO", "alice"}}
    expected = [key for key, has in known.items() if set(words) <= has]
    assert [run.key for run in run_list.matching(runs, " ".join(words), "")] == expected
    assert run_list.matching(runs, "", "Stopped") == []


def test_the_list_is_sorted_and_shows_the_chosen_columns(runner: TestClient, clock: Clock) -> None:
    first = launch(runner)
    clock.now += 5
    second = launch(runner, **{"link.loss": "0.01"})

    def numbers(query: str) -> list[str]:
        return re.findall(
            r'<span class="number">#(\d+)</span>', runner.get(f"/ui/runs{query}").text
        )

    assert numbers("") == [str(second), str(first)]
    assert numbers("?sort=launched") == [str(first), str(second)]
    page = runner.get("/ui/runs?sort=-launched&q=ping&column=Launched&column=User").text
    assert 'aria-sort="descending"' in page and "sort=launched&amp;column=Launched" in page
    assert 'data-label="User"' in page and 'data-label="Values"' not in page
    assert 'data-label="User"' not in runner.get("/ui/runs").text
    assert runner.get("/ui/runs?sort=<script>").status_code == 400
    assert runner.get("/ui/runs?column=<script>").status_code == 200
    back = post(runner, "/runs/pin", run=str(first), back="q=ping&sort=-launched&column=User")
    assert back.headers["location"] == "/ui/runs?q=ping&sort=-launched&column=User"
    odd = post(runner, "/runs/unpin", run=str(first), back="//evil.example/\r\nx: y=1")
    assert odd.headers["location"].startswith("/ui/runs") and "\n" not in odd.headers["location"]


def test_runs_without_a_time_are_sorted_first() -> None:
    runs = [listed(1), dataclasses.replace(listed(2), elapsed=None), listed(3)]
    assert [run.key for run in run_list.ordered(runs, "elapsed")] == ["2", "1", "3"]
    assert run_list.ordered(runs, "") == runs


@pytest.mark.promise("P62")
def test_the_list_is_filtered_and_shows_values(runner: TestClient) -> None:
    first = launch(runner, **{"link.loss": "0.01"})
    second = launch(runner, **{"argument.count": "77"})
    page = text_of(runner.get("/ui/runs").text)
    for expected in ("count=3", "count=77", "loss=0.01", "profile=geo", "2 of 2 runs"):
        assert expected in page
    found = runner.get("/ui/runs?q=count%3D77").text
    assert f'/ui/runs/{second}"' in found
    assert f'/ui/runs/{first}"' not in found
    assert "No run matches" in runner.get("/ui/runs?q=nothing").text
    assert "No run matches" not in runner.get("/ui/runs?status=Queued").text
    assert runner.get(f"/ui/runs?q={'a' * 201}").status_code == 400


# --- notes, pins, removal -------------------------------------------------------------------------


def test_pinned_runs_come_first_and_notes_are_found(runner: TestClient) -> None:
    first, second = launch(runner), launch(runner)
    assert (
        post(runner, "/runs/pin", run=str(first), back="q=ping&page=1").headers["location"]
        == "/ui/runs?q=ping&page=1"
    )
    page = runner.get("/ui/runs").text
    assert page.index(f'/ui/runs/{first}"') < page.index(f'/ui/runs/{second}"')
    assert post(runner, f"/runs/{second}/note", note=" <b>odd</b> one ").status_code == 303
    page = runner.get("/ui/runs?q=odd").text
    assert "&lt;b&gt;odd&lt;/b&gt; one" in page
    assert f'/ui/runs/{first}"' not in page
    assert post(runner, "/runs/unpin", run=str(first)).status_code == 303
    page = runner.get("/ui/runs").text
    assert page.index(f'/ui/runs/{second}"') < page.index(f'/ui/runs/{first}"')


def test_a_removed_run_is_gone_with_its_note(runner: TestClient, context: Context) -> None:
    number = launch(runner)
    post(runner, f"/runs/{number}/note", note="x")
    assert runner.get(f"/ui/runs/{number}/remove").status_code == 409, "it waits"
    assert post(runner, f"/runs/{number}/remove").status_code == 409
    post(runner, f"/runs/{number}/stop")
    assert f"Remove run {number}?" in text_of(runner.get(f"/ui/runs/{number}/remove").text)
    assert context.queue.find(number) is not None, "to ask removes nothing"
    assert post(runner, f"/runs/{number}/remove").headers["location"] == "/ui/runs"
    assert runner.get(f"/ui/runs/{number}").status_code == 404
    assert context.run_notes.all() == {}


def test_t01_marks_and_removal_need_the_role_and_the_own_page(
    runner: TestClient, viewer: TestClient, context: Context
) -> None:
    number = launch(runner)
    post(runner, f"/runs/{number}/stop")
    places = {
        "/runs/pin": {"run": str(number)},
        f"/runs/{number}/note": {"note": "x"},
        f"/runs/{number}/remove": {},
    }
    for place, form in places.items():
        assert post(viewer, place, **form).status_code == 403
        for headers in (
            {},
            {"origin": "http://evil.example"},
            {**ORIGIN, "sec-fetch-site": "cross-site"},
        ):
            assert runner.post(f"/ui{place}", data=form, headers=headers).status_code == 403
    assert viewer.get(f"/ui/runs/{number}/remove").status_code == 403
    page = viewer.get("/ui/runs").text
    assert ">Pin<" not in page
    assert context.run_notes.all() == {}
    assert context.queue.find(number) is not None


@pytest.mark.parametrize("run", ["", "x", "-1", "9" * 30, "\u0661"])
def test_a_pin_without_a_run_is_refused(runner: TestClient, run: str) -> None:
    assert post(runner, "/runs/pin", run=run).status_code == 400


def test_t15_notes_and_pins_are_bounded(
    runner: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = [launch(runner) for _ in range(3)]
    assert post(runner, f"/runs/{numbers[0]}/note", note="x" * 501).status_code == 400
    monkeypatch.setattr(run_notes, "MAX_PINNED", 2)
    codes = [
        post(runner, "/runs/pin", run=str(number)).status_code for number in (*numbers, numbers[0])
    ]
    assert codes == [303, 303, 409, 303]


def test_a_pinned_run_is_not_forgotten(
    runner: TestClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_BYTES", queue.LEAST_BYTES)
    numbers = [launch(runner) for _ in range(3)]
    post(runner, "/runs/pin", run=str(numbers[0]))
    for number in numbers:
        post(runner, f"/runs/{number}/stop")
    last = launch(runner)
    assert [one.id for one in context.queue.instances()] == [last, numbers[2], numbers[0]]


# --- key figures ----------------------------------------------------------------------------------


def test_key_figures_are_read_once_and_within_the_time(tmp_path: Path) -> None:
    examples = [
        example_run.Example(run_id, loads={"h3": 3}, censored=1) for run_id in ("one", "two")
    ]
    folders = [example_run.write(tmp_path, example) for example in examples]
    for folder in folders:
        collect.gather(folder).lazy().collect().write_parquet(folder / "records.parquet")
    ticks = iter([0.0, 0.0, 10.0, 20.0, 20.0, 30.0, 30.0, 30.0])
    figures = KeyFigures(lambda: next(ticks))
    runs = [dataclasses.replace(listed(n), folder=folder) for n, folder in enumerate(folders)]
    first = figures.of([*runs, listed(9)])
    assert any("Mbit/s" in text for text in first["0"])
    assert any("HTTP/3 page" in text for text in first["0"])
    assert any("failed or cut off" in text for text in first["0"])
    assert first["1"] == ("not read yet: load the page again",)
    assert "9" not in first
    again = figures.of(runs)
    assert again["0"] == first["0"] == again["1"]
    (folders[1] / "records.parquet").write_bytes(b"nonsense")
    assert figures.of(runs)["1"] == ("records cannot be read",)


# --- runs of the command line ---------------------------------------------------------------------


def test_runs_of_the_command_line_are_listed_and_shown(
    viewer: TestClient, others: Path, measured: Path
) -> None:
    shutil.copytree(measured, others / "20261121-120000-bulk_tcp-geo-abcd")
    (others / "20261121-120001-broken").mkdir()
    (others / "link").symlink_to(measured)
    page = text_of(viewer.get("/ui/runs").text)
    assert "command line" in page
    assert "1 of 1 runs" in page
    assert "queue_bdp=0.5" in page
    shown = viewer.get("/ui/folders/20261121-120000-bulk_tcp-geo-abcd")
    assert shown.status_code == 200
    assert "Page Load Time" in shown.text
    report = viewer.get("/ui/folders/20261121-120000-bulk_tcp-geo-abcd/report")
    assert report.headers["content-security-policy"].startswith("sandbox allow-scripts")
    for name in ("link", "20261121-120001-broken", "%252e%252e", "..%2f..%2fapi", "none"):
        assert viewer.get(f"/ui/folders/{name}").status_code == 404


def test_t01_runs_of_the_command_line_belong_to_the_shipped_project(
    viewer: TestClient, admin: TestClient, context: Context, others: Path, measured: Path
) -> None:
    shutil.copytree(measured, others / "20261121-120000-x")
    project = context.catalog.project("satlab")
    assert project is not None
    context.catalog.put_project(Project(project.name, "", ("somebody",), project.entities))
    assert "command line" not in viewer.get("/ui/runs").text
    assert viewer.get("/ui/folders/20261121-120000-x").status_code == 404
    assert viewer.get("/ui/export/archive?run=20261121-120000-x").status_code == 404
    assert admin.get("/ui/folders/20261121-120000-x").status_code == 200


# --- export ---------------------------------------------------------------------------------------


def test_t77_a_table_of_many_records_is_refused(
    runner: TestClient,
    context: Context,
    helper: FakeHelper,
    measured: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = launch(runner)
    ended(context, helper, number, folder=measured)
    monkeypatch.setattr(run_list_routes, "MAX_ROWS", 10)
    answer = runner.get(f"/ui/export/records.parquet?run={number}")
    assert answer.status_code == 413
    assert "at most 10" in answer.text
    assert runner.get(f"/ui/export/records.csv?run={number}").status_code == 200


def test_records_and_files_are_exported(
    runner: TestClient, context: Context, helper: FakeHelper, measured: Path, others: Path
) -> None:
    number = launch(runner)
    ended(context, helper, number, folder=measured)
    shutil.copytree(measured, others / "20261121-120000-x")
    (others / "20261121-120000-x" / "raw" / "link").symlink_to("/etc/passwd")
    query = f"run={number}&run=20261121-120000-x"
    rows = list(csv.DictReader(io.StringIO(runner.get(f"/ui/export/records.csv?{query}").text)))
    assert {row["metric"] for row in rows} >= {"goodput_bps", "page_load_time_ms"}
    table = pl.read_parquet(io.BytesIO(runner.get(f"/ui/export/records.parquet?{query}").content))
    assert table["t_s"].drop_nulls().len() > 0
    answer = runner.get("/ui/export/archive?run=20261121-120000-x")
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(answer.content))) as archive:
        names = archive.getnames()
        manifest = archive.extractfile("20261121-120000-x/manifest.json")
        assert manifest is not None
        assert json.load(manifest)["scenario"]
    assert "20261121-120000-x/raw/link.jsonl" in names
    assert "20261121-120000-x/raw/link" not in names, "no link leads out"
    assert runner.get("/ui/export/records.csv").status_code == 400
    assert runner.get("/ui/export/records.xml?run=1").status_code == 404
    assert runner.get("/ui/export/archive?run=999").status_code == 404


def test_t15_an_archive_of_a_folder_is_bounded(
    viewer: TestClient, others: Path, measured: Path, context: Context
) -> None:
    shutil.copytree(measured, others / "x")
    context.settings = dataclasses.replace(context.settings, archive_bytes=1000)
    assert viewer.get("/ui/export/archive?run=x").status_code == 413


# --- comparison -----------------------------------------------------------------------------------


def goodput(value: float | None, status: str = "ok") -> SummaryRecord:
    labels = {
        "job": "satlab_iperf3",
        "transport": "TCP",
        "congestion_control": "cubic",
        "direction": "download",
    }
    return SummaryRecord(
        "r", "bulk", "geo", "netns", "goodput_bps", value, None, status, "", labels
    )


def compared(key: str, loss: str, *values: float) -> Compared:
    settings = RunSettings("bulk", "geo", link={"loss": loss, "seed": key})
    return Compared(key, f"#{key}", settings, tuple(goodput(value) for value in values))


@pytest.mark.promise("P62")
def test_equal_runs_are_samples_and_differences_have_intervals() -> None:
    runs = [compared(str(n), "0", 10e6 + n * 1e4) for n in range(6)]
    runs += [compared(str(n), "0.01", 5e6 + n * 1e4) for n in range(6, 12)]
    found = comparison.groups(runs)
    assert [group.name for group in found] == ["loss=0 (6 runs)", "loss=0.01 (6 runs)"]
    (figure,) = comparison.figures(runs, found)
    assert (figure.title, figure.unit) == ("Goodput, TCP cubic download", "Mbit/s")
    base, other = figure.lines
    assert (base.difference, base.samples) == ("reference", "6")
    assert other.difference == "\N{MINUS SIGN}4.94 (\N{MINUS SIGN}49.3 %)"
    assert other.state == "down"
    low, high = (
        float(text.replace("\N{MINUS SIGN}", "-")) for text in other.interval.split(" to ")
    )
    assert -5.1 < low < high < -4.8
    turned = comparison.figures(runs, comparison.groups(runs[::-1]))
    assert turned[0].lines[1].state == "up"


@pytest.mark.promise("P34")
def test_runs_of_hosts_with_unequal_browsers_say_so() -> None:
    def measured(key: str, yardstick_ms: float) -> Compared:
        row = goodput(10e6)
        known = dataclasses.replace(
            row,
            metric="browser_yardstick_ms",
            value=yardstick_ms,
            labels={"page": "kepler", "protocol": "h3", "stamp": key},
        )
        return Compared(key, key, RunSettings("demo", "geo", {"host": key}), (row, known))

    def caption(*yardsticks_ms: float) -> str:
        runs = [measured(str(n), value) for n, value in enumerate(yardsticks_ms)]
        table = comparison.differences(runs, comparison.groups(runs))
        assert table is not None
        return table.caption

    assert "not equally fast" not in caption(400, 420)
    assert caption(400, 690).endswith("bare wire (HTTP/3 kepler: 400 to 690 ms).")


def test_few_samples_have_no_interval() -> None:
    runs = [compared("1", "0", 10e6), compared("2", "0.01", 5e6)]
    (figure,) = comparison.figures(runs, comparison.groups(runs))
    assert figure.lines[1].interval == "needs 5 samples of each"
    assert figure.lines[1].state == ""


def test_equal_groups_show_no_difference() -> None:
    runs = [compared(str(n), str(n % 2), 10e6 + 1e4 * (n // 2)) for n in range(12)]
    (figure,) = comparison.figures(runs, comparison.groups(runs))
    assert figure.lines[1].state == ""
    assert figure.lines[1].difference == "±0 (±0 %)"


def test_runs_that_are_all_equal_are_compared_one_by_one() -> None:
    runs = [compared("1", "0", 10e6), compared("2", "0", 5e6)]
    assert [group.name for group in comparison.groups(runs)] == ["seed=1 (#1)", "seed=2 (#2)"]


def test_p378_different_scenarios_are_named_by_what_both_have() -> None:
    bulk = Compared(
        "1", "#1", RunSettings("bulk", "geo", {"port": "5201", "runs": "1"}), (goodput(10e6),)
    )
    page = Compared(
        "2", "#2", RunSettings("page", "geo", {"logs": "0", "runs": "3"}), (goodput(5e6),)
    )
    assert [group.name for group in comparison.groups([bulk, page])] == [
        "bulk, runs=1 (#1)",
        "page, runs=3 (#2)",
    ]
    twice = [bulk, dataclasses.replace(bulk, key="3"), page, dataclasses.replace(page, key="4")]
    names = [group.name for group in comparison.groups(twice)]
    assert names == ["bulk, runs=1 (2 runs)", "page, runs=3 (2 runs)"]


def test_runs_of_a_changed_scenario_are_not_equal() -> None:
    def run(key: str, scenario: str, file: str) -> Compared:
        settings = RunSettings(scenario, "geo", files={"scenario": file})
        return Compared(key, f"#{key}", settings, (goodput(10e6),))

    runs = [run("1", "bulk", "a"), run("2", "bulk", "b"), run("3", "bulk", "b")]
    assert [group.name for group in comparison.groups(runs)] == [
        "scenario file=a (#1)",
        "scenario file=b (2 runs)",
    ]
    runs = [run("1", "bulk", "a"), run("2", "page", "c"), run("3", "page", "c")]
    assert [group.name for group in comparison.groups(runs)] == ["bulk (#1)", "page (2 runs)"]


def test_what_was_cut_off_counts_as_longest_and_what_failed_has_no_value() -> None:
    def page(value: float | None, status: str, load: int) -> SummaryRecord:
        labels = {"protocol": "h3", "pep": "none", "page": "kepler", "load": str(load)}
        return SummaryRecord(
            "r", "page", "geo", "netns", "page_load_time_ms", value, None, status, "", labels
        )

    settings = {pep: RunSettings("page", "geo", {"pep": pep}) for pep in ("no", "yes")}
    base = Compared("1", "#1", settings["no"], tuple(page(2000.0 + n, "ok", n) for n in range(5)))
    bad = (
        *(page(None, "censored", n) for n in range(6)),
        page(None, "failed", 6),
        page(2000.0, "ok", 7),
    )
    other = Compared("2", "#2", settings["yes"], bad)
    (figure,) = comparison.figures([base, other], comparison.groups([base, other]))
    assert figure.title == "Page Load Time, HTTP/3 kepler"
    line = figure.lines[1]
    assert (line.median, line.samples, line.difference, line.state) == (
        "cut off",
        "7",
        "cut off",
        "up",
    )
    assert line.percentiles == ""
    many = Compared("3", "#3", settings["yes"], tuple(page(2000.0 + n, "ok", n) for n in range(20)))
    (figure,) = comparison.figures([base, many], comparison.groups([base, many]))
    assert figure.lines[1].percentiles == "p75 2,014, p95 2,018"
    (plot,) = comparison.samples([base, other, many], comparison.groups([base, other, many]))
    assert plot.title == "Page Load Time, HTTP/3 kepler (ms)"
    assert [len(one.y) for one in plot.series] == [5, 21], "what was cut off has no place"
    assert plot_svg.drawing(plot, 480).count("<circle") == 26


def test_a_comparison_shows_differences_and_one_chart(
    runner: TestClient,
    context: Context,
    helper: FakeHelper,
    measured: Path,
    others: Path,
    tmp_path: Path,
) -> None:
    first = launch(runner)
    ended(context, helper, first, folder=measured)
    slow = example_run.write(
        tmp_path, example_run.Example("20261121-130000-slow", loads={"h1": 2, "h3": 2}, seed=2)
    )
    shutil.copytree(slow, others / slow.name)
    page = runner.get(f"/ui/compare?run={first}&run={slow.name}").text
    seen = text_of(page)
    for expected in (
        "Differences",
        "Goodput, TCP cubic download",
        "reference",
        "needs 5 samples of each",
    ):
        assert expected in seen
    assert page.count("<polyline") == 8, "goodput, queue, window and RTT of both"
    for title in ("Forward link goodput", "Forward link queue", "Congestion window", "RTT at the"):
        assert title in seen
    assert "command line" not in seen, "runs are named by what differs"
    assert f"/ui/compare/report?run={first}&amp;run={slow.name}" in page


def test_what_a_launch_changed_in_the_constants_is_shown_everywhere(
    runner: TestClient, context: Context, helper: FakeHelper, measured: Path
) -> None:
    changed = {"argument.protocol": "h3", "constant.page": "article", "constant.observed": "2"}
    number = launch(runner, "page_load", **changed)
    ended(context, helper, number, folder=measured)
    for path in ("/runs", f"/runs/{number}"):
        page = text_of(runner.get(f"/ui{path}").text)
        assert "page=article" in page and "observed=2" in page, path
        assert "server_ip" not in page, "what is as stored is no news"
    assert "constant.page=article" in runner.get(f"/ui/runs/{number}").text


def test_a_run_out_of_calibration_is_not_shown_as_finished(
    viewer: TestClient, others: Path, tmp_path: Path
) -> None:
    example = example_run.Example("20261121-120000-busy", calibrated=False)
    shutil.copytree(example_run.write(tmp_path, example), others / example.run_id)
    collect.gather(others / example.run_id).lazy().collect().write_parquet(
        others / example.run_id / "records.parquet"
    )
    row = viewer.get("/ui/runs").text.partition("<tbody>")[2]
    assert '<span class="badge warn">Out of calibration</span>' in row
    sentence = "forward packets released late 3.1 % (at most 1 %)"
    for path in ("/runs", f"/folders/{example.run_id}"):
        page = text_of(viewer.get(f"/ui{path}").text)
        assert sentence in page and "--wait-quiet 600" in page, path
    assert "No run matches" in viewer.get("/ui/runs?status=Finished").text
    assert "No run matches" not in viewer.get("/ui/runs?status=Out+of+calibration").text


def test_waiting_runs_have_their_place_in_the_queue(runner: TestClient) -> None:
    launch(runner)
    second = launch(runner)
    assert "Queued (position 1)" in text_of(runner.get("/ui/runs").text)
    assert "Queued (position 2)" in text_of(runner.get(f"/ui/runs/{second}").text)


def test_goodputs_of_both_directions_are_not_added_up() -> None:
    def of(client: str, direction: str, instance: int) -> SummaryRecord:
        labels = {**goodput(1.0).labels, "direction": direction, "entity": client}
        return dataclasses.replace(goodput(3e6), labels={**labels, "instance": str(instance)})

    several = [
        of(client, direction, number * 10 + place)
        for number, direction in enumerate(("download", "upload"))
        for place, client in enumerate(("client", "client-2", "client-3"))
    ]
    labels = {"direction": "download", "transport": "TCP", "terminals": "3"}
    shared = dataclasses.replace(goodput(1.0), metric="fairness_jain_ratio", labels=labels)
    assert run_list.key_figures([*several, shared])[:2] == (
        "9 Mbit/s download of 3 terminals",
        "3 Mbit/s upload, median of 3",
    )
