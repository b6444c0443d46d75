# SPDX-License-Identifier: GPL-3.0-or-later
"""Results as files for programs (CSV, JSON) and as tables for a terminal."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from satlab.common import console, escape
from satlab.common.files import write_atomically
from satlab.papers import results
from satlab.papers.results import STEP_S, FigureComparison, Results

SMALL_MS = 10
"""Times below this have one decimal."""
NOTHING = "\N{EN DASH}"


def write(measured: Results, folder: Path) -> None:
    """Write table2.csv, bulk.csv, fig2.csv and results.json."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "table2.csv", _csv(results.rows(measured.pages)))
    write_atomically(folder / "bulk.csv", _csv(results.rows(measured.bulk)))
    write_atomically(folder / "fig2.csv", _csv(curves(measured)))
    write_atomically(folder / "results.json", json.dumps(document(measured), indent=1) + "\n")


def document(measured: Results) -> dict[str, Any]:
    """Return all results as one JSON document (schemas/reproduction.schema.json)."""
    return {
        "schema": "satlab/reproduction/1",
        "paper": "seed-002",
        "half_runs_count": measured.halves,
        "conclusions": [
            {
                "claim": one.claim,
                "loss_percent": float(one.loss),
                "verdict": one.verdict,
                "evidence": one.evidence,
                "runs_count": one.runs,
            }
            for one in measured.conclusions
        ],
        "pages": list(results.rows(measured.pages)),
        "bulk": list(results.rows(measured.bulk)),
    }


def curves(measured: Results) -> Iterator[dict[str, Any]]:
    """Yield figure 2's data: mean bytes received by each time, and goodput of the step before it."""
    for cell, result in measured.cells.items():
        if not result.curves:
            continue
        before = 0.0
        for step, total in enumerate(results.mean_curve(result.curves), start=1):
            yield {
                "orbit": cell.orbit,
                "loss_percent": float(cell.loss),
                "type": cell.kind,
                "t_s": round(step * STEP_S, 3),
                "received_bytes": round(total),
                "goodput_bps": round((total - before) * 8 / STEP_S),
                "n": len(result.curves),
            }
            before = total


def _csv(rows: Iterable[dict[str, Any]]) -> str:
    listed, text = list(rows), io.StringIO()
    if listed:
        writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(escape.csv_row, listed))
    return text.getvalue()


def show(measured: Results) -> None:
    """Print tables on stdout."""
    out = console.for_tables()
    out.print(_lines("Comparison with the paper", [*measured.pages, *measured.bulk]))
    judged = [
        (one.claim, one.loss, one.verdict, one.evidence, str(one.runs))
        for one in measured.conclusions
    ]
    head = ("Conclusion (GEO)", "loss %", "verdict", "95 % interval", "n")
    out.print(console.table("The paper's conclusions", head, judged))


def _lines(title: str, lines: Iterable[FigureComparison]) -> Table:
    columns = (
        "cell",
        "metric",
        "published",
        "median",
        "95 % interval",
        "n",
        "cut off",
        "failed",
        "uncal.",
        "deviation",
    )
    return console.table(
        title, columns, [(one.cell.name, one.metric, *figures(one)) for one in lines]
    )


def figures(one: FigureComparison) -> tuple[str, ...]:
    """Return published value, median, interval, n, cut off, failed, uncalibrated, deviation as
    text.
    """
    small = one.median is not None and one.median < SMALL_MS
    digits = 0 if one.metric.endswith("_ms") and not small else 2
    interval = NOTHING
    if one.interval is not None:
        interval = f"{number(one.interval.low, digits)} to {number(one.interval.high, digits)}"
    deviation = (
        NOTHING if one.deviation is None else f"{one.deviation:+.1%}".replace("-", "\N{MINUS SIGN}")
    )
    middle = "cut off" if one.median is None and one.n else number(one.median, digits)
    return (
        number(one.published, digits),
        middle,
        interval,
        str(one.n),
        str(one.censored),
        str(one.failed),
        str(one.uncalibrated),
        deviation,
    )


def number(value: float | None, digits: int) -> str:
    """Return a figure as text."""
    if value is None:
        return NOTHING
    return "∞" if value == float("inf") else f"{value:,.{digits}f}"
