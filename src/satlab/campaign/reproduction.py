# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab reproduce`: a campaign of a paper's cells, compared with the published figures.

`prepare` reads the paper and plans the campaign. `Reproduction.run` executes the plan, judges the
paper's conclusions and writes the page.
"""

import json
import shlex
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from collect import run_records
from collect.run_records import RunFolderError
from satlab.campaign import dataset, kept_runs, planner, task_samples
from satlab.campaign import plan_file as plans
from satlab.campaign.campaign_folder import CampaignFolder
from satlab.campaign.dataset import Collected
from satlab.campaign.engine import Engine, Options
from satlab.campaign.kept_runs import KeptRun
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_request import Flows
from satlab.common import console, paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.sudo_caller import chown_to_caller
from satlab.link.options import LinkOptions
from satlab.papers import cell_run, paper, paper_report, result_tables, results
from satlab.papers.cell_run import Run
from satlab.papers.paper import Cell, Paper
from satlab.papers.results import PaperResults
from satlab.papers.scenario_figures import Records
from satlab.papers.shipped_papers import Clock
from satlab.run import sandboxed_reader, scenario_run
from satlab.run.quiet_host import Patience

DECIDED = ("holds", "does not hold")
DEADLINE_S = 3600.0
"""Longest time of one attempt at a run, s; the longest lab takes 20 min."""


@dataclass(frozen=True)
class Request:
    """Options of `satlab reproduce`. None selects the default, or the value of the resumed folder;
    `quick` has as many runs of each cell as a conclusion needs.
    """

    paper: str
    clock: Clock | None = None
    quick: bool = False
    runs: int | None = None
    cells: Sequence[str] | None = None
    resume: Path | None = None
    parallel: str = "auto"
    out: Path = Path("runs")
    patience: Patience = field(default_factory=Patience)
    keep: Path | None = None


@dataclass
class Reproduction:
    """A paper's campaign, checked and not begun. `kept`: earlier runs, from the file `keep`."""

    about: Paper
    engine: Engine
    keep: Path | None = None
    kept: Sequence[KeptRun] = ()
    log: ProgressLog = field(default_factory=ProgressLog)
    results: PaperResults | None = None

    def document(self) -> dict[str, Any]:
        """Return the planned runs."""
        plan, folder = self.engine.plan, self.engine.folder
        left = [*folder.left(plan), *folder.marked(plan)]
        cells = _cells(plan)
        described = [
            {
                "cell": cells[task.cell],
                "number": task.number,
                "estimate_s": round(task.estimate_s, 1),
            }
            for task in left
        ]
        return {
            "folder": str(self.engine.folder.path),
            "clock": self.about.clock,
            "runs": _counts(plan),
            "runs_left": len(left),
            "labs": sum(task.lab == "netns" for task in left),
            "estimate_s": round(self.engine.estimate_s(left)),
            "left": described,
            "cells": {
                cells[task.cell]: task.request.model_dump(mode="json", by_alias=True)
                for task in plan.tasks
                if task.number == 1
            },
        }

    def run(self, stop: threading.Event) -> ExitStatus:
        """Run the remaining tasks, judge all and write results and page, also of an incomplete
        reproduction.

        Status 1: a run failed; 6: no conclusion was decided; 4: a run is out of calibration; 130:
        stopped. Raises HostError.
        """
        words = ["satlab", "reproduce", self.about.name, "--resume", str(self.engine.folder.path)]
        words += ["--keep", str(self.keep)] if self.keep is not None else []
        go_on = shlex.join(words)
        try:
            status = self.engine.run(self.log, stop)
        except HostError as error:
            self._report()
            error.hint = "; then: ".join(filter(None, (error.hint, go_on)))
            raise
        found = self._report()
        if status == ExitStatus.INTERRUPTED:
            self.log.line(f"stopped; go on with: {go_on}")
            return status
        runs = [run for of_cell in found.runs.values() for run in of_cell]
        if len(runs) < found.planned or any(run.failed for run in runs):
            return ExitStatus.FAILED
        if found.paper.conclusions and not any(one.verdict in DECIDED for one in found.judgements):
            self.log.line("no conclusion was decided; the report says what is missing")
            return ExitStatus.UNDECIDED
        is_off = any(run.is_uncalibrated for run in runs)
        return ExitStatus.UNCALIBRATED if is_off else ExitStatus.OK

    def _report(self) -> PaperResults:
        """Collect all runs that are done, and write results.json and the page."""
        folder = self.engine.folder
        with self.log.step("tables and report"):
            collected = dataset.collect(self.engine.plan, folder)
            found = judged(self.engine.plan, folder, collected, self.kept, is_own=True)
            if self.keep is not None:
                new = _kept(self.engine.plan, folder, collected)
                kept_runs.write(self.keep, self.about.name, kept_runs.merged(self.kept, new))
                chown_to_caller(self.keep)
            results.write(found, folder.path / "report")
            path = paper_report.write(folder.path, found, folder.path / "report" / "index.html")
            chown_to_caller(folder.path)
        for task, fault in collected.changed.items():
            self.log.line(f"warning: {task}: {fault}")
        self.log.line(str(path))
        self.results = found
        return found

    def show(self, *, as_json: bool) -> None:
        """Print the results."""
        if self.results is None:
            return
        if as_json:
            console.say(json.dumps(self.results.document()))
        else:
            result_tables.show(self.results)


def prepare(request: Request) -> Reproduction:
    """Check everything that the runs need; changes nothing. Raises ConfigError, HostError."""
    before = None if request.resume is None else _plan_of(request.resume, request.paper)
    clock = request.clock
    if before is not None and clock is None:
        clock = _clock(before)
    about = paper.load(request.paper, paper.clock_of(request.paper, clock))
    numbers = _numbers(about, request, before)
    cells = [cell for cell in about.cells if cell.id in numbers]
    _check_scenarios(cells)
    drafts = [
        planner.of_paper(about, cell, tuple(range(1, numbers[cell.id] + 1))) for cell in cells
    ]
    plan = planner.of_drafts(about.name, drafts, about.name, DEADLINE_S)
    kept: Sequence[KeptRun] = ()
    if request.keep is not None:
        if not all(cell.run for cell in about.cells):
            raise ConfigError("--keep is for papers of scenarios", hint="leave it out")
        kept = kept_runs.current(kept_runs.load(request.keep, about.name), plan, _cells(plan))
        plan = kept_runs.without(plan, kept, _cells(plan))
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = CampaignFolder(request.resume or request.out / f"{about.name}-{stamp}")
    options = Options(
        jobs=_jobs(request, about.clock),
        retries=request.patience.retries,
        wait_quiet_s=request.patience.wait_quiet_s,
    )
    return Reproduction(
        about, Engine(plan, folder, options, replace=True), keep=request.keep, kept=kept
    )


def _plan_of(folder: Path, name: str) -> Plan:
    """Return the plan of an earlier reproduction of a paper. Raises ConfigError without one."""
    if (folder / "campaign.json").exists():
        raise ConfigError(
            f"{folder} was made by an earlier version, whose runs this one cannot go on with",
            hint="its report stays; begin anew without --resume",
        )
    plan = plans.load(folder / plans.FILE)
    if not is_of_paper(plan) or any(task.seed != task.number for task in plan.tasks):
        what = f"{folder} is no reproduction: no cells of a paper, or seeds of a campaign's file"
        raise ConfigError(what, hint="satlab campaign run FILE")
    found = next(iter(plan.cells.values()))["paper"]
    if found != name:
        hint = f"satlab reproduce {found} --resume ..."
        raise ConfigError(f"{folder} is a campaign of {found}", hint=hint)
    return plan


def is_of_paper(plan: Plan) -> bool:
    """Return whether a campaign has cells of a paper."""
    of_paper = [{"paper", "clock", "cell"} <= factors.keys() for factors in plan.cells.values()]
    return bool(of_paper) and all(of_paper)


def _clock(plan: Plan) -> Clock:
    return "real" if next(iter(plan.cells.values()))["clock"] == "real" else "virtual"


def _cells(plan: Plan) -> dict[str, str]:
    """Return the paper's id of each cell by that of the plan."""
    return {name: str(factors["cell"]) for name, factors in plan.cells.items()}


def _counts(plan: Plan) -> Counter[str]:
    """Return the number of runs of each cell by the paper's ids, with runs kept elsewhere."""
    cells = _cells(plan)
    found = Counter[str]()
    for task in plan.tasks:
        found[cells[task.cell]] = max(found[cells[task.cell]], task.number)
    return found


def _numbers(about: Paper, request: Request, before: Plan | None) -> dict[str, int]:
    """Return the ids of cells to run and the number of runs of each: as requested, else as in the
    resumed folder, else as in the paper.
    """
    runs = request.runs
    chosen = about.select(request.cells, quick=request.quick)
    if before is None:
        usual_of = about.needed_of if request.quick else about.runs_of
        return {cell.id: runs or usual_of(cell) for cell in chosen}
    if (clock := _clock(before)) != about.clock:
        hint = f"satlab reproduce {about.name} --clock {clock} --resume ..."
        raise ConfigError(f"the folder is a campaign on the {clock} clock", hint=hint)
    known = _counts(before)
    old = [cell for cell in about.cells if cell.id in known]
    if request.cells is None and not request.quick:
        chosen = old
    usual = all(known[cell.id] == about.runs_of(cell) for cell in old)
    more = None if usual else max(known.values())
    return {cell.id: runs or known.get(cell.id) or more or about.runs_of(cell) for cell in chosen}


def _check_scenarios(cells: Sequence[Cell]) -> None:
    """Check one run of each scenario over each profile. Raises ConfigError, HostError."""
    checked = set()
    for cell in cells:
        key = (cell.run.scenario, cell.run.profile, *cell.run.values.items()) if cell.run else None
        if cell.run and key not in checked:
            checked.add(key)
            link = LinkOptions.of(profile=cell.run.profile, **cell.run.options)
            file = paths.SCENARIOS / f"{cell.run.scenario}.json"
            scenario_run.prepare(
                scenario_run.RunRequest(file, link, cell.run.values, Path(), report=False)
            )


def _jobs(request: Request, clock: Clock) -> int | None:
    """Return the number of runs at once; None: as many as this host can run."""
    text = request.parallel
    if text == "auto":
        return 1 if request.patience.wait_quiet_s and clock == "real" else None
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ConfigError(f"--parallel {text}: invalid number of labs", hint="auto, or 1 to 64")
    return int(text)


def judged(
    plan: Plan,
    folder: CampaignFolder,
    collected: Collected,
    kept: Sequence[KeptRun] = (),
    *,
    is_own: bool = False,
) -> PaperResults:
    """Return a paper's judgement of the finished runs of its campaign, and of `kept` ones.

    `is_own`: this satlab has run it, so the tables of its runs are read. The raw files of others'
    runs are parsed again, in a sandbox.

    A task whose command failed without an outcome is a failed sample in the dataset only. A task
    whose files changed is not counted.
    """
    about = task_samples.paper_of(next(iter(plan.cells.values())))
    ids = _cells(plan)
    runs: dict[str, list[Run]] = {name: [] for name in ids.values()}
    planned = {(ids[task.cell], task.number) for task in plan.tasks}
    for one in kept:
        if (one.cell, one.number) not in planned:
            runs.setdefault(one.cell, []).append(one.run())
    count = sum(map(len, runs.values()))
    for task in plan.tasks:
        if (found := _run(task, folder, collected, is_own)) is not None:
            runs[ids[task.cell]].append(found)
    cells = [cell for cell in about.cells if cell.id in runs]
    return PaperResults(about, runs, cells, count + len(plan.tasks))


def _kept(plan: Plan, folder: CampaignFolder, collected: Collected) -> list[KeptRun]:
    """Return the finished runs of a campaign for the file that keeps them."""
    ids = _cells(plan)
    return [
        kept_runs.of_task(task, ids[task.cell], record, found)
        for task in plan.tasks
        if (record := collected.records[task.id]) is not None
        and (found := _run(task, folder, collected, is_own=True)) is not None
    ]


def _run(task: Task, folder: CampaignFolder, collected: Collected, is_own: bool) -> Run | None:
    """Return the run of a task; None if the task is not done, or left no outcome."""
    found = collected.records[task.id]
    if found is None or task.id in collected.changed:
        return None
    if isinstance(task.request, Flows):
        flows = collected.outcomes.get(task.id)
        return None if flows is None else cell_run.of_flows(task.number, flows)
    failed, off = found.status == "failed", found.status == "out of calibration"
    runs = sorted((folder.of(task) / found.counts).glob("*/manifest.json"))
    try:
        records = Records.of_table(_table(runs[0].parent, is_own)) if runs else Records(())
    except (OSError, ValueError, pl.exceptions.PolarsError, HostError, RunFolderError):
        records, failed = Records(()), True
    return Run(task.number, records, failed, off)


def _table(run: Path, is_own: bool) -> pl.LazyFrame:
    if is_own:
        return pl.scan_parquet(run / run_records.TABLE)
    return sandboxed_reader.without_writing(run).records.lazy()
