# SPDX-License-Identifier: GPL-3.0-or-later
"""The conclusions of seed-002, judged from a campaign's runs by the same rules as `satlab reproduce` does."""

import json
from pathlib import Path

from satlab.campaign.dataset import Collected
from satlab.campaign.folder import CampaignFolder
from satlab.campaign.plan import Plan, Task
from satlab.campaign.record import TaskRecord
from satlab.common.files import write_atomically
from satlab.reproduce import results
from satlab.reproduce.campaign import Done
from satlab.reproduce.matrix import Cell
from satlab.reproduce.results import CampaignRun, CellResult, Conclusion, Results

FACTORS = frozenset(("orbit", "loss", "type"))
"""What a cell of the paper differs in; no other campaign has these factors alone."""
FILE = "conclusions.json"


def of_paper(plan: Plan, folder: CampaignFolder, collected: Collected) -> list[Conclusion]:
    """Return the conclusions for which there are runs; none of another campaign."""
    runs: dict[Cell, list[CampaignRun]] = {}
    factors = {cell.id: cell.factors for cell in plan.cells}
    for task in plan.tasks:
        named = factors[task.cell]
        record = collected.records[task.id]
        if named.keys() != FACTORS or record is None or task.id in collected.changed:
            continue
        cell = Cell(str(named["orbit"]), str(named["loss"]), str(named["type"]))
        runs.setdefault(cell, []).append(_run(task, record, folder))
    cells = {cell: CellResult(cell, tuple(found)) for cell, found in runs.items()}
    return [judged for judged in Results(cells, 1).conclusions if judged.runs]


def _run(task: Task, record: TaskRecord, folder: CampaignFolder) -> CampaignRun:
    """Return a run's figures; none if it left no records."""
    places = sorted((folder.of(task) / record.counts).glob("*/records.parquet"))
    if not places:
        return CampaignRun(task.number, record.last.exit_status, {}, None)
    took_s = record.last.ended_unix_s - record.last.began_unix_s
    return results.run_of(Done(places[0].parent, task.number, record.last.exit_status, took_s))


def write(folder: Path, judged: list[Conclusion]) -> None:
    """Write report/conclusions.json; none without conclusions."""
    path = folder / "report" / FILE
    path.unlink(missing_ok=True)
    if judged:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "claim": one.claim,
                "loss_percent": one.loss,
                "verdict": one.verdict,
                "evidence": one.evidence,
                "n": one.runs,
            }
            for one in judged
        ]
        write_atomically(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
