# SPDX-License-Identifier: GPL-3.0-or-later
"""Executes the remaining runs of a campaign: each is a `satlab run` of its own, in a fresh lab."""

import contextlib
import math
import os
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from satlab.common import processes
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError, RunError, SatlabError
from satlab.lab import ownership
from satlab.papers.campaign import Campaign, Task
from satlab.papers.concurrency import Concurrency, CpuTime
from satlab.papers.matrix import KINDS, arguments
from satlab.run.quiet_host import Patience

POLL_S = 0.1
ATTEMPTS = 3
"""Attempts of a run that leaves no records; then the campaign ends with an error."""
RUN_DEADLINE_S = 1200.0
"""`satlab run` stops its scenario after 900 s by itself."""
STOP_DEADLINE_S = 60.0
LOG_TAIL_CHARACTERS = 400


@dataclass(frozen=True)
class RunningTask:
    """A run in progress; `began` and `late` on the monotonic clock, `cpu` at its begin."""

    task: Task
    process: subprocess.Popen[bytes]
    log: Path
    began: float
    cpu: CpuTime
    late: float = math.inf


@dataclass
class Execution:
    """The remaining and the active runs of a campaign, each with the same patience as `satlab run`
    has.
    """

    campaign: Campaign
    pace: Concurrency
    log: ProgressLog
    patience: Patience = field(default_factory=Patience)
    todo: list[Task] = field(init=False)
    running: list[RunningTask] = field(default_factory=list)
    attempts: Counter[Task] = field(default_factory=Counter)
    took_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: int = 0

    def __post_init__(self) -> None:
        """Read the remaining runs and the durations of earlier ones."""
        self.todo = self.campaign.todo()
        self.took_s.clear()
        for cell in self.campaign.cells:
            self.took_s[cell.kind] += [done.took_s for done in self.campaign.done(cell).values()]

    def go(self, stop: threading.Event) -> bool:
        """Run all that is left;

        False when `stop` came first. Raises SatlabError when further runs would fail, too.
        """
        with self.campaign.locked() as lock:
            # runs of a killed program may have ended while the lock was theirs
            self.__post_init__()
            try:
                while (self.todo or self.running) and not stop.is_set():
                    self._start(lock)
                    if not self._reap():
                        stop.wait(POLL_S)
            finally:
                self._end_all()
        return not self.todo and not stop.is_set()

    def left_s(self) -> float:
        """Estimate the time that is left from the runs so far, s."""
        waiting = [*self.todo, *(run.task for run in self.running)]
        return sum(self._typical_s(task.cell.kind) for task in waiting) / self.pace.level

    def _typical_s(self, kind: str) -> float:
        return fmean(self.took_s[kind]) if self.took_s[kind] else KINDS[kind].guess_s

    def _start(self, lock: int) -> None:
        while task := next((t for t in self.todo if self._has_room(t)), None):
            self.todo.remove(task)
            self.attempts[task] += 1
            self.running.append(self._started(task, lock))

    def arguments(self, task: Task) -> list[str]:
        """Return the arguments of `satlab` for a run."""
        words = arguments(task.cell.request(task.number, self.campaign.runs_of(task.cell)))
        patience = {"--wait-quiet": self.patience.wait_quiet_s, "--retries": self.patience.retries}
        return [
            *words,
            *(word for name, value in patience.items() if value for word in (name, f"{value:g}")),
        ]

    def _started(self, task: Task, lock: int) -> RunningTask:
        runs = self.campaign.runs_of(task.cell)
        log = (
            self.campaign.folder / "logs" / f"{task.cell.name.replace('/', '-')}-{task.number}.log"
        )
        for folder in (runs, log.parent):
            with contextlib.suppress(FileExistsError):
                ownership.make_folder(folder)
        argv = [sys.executable, "-m", "satlab", *self.arguments(task)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv,
                stdin=lock,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env=os.environ,
                start_new_session=True,
            )
        began = time.monotonic()
        longest_s = (RUN_DEADLINE_S + self.patience.wait_quiet_s) * (1 + self.patience.retries)
        return RunningTask(task, process, log, began, cpu_time(), began + longest_s)

    def _has_room(self, task: Task) -> bool:
        browsers = sum(run.task.cell.browser for run in self.running)
        return self.pace.has_room(len(self.running), browsers, browser=task.cell.browser)

    def _reap(self) -> bool:
        ended = [run for run in self.running if run.process.poll() is not None or _is_late(run)]
        for run in ended:
            self.running.remove(run)
            _end(run)
            self._take(run)
        return bool(ended)

    def _take(self, run: RunningTask) -> None:
        task, code = run.task, run.process.returncode
        done = self.campaign.done(task.cell).get(task.number)
        if done is None:
            self._lost(run)
            return
        self.ended += 1
        self.took_s[task.cell.kind].append(time.monotonic() - run.began)
        idle = cpu_time().idle_since(run.cpu) if task.cell.browser else None
        self.pace.ended(calibrated=code != ExitStatus.UNCALIBRATED, idle=idle)
        outcomes = {ExitStatus.OK: "ok", ExitStatus.UNCALIBRATED: "out of calibration"}
        outcome = next(
            (text for status, text in outcomes.items() if status == code), "failed, kept as such"
        )
        left = len(self.todo) + len(self.running)
        more = (
            f"{left} left, about {duration(self.left_s())} with {self.pace.level} at once"
            if left
            else "none left"
        )
        self.log.line(
            f"{task.cell.name} #{task.number}: {outcome} after {done.took_s:.0f} s; {more}"
        )

    def _lost(self, run: RunningTask) -> None:
        """Record a run without records: invalid arguments and host faults end the campaign, others
        are repeated.
        """
        task, code = run.task, run.process.returncode
        words = (
            run.log.read_text(errors="replace").strip()[-LOG_TAIL_CHARACTERS:].replace("\n", " | ")
        )
        what = f"{task.cell.name} #{task.number} left no records (status {code}): {words}"
        errors: dict[int, type[SatlabError]] = {
            ExitStatus.USAGE: ConfigError,
            ExitStatus.HOST: HostError,
        }
        if code in errors:
            raise errors[code](
                what, hint=f"fix it, then: satlab reproduce --resume {self.campaign.folder}"
            )
        if self.attempts[task] >= ATTEMPTS:
            raise RunError(
                what, f"see {run.log}; then: satlab reproduce --resume {self.campaign.folder}"
            )
        self.log.line(f"{what}; it will be repeated")
        self.todo.append(task)

    def _end_all(self) -> None:
        for run in self.running:
            run.process.terminate()
        for run in self.running:
            _end(run, STOP_DEADLINE_S)
        self.running.clear()


def cpu_time() -> CpuTime:
    """Read the host's CPU time (proc_stat(5): user, nice, system, idle, iowait, irq, softirq,
    steal).
    """
    with Path("/proc/stat").open(encoding="ascii") as file:
        times = [int(word) for word in file.readline().split()[1:9]]
    return CpuTime(sum(times), times[3] + times[4])


def _is_late(run: RunningTask) -> bool:
    return time.monotonic() > run.late


def _end(run: RunningTask, deadline_s: float = STOP_DEADLINE_S) -> None:
    """Wait for a run's end.

    After its deadline it is terminated, which takes its lab down, and then killed.
    """
    if _is_late(run):
        run.process.terminate()
    processes.reap(run.process, deadline_s)


def duration(seconds: float) -> str:
    """Return a duration as text."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"
