# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a paper's results, for its page and for a terminal."""

from collections.abc import Sequence

from satlab.common import console
from satlab.papers.judgement import Judgement
from satlab.papers.results import NOTHING, PaperResults
from satlab.report import text_tables
from satlab.report.page import Cell, Row, State, Table

NUMBERS = {"Published", "Ours", "Deviation", "95 % interval", "n", "Failed", "Out of calibration"}
STATES: dict[str, State] = {"holds": "good", "does not hold": "bad"}
"""States of verdicts; other verdicts are neither good nor bad."""


def comparisons(results: PaperResults) -> Table:
    """Return every figure next to the published one, by the paper's tests or groups of cells;
    columns without a value are left out.
    """
    rows = [one.row(results.paper.phases) for one in results.comparisons]
    head = [name for name in rows[0] if any(row[name] != NOTHING for row in rows)] if rows else []
    groups: dict[str, list[Row]] = {}
    for one, row in zip(results.comparisons, rows, strict=True):
        part = one.cell.id.partition("/")[0]
        named = results.paper.groups.get(part, "Not in the paper")
        group = groups.setdefault(f"Test {one.cell.test}" if one.cell.test else named, [])
        group.append([row[name] for name in head])
    return Table(tuple(head), groups=groups, numbers=NUMBERS, title="Comparison with the paper")


def agreements(results: PaperResults) -> Table:
    """Return the agreement of the figures with the published figures; at least one figure is
    published.
    """
    rows = [one.row() for one in results.agreements]
    cells = [[*(row | {"Verdict": _verdict(row["Verdict"])}).values()] for row in rows]
    title = "Agreement with the published figures"
    return Table(tuple(rows[0]), cells, verdict="Verdict", title=title)


def conclusions(judgements: Sequence[Judgement]) -> Table:
    """Return a paper's conclusions, judged; a line for each evidence."""
    rows = [
        (one.conclusion.text, _verdict(one.verdict), "\n".join(one.evidence)) for one in judgements
    ]
    head = ("Conclusion", "Verdict", "Evidence")
    return Table(head, rows, verdict="Verdict", title="Conclusions of the paper")


def _verdict(text: str) -> Cell:
    return Cell(text, STATES.get(text, ""))


def show(results: PaperResults) -> None:
    """Print tables on stdout."""
    out = console.for_tables()
    out.print(text_tables.terminal(comparisons(results)))
    for grid in results.grids:
        out.print(text_tables.terminal(grid))
    if results.agreements:
        out.print(text_tables.terminal(agreements(results)))
    out.print(text_tables.terminal(conclusions(results.judgements)))
