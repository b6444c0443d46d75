# SPDX-License-Identifier: GPL-3.0-or-later
"""Published figures next to those of flows, and the paper's conclusions judged."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, stdev

from rich.console import Console
from rich.table import Table

from satlab.common.files import write_atomically
from satlab.reproduce.flow_campaign import FlowCampaign, Run
from satlab.reproduce.paper import Cell, Conclusion, Paper, Published, Rule

METRICS = {"goodput_mbps": ("Goodput", "Mbit/s", 2), "rtt_ms": ("RTT", "ms", 1)}
NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class Ours:
    """A figure over the runs of a cell: mean, mean deviation in time, deviation between runs (None with one run)."""

    mean: float
    in_time: float
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
        name, unit, digits = METRICS[self.metric]
        theirs = NOTHING
        if self.published:
            theirs = f"{self.published.mean:.{digits}f} \N{PLUS-MINUS SIGN} {self.published.sd:.{digits}f}"
        mine, between = (NOTHING, NOTHING)
        if self.ours:
            mine = f"{self.ours.mean:.{digits}f} \N{PLUS-MINUS SIGN} {self.ours.in_time:.{digits}f}"
            between = NOTHING if self.ours.between is None else f"{self.ours.between:.{digits + 1}f}"
        off = NOTHING if self.deviation is None else f"{self.deviation:+.1%}".replace("-", "\N{MINUS SIGN}")
        algorithm = self.published.algorithm if self.published else NOTHING
        source = f"table {self.published.table}" if self.published else NOTHING
        runs = str(self.ours.runs if self.ours else 0)
        return (
            self.cell.id, f"{name} ({unit})", phases[self.phase], algorithm, theirs, source,
            f"{self.cell.stack} {self.cell.control}", mine, between, runs, str(self.failed), off,
        )  # fmt: skip


COLUMNS = (
    "Cell", "Figure", "Link", "Published for", "Published", "In", "Ours with", "Ours", "Between runs", "n", "Failed",
    "Deviation",
)  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """A conclusion, whether it holds here, and what shows it."""

    conclusion: Conclusion
    verdict: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class FlowResults:
    """All runs of a campaign."""

    paper: Paper
    runs: Mapping[str, Sequence[Run]]
    cells: Sequence[Cell]

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Return every figure of every cell: each phase of goodput and RTT."""
        published = {(p.cell, p.algorithm, p.metric, p.phase): p for p in self.paper.published()}
        return [
            Comparison(
                cell, metric, phase, published.get((cell.id.split("/")[0], cell.published or "", metric, phase)),
                self.figure(cell.id, metric, phase), sum(run.failed for run in self.runs[cell.id]),
            )
            for cell in self.cells
            for metric in METRICS
            for phase in range(len(self.paper.phases))
        ]  # fmt: skip

    def figure(self, cell: str, metric: str, phase: int) -> Ours | None:
        """Return a figure over the runs of a cell; None without any. A run that failed counts with what it carried."""
        spreads = [found for run in self.runs.get(cell, ()) if (found := run.spread(metric, phase)) is not None]
        if not spreads:
            return None
        means = [mean for mean, _ in spreads]
        between = stdev(means) if len(means) > 1 else None
        return Ours(fmean(means), fmean(sd for _, sd in spreads), between, len(means))

    @cached_property
    def judgements(self) -> list[Judgement]:
        """Judge the paper's conclusions."""
        return [self._judge(conclusion) for conclusion in self.paper.conclusions]

    def _judge(self, conclusion: Conclusion) -> Judgement:
        found = [pair for rule in conclusion.rules for pair in self._check(rule)]
        states = [holds for holds, _ in found]
        verdict = "not measured" if None in states else "holds" if all(states) else "does not hold"
        return Judgement(conclusion, verdict, tuple(text for _, text in found))

    def _check(self, rule: Rule) -> list[tuple[bool | None, str]]:
        """Check a rule in each of its phases; None where nothing was measured."""
        if rule.figure == "failed":
            every = [run for runs in self.runs.values() for run in runs]
            failed = sum(run.failed for run in every)
            return [(_within(failed, rule) if every else None, f"{failed} of {len(every)} runs failed")]
        _, unit, digits = METRICS[rule.figure]
        checked: list[tuple[bool | None, str]] = []
        for phase in rule.phases:
            first = self.figure(rule.of, rule.figure, phase)
            second = self.figure(rule.minus, rule.figure, phase) if rule.minus else None
            name = f"{rule.of} \N{MINUS SIGN} {rule.minus}" if rule.minus else rule.of
            where = f"{name}, {self.paper.phases[phase]}"
            if first is None or (rule.minus and second is None):
                checked.append((None, f"{where}: not measured"))
                continue
            value = first.mean - (second.mean if second else 0.0)
            checked.append((_within(value, rule), f"{where}: {value:+.{digits}f} {unit} ({_bounds(rule)})"))
        return checked

    def document(self) -> dict[str, object]:
        """Return all figures as schemas/paper-results.schema.json says."""
        deviations = {
            metric: [abs(c.deviation) for c in self.comparisons if c.metric == metric and c.deviation is not None]
            for metric in METRICS
        }
        return {
            "schema": "satlab/paper-results/1",
            "paper": self.paper.name,
            "clock": "virtual",
            "figures": [
                {
                    "cell": c.cell.id,
                    "metric": c.metric,
                    "phase": self.paper.phases[c.phase],
                    "published": c.published.mean if c.published else None,
                    "ours": round(c.ours.mean, 4) if c.ours else None,
                    "sd_in_time": round(c.ours.in_time, 4) if c.ours else None,
                    "sd_between_runs": round(c.ours.between, 4) if c.ours and c.ours.between is not None else None,
                    "runs": c.ours.runs if c.ours else 0,
                    "failed": c.failed,
                    "deviation": round(c.deviation, 5) if c.deviation is not None else None,
                }
                for c in self.comparisons
            ],
            "median_deviation": {m: round(median(d), 5) if d else None for m, d in deviations.items()},
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
    path = folder / "results.json"
    write_atomically(path, json.dumps(results.document(), indent=1) + "\n")
    return path


def show(results: FlowResults) -> None:
    """Print tables on stdout."""
    console = Console()
    table = Table(*COLUMNS, title="Comparison with the paper")
    for one in results.comparisons:
        table.add_row(*one.row(results.paper.phases))
    console.print(table)
    verdicts = Table("Conclusion", "Verdict", "Evidence", title="The paper's conclusions")
    for judgement in results.judgements:
        verdicts.add_row(judgement.conclusion.text, judgement.verdict, "; ".join(judgement.evidence))
    console.print(verdicts)
