# SPDX-License-Identifier: GPL-3.0-or-later
"""The records of a task: `attempt.json` of each attempt, and task.json at its end.

A task is done when task.json (schemas/campaign-task.schema.json) is there. It names every file of
the attempt that counts with its SHA-256.
"""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from satlab import __version__
from satlab.campaign.plan_file import Id
from satlab.campaign.task_request import Request, Rule, Strict
from satlab.common import plain_files
from satlab.common.errors import ExitStatus
from satlab.run import host_stamp, manifest

ATTEMPT, TASK, OUTPUT, LOG = "attempt.json", "task.json", "output.json", "log"
REOPENED = "reopened"
"""File with the number of attempts that a task had when it was reopened."""
Status = Literal["ok", "failed", "out of calibration"]
MOST_FILES, MOST_DEPTH, MOST_BYTES = 100_000, 32, 64 << 30
"""Limits of what an attempt leaves, files, folders in each other, bytes."""
NODE = "SLURMD_NODENAME"
"""Slurm's name of a node: several may be on one host."""


class Host(Strict):
    """A host, and the properties on which its figures depend. Hosts with the same properties and
    versions have the same `stamp`.
    """

    name: str
    stamp: str
    facts: Mapping[str, Any]


class Ended(Strict):
    """How a command ended on a host; times in s since the epoch.

    `exit_status` is negative after a signal.

    `cpu_s`: CPU time of the command and of the processes that it waited for; None in records of
    earlier versions.
    """

    host: Host
    began_unix_s: float
    ended_unix_s: float
    cpu_s: float | None = None
    exit_status: int
    reason: str


class Attempt(Ended):
    """One finished attempt at a task."""

    number: int = Field(ge=1)


class TaskRecord(Strict):
    """task.json: the end of a campaign's task.

    `counts` is the folder of the attempt that counts. `files` are the files of that attempt with
    their SHA-256.
    """

    schema_: Literal["satlab/campaign-task/2"] = Field(
        default="satlab/campaign-task/2", alias="schema"
    )
    id: Id
    cell: Id
    number: int
    rule: Rule
    seed: int
    request: Request
    plan_sha256: str
    satlab_version: str = __version__
    status: Status
    attempts: tuple[Attempt, ...] = Field(min_length=1)
    counts: Annotated[str, Field(pattern=r"^attempt-[1-9][0-9]{0,5}$")]
    files: Mapping[str, str]

    @property
    def last(self) -> Attempt:
        """Return the attempt that counts."""
        return self.attempts[-1]


def status_of(rule: Rule, exit_status: int, output: Path) -> Status:
    """Return a task's status from the exit status of its command.

    A check that missed a target has measured it.
    """
    if exit_status == ExitStatus.UNCALIBRATED:
        return "out of calibration"
    measured = (
        (ExitStatus.OK, ExitStatus.FAILED, ExitStatus.UNSUPPORTED)
        if rule == "check"
        else (ExitStatus.OK,)
    )
    return "ok" if exit_status in measured and output.stat().st_size else "failed"


def is_off(rule: Rule, exit_status: int, output: Path) -> bool:
    """Return whether an attempt was out of calibration. Failed flows do not show it in their exit
    status.
    """
    if rule != "flows" or exit_status != ExitStatus.FAILED:
        return exit_status == ExitStatus.UNCALIBRATED
    try:
        return bool(json.loads(output.read_text(encoding="utf-8")).get("calibration"))
    except (OSError, ValueError):
        return False


def this_host() -> Host:
    """Describe the host, with the results of `satlab bench host` and without its load."""
    stamp, facts = host_stamp.stamp()
    measured = host_stamp.known(stamp)
    if measured:
        facts |= {name: measured[name] for name in ("labs", "timer_p99_us", "measured_unix_s")}
    return Host(name=os.environ.get(NODE) or socket.gethostname(), stamp=stamp, facts=facts)


def hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each plain file below a folder, by its path relative to the folder.

    The folder may belong to another user. Links are not followed. Raises ValueError if there are
    more files than an attempt may leave.
    """
    found = list(plain_files.walk(folder.resolve(), MOST_DEPTH, MOST_FILES, MOST_FILES))
    if len(found) >= MOST_FILES or sum(file.size for file in found) > MOST_BYTES:
        raise ValueError(f"more than {MOST_FILES} files or {MOST_BYTES} bytes")
    return {file.name: manifest.sha256(folder / file.name) for file in sorted(found, key=_name)}


def _name(file: plain_files.Found) -> str:
    return file.name
