# SPDX-License-Identifier: GPL-3.0-or-later
"""The paper whose cells are scenarios: its matrix, and its figures from records."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from satlab.common.errors import ConfigError
from satlab.papers import paper, paper_report, result_tables, scenario_figures
from satlab.papers.cell_run import Run
from satlab.papers.results import Comparison, PaperResults
from satlab.papers.scenario_figures import Records

H1, H3, H3_PEP, TCP, TCP_PEP = (
    f"geo/0/{kind}" for kind in ("h1", "h3", "h3-pep", "tcp", "tcp-pep")
)
Row = Mapping[str, Any]


def test_the_matrix_is_that_of_the_paper() -> None:
    about = paper.load("seed-002", "real")
    cells = about.select(None, quick=False)
    assert len(cells) == 2 * 4 * 8
    rows = [row for row in about.published if row.table == "II"]
    assert len(rows) == 96
    for row in rows:
        assert [c.id for c in cells if c.published == row.algorithm and row.is_of(c.id)] == [
            f"{row.cell}/{row.algorithm}"
        ]


@pytest.mark.parametrize(
    ("patterns", "count"),
    [
        (["geo/0/h1"], 1),
        (["*/0.01/h3*"], 4),
        (["geo/*/tcp", "geo/0/tcp"], 4),
        (["*"], 64),
        (["geo/0/quic-warm"], 1),
        (["*/0/h3-warm", "geo/0/*"], 10),
        (["geo/0/tcp-defects", "leo/0/h1-pep-defects"], 2),
        (["leo/0/h1-slow", "geo/0.1/tcp-x4", "geo/0.1/quic-x1"], 3),
    ],
)
def test_types_of_ours_run_where_they_are_written_out(patterns: list[str], count: int) -> None:
    assert len(paper.load("seed-002", "real").select(patterns, quick=False)) == count


def test_types_with_the_defects_of_opensand_stand_next_to_the_paper_s() -> None:
    about = paper.load("seed-002", "real")
    of_ours, theirs = about.select(["geo/0/h1-defects", "geo/0/h1"], quick=False)[::-1]
    assert of_ours.run is not None and theirs.run is not None
    assert of_ours.run.options["opensand_defects"] and "opensand_defects" not in theirs.run.options
    assert of_ours.published == theirs.published == "h1"


def test_a_pattern_that_names_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="geo/2/h1"):
        paper.load("seed-002", "real").select(["geo/0/h1", "geo/2/h1"], quick=False)


def record(
    metric: str, value: float | None, t_s: float | None = None, status: str = "ok", **labels: str
) -> Row:
    return {"metric": metric, "value": value, "t_s": t_s, "status": status, "labels": labels}


def load(start_ms: float, paint_ms: float, load_ms: float | None) -> list[Row]:
    shown = {
        "response_start_ms": start_ms,
        "first_contentful_paint_ms": paint_ms,
        "page_load_time_ms": load_ms,
    }
    each = [
        record(name, value, status="ok" if value else "censored", load="0")
        for name, value in shown.items()
    ]
    return [record("response_start_ms", 1.0, stat="median"), *each]


def bulk(rate_bps: float, count: int = 150) -> list[Row]:
    job = "satlab_iperf3"
    series = [record("goodput_bps", rate_bps, 10 + 0.1 * i, job=job) for i in range(1, count + 1)]
    return [record("goodput_bps", 1.0, job=job), *series]


def run(number: int, rows: list[Row], *, off: bool = False) -> Run:
    return Run(number, Records(rows), failed=False, is_uncalibrated=off)


def results_of(runs: Mapping[str, list[Run]]) -> PaperResults:
    about = paper.load("seed-002", "real")
    cells = [cell for cell in about.cells if cell.id in runs]
    return PaperResults(about, runs, cells, sum(map(len, runs.values())))


def filled() -> PaperResults:
    """Return six runs of five cells."""
    numbers = range(1, 7)
    return results_of(
        {
            H1: [run(n, load(1200 + n, 3800 + n, 10800 + n)) for n in numbers],
            H3: [run(n, load(1300 + n, 2700 + n, 7600 + n)) for n in numbers],
            H3_PEP: [run(n, load(2700, 3500, None if n == 1 else 7300 + n)) for n in numbers],
            TCP: [run(n, bulk(1e6)) for n in numbers],
            TCP_PEP: [run(n, bulk(3e6)) for n in numbers],
        }
    )


def lines(found: PaperResults) -> dict[tuple[str, str], Comparison]:
    return {(one.cell.id, one.metric): one for one in found.comparisons}


def test_medians_are_compared_with_the_published_ones() -> None:
    found = lines(filled())
    first = found[H1, "response_start_ms"]
    assert first.published is not None and first.ours is not None
    assert (first.published.mean, first.ours.mean, first.ours.runs) == (1222, 1203.5, 6)
    assert first.deviation == pytest.approx(1203.5 / 1222 - 1)
    slow = found[H3_PEP, "page_load_time_ms"].ours
    assert slow is not None
    assert (slow.runs, slow.censored, slow.mean) == (6, 1, 7304.5)


def test_runs_out_of_calibration_are_shown_and_not_counted() -> None:
    rows = load(1200, 3800, 10800), load(12000, 3800, 10800)
    found = results_of({H1: [run(1, rows[0]), run(2, rows[1], off=True)]})
    first = lines(found)[H1, "response_start_ms"]
    assert first.ours is not None
    assert (first.ours.mean, first.ours.runs, first.failed, first.uncalibrated) == (1200, 1, 0, 1)


@pytest.mark.promise("P90")
def test_the_conclusions_are_judged() -> None:
    found = {one.conclusion.id: one for one in filled().judgements}
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts["fcp/0"] == verdicts["tcp-pep/0"] == "holds"
    # One load of six was cut off: the interval has no end.
    assert verdicts["plt/0"] == "undecided" and "\N{INFINITY}" in found["plt/0"].evidence[0]
    assert verdicts["quic-pep/0"] == verdicts["fcp/1"] == "not measured"
    assert "3.00 [3.00 to 3.00], n = 6 and 6" in found["tcp-pep/0"].evidence[0]
    few = results_of({TCP: [run(1, bulk(1e6))], TCP_PEP: [run(1, bulk(3e6))]})
    judged = {one.conclusion.id: one for one in few.judgements}["tcp-pep/0"]
    assert judged.verdict == "undecided" and "has 1 of 5 runs" in judged.evidence[0]


@pytest.mark.parametrize(
    "rows",
    [
        [*load(1200, 3800, 10800), record("tcp_leg_ok", None, status="failed")],
        [record("run_ok", None, status="failed")],
    ],
    ids=["a leg that was not as asked for", "no figure"],
)
@pytest.mark.promise("P65")
def test_a_run_without_the_figure_is_a_failed_sample(rows: list[Row]) -> None:
    found = results_of({H1: [run(1, rows)]}).comparisons
    assert [(one.ours, one.failed) for one in found] == [(None, 1)] * 3, (
        "no yardstick: no row of the host's part"
    )


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
    curve = scenario_figures.cumulate(points)
    assert len(curve) == 150
    assert curve[round(seconds / 0.1) - 1] == pytest.approx(expected)


def test_the_time_to_a_size_is_censored_when_it_was_not_reached() -> None:
    records = Records(bulk(16e5))  # 200 kB/s: 2 MB after 10 s, never 10 MB
    assert records.reached_s(2_000_000) == pytest.approx(10.0, abs=0.11)
    assert records.reached_s(10_000_000) == math.inf


def test_the_page_has_table_ii_the_goodput_and_the_conclusions(tmp_path: Path) -> None:
    text = paper_report.write(tmp_path, filled(), tmp_path / "index.html").read_text()
    for words in (
        "30/30",
        "Table II, GEO: Page Load Time",
        "tcp-pep / tcp",
        "h3 &lt; h1",
        "(7669)",
    ):
        assert words in text, words
    empty = paper_report.write(tmp_path, results_of({H1: []}), tmp_path / "index.html").read_text()
    assert "not measured" in empty


def test_deviations_are_shown_by_type_and_place_with_those_beyond_the_bound(tmp_path: Path) -> None:
    found = filled()
    tables = {table.title: table for table in result_tables.deviations(found)}
    first = tables["Deviation of First Contentful Paint"]
    assert first.head == ("Type", "geo/0")
    rows = {str(row[0]): row[1] for row in first.rows}
    assert [(str(cell), getattr(cell, "state", "")) for cell in rows.values()] == [
        ("\N{MINUS SIGN}2.0%", "good"),
        ("\N{MINUS SIGN}2.3%", "good"),
        ("\N{MINUS SIGN}1.0%", "good"),
    ]
    late = tables["Deviation of Goodput after 5 s"]
    assert {getattr(row[1], "state", "") for row in late.rows} == {"bad"}
    page = paper_report.write(tmp_path, found, tmp_path / "index.html").read_text()
    assert 'class="n bad"' in page and "Deviation of Page Load Time" in page
    few = results_of({H1: [run(1, load(1200, 3800, 10800))]})
    tables = {table.title: table for table in result_tables.deviations(few)}
    (row,) = tables["Deviation of Page Load Time"].rows
    assert str(row[1]) == "(\N{MINUS SIGN}0.1%)", "of too few runs"
