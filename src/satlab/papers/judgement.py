# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's conclusions judged by the runs of its cells.

A rule is undecided if it has fewer runs than the paper's file requires, if its bound lies within
the 95 % interval of its figure, or if all runs of one of its cells failed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from satlab.common import statistics
from satlab.common.statistics import Verdict
from satlab.papers import estimates
from satlab.papers.cell_run import Run
from satlab.papers.estimates import Estimate, Ours
from satlab.papers.figures import FIGURES, FigureOf
from satlab.papers.paper import Cell, Conclusion, Paper, Rule

VERDICT: Mapping[bool | None, Verdict] = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True)
class Judgement:
    """A conclusion, whether it holds here, and the evidence."""

    conclusion: Conclusion
    verdict: Verdict
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Judge:
    """Judges conclusions.

    `figure` returns a figure of a cell in a phase; None if it was not measured.
    """

    paper: Paper
    runs: Mapping[str, Sequence[Run]]
    figure: Callable[[Cell, str, int], Ours | None]

    @cached_property
    def _cells(self) -> dict[str, Cell]:
        return {cell.id: cell for cell in self.paper.cells}

    def judge(self, conclusion: Conclusion) -> Judgement:
        """Return the verdict of all rules together, with the evidence of each."""
        found = [pair for rule in conclusion.rules for pair in self._check(rule)]
        evidence = tuple(text for _, text in found)
        if conclusion.undecided:
            return Judgement(conclusion, "undecided", (conclusion.undecided, *evidence))
        return Judgement(conclusion, statistics.all_of([verdict for verdict, _ in found]), evidence)

    def lacking(self, cell: str) -> int:
        """Return the number of runs of a cell that a conclusion still lacks."""
        return max(0, self.paper.needed_of(self._cells[cell]) - len(self.runs.get(cell, ())))

    def _check(self, rule: Rule) -> Iterator[tuple[Verdict, str]]:
        """Check a rule in each of its phases."""
        if rule.figure == "failed":
            every = [run for runs in self.runs.values() for run in runs]
            failed = sum(run.failed for run in every)
            state = estimates.within(Estimate(failed, None, ()), rule.at_least, rule.at_most)
            yield (
                VERDICT[state] if every else "not measured",
                f"{failed} of {len(every)} runs failed",
            )
            return
        is_phased = FIGURES[rule.figure].is_phased
        for phase in (rule.phases or range(len(self.paper.phases))) if is_phased else (0,):
            yield self._check_phase(rule, phase)

    def _check_phase(self, rule: Rule, phase: int) -> tuple[Verdict, str]:
        figure, other = FIGURES[rule.figure], rule.minus or rule.over
        sign = "\N{MINUS SIGN}" if rule.minus else "/"
        where = f"{rule.of} {sign} {other}" if other else rule.of
        where += (
            f", {self.paper.phases[phase]}"
            if figure.is_phased and len(self.paper.phases) > 1
            else ""
        )
        first = self.figure(self._cells[rule.of], rule.figure, phase)
        second = self.figure(self._cells[other], rule.figure, phase) if other else None
        if first is None or (other and second is None):
            return "not measured", f"{where}: not measured"
        if second is None:
            estimate = estimates.alone(first)
        else:
            estimate = (
                estimates.difference(first, second)
                if rule.minus
                else estimates.ratio(first, second)
            )
        names = [name for name in (rule.of, other) if name]
        measured = min(part.runs for part in (first, second) if part)
        needed = max(self.paper.needed_of(self._cells[name]) for name in names)
        short = max(*map(self.lacking, names), needed - measured, 0)
        failed = {name: sum(r.has_failed(rule.figure) for r in self.runs[name]) for name in names}
        is_open = short or any(count == len(self.runs[name]) for name, count in failed.items())
        state = None if is_open else estimates.within(estimate, rule.at_least, rule.at_most)
        notes = [_bounds(rule)] if _bounds(rule) else []
        notes += [
            f"{count} of {len(self.runs[name])} runs of {name} failed"
            for name, count in failed.items()
            if count
        ]
        censored = [part for part in (first, second) if part and part.censored]
        notes += [f"{part.censored} of {part.runs} runs: not within the run" for part in censored]
        notes += [f"too few runs to judge: {short} more"] if short else []
        text = f"{where}: {figure.title} {_shown(estimate, rule, figure)}"
        return VERDICT[state], f"{text} ({'; '.join(notes)})" if notes else text


def _shown(estimate: Estimate, rule: Rule, figure: FigureOf) -> str:
    """Return value, interval and numbers of runs as text."""
    digits, unit = (
        (2, "") if rule.over else (figure.digits, f" {figure.unit}" if figure.unit else "")
    )
    sign = "+" if rule.minus else ""
    known = (
        "about "
        if estimate.is_least and estimate.is_most
        else "at least "
        if estimate.is_least
        else ""
    )
    known = known or ("at most " if estimate.is_most else "")
    words = f"{known}{estimate.value:{sign}.{digits}f}{unit}"
    if estimate.interval is not None:
        words += (
            f" [{estimate.interval.low:{sign}.{digits}f} to"
            f" {estimate.interval.high:{sign}.{digits}f}]"
        )
    words = words.replace("inf", "\N{INFINITY}")
    return f"{words}, n = {' and '.join(map(str, estimate.runs))}"


def _bounds(rule: Rule) -> str:
    words = [] if rule.at_least is None else [f"at least {rule.at_least:g}"]
    return ", ".join(words + ([] if rule.at_most is None else [f"at most {rule.at_most:g}"]))
