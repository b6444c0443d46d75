# SPDX-License-Identifier: GPL-3.0-or-later
"""One way through every paper: prepare, plan, execute, show.

The paper decides how its runs are taken: as scenarios in labs (seed-002), or as flows under the
virtual clock, and of some papers on the real one.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from satlab.common import needs
from satlab.common.console import ProgressLog, say
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.needs import NETNS
from satlab.flows.known_rates import KnownRates
from satlab.papers import (
    flow_campaign,
    flow_page,
    flow_request,
    flow_results,
    paper,
    reproduction,
    result_tables,
)
from satlab.papers.executor import Execution
from satlab.papers.flow_campaign import FlowCampaign
from satlab.papers.flow_results import FlowResults
from satlab.papers.paper import Clock
from satlab.papers.results import Results
from satlab.run.quiet_host import Patience

QUICK_RUNS = 1


@dataclass(frozen=True)
class Request:
    """Options of `satlab reproduce`;

    None leaves it to the default or to the folder that is resumed.

    `patience` is for labs: under the virtual clock a busy host changes nothing. `rate_once`: labs
    of flows measure the rate of equal links once.
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
    rate_once: bool = False


class Work(Protocol):
    """A paper's runs, checked and not begun."""

    def plan(self) -> str:
        """Return the planned runs as JSON."""

    def execute(self, stop: threading.Event) -> int:
        """Do what is left, write results and page, and return the exit status."""

    def show(self, *, as_json: bool) -> None:
        """Print the results."""


def prepare(request: Request, *, dry_run: bool) -> Work:
    """Check everything that the runs need; changes nothing. Raises ConfigError, HostError."""
    paper.clock_of(request.paper, request.clock)
    if request.paper == paper.SCENARIOS:
        return LabWork(request, dry_run=dry_run)
    return FlowWork(request)


class LabWork:
    """Runs in labs on the real clock."""

    def __init__(self, request: Request, *, dry_run: bool) -> None:
        """Check the request. Raises ConfigError, HostError."""
        if request.quick:
            raise ConfigError(
                "--quick is for papers under the virtual clock", hint="choose cells with --cells"
            )
        if request.rate_once:
            raise ConfigError("--rate-once is for papers of flows", hint="leave it out")
        needs.ensure("link" if dry_run else "lab")
        self.execution: Execution
        self.execution, self.log = reproduction.prepare(
            reproduction.ReproduceRequest(
                request.runs,
                request.cells,
                request.resume,
                request.parallel,
                request.out,
                request.patience,
            )
        )
        self.results: Results | None = None

    def plan(self) -> str:
        """Return the planned runs as JSON."""
        return reproduction.plan(self.execution)

    def execute(self, stop: threading.Event) -> int:
        """Do what is left in fresh labs."""
        if any(cell.needs_quic for cell in self.execution.campaign.cells):
            needs.ensure("quic")
        needs.root(NETNS)
        self.results, status = reproduction.execute(self.execution, self.log, stop)
        return status

    def show(self, *, as_json: bool) -> None:
        """Print the results."""
        if self.results is None:
            return
        if as_json:
            say(json.dumps(result_tables.document(self.results)))
        else:
            result_tables.show(self.results)


class FlowWork:
    """Runs of flows."""

    def __init__(self, request: Request) -> None:
        """Check the request. Raises ConfigError."""
        clock = request.clock
        if request.resume and clock is None:
            clock = flow_campaign.clock_of(request.resume)
        about = paper.load(request.paper, paper.clock_of(request.paper, clock))
        chosen = about.select(request.cells, quick=request.quick)
        self.log = ProgressLog()
        self.patience = request.patience
        self.rates = KnownRates() if request.rate_once else None
        self.parallel = reproduction.parallel(request.parallel)
        self.results: FlowResults | None = None
        if request.resume:
            replaced = chosen if request.quick or request.cells is not None else None
            self.campaign: FlowCampaign = flow_campaign.resume(
                request.resume, about, replaced, request.runs
            )
        else:
            folder = request.out / f"{about.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
            runs = request.runs or (QUICK_RUNS if request.quick else None)
            self.campaign = flow_campaign.begin(folder, about, chosen, runs)

    def plan(self) -> str:
        """Return the planned runs as JSON."""
        campaign, about = self.campaign, self.campaign.paper
        todo = campaign.todo()
        left = [
            {"cell": c.id, "number": number, "estimate_s": round(about.estimate_s(c), 1)}
            for c, number in todo
        ]
        is_real = campaign.plan.clock == "real"
        at_once = min(campaign.at_once(self.parallel), max(1, len(left)))
        document = {
            "folder": str(campaign.folder),
            "clock": campaign.plan.clock,
            "runs": campaign.runs,
            "runs_left": len(left),
            "labs": len(left) if is_real else 0,
            "estimate_s": round(sum(about.estimate_s(cell) for cell, _ in todo) / at_once),
            "left": left,
            "cells": {cell.id: flow_request.request(about, cell, 1) for cell in campaign.cells},
        }
        return json.dumps(document, indent=1)

    def execute(self, stop: threading.Event) -> int:
        """Do what is left; results and page are written in any case."""
        campaign = self.campaign
        if campaign.plan.clock == "real":
            needs.ensure("lab", "quic", "ngtcp2", "fec")
            if any(cell.stack == "picoquic" for cell in campaign.cells):
                needs.ensure("picoquic")
            needs.root(NETNS)
        campaign.save()
        whole = False
        try:
            needs.ensure("virtual")
            whole = campaign.go(self.log, stop, self.patience, self.rates, self.parallel)
        except HostError as error:
            error.hint = "; then: ".join(filter(None, (error.hint, self._go_on())))
            raise
        finally:
            with self.log.step("tables and report"):
                self.results = flow_results.read(campaign)
                flow_results.write(self.results, campaign.folder / "report")
                path = flow_page.write(
                    campaign, self.results, campaign.folder / "report" / "index.html"
                )
            self.log.line(str(path))
        if not whole:
            self.log.line(f"go on with: {self._go_on()}")
            return ExitStatus.INTERRUPTED
        runs = [run for of_cell in self.results.runs.values() for run in of_cell]
        if any(run.failed for run in runs):
            return ExitStatus.FAILED
        return (
            ExitStatus.UNCALIBRATED if any(run.is_uncalibrated for run in runs) else ExitStatus.OK
        )

    def _go_on(self) -> str:
        return f"satlab reproduce {self.campaign.plan.paper} --resume {self.campaign.folder}"

    def show(self, *, as_json: bool) -> None:
        """Print the results."""
        if self.results is None:
            return
        if as_json:
            say(json.dumps(self.results.document()))
        else:
            flow_results.show(self.results)
