# SPDX-License-Identifier: GPL-3.0-or-later
"""The figures of a campaign, cell by cell, and the published ones."""

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from satlab.common import statistics
from satlab.common.errors import ExitStatus
from satlab.common.paths import ROOT
from satlab.common.statistics import Interval, Samples, Verdict
from satlab.papers.campaign import Campaign, Done
from satlab.papers.matrix import DEFECTS, Cell

TABLE_II = ROOT / "papers" / "seed-002" / "table2.csv"
BULK = ROOT / "papers" / "seed-002" / "bulk.csv"
PAGE_METRICS = ("response_start_ms", "first_contentful_paint_ms", "page_load_time_ms")
TIMINGS = ("connect_ms", "ttfb_ms")
REACHED = {"reached_2mb_s": 2_000_000, "reached_10mb_s": 10_000_000}
CONDITIONS = ("tcp_leg_ok", "quic_leg_ok", "pep_connections_count")
"""Settings that must be as requested: else every figure of the run is a failed sample."""
STEP_S = 0.1
DURATION_S = 15.0
EARLY_S = 5.0
"""The paper sees the benefit of proxies "in the first 5 seconds" (section III-A)."""
STEPS = round(DURATION_S / STEP_S)

Curve = tuple[float, ...]
"""Bytes received by the end of each step of 0.1 s."""


@dataclass(frozen=True)
class CampaignRun:
    """One run: its single figures by metric (None: censored), its curve if it was a bulk transfer."""

    number: int
    exit_status: int
    figures: Mapping[str, tuple[str, float | None]]
    curve: Curve | None


@dataclass(frozen=True)
class CellResult:
    """All runs of a cell that are done; only the calibrated ones are counted."""

    cell: Cell
    runs: tuple[CampaignRun, ...] = field(default=())

    @property
    def counted(self) -> list[CampaignRun]:
        return [run for run in self.runs if run.exit_status != ExitStatus.UNCALIBRATED]

    def samples(self, metric: str) -> Samples:
        """Return a metric's samples; a run without the metric is a failed sample."""
        samples = [run.figures.get(metric, ("failed", None)) for run in self.counted]
        return Samples(
            tuple(value for status, value in samples if status == "ok" and value is not None),
            sum(status == "censored" for status, _ in samples),
            sum(status not in ("ok", "censored") for status, _ in samples),
        )

    @property
    def curves(self) -> list[Curve]:
        """Return the curves of the transfers that came to their end."""
        return [run.curve for run in self.counted if run.curve is not None]

    @property
    def early_bytes(self) -> list[float]:
        """Return what each transfer had received after 5 s."""
        return [curve[round(EARLY_S / STEP_S) - 1] for curve in self.curves]

    @property
    def uncalibrated(self) -> int:
        """Return the number of runs that were out of calibration, which are not counted."""
        return len(self.runs) - len(self.counted)


@dataclass(frozen=True)
class FigureComparison:
    """One figure and the published one; both in the unit of the metric, None where there is none."""

    cell: Cell
    metric: str
    published: float | None
    median: float | None
    interval: Interval | None
    n: int
    censored: int
    failed: int
    uncalibrated: int

    @property
    def deviation(self) -> float | None:
        """Return ours relative to the published one, as a ratio less 1."""
        if self.published is None or self.median is None:
            return None
        return self.median / self.published - 1


@dataclass(frozen=True)
class Conclusion:
    """One conclusion of the paper at one loss: its verdict and the intervals that say so."""

    name: str
    claim: str
    loss: str
    verdict: Verdict
    evidence: str
    runs: int


@dataclass(frozen=True)
class Results:
    """The results of all cells of a campaign."""

    cells: Mapping[Cell, CellResult]
    halves: int

    def of(self, orbit: str, loss: str, kind: str) -> CellResult:
        """Return a cell's result; an empty one for a cell that is not of the campaign."""
        cell = Cell(orbit, loss, kind)
        return self.cells.get(cell, CellResult(cell))

    @cached_property
    def pages(self) -> list[FigureComparison]:
        """Return Table II."""
        pages = [result for result in self.cells.values() if result.cell.browser]
        return [
            line(result, metric, published_page(result.cell, metric))
            for metric in PAGE_METRICS
            for result in pages
        ]

    @cached_property
    def bulk(self) -> list[FigureComparison]:
        """Return connection set-up, first byte, and the times to 2 and 10 MB of the bulk transfers."""
        transfers = [result for result in self.cells.values() if not result.cell.browser]
        return [
            line(result, metric, published_bulk(result.cell, metric))
            for metric in (*TIMINGS, *REACHED)
            for result in transfers
        ]

    @cached_property
    def conclusions(self) -> list[Conclusion]:
        """Judge the paper's four conclusions at GEO, at each loss for which it draws them."""
        return [judged for judge in (_fcp, _plt, _quic_pep, _tcp_pep) for judged in judge(self)]


# --- reading --------------------------------------------------------------------------------------


def read(campaign: Campaign) -> Results:
    """Read the records of every run that is done."""
    cells = {
        cell: CellResult(
            cell, tuple(run_of(done) for _, done in sorted(campaign.done(cell).items()))
        )
        for cell in campaign.cells
    }
    return Results(cells, len(campaign.halves()))


def run_of(done: Done) -> CampaignRun:
    """Read the records of one run."""
    frame = pl.read_parquet(done.folder / "records.parquet")
    if not frame.filter(pl.col("metric").is_in(CONDITIONS) & (pl.col("status") != "ok")).is_empty():
        return CampaignRun(done.number, done.exit_status, {}, None)
    curve = _curve(frame)
    figures = {
        metric: figure for metric in (*PAGE_METRICS, *TIMINGS) if (figure := _figure(frame, metric))
    }
    if curve:
        figures |= {metric: _reached(curve, size) for metric, size in REACHED.items()}
    return CampaignRun(done.number, done.exit_status, figures, curve)


def _figure(frame: pl.DataFrame, metric: str) -> tuple[str, float | None] | None:
    """Return the first sample of a metric: a run measures each once.

    Summaries over loads are left out.
    """
    rows = frame.filter((pl.col("metric") == metric) & pl.col("t_s").is_null())
    for row in rows.iter_rows(named=True):
        if "stat" not in json.loads(row["labels"]):
            return row["status"], row["value"]
    return None


def _curve(frame: pl.DataFrame) -> Curve | None:
    """Return the bytes received over time; None when the transfer did not come to its end.

    TCP's time runs from iperf3's start of the transfer, QUIC's from the start of the interval with
    the first byte.
    """
    rows = frame.filter(pl.col("metric") == "goodput_bps")
    whole = rows.filter(pl.col("t_s").is_null())
    if whole.is_empty() or (whole["status"] != "ok").any():
        return None
    series = rows.filter(pl.col("t_s").is_not_null() & pl.col("value").is_not_null()).sort("t_s")
    points = list(zip(series["t_s"].to_list(), series["value"].to_list(), strict=True))
    if points and '"satlab_satperf"' in series["labels"][0]:
        points = list(itertools.dropwhile(lambda point: point[1] == 0, points))
    return cumulate(points) if points else None


def cumulate(points: Sequence[tuple[float, float]]) -> Curve:
    """Turn (end of interval in s, mean rate in bit/s) into bytes by steps of 0.1 s; the first
    interval is a step long.

    Within an interval bytes are taken to arrive evenly; after the last one no more do.
    """
    ends, totals = [0.0], [0.0]
    before = points[0][0] - STEP_S
    origin = before
    for end, rate in points:
        totals.append(totals[-1] + rate * max(end - before, 0.0) / 8)
        ends.append(end - origin)
        before = end
    curve, index = [], 0
    for step in range(1, STEPS + 1):
        now = step * STEP_S
        while index < len(ends) - 2 and ends[index + 1] < now:
            index += 1
        span = ends[index + 1] - ends[index]
        share = min(max((now - ends[index]) / span, 0.0), 1.0) if span > 0 else 1.0
        curve.append(totals[index] + share * (totals[index + 1] - totals[index]))
    return tuple(curve)


def _reached(curve: Curve, size: int) -> tuple[str, float | None]:
    """Return when so many bytes had come, to the step; censored when they had not by the end."""
    step = next((number for number, total in enumerate(curve, start=1) if total >= size), None)
    return ("censored", None) if step is None else ("ok", round(step * STEP_S, 3))


# --- comparison with the paper --------------------------------------------------------------------


@cache
def _table(path: Path, column: str) -> Mapping[tuple[str, float, str, str], float]:
    with path.open(newline="") as file:
        return {
            (row["orbit"], float(row["loss_ratio"]), _kind(row), row["metric"]): float(row[column])
            for row in csv.DictReader(file)
        }


def _kind(row: Mapping[str, str]) -> str:
    return row["protocol"] + ("-pep" if row["pep"] == "yes" else "")


def published_page(cell: Cell, metric: str) -> float | None:
    """Return Table II's median, ms."""
    return _published(TABLE_II, "median_ms", cell, metric)


def published_bulk(cell: Cell, metric: str) -> float | None:
    """Return the bulk transfers of the paper's dataset, s."""
    return _published(BULK, "time_s", cell, metric)


def _published(file: Path, column: str, cell: Cell, metric: str) -> float | None:
    """Return the figure of a cell: the paper measured over OpenSAND, so with its defects or not it
    is the same.
    """
    return _table(file, column).get(
        (cell.orbit, cell.loss_ratio, cell.kind.removesuffix(DEFECTS), metric)
    )


def line(result: CellResult, metric: str, published: float | None) -> FigureComparison:
    """Return one figure with its interval."""
    samples = result.samples(metric)
    ordered = samples.ordered
    middle = statistics.median(ordered) if ordered else None
    interval = statistics.interval(ordered, statistics.median) if ordered else None
    if middle == float("inf"):
        middle = None
    return FigureComparison(
        result.cell,
        metric,
        published,
        middle,
        interval,
        samples.n,
        samples.censored,
        samples.failed,
        result.uncalibrated,
    )


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Average curves step by step, as the paper does."""
    return tuple(fmean(values) for values in zip(*curves, strict=True))


# --- the four conclusions -------------------------------------------------------------------------

FAR = "geo"


def _fcp(results: Results) -> Iterator[Conclusion]:
    for loss in ("0", "0.01", "0.1", "1"):
        yield _order(
            results, loss, "First Contentful Paint", "first_contentful_paint_ms", ("h3", "h1")
        )


def _plt(results: Results) -> Iterator[Conclusion]:
    for loss in ("0", "0.01", "0.1"):  # at 1 % the paper's own h3 is slower than its h1
        yield _order(results, loss, "Page Load Time", "page_load_time_ms", ("h3-pep", "h3", "h1"))


def _quic_pep(results: Results) -> Iterator[Conclusion]:
    for loss in ("0", "0.01", "0.1", "1"):
        yield _ahead(results, loss, "quic")


def _tcp_pep(results: Results) -> Iterator[Conclusion]:
    for loss in (
        "0",
        "0.01",
        "0.1",
    ):  # at 1 % the paper names its TCP figures of the first second an artefact
        yield _ahead(results, loss, "tcp")


def _order(results: Results, loss: str, name: str, metric: str, kinds: Sequence[str]) -> Conclusion:
    """Judge whether medians rise in the order of the kinds, pair by pair."""
    verdicts: list[Verdict] = []
    evidence, runs = [], []
    for first, second in itertools.pairwise(kinds):
        a, b = (results.of(FAR, loss, kind).samples(metric).ordered for kind in (first, second))
        runs.append(min(len(a), len(b)))
        if not runs[-1]:
            verdicts.append("not measured")
            continue
        interval = statistics.interval_of_two(a, b, statistics.median_difference)
        verdicts.append(statistics.is_below(interval, runs[-1]))
        ends = f"{interval.low:+,.0f} to {interval.high:+,.0f} ms".replace("inf", "\N{INFINITY}")
        evidence.append(f"{first} less {second}: {ends}")
    claim = f"{name}: {' < '.join(kinds)}"
    return Conclusion(
        name, claim, loss, statistics.all_of(verdicts), "; ".join(evidence), min(runs)
    )


def _ahead(results: Results, loss: str, kind: str) -> Conclusion:
    """Judge whether a kind with PEP has received more than its twin after 5 s; means, as in the
    paper's figure 2.
    """
    pep, plain = (results.of(FAR, loss, name).early_bytes for name in (f"{kind}-pep", kind))
    runs, name = min(len(pep), len(plain)), f"{kind.upper()} PEP"
    claim = f"{kind}-pep has received more than {kind} after {EARLY_S:g} s"
    if not runs:
        return Conclusion(name, claim, loss, "not measured", "", 0)
    interval = statistics.interval_of_two(plain, pep, statistics.mean_ratio)
    turned = Interval(*(1 / end if end else float("inf") for end in (interval.high, interval.low)))
    verdict = statistics.is_below(interval, runs, 1.0)
    return Conclusion(
        name, claim, loss, verdict, f"ratio {turned.low:.2f} to {turned.high:.2f}", runs
    )


# --- as data --------------------------------------------------------------------------------------


def rows(lines: Iterable[FigureComparison]) -> Iterator[dict[str, Any]]:
    """Yield lines as JSON-ready objects; an infinite end of an interval is null."""
    for one in lines:
        ends = (one.interval.low, one.interval.high) if one.interval else (None, None)
        low, high = (None if end is None or end == float("inf") else round(end, 3) for end in ends)
        yield {
            "orbit": one.cell.orbit,
            "loss_percent": float(one.cell.loss),
            "type": one.cell.kind,
            "metric": one.metric,
            "published": one.published,
            "median": None if one.median is None else round(one.median, 3),
            "low": low,
            "high": high,
            "n": one.n,
            "censored_count": one.censored,
            "failed_count": one.failed,
            "uncalibrated_count": one.uncalibrated,
            "deviation_ratio": None if one.deviation is None else round(one.deviation, 4),
        }
