# SPDX-License-Identifier: GPL-3.0-or-later
"""One task on one host: its command of the plan, with a deadline, as an attempt on disk.

The command holds the lock of its task. A worker that takes the place of a killed one waits for it, counts an attempt
that ended, and removes what one left that did not.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from satlab.campaign import plan as plans
from satlab.campaign import record
from satlab.campaign.folder import CampaignFolder, locked
from satlab.campaign.plan import Plan, Task
from satlab.campaign.record import Attempt, TaskRecord
from satlab.common import paths, processes
from satlab.common.errors import ConfigError, ExitStatus
from satlab.common.files import write_atomically

STOP_S = 60.0
"""From SIGTERM to SIGKILL: a run takes its lab down meanwhile."""
REPEATED = (ExitStatus.UNCALIBRATED, ExitStatus.HOST)
"""Exit statuses after which another attempt may measure."""
REASON_CHARACTERS = 400


@dataclass(frozen=True)
class Worker:
    """One worker: the campaign's folder, the SHA-256 of its plan, attempts of a task at the most."""

    folder: CampaignFolder
    plan_sha256: str
    retries: int

    def work(self, name: str, stop: threading.Event) -> ExitStatus:
        """Do a task, unless it is done; 0 when it is recorded, 4 or 3 when it should be tried again, elsewhere.

        Raises:
            ConfigError: the plan is another one, or has no such task.
            HostError: another worker holds the task for longer than an attempt may take.
        """
        plan = plans.load(self.folder.plan_file, self.plan_sha256)
        task = next((task for task in plan.tasks if task.id == name), None)
        if task is None:
            raise ConfigError(
                f"{name} is not a task of {self.folder.plan_file}", hint="satlab campaign plan lists them"
            )
        place = self.folder.of(task)
        place.mkdir(parents=True, exist_ok=True)
        with locked(place / ".lock", plan.deadline_s + 2 * STOP_S) as lock:
            if self.folder.is_done(task):
                return ExitStatus.OK
            self._sweep(task)
            ended = self.folder.attempts(task)
            if not self._is_final(ended):
                attempt = self._attempt(plan, task, len(ended) + 1, lock, stop)
                if attempt is None:
                    return ExitStatus.INTERRUPTED
                ended = [*ended, attempt]
            if not self._is_final(ended):
                return ExitStatus(ended[-1].exit_status)
            self._record(task, ended)
        return ExitStatus.OK

    def _is_final(self, ended: list[Attempt]) -> bool:
        return bool(ended) and (ended[-1].exit_status not in REPEATED or len(ended) > self.retries)

    def _sweep(self, task: Task) -> None:
        """Remove attempts that did not end."""
        for folder in self.folder.of(task).glob("attempt-*"):
            if not (folder / record.ATTEMPT).is_file():
                shutil.rmtree(folder)

    def _attempt(self, plan: Plan, task: Task, number: int, lock: int, stop: threading.Event) -> Attempt | None:
        """Run the command; None when `stop` came first, and nothing is left of it."""
        place = self.folder.of(task) / f"attempt-{number}"
        place.mkdir()
        for name, content in task.files.items():
            (place / name).write_text(json.dumps(content))
        host, began = record.this_host(), time.time()
        status = _run(task, place, lock, plan.deadline_s, stop)
        if stop.is_set():
            shutil.rmtree(place)
            return None
        log = place / record.LOG
        reason = "" if status == ExitStatus.OK else _reason(status, log, plan.deadline_s)
        attempt = Attempt(
            number=number,
            host=host,
            began_unix_s=began,
            ended_unix_s=time.time(),
            exit_status=ExitStatus.FAILED if status is None else status,
            reason=reason,
        )
        write_atomically(place / record.ATTEMPT, attempt.model_dump_json(indent=1) + "\n")
        return attempt

    def _record(self, task: Task, ended: list[Attempt]) -> None:
        counts = f"attempt-{ended[-1].number}"
        done = TaskRecord(
            id=task.id,
            cell=task.cell,
            number=task.number,
            rule=task.rule,
            seed=task.seed,
            argv=task.argv,
            plan_sha256=self.plan_sha256,
            status=record.status_of(task.rule, ended[-1].exit_status, self.folder.of(task) / counts / record.OUTPUT),
            attempts=tuple(ended),
            counts=counts,
            files=record.hashes(self.folder.of(task) / counts),
        )
        write_atomically(self.folder.of(task) / record.TASK, done.model_dump_json(by_alias=True, indent=1) + "\n")


def command(task: Task) -> list[str]:
    """Return the words that run a task with our own programs. They get SIGTERM when their worker ends."""
    program = [sys.executable, "-m", "satlab"] if task.argv[0] == "satlab" else [str(paths.SATVIRTUAL)]
    return ["setpriv", "--pdeathsig", "TERM", "--", *program, *task.argv[1:]]


def _run(task: Task, place: Path, lock: int, deadline_s: float, stop: threading.Event) -> int | None:
    """Return the exit status of a task's command; None at its deadline."""
    with (place / record.OUTPUT).open("wb") as output, (place / record.LOG).open("wb") as log:
        child = subprocess.Popen(
            command(task), cwd=place, stdin=lock, stdout=output, stderr=log, start_new_session=True
        )  # fmt: skip
        ended = processes.wait(lambda: child.poll() is not None or stop.is_set(), deadline_s)
        if child.poll() is None:
            _end(child)
        return child.returncode if ended else None


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command with everything that it started and left in its session."""
    for number, within_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(within_s)
            return


def _reason(status: int | None, log: Path, deadline_s: float) -> str:
    if status is None:
        return f"deadline: not ended within {deadline_s:g} s"
    words = " | ".join((processes.log_tail(log) or "").strip().splitlines())[-REASON_CHARACTERS:]
    return f"exit status {status}: {words}" if words else f"exit status {status}"
