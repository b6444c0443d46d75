# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables of a paper's results, for its page and for a terminal."""

from collections.abc import Sequence

from satlab.common import console
from satlab.papers.figures import FIGURES
from satlab.papers.judgement import Judgement
from satlab.papers.results import NOTHING, AgreementResult, Comparison, PaperResults, signed
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


def deviations(results: PaperResults) -> list[Table]:
    """Return for each figure with a bound of its agreement the deviations from the published ones:
    a row for each type of cell, a column for each place. Those beyond the bound are marked, and
    those of too few runs are in brackets.
    """
    bounds = {one.agreement.figure: one for one in results.agreements}
    tables = []
    for metric, found in bounds.items():
        of_metric = [one for one in results.comparisons if one.metric == metric and one.published]
        parts = {id(one): one.cell.id.rpartition("/") for one in of_metric}
        places = list(dict.fromkeys(place for place, _, _ in parts.values()))
        rows: dict[str, dict[str, Cell]] = {}
        for one in of_metric:
            place, _, kind = parts[id(one)]
            rows.setdefault(kind, {})[place] = _deviation(one, found)
        if any(cell.text != NOTHING for row in rows.values() for cell in row.values()):
            cells: list[Row] = [
                [kind, *(row.get(place, Cell(NOTHING)) for place in places)]
                for kind, row in rows.items()
            ]
            title = f"Deviation of {FIGURES[metric].title}"
            tables.append(Table(("Type", *places), cells, numbers=places, title=title))
    return tables


def _deviation(one: Comparison, found: AgreementResult) -> Cell:
    if one.deviation is None:
        return Cell(NOTHING)
    text = signed(one.deviation)
    if one.cell.id in found.lacking:
        return Cell(f"({text})")
    return Cell(text, "bad" if abs(one.deviation) > found.agreement.at_most else "good")


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
    for table in deviations(results):
        out.print(text_tables.terminal(table))
    out.print(text_tables.terminal(conclusions(results.judgements)))
