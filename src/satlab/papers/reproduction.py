# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab reproduce`: check everything, execute the remaining runs, show the results."""

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus
from satlab.lab import ownership
from satlab.papers import campaign as campaigns
from satlab.papers import matrix, reproduction_page, result_tables, results
from satlab.papers.campaign import Campaign
from satlab.papers.concurrency import Concurrency
from satlab.papers.executor import Execution, duration
from satlab.papers.results import Results
from satlab.run import scenario_run
from satlab.run.quiet_host import Patience

DEFAULT_RUNS = 10


@dataclass(frozen=True)
class ReproduceRequest:
    """Options of a campaign; None leaves it to the default or to the folder that is resumed.

    With a `patience` that waits, one lab at a time is the default: several make a host busy.
    """

    runs: int | None = None
    cells: Sequence[str] | None = None
    resume: Path | None = None
    parallel: str = "auto"
    out: Path = Path("runs")
    patience: Patience = field(default_factory=Patience)


def prepare(request: ReproduceRequest) -> tuple[Execution, ProgressLog]:
    """Check everything that the runs need; changes nothing. Raises ConfigError, HostError."""
    cells = None if request.cells is None else matrix.select(request.cells)
    if request.resume:
        campaign = campaigns.resume(request.resume, cells, request.runs)
    else:
        folder = request.out / f"{campaigns.PAPER}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
        campaign = campaigns.begin(
            folder, matrix.select([]) if cells is None else cells, request.runs or DEFAULT_RUNS
        )
    for cell in {(cell.orbit, cell.kind): cell for cell in campaign.cells}.values():
        scenario_run.prepare(cell.request(1, campaign.runs_of(cell)))
    log = ProgressLog()
    at_once = parallel(request.parallel) or (1 if request.patience.wait_quiet_s else None)
    return (
        Execution(campaign, Concurrency(os.cpu_count() or 1, at_once), log, request.patience),
        log,
    )


def parallel(text: str) -> int | None:
    """Read a number of labs at once; None for auto."""
    if text == "auto":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise ConfigError(f"--parallel {text}: invalid number of labs", hint="auto, or 1 to 64")
    return int(text)


def plan(execution: Execution) -> str:
    """Return the planned runs as JSON."""
    campaign = execution.campaign
    document = {
        "folder": str(campaign.folder),
        "runs_per_cell": campaign.plan.runs,
        "runs_left": len(execution.todo),
        "estimate_s": round(execution.left_s()),
        "cells": {
            cell.name: ["satlab", *execution.arguments(campaigns.Task(cell, 1))]
            for cell in campaign.cells
        },
    }
    return json.dumps(document, indent=1)


def execute(execution: Execution, log: ProgressLog, stop: threading.Event) -> tuple[Results, int]:
    """Execute the remaining runs; always write the results, and return them with the exit status."""
    campaign = execution.campaign
    campaign.save()
    left = len(execution.todo)
    log.line(f"{campaign.folder}: {left} runs left, about {duration(execution.left_s())}")
    whole = False
    try:
        whole = execution.go(stop)
    finally:
        measured = report(campaign, log)
    if not whole:
        log.line(f"go on with: satlab reproduce {campaigns.PAPER} --resume {campaign.folder}")
        return measured, ExitStatus.INTERRUPTED
    return measured, _status(measured)


def report(campaign: Campaign, log: ProgressLog) -> Results:
    """Read all runs and write tables and page."""
    with log.step("tables and report"):
        measured = results.read(campaign)
        result_tables.write(measured, campaign.folder / "report")
        path = reproduction_page.write(
            campaign, measured, campaign.folder / "report" / "index.html"
        )
        ownership.chown_to_caller(campaign.folder)
    log.line(str(path))
    return measured


def _status(measured: Results) -> ExitStatus:
    """Failed samples weigh more than runs out of calibration."""
    runs = [run for result in measured.cells.values() for run in result.runs]
    if any(run.exit_status == ExitStatus.FAILED for run in runs):
        return ExitStatus.FAILED
    uncalibrated = any(run.exit_status == ExitStatus.UNCALIBRATED for run in runs)
    return ExitStatus.UNCALIBRATED if uncalibrated else ExitStatus.OK
