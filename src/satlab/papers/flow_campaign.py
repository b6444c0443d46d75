# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs of a paper's cells as flows:

`campaign.json`, `runs/CELL/NUMBER/{flows,outcome}.json`, `report/`.

A run is done when its outcome is there, for the same request: what was killed, and what was asked
for differently, is repeated.
"""

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.files import write_atomically
from satlab.flows import real_clock
from satlab.flows.known_rates import KnownRates
from satlab.flows.real_clock import RealRun
from satlab.flows.satvirtual import simulated as _satvirtual
from satlab.papers import flow_figures, flow_request
from satlab.papers.paper import Cell, Clock, Paper
from satlab.run import quiet_host
from satlab.run.quiet_host import Patience

Todo = tuple[Cell, int]
"""A run that is left: its cell and number."""
ATTEMPTS = 2
"""Labs of a run that break before the campaign ends.

One of hundreds breaks on a busy host, each on a broken one.
"""


class FlowPlan(BaseModel):
    """campaign.json. Without `runs` each cell has the number that the paper's file has for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    schema_: Literal["satlab/flow-campaign/1"] = Field(
        default="satlab/flow-campaign/1", alias="schema"
    )
    paper: str
    clock: Clock = "virtual"
    cells: tuple[str, ...]
    runs: int | None = Field(default=None, ge=1, le=10000)


@dataclass(frozen=True)
class Run:
    """One run that is done: its number and its outcome."""

    number: int
    outcome: Mapping[str, Any]

    @property
    def failed(self) -> bool:
        """Return whether a connection ended before its time."""
        return any(flow["status"] == "failed" for flow in self.outcome["flows"])

    @property
    def is_uncalibrated(self) -> bool:
        """Return whether the run was out of calibration, which is of the real clock."""
        return bool(self.outcome.get("calibration"))

    def spread(self, figure: str, phase: int) -> flow_figures.Spread | None:
        """Return a figure, and its standard deviation over the time of a phase where it has one."""
        return flow_figures.FIGURES[figure].read(self.outcome, phase)


@dataclass(frozen=True)
class FlowCampaign:
    """A campaign's folder, plan and paper."""

    folder: Path
    plan: FlowPlan
    paper: Paper

    @cached_property
    def cells(self) -> list[Cell]:
        """Return the cells, in the paper's order."""
        return [cell for cell in self.paper.cells if cell.id in self.plan.cells]

    @cached_property
    def runs(self) -> dict[str, int]:
        """Return the number of runs of each cell."""
        return {cell.id: self.plan.runs or self.paper.runs_of(cell) for cell in self.cells}

    def run_folder(self, cell: Cell, number: int) -> Path:
        """Return the folder of a run."""
        return self.folder / "runs" / cell.id / str(number)

    def done(self, cell: Cell) -> list[Run]:
        """Return the runs of a cell that are done."""
        runs = (self._read(cell, number) for number in range(1, self.runs[cell.id] + 1))
        return [run for run in runs if run is not None]

    def todo(self) -> list[Todo]:
        """Return the runs left: the first of each cell, then the second."""
        return [
            (cell, number)
            for number in range(1, max(self.runs.values(), default=0) + 1)
            for cell in self.cells
            if number <= self.runs[cell.id] and self._read(cell, number) is None
        ]

    def _read(self, cell: Cell, number: int) -> Run | None:
        folder = self.run_folder(cell, number)
        request = json.dumps(flow_request.request(self.paper, cell, number), indent=1)
        try:
            if (folder / "flows.json").read_text() != request:
                return None
            return Run(number, json.loads((folder / "outcome.json").read_text()))
        except (OSError, ValueError):
            return None

    def save(self) -> None:
        """Write the plan."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(
            self.folder / "campaign.json", self.plan.model_dump_json(by_alias=True, indent=1) + "\n"
        )

    def go(
        self,
        log: ProgressLog,
        stop: threading.Event,
        patience: Patience | None = None,
        rates: KnownRates | None = None,
        parallel: int | None = None,
    ) -> bool:
        """Do what is left, `parallel` runs at once (see `at_once`); False when `stop` came first.

        With `rates` equal links of labs are saturated once.
        """
        todo = self.todo()
        at_once = self.at_once(parallel)
        if self.plan.clock == "real":
            return self._measure(todo, at_once, log, stop, patience or Patience(), rates)
        with ThreadPoolExecutor(at_once) as pool:
            futures = {
                pool.submit(self._simulate, cell, number, stop): (cell, number)
                for cell, number in todo
            }
            try:
                for count, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    cell, number = futures[future]
                    if not stop.is_set():
                        log.line(f"{cell.id} #{number}: done, {len(todo) - count} left")
            except BaseException:
                stop.set()
                raise
        return not stop.is_set()

    def at_once(self, parallel: int | None) -> int:
        """Return how many runs there are at once;

        None: as many simulations as there are cores, one lab.
        """
        return parallel or (1 if self.plan.clock == "real" else os.cpu_count() or 1)

    def _simulate(self, cell: Cell, number: int, stop: threading.Event) -> None:
        if stop.is_set():
            return
        request = self._begun(cell, number)
        write_atomically(request.with_name("outcome.json"), _satvirtual(request))

    def _measure(
        self,
        todo: Sequence[Todo],
        at_once: int,
        log: ProgressLog,
        stop: threading.Event,
        patience: Patience,
        rates: KnownRates | None,
    ) -> bool:
        """Measure in labs.

        Several at once make a host busy: it is waited for before the first of them alone.

        Raises HostError when the lab of a run has broken `ATTEMPTS` times.
        """
        waiting, running, broken = list(todo), dict[Future[str], Todo](), Counter[tuple[str, int]]()
        if at_once > 1:
            quiet_host.wait_until_quiet(patience.wait_quiet_s, log, stop)
            patience = replace(patience, wait_quiet_s=0.0)
        of_lab = log if at_once == 1 else ProgressLog(quiet=True)
        with ThreadPoolExecutor(at_once) as pool:
            try:
                while running or (waiting and not stop.is_set()):
                    while (
                        len(running) < at_once
                        and not stop.is_set()
                        and (one := self._next(waiting, running.values()))
                    ):
                        waiting.remove(one)
                        running[pool.submit(self._take, one, of_lab, stop, patience, rates)] = one
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        cell, number = running.pop(future)
                        try:
                            ended = future.result()
                        except HostError as error:
                            broken[cell.id, number] += 1
                            if broken[cell.id, number] == ATTEMPTS:
                                raise
                            waiting.insert(0, (cell, number))
                            ended = f"{error}; it will be repeated"
                        log.line(
                            f"  {cell.id} #{number}: {ended}, {len(waiting) + len(running)} left"
                        )
            except BaseException:
                stop.set()
                raise
        return not stop.is_set()

    @staticmethod
    def _next(waiting: Sequence[Todo], running: Iterable[Todo]) -> Todo | None:
        """Return the first run that can begin now:

        HyStart, one for the whole host, is not set otherwise by others.
        """
        settings = {cell.hystart for cell, _ in running} - {None}
        return next(
            (one for one in waiting if not settings or one[0].hystart in {None, *settings}), None
        )

    def _take(
        self,
        one: Todo,
        log: ProgressLog,
        stop: threading.Event,
        patience: Patience,
        rates: KnownRates | None,
    ) -> str:
        """Measure one run; return how it ended, and why it was repeated before."""
        request, began_s, off = self._begun(*one), time.monotonic(), list[str]()

        def take() -> RealRun:
            found = real_clock.run(request, request.parent, log, stop, rates)
            off.append(_off(found))
            if rates is not None and off[-1]:
                rates.forget()
            return found

        try:
            done = quiet_host.measured(take, _off, patience, log, stop)
        except KeyboardInterrupt:
            (request.parent / "outcome.json").unlink(missing_ok=True)
            if stop.is_set():
                return "interrupted, to be repeated"
            raise
        outcome = "failed, kept as such" if done.status == ExitStatus.FAILED else off[-1] or "done"
        repeated = "".join(f"; repeated: {why}" for why in off[:-1])
        return f"{outcome} ({time.monotonic() - began_s:.0f} s{repeated})"

    def _begun(self, cell: Cell, number: int) -> Path:
        """Write the request of a run, and return its file; an earlier outcome is removed."""
        folder = self.run_folder(cell, number)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "outcome.json").unlink(missing_ok=True)
        request = folder / "flows.json"
        request.write_text(json.dumps(flow_request.request(self.paper, cell, number), indent=1))
        return request


def _off(run: RealRun) -> str:
    """Return what is out of calibration."""
    return ", ".join(run.outcome["calibration"])


def begin(
    folder: Path, paper: Paper, cells: Sequence[Cell], runs: int | None = None
) -> FlowCampaign:
    """Return a new campaign; nothing is written yet.

    `runs` of each cell; None: as the paper's file has it.
    """
    ids = tuple(cell.id for cell in cells)
    return FlowCampaign(
        folder, FlowPlan(paper=paper.name, clock=paper.clock, cells=ids, runs=runs), paper
    )


def clock_of(folder: Path) -> Clock:
    """Return the clock of the campaign of a folder. Raises ConfigError without one."""
    return _plan(folder).clock


def _plan(folder: Path) -> FlowPlan:
    try:
        return FlowPlan.model_validate_json((folder / "campaign.json").read_bytes())
    except (OSError, ValidationError) as error:
        hint = "--resume takes the folder that an earlier `satlab reproduce` named"
        raise ConfigError(f"{folder} holds no campaign of flows: {error}", hint=hint) from error


def resume(
    folder: Path, paper: Paper, cells: Sequence[Cell] | None, runs: int | None
) -> FlowCampaign:
    """Return the campaign of a folder;

    `cells` and `runs` replace what it had. Raises ConfigError without one.
    """
    plan = _plan(folder)
    if (plan.paper, plan.clock) != (paper.name, paper.clock):
        hint = f"satlab reproduce {plan.paper} --clock {plan.clock} --resume ..."
        raise ConfigError(
            f"{folder} is a campaign of {plan.paper} on the {plan.clock} clock", hint=hint
        )
    changed: dict[str, object] = (
        {} if cells is None else {"cells": tuple(cell.id for cell in cells)}
    )
    changed |= {} if runs is None else {"runs": runs}
    return FlowCampaign(folder, plan.model_copy(update=changed), paper)
