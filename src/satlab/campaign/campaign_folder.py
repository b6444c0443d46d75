# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a campaign, and the files in it.

`plan.json`, `tasks/RULE/ID/{attempt-N/,task.json,reopened}`, `logs/`, `dataset/`, `report/`.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from collect import raw
from satlab.campaign import plan_file as plans
from satlab.campaign import task_record
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_record import Attempt, TaskRecord
from satlab.common import processes
from satlab.common.errors import ConfigError, HostError
from satlab.common.files import write_atomically
from satlab.common.locks import open_lock, try_lock


@dataclass(frozen=True)
class CampaignFolder:
    """The places of a campaign's files. All state is on disk, so it is right even after a kill."""

    path: Path

    @property
    def plan_file(self) -> Path:
        return self.path / plans.FILE

    @property
    def log(self) -> Path:
        """The engine's messages."""
        return self.path / "logs" / "engine.log"

    def of(self, task: Task) -> Path:
        """Return a task's folder."""
        return self.path / "tasks" / task.rule / task.id

    def is_done(self, task: Task) -> bool:
        return (self.of(task) / task_record.TASK).is_file()

    def left(self, plan: Plan) -> list[Task]:
        """Return the tasks that are not done."""
        return [task for task in plan.tasks if not self.is_done(task)]

    def marked(self, plan: Plan) -> list[Task]:
        """Return the tasks that are done and out of calibration."""
        return [task for task in plan.tasks if self._is_marked(task)]

    def _is_marked(self, task: Task) -> bool:
        found = self.read(task)
        return found is not None and task_record.is_off(
            task.rule,
            found.last.exit_status,
            self.of(task) / found.counts / task_record.OUTPUT,
        )

    def reopen(self, task: Task) -> None:
        """Let a task that is done run again. Its attempts stay, and use up none of its retries."""
        count = len(self.attempts(task))
        write_atomically(self.of(task) / task_record.REOPENED, f"{count}\n")
        (self.of(task) / task_record.TASK).unlink()

    def attempts_before(self, task: Task) -> int:
        """Return the number of attempts before the task was reopened; 0 if it was not."""
        try:
            return int((self.of(task) / task_record.REOPENED).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0

    def read(self, task: Task) -> TaskRecord | None:
        """Return a task's record; None without one, or with an invalid one."""
        place = self.of(task).relative_to(self.path)
        try:
            return TaskRecord.model_validate_json(self.content(place / task_record.TASK))
        except (OSError, raw.RefusedError, ValidationError):
            return None

    def content(self, name: Path) -> bytes:
        """Return a document below the folder, which may be somebody else's.

        Raises OSError, RefusedError.
        """
        with raw.open_plain(self.path, str(name), raw.DOCUMENT_BYTES) as file:
            return file.read(raw.DOCUMENT_BYTES)

    def attempts(self, task: Task) -> list[Attempt]:
        """Return the attempts that ended, in their order."""
        found = []
        for file in self.of(task).glob(f"attempt-*/{task_record.ATTEMPT}"):
            with contextlib.suppress(OSError, raw.RefusedError, ValidationError):
                found.append(Attempt.model_validate_json(self.content(file.relative_to(self.path))))
        return sorted(found, key=lambda attempt: attempt.number)

    def begin(self, plan: Plan, *, replace: bool = False) -> str:
        """Write the plan if there is none, and return its SHA-256. With `replace`, another plan is
        replaced: tasks with changed requests are removed and run again. Raises ConfigError if there
        is another plan and no `replace`.
        """
        text = plan.text()
        if replace:
            self._remove_others(plan)
        if replace or not self.plan_file.exists():
            for folder in (self.path, self.log.parent):
                folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.plan_file, text)
        elif self.plan_file.read_text(encoding="utf-8") != text:
            hint = "choose another folder with --folder, or restore the campaign's file"
            raise ConfigError(f"{self.path} is of another plan", hint=hint)
        return plans.digest(text)

    def _remove_others(self, plan: Plan) -> None:
        """Remove the results of tasks whose request has changed."""
        for task in plan.tasks:
            found = self.read(task)
            if found is not None and found.request != task.request:
                shutil.rmtree(self.of(task))


@contextlib.contextmanager
def locked(file: Path, within_s: float) -> Iterator[int]:
    """Hold a lock file. A process that inherits its descriptor keeps the lock. Raises HostError if
    the lock is not free in time.
    """
    descriptor = open_lock(file)
    try:
        if not processes.wait(lambda: try_lock(descriptor), within_s):
            raise HostError(f"{file} is held by another process", "wait for its end")
        yield descriptor
    finally:
        os.close(descriptor)
