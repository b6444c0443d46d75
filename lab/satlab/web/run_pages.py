# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pages say of a scenario instance: how far it is, what it found, and instances side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import collect
from satlab.openbach.engine import ScenarioStatus
from satlab.report import view
from satlab.report.view import View
from satlab.serve.accounts import User
from satlab.serve.api_errors import ApiError, not_found
from satlab.serve.catalog import Project
from satlab.serve.context import Context
from satlab.serve.queue import Instance
from satlab.serve.routes import access
from satlab.web.charts import Chart, chart
from satlab.web.live_link import DIRECTIONS, Curves

TONES = {
    ScenarioStatus.SCHEDULING: "waiting",
    ScenarioStatus.RUNNING: "running",
    ScenarioStatus.FINISHED_OK: "good",
    ScenarioStatus.FINISHED_KO: "bad",
    ScenarioStatus.STOPPED: "stopped",
}
PHASES = {
    "preparing": "The run is being prepared",
    "calibration": "The lab comes up and is calibrated",
    "scenario": "The scenario runs",
    "ended": "The results are gathered",
}


@dataclass(frozen=True)
class FunctionRow:
    """One function of a scenario as a line: how deep it stands, what it is, how it is."""

    depth: int
    label: str
    what: str
    status: str
    reason: str
    seconds: float | None


def projects(here: Context, user: User) -> list[Project]:
    """Return the projects that an account may use."""
    return [project for project in here.catalog.projects() if access.may(user, project)]


def find(here: Context, user: User, number: int) -> Instance:
    """Return a scenario instance. Raises ApiError: 404, or 403 for one of others."""
    instance = here.queue.find(number)
    if instance is None or instance.kind != "scenario":
        raise not_found("Scenario Instance")
    access.check_instance(here, user, instance)
    return instance


def folder_of(here: Context, instance: Instance) -> Path | None:
    """Return the run folder of an instance, None while there is none."""
    folder = here.settings.runs / instance.run_id if instance.run_id else None
    return folder if folder is not None and folder.is_dir() else None


# --- how far it is --------------------------------------------------------------------------------------------------


def phase(instance: Instance, ahead: int) -> str:
    """Say in one sentence what is going on."""
    if instance.status is ScenarioStatus.SCHEDULING:
        return f"It waits for the machine; {ahead} before it" if ahead else "It is next"
    if instance.status is ScenarioStatus.RUNNING:
        if instance.stop_asked:
            return "It is being stopped"
        return PHASES.get(str((instance.progress or {}).get("phase")), PHASES["preparing"])
    return instance.reason or (
        "Everything went well" if instance.status is ScenarioStatus.FINISHED_OK else "It is over"
    )


def steps(instance: Instance, now: float) -> list[FunctionRow]:
    """Return the functions of an instance, those of sub-scenarios below theirs; none before its scenario has begun."""
    top = (instance.progress or {}).get("instance")
    return list(_steps(top, 0, now)) if isinstance(top, dict) else []


def _steps(scenario: dict[str, Any], depth: int, now: float) -> Iterator[FunctionRow]:
    for function in scenario["functions"]:
        job, below = function["job"], function["scenario"]
        started = job or below
        what = f"{job['job']} on {job['entity']}" if job else f"scenario {below['scenario']}" if below else ""
        status = started["status"] if started else function["status"]
        seconds = None
        if started and started["start_unix_s"] is not None:
            seconds = (started["stop_unix_s"] or now) - started["start_unix_s"]
        reason = (started["reason"] if started else "") or function["reason"]
        yield FunctionRow(depth, function["label"], what, status, reason, seconds)
        if below:
            yield from _steps(below, depth + 1, now)


def charts(curves: Curves, instance: Instance) -> list[Chart]:
    """Draw what the link has carried and queued so far; a mark where the scenario began."""
    top = (instance.progress or {}).get("instance")
    marker = None
    if isinstance(top, dict) and top["start_unix_s"] is not None and curves.start_unix_s is not None:
        marker = top["start_unix_s"] - curves.start_unix_s
    rates = [(f"{direction} link", curves.rate_mbps(direction)) for direction in DIRECTIONS]
    return [
        chart("Goodput of the link", "Mbit/s", rates, marker),
        chart("Queue of the forward link", "kB", [("queue", curves.queue_kb())], marker, colour=3),
    ]


# --- what it found --------------------------------------------------------------------------------------------------


def found(folders: Sequence[Path], title: str) -> View | None:
    """Read the results of runs as the report shows them; None where a folder holds none yet."""
    try:
        return View(title, [_read(folder, (folder / "manifest.json").stat().st_mtime_ns) for folder in folders])
    except (collect.RunFolderError, OSError):
        return None


@lru_cache(maxsize=32)
def _read(folder: Path, written_ns: int) -> view.ReportRun:
    """Read a run folder; `written_ns` makes one that has changed another one."""
    del written_ns
    return view.read_run(folder, collect.gather(folder))


def side_by_side(here: Context, user: User, numbers: Sequence[int], most: int) -> tuple[list[Instance], list[Path]]:
    """Return the instances to compare and their folders. Raises ApiError: too few, too many, or one without results."""
    if not 2 <= len(set(numbers)) <= most:
        raise ApiError(400, f"Choose 2 to {most} runs to compare")
    instances = [find(here, user, number) for number in dict.fromkeys(numbers)]
    folders = []
    for instance in instances:
        folder = folder_of(here, instance)
        if folder is None or not instance.over:
            raise ApiError(409, f"Run {instance.id} has no results to compare")
        folders.append(folder)
    return instances, folders
