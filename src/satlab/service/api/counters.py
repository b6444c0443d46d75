# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics of the API process since it started, and of the link of the run in progress."""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from satlab.link import prometheus
from satlab.link.jsonl_tail import GrowingFile

Name = Literal["runs_launched", "runs", "run_seconds", "logins_refused", "requests"]
LABELS: dict[Name, tuple[str, tuple[str, ...]]] = {
    "runs_launched": ("", ("",)),
    "runs": ("outcome", ("ok", "failed", "stopped")),
    "run_seconds": ("outcome", ("ok", "failed", "stopped")),
    "logins_refused": ("reason", ("wrong", "limited", "busy", "token")),
    "requests": ("code", ("1xx", "2xx", "3xx", "4xx", "5xx")),
}
"""Label of each count, and its values: a fixed number of series, whatever clients send."""


class Counters:
    """Thread-safe counts, which only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {name: dict.fromkeys(LABELS[name][1], 0.0) for name in get_args(Name)}

    def add(self, name: Name, value: str = "", amount: float = 1) -> None:
        """Add an amount of at least 0 to the count with this value of its label.

        Raises KeyError: there is none.
        """
        with self._lock:
            self._counts[name][value] += max(0.0, amount)

    def of(self, name: Name) -> dict[str, float]:
        """Return a count by the value of its label."""
        with self._lock:
            return dict(self._counts[name])


LAB = "serve"
"""Label of the one lab that the service has at a time: a name per run would make new series with
each run.
"""
MAX_READS = 8
"""Pieces of a metrics file that are read for one answer; the rest counts in the next one."""


@dataclass
class _Link:
    file: GrowingFile
    totals: prometheus.Totals = field(default_factory=prometheus.Totals)


class RunningLink:
    """Adds up the samples of one metrics file; those of another one start at 0."""

    def __init__(self) -> None:
        self._lock, self._link = threading.Lock(), _Link(GrowingFile(Path()))

    def text(self, metrics: Path) -> str:
        """Return the exposition text of a metrics file, '' before its first sample."""
        with self._lock:
            if self._link.file.path != metrics:
                self._link = _Link(GrowingFile(metrics))
            for _ in range(MAX_READS):
                if not (lines := self._link.file.read()):
                    break
                for line in lines:
                    if line["type"] == "sample":
                        self._link.totals.add(line)
            totals = self._link.totals
            return prometheus.render(LAB, totals.last, totals.counts) if totals.last else ""
