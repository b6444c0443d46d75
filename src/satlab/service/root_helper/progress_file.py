# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress of a run as a JSON document, replaced at each change."""

import json
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from satlab.common.files import write_atomically
from satlab.openbach.engine import (
    FunctionInstance,
    FunctionStatus,
    JobInstance,
    JobStatus,
    ScenarioInstance,
    ScenarioStatus,
)
from satlab.run.lab_activity import Activity


@with_config(ConfigDict(extra="forbid"))
class Job(TypedDict):
    """A job instance."""

    id: int
    job: str
    entity: str
    arguments: list[str]
    status: JobStatus
    reason: str
    start_unix_s: float | None
    stop_unix_s: float | None


@with_config(ConfigDict(extra="forbid"))
class Function(TypedDict):
    """A function of a scenario, and the instances that it started."""

    id: int
    label: str
    status: FunctionStatus
    reason: str
    launch_unix_s: float | None
    job: Job | None
    scenario: "Scenario | None"


@with_config(ConfigDict(extra="forbid"))
class Scenario(TypedDict):
    """A scenario instance."""

    id: int
    owner_id: int
    scenario: str
    arguments: dict[str, str]
    status: ScenarioStatus
    reason: str
    start_unix_s: float | None
    stop_unix_s: float | None
    functions: list[Function]


@with_config(ConfigDict(extra="forbid"))
class Progress(TypedDict):
    """How far a run of satlab serve is; replaced whole whenever it changes.

    Times in s since the epoch.
    """

    schema: Literal["satlab/run-progress/1"]
    run_id: str
    phase: Literal["preparing", "calibration", "scenario", "ended"]
    exit_status: Annotated[
        int | None,
        Field(description="exit status of the run (errors.ExitStatus); null while the run lasts"),
    ]
    reason: str
    instance: Scenario | None
    activity: Annotated[
        Activity | None,
        Field(description="activity in the lab; null before and after the scenario"),
    ]


class ProgressFile:
    """Writes the document; any thread may.

    Times are s since the epoch when a state was first seen, by `clock`.
    """

    def __init__(self, path: Path, run_id: str, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._seen: dict[Hashable, float] = {}
        self._document: Progress = {
            "schema": "satlab/run-progress/1",
            "run_id": run_id,
            "phase": "preparing",
            "exit_status": None,
            "reason": "",
            "instance": None,
            "activity": None,
        }
        self._written = ""
        self._lock = threading.Lock()

    def update(self, **changes: Any) -> None:
        with self._lock:
            self._document |= changes  # type: ignore[typeddict-item]
            text = json.dumps(self._document, default=asdict)
            if text != self._written:
                write_atomically(self._path, text)
                self._path.chmod(0o644)
                self._written = text

    def watch(self, instance: ScenarioInstance) -> None:
        """Write the state of the scenario instance after a step of the engine."""
        self.update(phase="scenario", instance=self._scenario(instance))

    def _scenario(self, instance: ScenarioInstance) -> Scenario:
        key = ("scenario", instance.id)
        attempts = (*instance.retried, *instance.functions.values())
        return {
            "id": instance.id,
            "owner_id": instance.owner_id,
            "scenario": instance.bound.name,
            "arguments": dict(instance.bound.values),
            "status": instance.status,
            "reason": instance.reason,
            "start_unix_s": self._first(key),
            "stop_unix_s": self._first((*key, "over")) if instance.over else None,
            "functions": [self._function(instance, attempt) for attempt in attempts],
        }

    def _function(self, instance: ScenarioInstance, attempt: FunctionInstance) -> Function:
        began = attempt.status is not FunctionStatus.SCHEDULED
        key = ("function", instance.id, attempt.function.id, attempt.attempts)
        has_started = attempt.job is not None or attempt.scenario is not None or not attempt.pending
        return {
            "id": attempt.function.id,
            "label": attempt.function.label,
            "status": attempt.status,
            "reason": attempt.reason,
            "launch_unix_s": self._first((*key, has_started)) if began else None,
            "job": None if attempt.job is None else self._job(attempt.job),
            "scenario": None if attempt.scenario is None else self._scenario(attempt.scenario),
        }

    def _job(self, job: JobInstance) -> Job:
        key = ("job", job.id)
        return {
            "id": job.id,
            "job": job.call.job.name,
            "entity": job.call.entity,
            "arguments": list(job.arguments),
            "status": job.status,
            "reason": job.reason,
            "start_unix_s": self._first(key),
            "stop_unix_s": self._first((*key, "over")) if job.status.ended else None,
        }

    def _first(self, key: Hashable) -> float:
        return self._seen.setdefault(key, round(self._clock(), 3))
