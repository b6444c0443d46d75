# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's conclusions judged by the runs of its cells.

Only runs in calibration are judged. A rule is undecided if one of its cells has fewer of them than
the paper's file requires, if all of them failed, if the cell has another algorithm than the paper,
or if the bound lies within the 95 % interval of the figure. A rule is not measured if a cell has no
run at all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from satlab.common import statistics
from satlab.common.statistics import Verdict
from satlab.papers import estimates
from satlab.papers.cell_run import Run, in_calibration, unequal_hosts
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

    `runs`: all runs of each cell. `figure` returns a figure of a cell in a phase over its runs in
    calibration; None if it was not measured.
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

    def lack(self, name: str, figure: str, measured: int) -> str:
        """Return what a cell lacks for a verdict on a figure that `measured` of its runs have, and
        why; "" if nothing.
        """
        runs = self.runs.get(name, ())
        counted = in_calibration(runs)
        needed = self.paper.needed_of(self._cells[name])
        failed = sum(run.has_failed(figure) for run in counted)
        if measured >= needed and failed < len(counted):
            return ""
        off = len(runs) - len(counted)
        reasons = [f"{failed} failed"] if failed else []
        reasons += [f"{off} out of calibration"] if off else []
        why = f", {' and '.join(reasons)}" if reasons else ""
        return f"{name} has {measured} of {needed} runs{why}"

    def _check(self, rule: Rule) -> Iterator[tuple[Verdict, str]]:
        """Check a rule in each of its phases."""
        if rule.figure == "failed":
            yield self._check_failures(rule)
            return
        is_phased = FIGURES[rule.figure].is_phased
        for phase in (rule.phases or range(len(self.paper.phases))) if is_phased else (0,):
            yield self._check_phase(rule, phase)

    def _check_failures(self, rule: Rule) -> tuple[Verdict, str]:
        """Check the number of failed runs of all cells."""
        every = [run for runs in self.runs.values() for run in runs]
        counted = in_calibration(every)
        failed = sum(run.failed for run in counted)
        text = f"{failed} of {len(counted)} runs failed"
        if not every:
            return "not measured", text
        if off := len(every) - len(counted):
            text += f" ({off} out of calibration are not counted)"
        state = estimates.within(Estimate(failed, None, ()), rule.at_least, rule.at_most)
        unseen = [name for name, runs in self.runs.items() if runs and not in_calibration(runs)]
        if state and unseen:
            return "undecided", f"{text}; no run in calibration: {', '.join(unseen)}"
        if state and len(counted) < self.paper.least_runs:
            return "undecided", f"{text}; {self.paper.least_runs} runs are needed"
        return VERDICT[state], text

    def _check_phase(self, rule: Rule, phase: int) -> tuple[Verdict, str]:
        figure, other = FIGURES[rule.figure], rule.minus or rule.over
        sign = "\N{MINUS SIGN}" if rule.minus else "/"
        where = f"{rule.of} {sign} {other}" if other else rule.of
        where += (
            f", {self.paper.phases[phase]}"
            if figure.is_phased and len(self.paper.phases) > 1
            else ""
        )
        names = [name for name in (rule.of, other) if name]
        parts = [self.figure(self._cells[name], rule.figure, phase) for name in names]
        if not all(self.runs.get(name) for name in names):
            return "not measured", f"{where}: not measured"
        lacks = [
            self.lack(name, rule.figure, part.runs if part else 0)
            for name, part in zip(names, parts, strict=True)
        ]
        short = [f"too few runs to judge: {lack}" for lack in lacks if lack]
        first, second = parts[0], parts[-1] if other else None
        if first is None or (other and second is None):
            return "undecided", f"{where}: {'; '.join(short) or 'no figure'}"
        if second is None:
            estimate = estimates.alone(first)
        else:
            estimate = (
                estimates.difference(first, second)
                if rule.minus
                else estimates.ratio(first, second)
            )
        substitutes = {self.paper.substitute_of(name): None for name in names}
        replaced = [f"{one.here} in place of the paper's {one.paper}" for one in substitutes if one]
        is_open = short or replaced
        state = None if is_open else estimates.within(estimate, rule.at_least, rule.at_most)
        notes = [*replaced, _bounds(rule)] if _bounds(rule) else replaced
        failed = {
            name: sum(run.has_failed(rule.figure) for run in in_calibration(self.runs[name]))
            for name in names
        }
        notes += [
            f"{count} of {len(in_calibration(self.runs[name]))} runs of {name} failed"
            for name, count in failed.items()
            if count
        ]
        censored = [part for part in (first, second) if part and part.censored]
        notes += [f"{part.censored} of {part.runs} runs: not within the run" for part in censored]
        counted = [run for name in names for run in in_calibration(self.runs[name])]
        unequal = unequal_hosts(counted) if figure.bootstrap == "median" else ""
        notes += [f"from hosts whose browsers are not equally fast: {unequal}"] if unequal else []
        notes += short
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
