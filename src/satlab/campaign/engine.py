# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a campaign: Snakemake runs the tasks that are left, in batches; this process watches the
folder and reports progress.

Snakemake ends with this process (docs/decisions/0013-campaigns.md). Workers then finish the tasks
in progress and begin no others; the next engine waits for these tasks.
"""

import functools
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from satlab.campaign import batches, hosts_file, lab_slots
from satlab.campaign.campaign_folder import CampaignFolder, locked
from satlab.campaign.plan_file import Plan, Task
from satlab.common import paths, processes
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, HostError
from satlab.common.sudo_caller import chown_to_caller
from satlab.run import quiet_host

Executor = Literal["local", "slurm", "ssh"]
WORKFLOW = Path(__file__).with_name("workflow") / "Snakefile"
LOST = 3
"""Further attempts of the engine at a batch whose worker was killed, or whose node was lost."""
REPORT_S = 10.0
POLL_S = 0.5
LATENCY_S = 60
"""Longest time until a file of another host appears on a shared file system, s."""


@dataclass(frozen=True)
class Options:
    """How tasks are run.

    `jobs`: number of tasks at once; None: the number of cores, with labs on half of them at most.
    `hosts` is the file of hosts for ssh, whose slots set the number of jobs. Labs wait up to
    `wait_quiet_s` for a quiet host.
    """

    executor: Executor = "local"
    jobs: int | None = None
    retries: int = 1
    partition: str | None = None
    hosts: Path | None = None
    wait_quiet_s: float = 0.0

    @functools.cached_property
    def slots(self) -> int | None:
        """Return the slots of all hosts; None without a file of them. Raises ConfigError."""
        return hosts_file.load(self.hosts).slots if self.hosts else None


@dataclass(frozen=True)
class Engine:
    """A campaign that is to run in a folder; with `replace` the folder may have another plan, and
    tasks out of calibration are repeated.
    """

    plan: Plan
    folder: CampaignFolder
    options: Options
    replace: bool = False

    def document(self) -> dict[str, Any]:
        """Return the tasks that would run, and how."""
        left = self.folder.left(self.plan)
        return {
            "folder": str(self.folder.path),
            "cells": len(self.plan.cells),
            "tasks": len(self.plan.tasks),
            "left": [task.id for task in left],
            "estimate_s": round(self.estimate_s(left), 1),
            "command": self.command("0" * 64),
        }

    def run(self, log: ProgressLog, stop: threading.Event) -> ExitStatus:
        """Run the remaining tasks. Status 1: a task failed; 4: out of calibration; 130: stopped.

        Raises:
            ConfigError: the folder has another plan.
            HostError: Snakemake is missing, cannot run here, or ended early.
        """
        if not is_installed():
            raise HostError("Snakemake is not installed", "./satlab --install campaign")
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with locked(self.folder.path / ".lock", POLL_S):
            digest = self.folder.begin(self.plan, replace=self.replace)
            for task in self.folder.marked(self.plan) if self.replace else ():
                self.folder.reopen(task)
            left = self.folder.left(self.plan)
            more = ", longer if tasks must be repeated" if self.options.retries and left else ""
            has_labs = any(task.lab == "netns" for task in left)
            if (wait_s := self.options.wait_quiet_s) and has_labs:
                more += f"; tasks wait for a quiet host, at most {wait_s:g} s"
            log.line(
                f"{self.folder.path}: {len(left)} of {len(self.plan.tasks)} tasks left, estimated"
                f" {duration(self.estimate_s(left))}{more}"
            )
            try:
                status = self._work(digest, log, stop) if left else 0
            finally:
                chown_to_caller(self.folder.path)
        if stop.is_set():
            return ExitStatus.INTERRUPTED
        if lost := self.folder.left(self.plan):
            what = f"{len(lost)} tasks are not done (Snakemake: {status}): {self._why(lost[0])}"
            raise HostError(what, f"read {self.folder.log}")
        return self._status()

    def _why(self, task: Task) -> str:
        """Return why a task is not done: the fault of its last attempt or, without one, Snakemake's
        message.
        """
        if attempts := self.folder.attempts(task):
            return f"{task.id}: {attempts[-1].reason}"
        lines = (processes.log_tail(self.folder.log) or "").strip().splitlines()
        return " | ".join(lines[-processes.LOG_LINES :])

    def _work(self, digest: str, log: ProgressLog, stop: threading.Event) -> int:
        """Run Snakemake over the remaining tasks, and repeat as long as a run completes some;
        return its status.
        """
        self._unlock(digest, log)
        left, before, status = self.folder.left(self.plan), len(self.plan.tasks) + 1, 0
        if self.options.wait_quiet_s and self._labs() > 1:  # several labs make the host busy
            quiet_host.wait_until_quiet(self.options.wait_quiet_s, log, stop)
        while left and len(left) < before and not stop.is_set():
            before = len(left)
            at_once = self._at_once_of(left)
            grouped = batches.group(left, at_once, self.plan.deadline_s, self._labs())
            batches.write(self.folder.path, grouped)
            status = self._snakemake(self.command(digest), log, stop)
            left = self.folder.left(self.plan)
        return status

    def command(self, digest: str) -> list[str]:
        """Return Snakemake's words.

        The option `worker` is this satlab with the plan's hash; each job adds its batch's id.
        """
        words = ["env", f"PYTHONPATH={paths.PYTHONPATH}"]
        words += [f"{paths.PROGRAMS_VARIABLE}={paths.PROGRAMS}", sys.executable, "-m", "satlab"]
        words += ["campaign", "batch", str(self.folder.path.resolve())]
        words += ["--plan", digest, "--retries", str(self.options.retries)]
        words += ["--hosts", str(self.options.hosts.resolve())] if self.options.hosts else []
        words += ["--slots"] if self._takes_slots() else []
        if self.options.wait_quiet_s and self._labs() == 1:
            words += ["--wait-quiet", f"{self.options.wait_quiet_s:g}"]
        argv = [sys.executable, "-m", "snakemake", "--snakefile", str(WORKFLOW)]
        argv += ["--directory", str(self.folder.path), "--config", f"worker={shlex.join(words)}"]
        argv += ["--scheduler", "greedy", "--keep-going", "--rerun-incomplete"]
        argv += ["--retries", str(LOST), "--rerun-triggers", "mtime"]
        return [*argv, "--quiet", "progress", "rules", "reason", "host", *self._of_executor()]

    def _unlock(self, digest: str, log: ProgressLog) -> None:
        """Remove the lock that a killed Snakemake left. No other engine can be running, because
        this process holds the campaign folder's lock.
        """
        if any((self.folder.path / ".snakemake" / "locks").glob("*")):
            log.line(f"{self.folder.path}: an engine was killed here; its lock is removed")
            argv = [*self.command(digest), "--unlock"]
            with self.folder.log.open("ab") as output:
                subprocess.run(argv, stdout=output, stderr=output, env=self._variables, check=False)

    def _of_executor(self) -> list[str]:
        at_once = self._at_once()
        if self.options.executor == "slurm":
            words = ["--executor", "slurm", "--jobs", str(at_once)]
            words += ["--latency-wait", str(LATENCY_S)]
            # Without an accounting daemon sacct knows nothing; squeue knows ended jobs for
            # MinJobAge (300 s).
            words += ["--slurm-status-command", "squeue"]
            words += ["--slurm-init-seconds-before-status-checks", "5"]
            words += ["--default-resources", "mem_mb=1000"]
            partition = self.options.partition
            return [*words, f"slurm_partition={partition}"] if partition else words
        cores = max(_cores(), at_once)
        if self.options.hosts:
            # With ssh, local tasks are only connections and need no cores here.
            cores = max(cores, at_once * max((task.cores for task in self.plan.tasks), default=1))
        words = ["--executor", "local", "--cores", str(cores)]
        return [*words, "--resources", f"tasks={at_once}", f"labs={self._labs()}"]

    def _at_once(self) -> int:
        return self.options.jobs or self.options.slots or _cores()

    def _takes_slots(self) -> bool:
        return self.options.executor == "slurm" or (
            self.options.executor == "local" and self.options.jobs is None
        )

    def _labs(self) -> int:
        """Return how many labs run at once: here as many as `satlab bench host` found, else half of
        the cores.
        """
        if at_once := self.options.jobs or self.options.slots:
            return at_once
        return lab_slots.labs()

    def _at_once_of(self, tasks: list[Task]) -> int:
        return self._labs() if any(task.lab == "netns" for task in tasks) else self._at_once()

    def estimate_s(self, left: list[Task]) -> float:
        """Return the time that tasks take, several at once, s."""
        return sum(task.estimate_s for task in left) / self._at_once_of(left)

    @property
    def _variables(self) -> dict[str, str]:
        """Return the environment of Snakemake and its workers."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        kept |= {"XDG_CACHE_HOME": str(self.folder.path.resolve() / ".cache")}
        return kept | {"PYTHONNOUSERSITE": "1"}

    def _snakemake(self, argv: list[str], log: ProgressLog, stop: threading.Event) -> int:
        """Run Snakemake to its end and report progress. It gets SIGKILL when this process ends."""
        with self.folder.log.open("ab") as output:
            child = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._variables,
                start_new_session=True,
            )
            progress = _Progress(self.plan, self.folder, log)
            while child.poll() is None and not stop.is_set():
                stop.wait(POLL_S)
                progress.report()
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGINT)
            processes.reap(child, self.plan.deadline_s)
        progress.report(at_once=True)
        return child.returncode

    def _status(self) -> ExitStatus:
        found = {
            record.status if (record := self.folder.read(task)) else "failed"
            for task in self.plan.tasks
        }
        if "failed" in found:
            return ExitStatus.FAILED
        return ExitStatus.UNCALIBRATED if "out of calibration" in found else ExitStatus.OK


class _Progress:
    """Counts tasks that are done, and estimates the remaining time from the pace so far."""

    def __init__(self, plan: Plan, folder: CampaignFolder, log: ProgressLog) -> None:
        self._plan, self._folder, self._log = plan, folder, log
        self._began = self._reported = time.monotonic()
        self._first = self._last = len(folder.left(plan))
        self._first_s = sum(task.estimate_s for task in folder.left(plan))

    def report(self, *, at_once: bool = False) -> None:
        """Print a line when something changed, not more often than every REPORT_S."""
        now = time.monotonic()
        if not at_once and now - self._reported < REPORT_S:
            return
        self._reported = now
        left = self._folder.left(self._plan)
        if len(left) == self._last:
            return
        self._last = len(left)
        left_s = sum(task.estimate_s for task in left)
        done_s = self._first_s - left_s
        remaining = (
            f", about {duration((now - self._began) * left_s / done_s)} left"
            if left and done_s
            else ""
        )
        again = sum((self._folder.of(task) / "attempt-2").exists() for task in self._plan.tasks)
        repeated = f", {again} repeated" if again else ""
        self._log.line(
            f"{len(self._plan.tasks) - len(left)} of {len(self._plan.tasks)} tasks done{repeated}"
            f"{remaining}"
        )


def is_installed() -> bool:
    """Return whether Snakemake is in this environment."""
    return importlib.util.find_spec("snakemake") is not None


def duration(seconds: float) -> str:
    """Return a duration as text."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(minutes, 1)} min"


def _cores() -> int:
    return os.cpu_count() or 1


def choose(plan: Plan, folder: Path | None, options: Options) -> Engine:
    """Return the engine of a plan; its folder is that of the campaign's name if none is named.

    Raises ConfigError.
    """
    if options.partition is not None and options.executor != "slurm":
        raise ConfigError("--partition is for --executor slurm", hint="leave it out")
    if (options.hosts is not None) != (options.executor == "ssh"):
        raise ConfigError(
            "--executor ssh and --hosts FILE go together",
            hint="docs/campaigns.md describes the file",
        )
    if options.executor == "ssh":
        plan.for_any_host("on hosts over ssh")
    if options.jobs and options.slots and options.jobs > options.slots:
        raise ConfigError(
            f"--jobs {options.jobs}: the hosts have {options.slots} slots", hint="leave --jobs out"
        )
    return Engine(plan, CampaignFolder(folder or Path("runs") / f"campaign-{plan.name}"), options)
