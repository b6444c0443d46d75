# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab demo`: a TCP download and page loads over HTTP/1.1 and HTTP/3 in one run."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import collect
from satlab import report
from satlab.common.console import ProgressLog
from satlab.common.paths import SCENARIOS
from satlab.common.sudo_caller import chown_to_caller
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.quiet_host import Patience
from satlab.run.scenario_run import RunRequest

Show = Callable[[list[Path], list[collect.Table]], None]


@dataclass(frozen=True)
class Demo:
    """The measurements: length of the download in s, page loads per protocol, and patience with a
    busy host.
    """

    profile: str
    duration_s: float
    loads: int
    runs: Path
    patience: Patience = field(default_factory=Patience)

    def request(self) -> RunRequest:
        """Return the run: one lab, calibrated once, in which one measurement follows the other."""
        values = {"duration": f"{self.duration_s:g}", "runs": str(self.loads)}
        return RunRequest(
            SCENARIOS / "demo.json",
            LinkOptions(profile=self.profile),
            values,
            self.runs,
            report=False,
        )

    def run(self, log: ProgressLog, stop: threading.Event, show: Show) -> int:
        """Run it, show the table and the report's path; the status is the run's."""
        prepared, began = scenario_run.prepare(self.request()), time.monotonic()
        outcome = scenario_run.calibrated(prepared, self.patience, log, stop)
        page = self.runs / f"{outcome.folder.name}-demo.html"
        report.build({outcome.folder: outcome.collected}, page, f"satlab demo over {self.profile}")
        chown_to_caller(page)
        show([page], [outcome.records])
        if outcome.reason:
            log.line(f"{outcome.folder.name}: {outcome.reason}")
        log.line(f"measured in {time.monotonic() - began:.0f} s")
        return outcome.status
