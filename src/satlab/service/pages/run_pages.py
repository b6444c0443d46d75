# SPDX-License-Identifier: GPL-3.0-or-later
"""What the page of a run says: its phase, its steps, its results."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import collect
from satlab.common.errors import ExitStatus, HostError
from satlab.openbach.engine import ScenarioStatus
from satlab.report import reported_run
from satlab.report.reported_run import ReportedRun
from satlab.report.run_report import RunReport
from satlab.run import sandboxed_reader
from satlab.service.api.dependencies import Context
from satlab.service.api.queue import Instance
from satlab.service.root_helper.progress_file import Scenario


@dataclass(frozen=True)
class State:
    """The state of a run: its word, and the tone of its badge (ui.css)."""

    word: str
    tone: str


FINISHED = State("Finished", "good")
UNCALIBRATED = State("Out of calibration", "warn")
FAILED = State("Failed", "bad")
RUNNING = State("Running", "running")
QUEUED = State("Queued", "waiting")
STOPPED = State("Stopped", "stopped")
STATES = (FINISHED, UNCALIBRATED, FAILED, RUNNING, QUEUED, STOPPED)
_OF_INSTANCES = {
    ScenarioStatus.SCHEDULING: QUEUED,
    ScenarioStatus.RUNNING: RUNNING,
    ScenarioStatus.FINISHED_OK: FINISHED,
    ScenarioStatus.STOPPED: STOPPED,
}
_OF_MANIFESTS = {"ok": FINISHED, "running": RUNNING, "interrupted": STOPPED}
PRESSURE = Path("/proc/pressure/cpu")
"""Pressure stall information of the kernel (Documentation/accounting/psi.rst)."""
PHASES = {
    "preparing": "Preparing the run",
    "calibration": "Starting and calibrating the lab",
    "scenario": "Running the scenario",
    "ended": "Collecting the results",
}


@dataclass(frozen=True)
class FunctionRow:
    """A function of a scenario as a table row.

    `depth`: level of its sub-scenario, `seconds`: duration so far.
    """

    depth: int
    label: str
    what: str
    status: str
    reason: str
    seconds: float | None


def state(instance: Instance) -> State:
    """Return the state of an instance. Only a run out of calibration has succeeded with a reason."""
    if instance.status is ScenarioStatus.FINISHED_OK and instance.reason:
        return UNCALIBRATED
    return _OF_INSTANCES.get(instance.status, FAILED)


def state_of_folder(about: collect.Manifest) -> State:
    """Return the state of a run of the command line."""
    if about.exit_status == ExitStatus.UNCALIBRATED:
        return UNCALIBRATED
    return _OF_MANIFESTS.get(about.status, FAILED)


def position(context: Context, instance: Instance) -> int:
    """Return the place of a waiting instance in the queue, from 1; 0 for other instances."""
    if instance.status is not ScenarioStatus.SCHEDULING:
        return 0
    waiting = (each for each in context.queue.live() if each.status is ScenarioStatus.SCHEDULING)
    return sum(each.id <= instance.id for each in waiting)


def folder_of(context: Context, instance: Instance) -> Path | None:
    """Return the run folder of an instance, None if there is none."""
    folder = context.settings.runs / instance.run_id if instance.run_id else None
    return folder if folder is not None and folder.is_dir() else None


# --- progress -------------------------------------------------------------------------------------


def phase(instance: Instance, ahead: int) -> str:
    """Return the state as a short phrase. `ahead`: number of earlier instances that run or wait."""
    if instance.status is ScenarioStatus.SCHEDULING:
        return (
            f"Waiting for {ahead} earlier run{'s' if ahead > 1 else ''}"
            if ahead
            else "Next in the queue"
        )
    if instance.status is ScenarioStatus.RUNNING:
        if instance.stop_requested:
            return "Stopping"
        return PHASES[instance.progress["phase"] if instance.progress else "preparing"]
    if instance.status is ScenarioStatus.FINISHED_OK:
        return "Completed without errors"  # its results say what was out of calibration
    return instance.reason or "Ended"


def steps(instance: Instance, now: float) -> list[FunctionRow]:
    """Return the functions of an instance, each followed by those of its sub-scenario; none before
    the start.
    """
    return list(_steps(instance.tree, 0, now)) if instance.tree else []


def _steps(scenario: Scenario, depth: int, now: float) -> Iterator[FunctionRow]:
    for function in scenario["functions"]:
        job, below = function["job"], function["scenario"]
        started = job or below
        what = (
            f"{job['job']} on {job['entity']}"
            if job
            else f"scenario {below['scenario']}"
            if below
            else ""
        )
        status = started["status"] if started else function["status"]
        seconds = None
        if started and started["start_unix_s"] is not None:
            seconds = (started["stop_unix_s"] or now) - started["start_unix_s"]
        reason = (started["reason"] if started else "") or function["reason"]
        yield FunctionRow(depth, function["label"], what, status, reason, seconds)
        if below:
            yield from _steps(below, depth + 1, now)


def host_pressure(path: Path = PRESSURE) -> float | None:
    """Return the share of the last 10 s in which some task waited for a core, %; None where the
    kernel says nothing.
    """
    try:
        first = path.read_text().splitlines()[0]
        return float(first.partition("avg10=")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None


# --- results --------------------------------------------------------------------------------------


def results(folders: Sequence[Path], title: str) -> RunReport | None:
    """Read the results of runs as the report shows them; None if one of the folders has none."""
    try:
        return RunReport(
            title,
            [_read(folder, (folder / "manifest.json").stat().st_mtime_ns) for folder in folders],
        )
    except (collect.RunFolderError, HostError, OSError):
        return None


@lru_cache(maxsize=32)
def _read(folder: Path, written_ns: int) -> ReportedRun:
    """Read a run folder; `written_ns` makes a changed folder a new cache entry."""
    del written_ns
    return reported_run.read_run(folder, sandboxed_reader.without_writing(folder, is_own=True))
