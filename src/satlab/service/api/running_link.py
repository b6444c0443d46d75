# SPDX-License-Identifier: GPL-3.0-or-later
"""Link metrics of the run in progress, for a monitoring system that asks now and then."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from satlab.link import prometheus
from satlab.link.growing_file import GrowingFile

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
