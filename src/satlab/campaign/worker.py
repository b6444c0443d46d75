# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs tasks of the plan on one host, each attempt with a deadline and a folder on disk.

The worker repeats a task that is out of calibration. The command holds the lock of its task. A
worker that replaces a killed one waits for this lock, counts an attempt that ended, and removes an
attempt that did not.
"""

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass

from satlab.campaign import attempt, batches, task_record
from satlab.campaign import plan_file as plans
from satlab.campaign.attempt import STOP_S, Measure
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.plan_file import Plan, Task
from satlab.campaign.task_record import Attempt, TaskRecord
from satlab.common.errors import ExitStatus, HostError
from satlab.common.files import write_atomically


@dataclass(frozen=True)
class Worker:
    """One worker: the campaign's folder, the SHA-256 of its plan, further attempts at a task that
    is out of calibration, and where they run.
    """

    folder: CampaignFolder
    plan_sha256: str
    retries: int
    measure: Measure = attempt.here

    def work(self, name: str, stop: threading.Event) -> ExitStatus:
        """Run a task, unless it is done. Return 0 if it is recorded, 3 if the host failed and the
        task should be tried elsewhere.

        Raises:
            ConfigError: the plan is another one, or has no such task.
            HostError: another worker holds the task for longer than an attempt may take, or the
                host of an attempt was lost; nothing is left of that attempt.
        """
        plan = plans.load(self.folder.plan_file, self.plan_sha256)
        return self._work(plan, plan.task(name), stop)

    def work_batch(
        self, name: str, stop: threading.Event, note: Callable[[str], None]
    ) -> ExitStatus:
        """Run the tasks of a batch one after the other, and mark the batch as done if all are
        recorded. A host's failure in one task does not stop the others; `note` receives the reason.

        Status: 0, or 3 after a host's failure; 130 after `stop`, or if the process that started
        this one has ended: the next engine plans what is left.

        Raises:
            ConfigError: the plan is another one, or there is no such batch.
        """
        plan = plans.load(self.folder.plan_file, self.plan_sha256)
        worst, engine = ExitStatus.OK, os.getppid()
        for task in batches.load(self.folder.path, name, plan):
            if self.folder.is_done(task):
                continue
            if os.getppid() != engine:
                return ExitStatus.INTERRUPTED
            try:
                status = self._work(plan, task, stop)
            except HostError as error:
                status = ExitStatus.HOST
                note(f"{task.id}: {error}")
            if status == ExitStatus.INTERRUPTED:
                return status
            worst = worst if status == ExitStatus.OK else status
        if worst == ExitStatus.OK:
            batches.end(self.folder.path, name)
        return worst

    def _work(self, plan: Plan, task: Task, stop: threading.Event) -> ExitStatus:
        place = self.folder.of(task)
        place.mkdir(parents=True, exist_ok=True)
        with locked(place / ".lock", plan.deadline_s + 2 * STOP_S) as lock:
            if self.folder.is_done(task):
                return ExitStatus.OK
            self._sweep(task)
            ended = self.folder.attempts(task)
            while not self._is_final(task, ended):
                attempt = self._attempt(plan, task, len(ended) + 1, lock, stop)
                if attempt is None:
                    return ExitStatus.INTERRUPTED
                if attempt.exit_status == ExitStatus.HOST:
                    raise HostError(f"attempt {attempt.number}: {attempt.reason}")
                ended = [*ended, attempt]
            self._record(task, ended)
        return ExitStatus.OK

    def _is_final(self, task: Task, ended: list[Attempt]) -> bool:
        """Return whether the last attempt counts: it measured in calibration, or there are no
        repetitions left. Attempts before a task was reopened do not count.
        """
        ended = ended[self.folder.attempts_before(task) :]
        if not ended or ended[-1].exit_status == ExitStatus.HOST:
            return False
        off = [
            task_record.is_off(
                task.rule,
                one.exit_status,
                self.folder.of(task) / f"attempt-{one.number}" / task_record.OUTPUT,
            )
            for one in ended
        ]
        return not off[-1] or sum(off) > self.retries

    def _sweep(self, task: Task) -> None:
        """Remove attempts that did not end."""
        for folder in self.folder.of(task).glob("attempt-*"):
            if not (folder / task_record.ATTEMPT).is_file():
                shutil.rmtree(folder)

    def _attempt(
        self, plan: Plan, task: Task, number: int, lock: int, stop: threading.Event
    ) -> Attempt | None:
        """Run the command; None if `stop` was set first, and then nothing is left of the
        attempt.
        """
        place = self.folder.of(task) / f"attempt-{number}"
        place.mkdir()
        try:
            ended = self.measure(task, place, plan.deadline_s, lock, stop)
        except HostError:
            shutil.rmtree(place)
            raise
        if ended is None or stop.is_set():
            shutil.rmtree(place)
            return None
        done = Attempt(number=number, **dict(ended))
        write_atomically(place / task_record.ATTEMPT, done.model_dump_json(indent=1) + "\n")
        return done

    def _record(self, task: Task, ended: list[Attempt]) -> None:
        counts = f"attempt-{ended[-1].number}"
        done = TaskRecord(
            id=task.id,
            cell=task.cell,
            number=task.number,
            rule=task.rule,
            seed=task.seed,
            request=task.request,
            plan_sha256=self.plan_sha256,
            status=task_record.status_of(
                task.rule, ended[-1].exit_status, self.folder.of(task) / counts / task_record.OUTPUT
            ),
            attempts=tuple(ended),
            counts=counts,
            files=task_record.hashes(self.folder.of(task) / counts),
        )
        write_atomically(
            self.folder.of(task) / task_record.TASK,
            done.model_dump_json(by_alias=True, indent=1) + "\n",
        )
