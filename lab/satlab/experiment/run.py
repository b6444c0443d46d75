# SPDX-License-Identifier: GPL-3.0-or-later
"""One run: check everything, bring up a fresh lab, calibrate, run the scenario, take the lab down, collect, report.

`prepare` touches nothing; `execute` leaves a run folder whatever happens, and never a lab.
"""

import contextlib
import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

import collect
from satlab import report
from satlab.common import paths, scratch, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus, HostError, SatlabError
from satlab.common.topology import Role
from satlab.experiment import calibrate, influx, manifest
from satlab.experiment.calibrate import CalibrationCheck, MetricsFile
from satlab.experiment.manifest import Manifest
from satlab.experiment.run_id import new_run_id
from satlab.link import control, linkplan, opensand, testbed
from satlab.link.expectation import expectation
from satlab.link.linkplan import LinkPlan, LinkRequest, LinkSet
from satlab.link.options import LinkOptions
from satlab.netlab import lab as labs
from satlab.netlab import ownership, web_target
from satlab.netlab.job_host import LabHost, pages
from satlab.netlab.lab import Lab
from satlab.openbach import descriptor, runner, scenario
from satlab.openbach.engine import FROM_ONE, FirstIds
from satlab.openbach.model import BoundScenario

RAW = "raw"
METRICS = f"{RAW}/link.jsonl"
LOGS = f"{RAW}/logs"
CALIBRATION = f"{RAW}/calibration.json"
WATCH_S = 0.25
"""How often a run looks whether its lab is still up, s."""
FREE_BYTES_NEEDED = 500_000_000
"""Disk space that a run may need at the most: captures are off, a browser profile is the largest part."""


@dataclass(frozen=True)
class RunRequest:
    """What a person asks for; the deadline in s.

    `entities`: who plays the scenario's entities, entity to node; None: every node plays itself. `jobs`: a folder of
    jobs beside the shipped ones. `run_id`: None = one is made. `endless`: let a job run that nothing stops.
    `influx`: URL of an InfluxDB that gets the statistics, too. `at_start`: changes of the link as it starts.
    """

    scenario: Path
    link: LinkOptions = field(default_factory=LinkOptions)
    settings: Mapping[str, str] = field(default_factory=dict)
    runs: Path = Path("runs")
    deadline_s: float = 900.0
    report: bool = True
    at_start: tuple[LinkSet, ...] = ()
    entities: Mapping[str, str] | None = None
    jobs: Path | None = None
    run_id: str | None = None
    endless: bool = False
    first_ids: FirstIds = FROM_ONE
    influx: str | None = None


@dataclass(frozen=True)
class PreparedRun:
    """A request whose every part was checked, and the plan that follows."""

    request: RunRequest
    run_id: str
    scenario: BoundScenario
    topology: topology.Topology
    link: LinkRequest
    plan: LinkPlan

    @property
    def needs_quic(self) -> bool:
        """Whether a job runs satperf or satpep's QUIC proxy."""
        return any(
            started.job.name == "satlab_satperf"
            or (started.job.name == "satlab_pep" and any(str(word).startswith("quic") for word in started.words))
            for started in self.scenario.jobs()
        )

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.request.runs / self.run_id

    def document(self) -> dict[str, Any]:
        """Return plan.json: what will run over which link."""
        return {
            "schema": "satlab/plan/1",
            "run_id": self.run_id,
            "scenario": self.scenario.name,
            "arguments": dict(self.scenario.values),
            "emulator": self.link.emulator,
            "options": self.request.link.arguments(),
            "link": self.plan.model_dump(by_alias=True),
        }


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: Path
    status: ExitStatus
    reason: str
    records: polars.DataFrame


# --- before anything is touched -------------------------------------------------------------------------------------


def prepare(request: RunRequest) -> PreparedRun:
    """Check scenario, arguments, profile, topology and pages; touches nothing."""
    here = topology.load(paths.LAB_FILE)
    # A job's name decides its capabilities: those of shipped jobs are not given to others of the same name.
    jobs = (descriptor.sort_jobs(request.jobs)[0] if request.jobs else {}) | descriptor.load_jobs(paths.JOBS)
    entities = here.nodes if request.entities is None else request.entities
    loaded = scenario.load(request.scenario, jobs, entities, endless=request.endless)
    bound = scenario.bind(loaded, request.settings)
    for page in pages():
        web_target.load(page)
    if request.influx is not None:
        influx.Database.of(request.influx)
    run_id = request.run_id or new_run_id(bound.name, request.link.profile)
    metrics = request.runs / run_id / METRICS
    logs = request.runs / run_id / LOGS
    link = request.link.request(run_id, metrics, logs, timeline_starts="on-request")
    link = testbed.starting_with(link, request.at_start)
    if link.emulator == "opensand":
        opensand.prepare(link.profile, here, paths.SATLINK, lenient=link.lenient)
    plan = linkplan.plan(linkplan.build(here, lab_id(run_id), link, metrics=metrics))
    return PreparedRun(request, run_id, bound, here, link, plan)


def lab_id(run_id: str) -> str:
    """Return the id of a run's own lab."""
    return f"run-{run_id[9:15]}-{run_id[-4:]}"


# --- the run --------------------------------------------------------------------------------------------------------


def execute(
    prepared: PreparedRun, log: ProgressLog, stop: threading.Event, watch: runner.Watch = runner.nobody_watches
) -> RunResult:
    """Run what was prepared. Leaves a run folder that tells how it went, and no lab. `watch` sees every turn.

    Raises HostError when the host gives out; the folder then says so, too.
    """
    ownership.sweep()
    _check_space(prepared.request.runs)
    if prepared.request.influx is not None:
        influx.Database.of(prepared.request.influx).prepare()
    folder = prepared.folder
    ownership.make_folder(folder)
    (folder / LOGS).mkdir(parents=True)
    log.line(f"run {prepared.run_id}")
    manifest.write_atomically(folder / "plan.json", json.dumps(prepared.document(), indent=1) + "\n")
    record = _manifest(prepared)
    record.write(folder / "manifest.json")
    status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
    try:
        status, reason = _measure(prepared, log, stop, watch)
    except KeyboardInterrupt:
        status, reason = ExitStatus.INTERRUPTED, "interrupted"
    except SatlabError as error:
        status, reason = error.status, str(error)
        raise
    finally:
        finish(record, folder, status, reason)
        ownership.give_to_caller(folder)
    with log.step("collect and report"):
        records = collect.collect(folder)
        if prepared.request.report:
            title = f"{prepared.scenario.name} over {Path(record.profile).name}"
            report.build([folder], folder / "report" / "index.html", title)
    ownership.give_to_caller(folder)
    return RunResult(folder, worst(status, records), reason, records)


def _measure(
    prepared: PreparedRun, log: ProgressLog, stop: threading.Event, watch: runner.Watch
) -> tuple[ExitStatus, str]:
    """Bring the lab up, calibrate, run the scenario, take the lab down; tell how it went."""
    metrics = MetricsFile(prepared.folder / METRICS)
    result: runner.ScenarioResult | None = None
    checks: list[CalibrationCheck] = []
    began_unix_s = 0.0
    with ownership.owned(lab_id(prepared.run_id)) as name:
        try:
            with log.step("lab up"):
                lab = Lab.up(name, prepared.topology, prepared.link)
            for note in lab.notes:
                log.line(f"note: {note}")
            with log.step("calibration") as step:
                checks = _calibrate(lab, metrics)
                step.outcome = verdict(checks) or "within tolerance"
            if not stop.is_set():
                began_unix_s = time.time()
                result = _run_scenario(lab, prepared, log, stop, watch)
            broken = lab.status().reason
        finally:
            with log.step("lab down"):
                labs.down(name)
    wanted = expectation(prepared.plan, prepared.link.emulator)
    watched = calibrate.during(metrics.each(), wanted, began_unix_s)
    calibrated = calibrate.write(prepared.folder / CALIBRATION, prepared.run_id, [*checks, *watched])
    if stop.is_set() or result is None:
        return ExitStatus.INTERRUPTED, "interrupted"
    if broken:
        return ExitStatus.FAILED, broken
    if result.outcome == "failed":
        return ExitStatus.FAILED, result.reason
    if not calibrated:
        return ExitStatus.UNCALIBRATED, f"calibration: {verdict([*checks, *watched])}"
    return ExitStatus.OK, ""


def _calibrate(lab: Lab, metrics: MetricsFile) -> list[CalibrationCheck]:
    address = lab.topology.nodes[lab.topology.node_of(Role.SERVER)].address
    emulator = lab.config.emulator
    # Losses of the client's LAN are not the link's.
    near, client = linkplan.client_lan(lab.topology)
    node = (near if lab.lan else client).node
    probe = calibrate.probe_link(lab, lab.plan, address, metrics, emulator=emulator, node=node)
    return calibrate.before(lab.plan, probe, emulator)


def _run_scenario(
    lab: Lab, prepared: PreparedRun, log: ProgressLog, stop: threading.Event, watch: runner.Watch
) -> runner.ScenarioResult:
    what = f"scenario {prepared.scenario.name}"
    if lab.config.timeline and lab.config.control:
        control.start_timeline(Path(lab.config.control))
    feeding = influx.feeding(prepared.request.influx, prepared.folder, prepared.run_id, log)
    private = scratch.folder("satlab-run-")
    with feeding, private as folder, log.step(what) as step, _halting(lab, stop) as halt:
        result = runner.run(
            prepared.scenario,
            LabHost(lab, folder, prepared.request.entities, prepared.request.jobs),
            prepared.folder / RAW,
            lambda event: step.now(f"{event.label} on {event.entity}: {event.status}"),
            halt,
            prepared.request.deadline_s,
            prepared.request.first_ids,
            watch,
        )
        step.outcome = f"{result.status}{': ' if result.reason else ''}{result.reason}"
        return result


@contextlib.contextmanager
def _halting(lab: Lab, stop: threading.Event) -> Iterator[threading.Event]:
    """Yield an event that is set when a person stops the run, or when the lab breaks: what runs on would only hang."""
    halt, over = threading.Event(), threading.Event()

    def watch() -> None:
        while not (stop.is_set() or lab.status().phase != "up"):
            if over.wait(WATCH_S):
                return
        halt.set()

    watcher = threading.Thread(target=watch, name="watch", daemon=True)
    watcher.start()
    try:
        yield halt
    finally:
        over.set()
        watcher.join()


def verdict(checks: Sequence[CalibrationCheck]) -> str:
    """Return what is out of tolerance; nothing if nothing is."""
    bad = [
        f"{c.name} {'not measured' if c.measured is None else f'{c.measured:.6g}'} {c.unit}" for c in checks if not c.ok
    ]
    return f"OUT OF TOLERANCE: {', '.join(bad)}" if bad else ""


def worst(status: ExitStatus, records: polars.DataFrame) -> ExitStatus:
    """A run whose jobs ended well may still hold failed samples: that is a failed run."""
    sample = ~polars.col("metric").str.starts_with("calibration") & polars.col("t_s").is_null()
    bad = records.filter(sample & (polars.col("status") != "ok"))
    return ExitStatus.FAILED if status in (ExitStatus.OK, ExitStatus.UNCALIBRATED) and len(bad) else status


def _check_space(runs: Path) -> None:
    there = next(p for p in (runs.absolute(), *runs.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < FREE_BYTES_NEEDED:
        need = FREE_BYTES_NEEDED // 1_000_000
        raise HostError(
            f"{there}: {free // 1_000_000} MB free, a run needs {need} MB", "free space, or --runs elsewhere"
        )


def _manifest(prepared: PreparedRun) -> Manifest:
    request, plan = prepared.request, prepared.plan
    uses_opensand = prepared.link.emulator == "opensand"
    return Manifest(
        run_id=prepared.run_id,
        scenario=prepared.scenario.name,
        scenario_sha256=manifest.sha256(request.scenario),
        profile=Path(request.link.profile).name,
        profile_sha256=plan.profile_sha256,
        arguments=dict(prepared.scenario.values),
        seed=request.link.seed,
        emulator=prepared.link.emulator,
        started_unix_s=time.time(),
        host=manifest.host(),
        versions=manifest.versions(paths.SATLINK, opensand.find_program() if uses_opensand else None),
    )


def finish(record: Manifest, folder: Path, status: ExitStatus, reason: str) -> None:
    """Write how the run ended, the legs of its connections and the digest of every raw file."""
    record.ended_unix_s = time.time()
    record.exit_status, record.reason = int(status), reason
    ended = {ExitStatus.OK: "ok", ExitStatus.UNCALIBRATED: "ok", ExitStatus.INTERRUPTED: "interrupted"}
    record.status = ended.get(status, "failed")
    record.legs = collect.legs(folder)
    record.files = manifest.hash_tree(folder / RAW)
    record.write(folder / "manifest.json")
