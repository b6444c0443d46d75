# SPDX-License-Identifier: GPL-3.0-or-later
"""Exit statuses and the errors that carry them.

One printer (in `cli`) turns them into `error:` and `hint:` lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit status of `satlab`; the table is in docs/cli.md."""

    OK = 0
    FAILED = 1
    USAGE = 2
    HOST = 3
    UNCALIBRATED = 4
    UNSUPPORTED = 5
    UNDECIDED = 6
    INTERRUPTED = 130


@dataclass(frozen=True)
class Fault:
    """A fault in a user's file: place, reason, remedy."""

    place: str
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return the fault on one line."""
        return f"{self.place}: {self.reason}" + (f" ({self.remedy})" if self.remedy else "")


class SatlabError(Exception):
    """An expected failure: a message, the remedy, and the exit status it leads to."""

    status: ExitStatus = ExitStatus.FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class RunError(SatlabError):
    """The run failed: a job, a page load, a time-out."""


class HostError(SatlabError):
    """The host cannot do what is requested: privileges, kernel features, ports, disk, missing
    programs.
    """

    status = ExitStatus.HOST


class ConfigError(SatlabError):
    """Profile, scenario, arguments or lab.yml are invalid; holds every fault, not only the first."""

    status = ExitStatus.USAGE

    def __init__(self, what: str, faults: Sequence[Fault] = (), hint: str = "") -> None:
        super().__init__(what, hint)
        self.faults = tuple(faults)
