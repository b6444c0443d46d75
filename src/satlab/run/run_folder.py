# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a run: plan, manifest, raw files, and a result however the run ends."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import polars

import collect
from collect import EnforcedBy, Manifest, calibration
from satlab import __version__, report
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, SatlabError
from satlab.common.files import write_atomically
from satlab.common.sudo_caller import chown_to_caller, make_folder
from satlab.link.plan import LinkPlan
from satlab.openbach.model import BoundScenario
from satlab.openbach.runner import JobProgress, ScenarioResult
from satlab.run import calibrate, host_load, manifest, sandboxed_reader
from satlab.run.lab_session import Host, LabT, run_session

ENDED: Mapping[ExitStatus, Literal["ok", "interrupted"]] = {
    ExitStatus.OK: "ok",
    ExitStatus.UNCALIBRATED: "ok",
    ExitStatus.INTERRUPTED: "interrupted",
}
"""`status` of the manifest by exit status; `failed` for all others."""
RunScenario = Callable[[LabT, Callable[[JobProgress], None], threading.Event], ScenarioResult]
"""Runs a scenario on a lab: reports each job's progress, ends early when the event is set."""


@dataclass(frozen=True)
class RunPlan:
    """The part of plan.json and manifest.json that is known before the run.

    `file`: the scenario's. `lab`: `netns` or `vm`. `options`: options of the link, as on the
    command line. `enforced_by`: how the limits of jobs are enforced on this host.
    """

    run_id: str
    scenario: BoundScenario
    file: Path
    link: LinkPlan
    profile: str
    emulator: str
    seed: int
    lab: Literal["netns", "vm"] = "netns"
    options: list[str] | None = None
    enforced_by: EnforcedBy = field(default_factory=EnforcedBy)

    def document(self) -> dict[str, Any]:
        """Return plan.json: the scenario, and the link that it runs over."""
        return {
            "schema": "satlab/plan/1",
            "run_id": self.run_id,
            "scenario": self.scenario.name,
            "arguments": dict(self.scenario.values),
            "emulator": self.emulator,
            **({} if self.options is None else {"options": self.options}),
            "link": self.link.model_dump(by_alias=True),
        }

    def manifest(self, versions: Mapping[str, str]) -> Manifest:
        """Return the manifest of a run that starts now."""
        return Manifest(
            schema="satlab/manifest/1",
            satlab_version=__version__,
            run_id=self.run_id,
            scenario=self.scenario.name,
            scenario_sha256=manifest.scenario_sha256(self.file),
            profile=self.profile,
            profile_sha256=self.link.profile_sha256,
            arguments=dict(self.scenario.values),
            seed=self.seed,
            lab=self.lab,
            emulator=self.emulator,
            started_unix_s=time.time(),
            ended_unix_s=None,
            status="running",
            reason="",
            exit_status=None,
            host=manifest.host(),
            versions=dict(versions),
            files={},
            enforced_by=self.enforced_by,
        )


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: Path
    status: ExitStatus
    reason: str
    collected: collect.Collected

    @property
    def records(self) -> collect.Table:
        """Return the records of `collect.SCHEMA`."""
        return self.collected.records


@dataclass(frozen=True)
class RunFolder:
    """`runs/<id>/`: plan.json, manifest.json, raw/, records.parquet, report/."""

    path: Path

    @property
    def raw(self) -> Path:
        return self.path / "raw"

    @property
    def metrics(self) -> Path:
        return self.raw / "link.jsonl"

    @property
    def logs(self) -> Path:
        return self.raw / "logs"

    def record(
        self,
        plan: RunPlan,
        versions: Mapping[str, str],
        host: Host[LabT],
        scenario: RunScenario[LabT],
        log: ProgressLog,
        stop: threading.Event,
        title: str | None,
    ) -> RunResult:
        """Run a scenario on a host's lab and record it here.

        `title` is that of the report; without one no report is made.

        Raises:
            SatlabError: the run could not be done; the folder then says so, too.
        """
        about = self._begin(plan, versions, log)
        status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
        try:
            status, reason = self._measure(plan, host, scenario, log, stop, about)
        except KeyboardInterrupt:
            status, reason = ExitStatus.INTERRUPTED, "interrupted"
        except SatlabError as error:
            status, reason = error.status, str(error)
            raise
        finally:
            self._finish(about, status, reason)
        with log.step("collect and report"):
            collected = sandboxed_reader.collected(self.path)
            failed = failed_samples(collected.records)
            if failed and status in (ExitStatus.OK, ExitStatus.UNCALIBRATED):
                status, reason = ExitStatus.FAILED, failed
                self._write_end(about, status, reason)
                collected = sandboxed_reader.collected(self.path)  # records of the run say it, too
            if title is not None:
                report.build({self.path: collected}, self.path / "report" / "index.html", title)
        chown_to_caller(self.path)
        return RunResult(self.path, status, reason, collected)

    def _begin(self, plan: RunPlan, versions: Mapping[str, str], log: ProgressLog) -> Manifest:
        make_folder(self.path)
        self.logs.mkdir(parents=True)
        log.line(f"run {plan.run_id}")
        write_atomically(self.path / "plan.json", json.dumps(plan.document(), indent=1) + "\n")
        about = plan.manifest(versions)
        manifest.write(about, self.path / "manifest.json")
        return about

    def _measure(
        self,
        plan: RunPlan,
        host: Host[LabT],
        scenario: RunScenario[LabT],
        log: ProgressLog,
        stop: threading.Event,
        about: Manifest,
    ) -> tuple[ExitStatus, str]:
        def body(lab: LabT, halt: threading.Event) -> ScenarioResult:
            with log.step(f"scenario {plan.scenario.name}") as step:
                result = scenario(
                    lab, lambda job: step.now(f"{job.label} on {job.entity}: {job.status}"), halt
                )
                step.outcome = f"{result.status}{': ' if result.reason else ''}{result.reason}"
            return result

        session = run_session(host, body, log, stop)
        stored = sandboxed_reader.stored(self.path)
        about.legs = stored.legs
        result = session.outcome
        waits = [
            *host_load.of_loads(one.load for one in stored.loads),
            *host_load.of_browser((one.load for one in stored.loads), stored.yardsticks),
            *host_load.of_jobs(result.jobs if result else ()),
        ]
        checks = [*session.checks, *waits]
        calibrated = calibrate.write(self.raw / "calibration.json", self.path.name, checks)
        if stop.is_set() or result is None:
            return ExitStatus.INTERRUPTED, "interrupted"
        if session.broken:
            return ExitStatus.FAILED, session.broken
        if result.outcome != "ok":
            status = ExitStatus.FAILED if result.outcome == "failed" else ExitStatus.INTERRUPTED
            return status, result.reason or result.outcome
        if not calibrated:
            return ExitStatus.UNCALIBRATED, calibration.verdict(checks)
        return ExitStatus.OK, ""

    def _finish(self, about: Manifest, status: ExitStatus, reason: str) -> None:
        """Write the end of the run and the digest of every raw file."""
        about.ended_unix_s = time.time()
        about.files, _ = collect.digests(self.path)
        self._write_end(about, status, reason)
        chown_to_caller(self.path)

    def _write_end(self, about: Manifest, status: ExitStatus, reason: str) -> None:
        about.exit_status, about.reason = int(status), reason
        about.status = ENDED.get(status, "failed")
        manifest.write(about, self.path / "manifest.json")


def failed_samples(records: collect.Table) -> str:
    """Return the first failed or censored sample's metric and reason and how many there are; "" if
    there is none.

    A run whose jobs ended well may still hold some: that is a failed run.
    """
    sample = ~polars.col("metric").str.starts_with("calibration") & polars.col("t_s").is_null()
    bad = records.lazy().filter(sample & (polars.col("status") != "ok")).collect(engine="streaming")
    if not len(bad):
        return ""
    first = bad.row(0, named=True)
    more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"{first['metric']}: {first['reason'] or first['status']}{more}"
