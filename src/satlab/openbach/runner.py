# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a bound scenario with real processes: drives the engine, starts and stops jobs, writes
`jobs.jsonl` and logs.
"""

from __future__ import annotations

import json
import os
import re
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

from collect.jobs import Job, JobEnd
from satlab.common.errors import HostError
from satlab.common.paths import SHIM, STANDARD_PATH
from satlab.common.processes import Entrance, log_tail
from satlab.openbach.engine import (
    FROM_ONE,
    Engine,
    EngineAction,
    Event,
    FirstIds,
    JobEnded,
    JobInstance,
    JobLaunched,
    JobRefused,
    JobStatus,
    ScenarioEnded,
    ScenarioInstance,
    ScenarioStatus,
    StartJobAction,
    StopJobAction,
)
from satlab.openbach.job_process import JobProcess
from satlab.openbach.model import BoundScenario

USAGE = ("cpu_s", "waited_s", "peak_bytes")
POLL_S = 0.1
_POLL_WHILE_STOPPING_S = 0.02

_ERROR_LINE = re.compile(
    r"^(?:[\d.]+ )?error: (.+)$", re.MULTILINE
)  # printed, or through collect_agent.send_log

Outcome = Literal["ok", "failed", "interrupted"]


Watch = Callable[[ScenarioInstance], None]


def nobody_watches(_: ScenarioInstance) -> None:
    """Do nothing."""


class JobUsage(Protocol):
    """Usage of a job. `waited_s`: time in which a thread could run and had no core."""

    @property
    def cpu_s(self) -> float: ...
    @property
    def waited_s(self) -> float: ...
    @property
    def peak_bytes(self) -> int: ...


class JobHost(Protocol):
    """The host of jobs: how to enter a node, and the environment of its programs."""

    def enter(self, entity: str, job: str, variables: Mapping[str, str]) -> Entrance:
        """Return how a command of a job, with these variables, runs there.

        On SIGTERM its process ends the job and its descendants within their own grace times, and
        end as the job ended.

        Raises HostError when the job cannot run there.
        """

    def usage(self, argv: Sequence[str]) -> JobUsage | None:
        """Return the usage of a job that has ended, by its argv; None if unknown."""

    def environment(self, entity: str) -> dict[str, str]:
        """Return variables of the place, such as its name (`SATLAB_AGENT`) and where the lab's
        certificate lies.

        `HOME`, a folder that a job may write, is its working directory.
        """

    def grant(self, path: Path) -> None:
        """Let jobs, which may run as another user, own a file or an empty folder.

        Jobs may write nothing else.
        """

    def keep(self) -> None:
        """Bring the files of ended jobs to the granted folders, if they are not there yet."""


@dataclass(frozen=True)
class JobProgress:
    """A job changed its status."""

    unix_s: float
    job_instance_id: int
    label: str
    job: str
    entity: str
    status: str
    reason: str = ""


@dataclass(frozen=True)
class ScenarioResult:
    """How a run ended. `status` is OpenBACH's label; `reason` is '' after a success."""

    outcome: Outcome
    status: str
    reason: str
    start_unix_s: float
    stop_unix_s: float
    jobs: tuple[Job, ...]

    @property
    def ok(self) -> bool:
        """Return whether the scenario and everything below it ended well."""
        return self.outcome == "ok"


def run(
    scenario: BoundScenario,
    host: JobHost,
    raw_dir: Path,
    on_event: Callable[[JobProgress], None],
    stop: threading.Event,
    deadline_s: float,
    first_ids: FirstIds = FROM_ONE,
    watch: Watch = nobody_watches,
) -> ScenarioResult:
    """Run a scenario to its end. Nothing that it started is left running.

    `stop` interrupts it; after `deadline_s` seconds it is stopped and has failed. Files go to
    `raw_dir`. `watch` is called with the whole instance at every step.

    Raises OSError when `raw_dir` cannot be written.
    """
    (raw_dir / "logs").mkdir(parents=True, exist_ok=True)
    (raw_dir / "files").mkdir(exist_ok=True)
    (raw_dir / "stats.jsonl").touch()
    for path in (raw_dir / "files", raw_dir / "stats.jsonl"):
        host.grant(path.resolve())
    the_run = _Run(Engine(scenario, first_ids), host, raw_dir.resolve(), on_event, watch)
    try:
        return the_run.go(stop, deadline_s)
    finally:
        the_run.end_all()
        host.keep()


class _Run:
    def __init__(
        self,
        engine: Engine,
        host: JobHost,
        raw_dir: Path,
        on_event: Callable[[JobProgress], None],
        watch: Watch,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self._host = host
        self._raw = raw_dir
        self._on_event = on_event
        self._running: dict[int, tuple[JobInstance, JobProcess, float]] = {}
        self._records: list[Job] = []

    def go(self, stop: threading.Event, deadline_s: float) -> ScenarioResult:
        start_unix_s = time.time()
        deadline = time.monotonic() + deadline_s
        interrupted = False
        events: list[Event] = []
        while True:
            now = time.monotonic()
            if stop.is_set() and not interrupted:
                interrupted = True
                self._engine.stop("interrupted")
            if now >= deadline:
                self._engine.stop(f"not over after {deadline_s:g} s", ScenarioStatus.FINISHED_KO)
            actions = self._engine.step(now, events)
            self._watch(self._engine.root)
            if actions and isinstance(actions[-1], ScenarioEnded):
                break
            events = [event for action in actions for event in self._perform(action)]
            if not events:
                self._wait()
                events = self._poll()
        status = self._engine.root.status
        reason = self._engine.root.reason or _reason_below(self._engine.root)
        outcome: Outcome = "ok" if status is ScenarioStatus.FINISHED_OK and not reason else "failed"
        if status is ScenarioStatus.STOPPED:
            outcome = "interrupted"
        return ScenarioResult(
            outcome, status, reason, start_unix_s, time.time(), tuple(self._records)
        )

    def end_all(self) -> None:
        """End jobs that still run, after a failure of ours; they leave no record."""
        left = [process for _, process, _ in self._running.values()]
        for process in left:
            process.stop()
        while left := [process for process in left if process.poll(time.monotonic()) is None]:
            time.sleep(_POLL_WHILE_STOPPING_S)

    def _perform(self, action: EngineAction) -> list[Event]:
        match action:
            case StartJobAction(job=job):
                return [self._start(job)]
            case StopJobAction(job=job):
                self._running[job.id][1].stop()
        return []

    def _start(self, job: JobInstance) -> Event:
        log = f"logs/{job.call.job.name}-{job.id}.log"
        argv = [*job.call.job.command(), *job.arguments]
        command_stop = job.call.job.command_stop()
        start_unix_s = time.time()
        try:
            enter = self._host.enter(job.call.entity, job.call.job.name, self._environment(job))
            argv = [*enter.argv, *argv]
            process = JobProcess(
                argv,
                stop_argv=[*enter.argv, *command_stop, *job.arguments] if command_stop else [],
                environment=enter.environment,
                log=self._raw / log,
            )
        except (HostError, OSError, ValueError) as error:
            reason = f"{argv[0]} cannot be started: {error}"
            (self._raw / log).write_text(f"{reason}\n", encoding="utf-8")
            self._record(job, argv, start_unix_s, None, JobStatus.ERROR)
            self._report(job, JobStatus.ERROR, reason)
            return JobRefused(job.id, reason)
        self._running[job.id] = job, process, start_unix_s
        self._report(job, JobStatus.RUNNING)
        return JobLaunched(job.id)

    def _environment(self, job: JobInstance) -> dict[str, str]:
        place = self._host.environment(job.call.entity)
        return {
            "PATH": STANDARD_PATH,
            "LANG": "C.UTF-8",
            "SATLAB_AGENT": job.call.entity,
            **place,
            "TMPDIR": place["HOME"],
            "PYTHONPATH": str(SHIM),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "SATLAB_RAW": str(self._raw),
            "JOB_NAME": job.call.job.name,
            "JOB_INSTANCE_ID": str(job.id),
            "SCENARIO_INSTANCE_ID": str(job.scenario.id),
            "OWNER_SCENARIO_INSTANCE_ID": str(job.scenario.owner_id),
        }

    def _wait(self) -> None:
        """Wait until a job ends, but no longer than until the next poll."""
        watched = select.poll()
        stopping = False
        for _, process, _ in self._running.values():
            stopping = stopping or process.stopping
            if not process.stopping:
                watched.register(process.pidfd, select.POLLIN)
        watched.poll((_POLL_WHILE_STOPPING_S if stopping else POLL_S) * 1000)

    def _poll(self) -> list[Event]:
        now = time.monotonic()
        events: list[Event] = []
        for job, process, start_unix_s in list(self._running.values()):
            code = process.poll(now)
            if code is None:
                continue
            del self._running[job.id]
            process.close()
            status = JobStatus.NOT_RUNNING if code == 0 else JobStatus.ERROR
            if process.stopping:
                status = JobStatus.STOPPED
            log = self._record(job, process.argv, start_unix_s, code, status)
            how = f"exit status {code}" if code > 0 else f"killed by signal {-code}"
            reason = "" if code == 0 else f"{how}, see {log}{_last_error(self._raw / log)}"
            self._report(job, status, reason)
            events.append(JobEnded(job.id, code == 0, reason))
        return events

    def _record(
        self,
        job: JobInstance,
        argv: list[str] | tuple[str, ...],
        start: float,
        code: int | None,
        status: JobStatus,
    ) -> str:
        log = f"logs/{job.call.job.name}-{job.id}.log"
        used = None if code is None else self._host.usage(argv)
        figures = {} if used is None else {name: getattr(used, name) for name in USAGE}
        record = Job(
            job_instance_id=job.id,
            scenario_instance_id=job.scenario.id,
            owner_scenario_instance_id=job.scenario.owner_id,
            function_id=job.function.id,
            label=job.function.label,
            job=job.call.job.name,
            entity=job.call.entity,
            argv=tuple(argv),
            start_unix_s=start,
            stop_unix_s=time.time(),
            exit_code=code,
            status=cast("JobEnd", status.value),
            log=log,
            **figures,
        )
        self._records.append(record)
        append_line(self._raw / "jobs.jsonl", record.model_dump())
        return log

    def _report(self, job: JobInstance, status: JobStatus, reason: str = "") -> None:
        name, entity = job.call.job.name, job.call.entity
        self._on_event(
            JobProgress(time.time(), job.id, job.function.label, name, entity, status, reason)
        )


def append_line(path: Path, record: Mapping[str, object]) -> None:
    """Append one JSON line in one write."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, (json.dumps(record) + "\n").encode())
    finally:
        os.close(handle)


def _last_error(log: Path) -> str:
    """Quote the last `error:` line of a job's log, for the reason of its failure."""
    errors = _ERROR_LINE.findall(log_tail(log) or "")
    return f": {errors[-1][:200]}" if errors else ""


def _reason_below(instance: ScenarioInstance) -> str:
    """Return the first failure of a sub-scenario:

    OpenBACH's parent still ends Finished Ok, our run has failed.
    """
    for below in instance.below:
        if below.status is ScenarioStatus.FINISHED_KO:
            return f"sub-scenario {below.bound.name}: {below.reason}"
        if reason := _reason_below(below):
            return reason
    return ""
