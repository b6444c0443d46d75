# SPDX-License-Identifier: GPL-3.0-or-later
"""A paper's conclusions, judged from a campaign's runs by the same rules as `satlab reproduce`
does.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from satlab.campaign import samples
from satlab.campaign.dataset import Collected
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.plan import Plan, Task
from satlab.campaign.record import TaskRecord
from satlab.common.files import write_atomically
from satlab.papers import flow_results, results
from satlab.papers.campaign import Done
from satlab.papers.flow_campaign import Run
from satlab.papers.flow_results import FlowResults
from satlab.papers.matrix import Cell
from satlab.papers.results import CampaignRun, CellResult, Results

SCENARIO_FACTORS = frozenset(("orbit", "loss", "type"))
"""What a cell of seed-002 differs in; no other campaign has these factors alone."""
FLOW_FACTORS = frozenset(("paper", "clock", "cell"))
"""What a cell of a paper of flows differs in."""
FILE = "conclusions.json"


@dataclass(frozen=True)
class Judged:
    """One conclusion of a paper, at one loss (percent;

    None for all): its verdict, what shows it, and `n` runs.
    """

    claim: str
    loss_percent: str | None
    verdict: str
    evidence: str
    n: int

    @property
    def title(self) -> str:
        """Return claim and loss."""
        return (
            self.claim if self.loss_percent is None else f"{self.claim}, loss {self.loss_percent} %"
        )


@dataclass(frozen=True)
class Conclusions:
    """What is judged, with all figures of the paper where it is one of flows; nothing of another
    campaign.
    """

    judged: tuple[Judged, ...] = ()
    flows: FlowResults | None = None

    def write(self, folder: Path) -> None:
        """Write report/conclusions.json and, of flows, report/results.json; none where there are
        none.
        """
        report = folder / "report"
        for name in (FILE, flow_results.FILE):
            (report / name).unlink(missing_ok=True)
        report.mkdir(parents=True, exist_ok=True)
        if self.judged:
            rows = [asdict(one) for one in self.judged]
            write_atomically(report / FILE, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        if self.flows is not None:
            flow_results.write(self.flows, report)


def of_paper(plan: Plan, folder: CampaignFolder, collected: Collected) -> Conclusions:
    """Judge the conclusions for which there are runs. A task whose files changed is not counted."""
    done = [
        (task, found)
        for task in plan.tasks
        if (found := collected.records[task.id]) is not None and task.id not in collected.changed
    ]
    factors = {frozenset(cell.factors) for cell in plan.cells}
    if factors == {SCENARIO_FACTORS}:
        return _of_scenarios(plan, folder, done)
    return _of_flows(plan, collected.outcomes) if factors == {FLOW_FACTORS} else Conclusions()


def _of_scenarios(
    plan: Plan, folder: CampaignFolder, done: list[tuple[Task, TaskRecord]]
) -> Conclusions:
    runs: dict[Cell, list[CampaignRun]] = {}
    factors = {cell.id: cell.factors for cell in plan.cells}
    for task, found in done:
        named = factors[task.cell]
        cell = Cell(str(named["orbit"]), str(named["loss"]), str(named["type"]))
        runs.setdefault(cell, []).append(_run(task, found, folder))
    cells = {cell: CellResult(cell, tuple(of_cell)) for cell, of_cell in runs.items()}
    judged = [one for one in Results(cells, 1).conclusions if one.runs]
    return Conclusions(
        tuple(Judged(one.claim, one.loss, one.verdict, one.evidence, one.runs) for one in judged)
    )


def _run(task: Task, found: TaskRecord, folder: CampaignFolder) -> CampaignRun:
    """Return a run's figures; none if it left no records."""
    places = sorted((folder.of(task) / found.counts).glob("*/records.parquet"))
    if not places:
        return CampaignRun(task.number, found.last.exit_status, {}, None)
    took_s = found.last.ended_unix_s - found.last.began_unix_s
    return results.run_of(Done(places[0].parent, task.number, found.last.exit_status, took_s))


def _of_flows(plan: Plan, outcomes: Mapping[str, Any]) -> Conclusions:
    """Judge a paper of flows: as in `reproduce`, runs out of calibration count, and are counted in
    results.json.

    A task without outcome, whose command failed, is a failed sample of the dataset.
    """
    factors = {cell.id: cell.factors for cell in plan.cells}
    about = samples.paper_of(plan.cells[0].factors)
    ids = {str(named["cell"]) for named in factors.values()}
    runs: dict[str, list[Run]] = {name: [] for name in ids}
    for task in plan.tasks:
        if task.id in outcomes:
            runs[str(factors[task.cell]["cell"])].append(Run(task.number, outcomes[task.id]))
    measured = FlowResults(about, runs, [cell for cell in about.cells if cell.id in ids])
    count = sum(map(len, runs.values()))
    judged = [
        Judged(one.conclusion.text, None, one.verdict, "; ".join(one.evidence), count)
        for one in measured.judgements
        if one.verdict != "not measured"
    ]
    return Conclusions(tuple(judged), measured if count else None)
