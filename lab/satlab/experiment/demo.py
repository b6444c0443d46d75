# SPDX-License-Identifier: GPL-3.0-or-later
"""The first figure: a TCP download and page loads over HTTP/1.1 and HTTP/3, each in a fresh lab, in one report."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import collect
from satlab import report
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.common.paths import SCENARIOS
from satlab.experiment import run
from satlab.experiment.quiet_host import Patience
from satlab.experiment.run import RunRequest
from satlab.experiment.run_folder import RunResult
from satlab.link.options import LinkOptions
from satlab.netlab import ownership

Show = Callable[[list[Path], list[collect.Table]], None]


@dataclass(frozen=True)
class Demo:
    """The measurements: length of the download in s, page loads per protocol, how to meet a busy host."""

    profile: str
    duration_s: float
    loads: int
    runs: Path
    patience: Patience = field(default_factory=Patience)

    def requests(self) -> list[RunRequest]:
        """Return the runs, in order."""
        link = LinkOptions(profile=self.profile)
        bulk = RunRequest(
            SCENARIOS / "bulk_tcp.json", link, {"duration": f"{self.duration_s:g}"}, self.runs, report=False
        )
        pages = [
            RunRequest(
                SCENARIOS / "page_load.json",
                link,
                {"protocol": protocol, "runs": str(self.loads)},
                self.runs,
                report=False,
            )
            for protocol in ("h1", "h3")
        ]
        return [bulk, *pages]

    def run(self, log: ProgressLog, stop: threading.Event, show: Show) -> int:
        """Run all, show the table and the report's path; the status is the gravest of the runs'."""
        prepared = [run.prepare(request) for request in self.requests()]
        began, outcomes = time.monotonic(), list[RunResult]()
        for one in prepared:
            outcomes.append(run.calibrated(one, self.patience, log, stop))
            if stop.is_set():
                break
        folders = [o.folder for o in outcomes]
        page = self.runs / f"{folders[0].name}-demo.html"
        report.build({o.folder: o.collected for o in outcomes}, page, f"satlab demo over {self.profile}")
        ownership.chown_to_caller(page)
        show([page], [o.records for o in outcomes])
        for outcome in outcomes:
            if outcome.reason:
                log.line(f"{outcome.folder.name}: {outcome.reason}")
        log.line(f"{len(outcomes)} runs in {time.monotonic() - began:.0f} s")
        return gravest([o.status for o in outcomes])


def gravest(statuses: list[ExitStatus]) -> ExitStatus:
    """Return the gravest status: an interrupt, a failed run, one out of calibration, or none of these."""
    gravest_first = (ExitStatus.INTERRUPTED, ExitStatus.FAILED, ExitStatus.UNCALIBRATED)
    return next((s for s in gravest_first if s in statuses), ExitStatus.OK)
