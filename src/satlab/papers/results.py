# SPDX-License-Identifier: GPL-3.0-or-later
"""Published figures next to ours, and the paper's conclusions judged."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from statistics import fmean, median

from collect.page_loads import HOST_PART
from satlab.common.files import write_atomically
from satlab.common.statistics import Verdict
from satlab.papers import estimates
from satlab.papers.cell_run import Run, in_calibration
from satlab.papers.estimates import Ours
from satlab.papers.figures import FIGURES, RELATIVE, TIMED, least_s
from satlab.papers.judgement import VERDICT, Judge, Judgement
from satlab.papers.paper import Agreement, Cell, Grid, Paper
from satlab.papers.published import Published
from satlab.report.page import Table

FILE = "results.json"
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Comparison:
    """A figure of a cell in a phase."""

    cell: Cell
    metric: str
    phase: int
    published: Published | None
    ours: Ours | None
    """Over the runs in calibration."""
    failed: int
    marked: Ours | None
    """Over the `uncalibrated` runs, which are not judged."""
    uncalibrated: int

    @property
    def deviation(self) -> float | None:
        """Return (ours - published) / published; a lower bound if runs did not complete."""
        if self.published is None or self.ours is None or math.isinf(self.ours.mean):
            return None
        return self.ours.mean / self.published.mean - 1

    def row(self, phases: Sequence[str]) -> dict[str, str]:
        """Return the comparison as text, by columns."""
        figure = FIGURES[self.metric]
        theirs = mine = interval = source = algorithm = NOTHING
        if self.published:
            theirs = _with_spread(self.published.mean, self.published.sd, figure.digits)
            algorithm, source = self.published.algorithm, f"table {self.published.table}"
        if self.ours:
            mine = _least(self.ours) + _with_spread(
                self.ours.mean, self.ours.in_time, figure.digits
            )
            if (found := self.ours.interval) is not None and not math.isinf(found.low):
                ends = f"{found.low:.{figure.digits}f} to {found.high:.{figure.digits}f}"
                interval = ends.replace("inf", "\N{INFINITY}")
        return {
            "Cell": self.cell.id,
            "Figure": _title(self.metric),
            "Phase": phases[self.phase] if figure.is_phased and len(phases) > 1 else NOTHING,
            "Published for": algorithm,
            "Published": theirs,
            "In": source,
            "Ours with": self.cell.algorithm,
            "Ours": mine,
            "Deviation": NOTHING if self.deviation is None else signed(self.deviation),
            "95 % interval": interval,
            "n": str(self.ours.runs if self.ours else 0),
            "Failed": str(self.failed),
            "Out of calibration": self._off(figure.digits),
        }

    def _off(self, digits: int) -> str:
        """Return number and mean of the runs out of calibration."""
        mean = f" ({_with_spread(self.marked.mean, None, digits)})" if self.marked else ""
        return f"{self.uncalibrated}{mean}" if self.uncalibrated else NOTHING


def _title(metric: str) -> str:
    figure = FIGURES[metric]
    return f"{figure.title}{f' ({figure.unit})' if figure.unit else ''}"


MOST_NAMED = 4
"""Largest number of cells that a table names; the others are counted."""


def _first(cells: Sequence[str]) -> str:
    more = len(cells) - MOST_NAMED
    return ", ".join(cells[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def signed(share: float) -> str:
    """Return a deviation as text."""
    return f"{share:+.1%}".replace("-", "\N{MINUS SIGN}")


def _label(factor: str | float) -> str:
    return f"{factor:g}" if isinstance(factor, float) else factor


def _least(ours: Ours) -> str:
    return "at least " if ours.is_least else ""


def _with_spread(mean: float, sd: float | None, digits: int) -> str:
    if math.isinf(mean):
        return "cut off"
    return f"{mean:.{digits}f}" + ("" if sd is None else f" \N{PLUS-MINUS SIGN} {sd:.{digits}f}")


@dataclass(frozen=True)
class AgreementResult:
    """Agreement of a figure with the published values. `median`: median of the `measured` absolute
    deviations; `misses`: figures beyond the bound. The result is undecided as long as cells of the
    `published` figures lack runs in calibration.
    """

    agreement: Agreement
    published: int
    measured: int
    median: float | None
    misses: tuple[str, ...]
    lacking: tuple[str, ...]
    verdict: Verdict

    def row(self) -> dict[str, str]:
        """Return the agreement as text, by columns."""
        return {
            "Figure": _title(self.agreement.figure),
            "Published figures measured": f"{self.measured} of {self.published}",
            "Median deviation": NOTHING if self.median is None else f"{self.median:.1%}",
            "At most": f"{self.agreement.at_most:.0%}",
            "Verdict": self.verdict,
            "Beyond it": _first(self.misses) or NOTHING,
            "Too few runs": _first(self.lacking) or NOTHING,
        }


@dataclass(frozen=True)
class PaperResults:
    """All finished runs of a paper, by cell; `planned`: number of planned runs."""

    paper: Paper
    runs: Mapping[str, Sequence[Run]]
    cells: Sequence[Cell]
    planned: int = 0

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Return every figure of every cell; figures of phases once for each phase. The host's part
        of a page load is left out where no run has it.
        """
        every = [
            Comparison(
                cell,
                metric,
                phase,
                self._theirs(cell, metric, phase),
                self.figure(cell, metric, phase),
                sum(run.has_failed(metric) for run in self.counted(cell.id)),
                self._over(cell, metric, phase, self.marked(cell.id)),
                len(self.marked(cell.id)),
            )
            for cell in self.cells
            for metric in cell.figures
            for phase in self._phases(metric)
        ]
        return [one for one in every if one.metric != HOST_PART or one.ours or one.marked]

    def _phases(self, metric: str) -> range:
        return range(len(self.paper.phases) if FIGURES[metric].is_phased else 1)

    def _theirs(self, cell: Cell, metric: str, phase: int) -> Published | None:
        asked = (cell.published, metric, phase)
        rows = (row for row in self.paper.published if row.is_of(cell.id))
        return next((row for row in rows if (row.algorithm, row.metric, row.phase) == asked), None)

    def counted(self, cell: str) -> Sequence[Run]:
        """Return the runs of a cell that are judged."""
        return in_calibration(self.runs.get(cell, ()))

    def marked(self, cell: str) -> Sequence[Run]:
        """Return the runs of a cell out of calibration."""
        return [run for run in self.runs.get(cell, ()) if run.is_uncalibrated]

    def figure(self, cell: Cell, metric: str, phase: int) -> Ours | None:
        """Return a figure over the runs of a cell in calibration; None without any.

        A failed run counts with the data that it carried, and a run that did not complete with the
        time that it had.
        """
        return self._over(cell, metric, phase, self.counted(cell.id))

    def _over(self, cell: Cell, metric: str, phase: int, runs: Sequence[Run]) -> Ours | None:
        spreads = [run.spread(metric, phase) for run in runs]
        if (bootstrap := FIGURES[metric].bootstrap) is not None:
            return estimates.of_samples([found[0] for found in spreads if found], bootstrap)
        censored = 0
        if metric in TIMED:
            censored = sum(spread is None for spread in spreads)
            spreads = [
                spread or (least_s(run.outcome), None)
                for spread, run in zip(spreads, runs, strict=True)
            ]
        scale = self._scale(cell, metric, phase)
        if scale is None:
            return None
        means = [spread[0] * scale for spread in spreads if spread is not None]
        deviations = [
            spread[1] * scale for spread in spreads if spread is not None and spread[1] is not None
        ]
        return estimates.of_runs(means, deviations, censored)

    def _scale(self, cell: Cell, metric: str, phase: int) -> float | None:
        """Return the factor that makes a figure a percentage of the base cell's; None if the base
        was not measured.
        """
        if metric not in RELATIVE or cell.base is None:
            return None if metric in RELATIVE else 1.0
        every = [run.spread(metric, phase) for run in self.counted(cell.base)]
        spreads = [spread for spread in every if spread is not None]
        if metric in TIMED and len(spreads) < len(every):
            return None
        whole = fmean(mean for mean, _ in spreads) if spreads else 0.0
        return 100 / whole if whole else None

    @cached_property
    def grids(self) -> list[Table]:
        """Return the paper's tables that have cells here."""
        tables = [self._grid(grid) for grid in self.paper.grids]
        return [table for table in tables if table.rows]

    def _grid(self, grid: Grid) -> Table:
        cells = [cell for cell in self.cells if fnmatchcase(cell.id, grid.cells)]
        row_values = list(dict.fromkeys(cell.factors[grid.rows] for cell in cells))
        columns: list[tuple[str, str | None]] = [(figure, None) for figure in grid.figures]
        head = [_title(figure) for figure in grid.figures]
        if grid.columns is not None:
            known = dict.fromkeys(_label(cell.factors[grid.columns]) for cell in cells)
            head = [value for value in grid.only or known if value in known]
            columns = [(grid.figures[0], value) for value in head]
        rows = [
            (_label(row), *(self._in_grid(grid, cells, row, *one) for one in columns))
            for row in row_values
        ]
        return Table((grid.rows, *head), rows, numbers=head, title=grid.title)

    def _in_grid(
        self, grid: Grid, cells: Sequence[Cell], row: str | float, metric: str, column: str | None
    ) -> str:
        for cell in cells:
            is_column = grid.columns is None or _label(cell.factors[grid.columns]) == column
            if cell.factors[grid.rows] == row and is_column:
                return self._text_in_grid(grid, cell, metric)
        return NOTHING

    def _text_in_grid(self, grid: Grid, cell: Cell, metric: str) -> str:
        found, theirs = (
            self.figure(cell, metric, grid.phase),
            self._theirs(cell, metric, grid.phase),
        )
        digits = FIGURES[metric].digits
        words = NOTHING if found is None else _least(found) + _with_spread(found.mean, None, digits)
        return (
            f"{words} ({theirs.mean:.{digits}f})"
            if grid.published and theirs is not None
            else words
        )

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.paper, self.runs, self.figure)

    @cached_property
    def judgements(self) -> list[Judgement]:
        """Judge the paper's conclusions."""
        return [self._judge.judge(conclusion) for conclusion in self.paper.conclusions]

    @cached_property
    def agreements(self) -> list[AgreementResult]:
        """Return how near the figures are to the published figures."""
        return [self._agreement(agreement) for agreement in self.paper.agreements]

    def _agreement(self, agreement: Agreement) -> AgreementResult:
        metric = agreement.figure
        cells = [c for c in self.paper.cells if metric in c.figures and not c.on_request]
        published = [
            (cell, phase)
            for cell in cells
            for phase in self._phases(metric)
            if self._theirs(cell, metric, phase)
        ]
        lacking = dict[str, None]()
        for cell, phase in published:
            ours = self.figure(cell, metric, phase)
            if self._judge.lack(cell.id, metric, ours.runs if ours else 0):
                lacking[cell.id] = None
        found = [
            (c, c.deviation)
            for c in self.comparisons
            if c.metric == metric and c.deviation is not None and not c.cell.on_request
        ]
        misses = tuple(
            _miss(c, off, self.paper) for c, off in found if abs(off) > agreement.at_most
        )
        middle = median(abs(deviation) for _, deviation in found) if found else None
        verdict: Verdict = "not measured"
        if middle is not None:
            verdict = VERDICT[None if lacking else middle <= agreement.at_most]
        return AgreementResult(
            agreement, len(published), len(found), middle, misses, tuple(lacking), verdict
        )

    def document(self) -> dict[str, object]:
        """Return all figures in the form of schemas/paper-results.schema.json."""
        deviations: dict[str, list[float]] = {}
        for one in self.comparisons:
            if one.deviation is not None:
                deviations.setdefault(one.metric, []).append(abs(one.deviation))
        return {
            "schema": "satlab/paper-results/1",
            "paper": self.paper.name,
            "clock": self.paper.clock,
            "out_of_calibration": sum(
                run.is_uncalibrated for runs in self.runs.values() for run in runs
            ),
            "figures": [
                {
                    "cell": c.cell.id,
                    "metric": c.metric,
                    "phase": self.paper.phases[c.phase] if FIGURES[c.metric].is_phased else None,
                    "published": c.published.mean if c.published else None,
                    "ours": _finite(c.ours.mean) if c.ours else None,
                    "sd_in_time": round(c.ours.in_time, 4)
                    if c.ours and c.ours.in_time is not None
                    else None,
                    "sd_between_runs": round(c.ours.between, 4)
                    if c.ours and c.ours.between is not None
                    else None,
                    "interval": _limits(c.ours),
                    "runs": c.ours.runs if c.ours else 0,
                    "failed": c.failed,
                    "censored": c.ours.censored if c.ours else 0,
                    "uncalibrated": c.uncalibrated,
                    "ours_uncalibrated": _finite(c.marked.mean) if c.marked else None,
                    "deviation": round(c.deviation, 5) if c.deviation is not None else None,
                }
                for c in self.comparisons
            ],
            "median_deviation": {m: round(median(d), 5) for m, d in deviations.items()},
            "agreements": [
                {
                    "metric": a.agreement.figure,
                    "published": a.published,
                    "measured": a.measured,
                    "median_deviation": None if a.median is None else round(a.median, 5),
                    "at_most": a.agreement.at_most,
                    "verdict": a.verdict,
                    "misses": list(a.misses),
                    "lacking": list(a.lacking),
                }
                for a in self.agreements
            ],
            "conclusions": [
                {"id": j.conclusion.id, "verdict": j.verdict, "evidence": list(j.evidence)}
                for j in self.judgements
            ],
        }


def _limits(ours: Ours | None) -> list[float | None] | None:
    found = ours.interval if ours else None
    return None if found is None else [_finite(found.low), _finite(found.high)]


def _finite(value: float) -> float | None:
    """Return a value for JSON: null if it is infinite."""
    return None if math.isinf(value) else round(value, 4)


def _miss(one: Comparison, deviation: float, paper: Paper) -> str:
    """Return a figure that is further from the published one than the bound, as text."""
    phase = (
        f", {paper.phases[one.phase]}"
        if FIGURES[one.metric].is_phased and len(paper.phases) > 1
        else ""
    )
    return f"{one.cell.id}{phase} {signed(deviation)}"


def write(results: PaperResults, folder: Path) -> Path:
    """Write results.json and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    write_atomically(path, json.dumps(results.document(), indent=1) + "\n")
    return path
