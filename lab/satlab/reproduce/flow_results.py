# SPDX-License-Identifier: GPL-3.0-or-later
"""Published figures next to those of flows, and the paper's conclusions judged."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, stdev

from rich.table import Table

from satlab.common.console import for_tables
from satlab.common.files import write_atomically
from satlab.reproduce.flow_campaign import FlowCampaign, Run
from satlab.reproduce.flow_figures import FIGURES, RELATIVE
from satlab.reproduce.paper import Cell, Conclusion, Grid, Paper, Published, Rule

FILE = "results.json"
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Ours:
    """A figure over the runs of a cell: mean, mean deviation in time, deviation between runs (None with one run)."""

    mean: float
    in_time: float | None
    between: float | None
    runs: int


@dataclass(frozen=True)
class Comparison:
    """A figure of a cell in a phase."""

    cell: Cell
    metric: str
    phase: int
    published: Published | None
    ours: Ours | None
    failed: int

    @property
    def deviation(self) -> float | None:
        """Return ours less published, relative."""
        if self.published is None or self.ours is None:
            return None
        return self.ours.mean / self.published.mean - 1

    def row(self, phases: Sequence[str]) -> tuple[str, ...]:
        """Return it as text: `COLUMNS`."""
        figure = FIGURES[self.metric]
        theirs = mine = between = source = algorithm = NOTHING
        if self.published:
            theirs = _with_spread(self.published.mean, self.published.sd, figure.digits)
            algorithm, source = self.published.algorithm, f"table {self.published.table}"
        if self.ours:
            mine = _with_spread(self.ours.mean, self.ours.in_time, figure.digits)
            between = NOTHING if self.ours.between is None else f"{self.ours.between:.{figure.digits + 1}f}"
        off = NOTHING if self.deviation is None else f"{self.deviation:+.1%}".replace("-", "\N{MINUS SIGN}")
        unit = f" ({figure.unit})" if figure.unit else ""
        return (
            self.cell.id, f"{figure.title}{unit}", phases[self.phase] if figure.is_phased else NOTHING, algorithm,
            theirs, source, self.cell.algorithm, mine, between, str(self.ours.runs if self.ours else 0),
            str(self.failed), off,
        )  # fmt: skip


def _title(metric: str) -> str:
    figure = FIGURES[metric]
    return f"{figure.title}{f' ({figure.unit})' if figure.unit else ''}"


def _with_spread(mean: float, sd: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if sd is None else f" \N{PLUS-MINUS SIGN} {sd:.{digits}f}")


COLUMNS = (
    "Cell", "Figure", "Phase", "Published for", "Published", "In", "Ours with", "Ours", "Between runs", "n", "Failed",
    "Deviation",
)  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """A conclusion, whether it holds here, and what shows it."""

    conclusion: Conclusion
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class GridTable:
    """A table of a paper as text: means over the runs, a dash where nothing was measured."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class FlowResults:
    """All runs of a campaign."""

    paper: Paper
    runs: Mapping[str, Sequence[Run]]
    cells: Sequence[Cell]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Return every figure of every cell, those of a phase in each."""
        published = self.paper.published()

        def theirs(cell: Cell, metric: str, phase: int) -> Published | None:
            for row in published:
                if row.is_of(cell) and (row.algorithm, row.metric, row.phase) == (cell.published, metric, phase):
                    return row
            return None

        return [
            Comparison(
                cell, metric, phase, theirs(cell, metric, phase), self.figure(cell, metric, phase),
                sum(run.failed for run in self.runs[cell.id]),
            )
            for cell in self.cells
            for metric in cell.figures
            for phase in range(len(self.paper.phases) if FIGURES[metric].is_phased else 1)
        ]  # fmt: skip

    def figure(self, cell: Cell, metric: str, phase: int) -> Ours | None:
        """Return a figure over the runs of a cell; None without any. A run that failed counts with what it carried."""
        spreads = [found for run in self.runs.get(cell.id, ()) if (found := run.spread(metric, phase)) is not None]
        if not spreads:
            return None
        scale = self._scale(cell, metric, phase)
        if scale is None:
            return None
        means = [mean * scale for mean, _ in spreads]
        deviations = [sd * scale for _, sd in spreads if sd is not None]
        between = stdev(means) if len(means) > 1 else None
        return Ours(fmean(means), fmean(deviations) if deviations else None, between, len(means))

    def _scale(self, cell: Cell, metric: str, phase: int) -> float | None:
        """Return what makes a figure a percentage of the base cell's; None where that was not measured."""
        if metric not in RELATIVE or cell.base is None:
            return None if metric in RELATIVE else 1.0
        spreads = [found for run in self.runs.get(cell.base, ()) if (found := run.spread(metric, phase)) is not None]
        whole = fmean(mean for mean, _ in spreads) if spreads else 0.0
        return 100 / whole if whole else None

    @cached_property
    def grids(self) -> list["GridTable"]:
        """Return the paper's tables that have cells here."""
        tables = [self._grid(grid) for grid in self.paper.grids]
        return [table for table in tables if table.rows]

    def _grid(self, grid: Grid) -> "GridTable":
        cells = [cell for cell in self.cells if fnmatchcase(cell.id, grid.cells)]
        row_values = list(dict.fromkeys(cell.factors[grid.rows] for cell in cells))
        columns: list[tuple[str, str | None]] = [(figure, None) for figure in grid.figures]
        head = [_title(figure) for figure in grid.figures]
        if grid.columns is not None:
            known = dict.fromkeys(str(cell.factors[grid.columns]) for cell in cells)
            head = [value for value in grid.only or known if value in known]
            columns = [(grid.figures[0], value) for value in head]
        rows = [
            (f"{row:g}" if isinstance(row, float) else row, *(self._in_grid(grid, cells, row, *one) for one in columns))
            for row in row_values
        ]
        return GridTable(grid.title, (grid.rows, *head), rows)

    def _in_grid(self, grid: Grid, cells: Sequence[Cell], row: str | float, metric: str, column: str | None) -> str:
        for cell in cells:
            is_column = grid.columns is None or str(cell.factors[grid.columns]) == column
            if cell.factors[grid.rows] == row and is_column:
                found = self.figure(cell, metric, grid.phase)
                return NOTHING if found is None else f"{found.mean:.{FIGURES[metric].digits}f}"
        return NOTHING

    @cached_property
    def judgements(self) -> list[Judgement]:
        """Judge the paper's conclusions."""
        return [self._judge(conclusion) for conclusion in self.paper.conclusions]

    def _judge(self, conclusion: Conclusion) -> Judgement:
        found = [pair for rule in conclusion.rules for pair in self._check(rule)]
        evidence = tuple(text for _, text in found)
        if conclusion.undecided:
            return Judgement(conclusion, "undecided", (conclusion.undecided, *evidence))
        states = [holds for holds, _ in found]
        verdict = "not measured" if None in states else "holds" if all(states) else "does not hold"
        return Judgement(conclusion, verdict, evidence)

    def _check(self, rule: Rule) -> list[tuple[bool | None, str]]:
        """Check a rule in each of its phases; None where nothing was measured."""
        if rule.figure == "failed":
            every = [run for runs in self.runs.values() for run in runs]
            failed = sum(run.failed for run in every)
            return [(_within(failed, rule) if every else None, f"{failed} of {len(every)} runs failed")]
        is_phased = FIGURES[rule.figure].is_phased
        phases = (rule.phases or range(len(self.paper.phases))) if is_phased else (0,)
        return [self._check_phase(rule, phase, is_phased=is_phased) for phase in phases]

    def _check_phase(self, rule: Rule, phase: int, *, is_phased: bool) -> tuple[bool | None, str]:
        figure = FIGURES[rule.figure]
        cells = {cell.id: cell for cell in self.paper.cells}
        other = rule.minus or rule.over
        first = self.figure(cells[rule.of], rule.figure, phase)
        second = self.figure(cells[other], rule.figure, phase) if other else None
        sign = "\N{MINUS SIGN}" if rule.minus else "/"
        where = f"{rule.of} {sign} {other}" if other else rule.of
        where += f", {self.paper.phases[phase]}" if is_phased and len(self.paper.phases) > 1 else ""
        if not other and rule.at_most is not None and (without := self._incomplete(rule)):
            return False, f"{where}: {figure.title} of {without} runs: not within the run ({_bounds(rule)})"
        if first is None or (other and second is None):
            return None, f"{where}: not measured"
        value = first.mean
        if second is not None:
            value = value - second.mean if rule.minus else value / second.mean if second.mean else float("inf")
        shown = f"{value:.2f}" if rule.over else f"{value:{'+' if rule.minus else ''}.{figure.digits}f} {figure.unit}"
        bounds = _bounds(rule)
        return _within(value, rule), f"{where}: {figure.title} {shown.strip()}{f' ({bounds})' if bounds else ''}"

    def _incomplete(self, rule: Rule) -> str:
        """Return how many runs did not complete what the rule bounds by a time; empty if all did."""
        if not rule.figure.startswith("complete_"):
            return ""
        runs = self.runs.get(rule.of, ())
        missing = sum(run.spread(rule.figure, 0) is None for run in runs)
        return f"{missing} of {len(runs)}" if missing else ""

    def document(self) -> dict[str, object]:
        """Return all figures as schemas/paper-results.schema.json says."""
        deviations: dict[str, list[float]] = {}
        for one in self.comparisons:
            if one.deviation is not None:
                deviations.setdefault(one.metric, []).append(abs(one.deviation))
        return {
            "schema": "satlab/paper-results/1",
            "paper": self.paper.name,
            "clock": self.paper.clock,
            "out_of_calibration": sum(run.is_uncalibrated for runs in self.runs.values() for run in runs),
            "figures": [
                {
                    "cell": c.cell.id,
                    "metric": c.metric,
                    "phase": self.paper.phases[c.phase] if FIGURES[c.metric].is_phased else None,
                    "published": c.published.mean if c.published else None,
                    "ours": round(c.ours.mean, 4) if c.ours else None,
                    "sd_in_time": round(c.ours.in_time, 4) if c.ours and c.ours.in_time is not None else None,
                    "sd_between_runs": round(c.ours.between, 4) if c.ours and c.ours.between is not None else None,
                    "runs": c.ours.runs if c.ours else 0,
                    "failed": c.failed,
                    "deviation": round(c.deviation, 5) if c.deviation is not None else None,
                }
                for c in self.comparisons
            ],
            "median_deviation": {m: round(median(d), 5) for m, d in deviations.items()},
            "conclusions": [
                {"id": j.conclusion.id, "verdict": j.verdict, "evidence": list(j.evidence)} for j in self.judgements
            ],
        }


def _within(value: float, rule: Rule) -> bool:
    above = rule.at_least is None or value >= rule.at_least
    return above and (rule.at_most is None or value <= rule.at_most)


def _bounds(rule: Rule) -> str:
    words = [] if rule.at_least is None else [f"at least {rule.at_least:g}"]
    return ", ".join(words + ([] if rule.at_most is None else [f"at most {rule.at_most:g}"]))


def read(campaign: FlowCampaign) -> FlowResults:
    """Read all runs that are done."""
    return FlowResults(campaign.paper, {cell.id: campaign.done(cell) for cell in campaign.cells}, campaign.cells)


def write(results: FlowResults, folder: Path) -> Path:
    """Write results.json and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    write_atomically(path, json.dumps(results.document(), indent=1) + "\n")
    return path


def show(results: FlowResults) -> None:
    """Print tables on stdout."""
    console = for_tables()
    rows = [one.row(results.paper.phases) for one in results.comparisons]
    used = [number for number in range(len(COLUMNS)) if any(row[number] != NOTHING for row in rows)]
    lines = [[row[number] for number in used] for row in rows]
    console.print(_table("Comparison with the paper", [COLUMNS[number] for number in used], lines))
    for grid in results.grids:
        console.print(_table(grid.title, grid.head, grid.rows))
    verdicts = Table("Conclusion", "Verdict", "Evidence", title="The paper's conclusions")
    for judgement in results.judgements:
        verdicts.add_row(judgement.conclusion.text, judgement.verdict, "; ".join(judgement.evidence))
    console.print(verdicts)


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    return table
