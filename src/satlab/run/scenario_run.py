# SPDX-License-Identifier: GPL-3.0-or-later
"""Check a scenario with its link (`prepare`), and run it in a fresh lab (`execute`).

`prepare` changes nothing; `execute` always leaves a run folder, and never a lab.
"""

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from satlab.common import did_you_mean, paths, scratch
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, Fault, HostError
from satlab.common.terminals import clients
from satlab.common.topology import Topology
from satlab.lab import lab_owners, privileges_file, sandbox, web_target
from satlab.lab.job_host import LabHost
from satlab.lab.lab import Lab
from satlab.lab.privileges_file import Grants
from satlab.link import opensand, testbed_parameters
from satlab.link.config import LinkRequest, LinkSet, build_config
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.openbach import descriptor, runner, scenario
from satlab.openbach.descriptor import Descriptor
from satlab.openbach.engine import FROM_ONE, FirstIds
from satlab.openbach.model import BoundScenario
from satlab.run import (
    catalog,
    host_needs,
    influx,
    ipv6_scenarios,
    manifest,
    measure_browser_yardstick,
    playbook_packages,
    quiet_host,
    scenario_value_checks,
)
from satlab.run.lab_session import NetnsHost
from satlab.run.quiet_host import Patience
from satlab.run.run_folder import RunFolder, RunPlan, RunResult
from satlab.run.run_id import new_run_id

JOBS_VARIABLE, PRIVILEGES_VARIABLE = "SATLAB_JOBS", "SATLAB_PRIVILEGES"
"""Environment variables for the processes of `satlab serve`: the folder of further jobs, and the
file of their privileges.
"""
FREE_BYTES_NEEDED = 500_000_000
"""Largest disk space of a run, bytes, without captures; a browser profile is the largest part.
"""


@dataclass(frozen=True)
class RunRequest:
    """A run as requested; the deadline in s.

    `entities`: the node of each entity of the scenario; None: the node of the same name. `jobs`:
    folders of jobs next to the shipped ones, read as OpenBACH reads them. `privileges`: the
    operator's file of their privileges. `job_packages`: unpack packages and files of their
    playbooks for these jobs. `run_id`: None makes a new one. `endless`: allow a job that nothing
    stops. `influx`: URL of an InfluxDB that also gets the statistics. `at_start`: changes of the
    link when the scenario starts.
    """

    scenario: Path
    link: LinkOptions = field(default_factory=LinkOptions)
    settings: Mapping[str, str] = field(default_factory=dict)
    runs: Path = Path("runs")
    deadline_s: float = 900.0
    report: bool = True
    at_start: tuple[LinkSet, ...] = ()
    entities: Mapping[str, str] | None = None
    jobs: tuple[Path, ...] = ()
    privileges: Path | None = None
    job_packages: bool = False
    run_id: str | None = None
    endless: bool = False
    first_ids: FirstIds = FROM_ONE
    influx: str | None = None


@dataclass(frozen=True)
class PreparedRun:
    """A checked request, and the link's plan."""

    request: RunRequest
    topology: Topology
    link: LinkRequest
    about: RunPlan
    granted: Grants = field(default_factory=dict)
    warnings: tuple[Fault, ...] = ()

    @property
    def scenario(self) -> BoundScenario:
        return self.about.scenario

    @property
    def needs_quic(self) -> bool:
        """Whether a job runs satperf or satpep's QUIC proxy."""
        return any(
            started.job.name == "satlab_satperf"
            or (
                started.job.name == "satlab_pep"
                and any(str(word).startswith("quic") for word in started.words)
            )
            for started in self.scenario.jobs()
        )

    @property
    def needs_fec(self) -> bool:
        """Whether a job runs satfec."""
        return any(started.job.name == "satlab_fec" for started in self.scenario.jobs())

    @property
    def with_layers(self) -> list[Descriptor]:
        """Return the jobs whose playbooks' packages and files are unpacked."""
        used = {started.job.name: started.job for started in self.scenario.jobs()}
        return list(used.values()) if self.request.job_packages else []

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.request.runs / self.about.run_id)

    def document(self) -> dict[str, Any]:
        """Return plan.json: the jobs that will run, and their link."""
        return self.about.document()


def entities_of(named: Mapping[str, str], lab: Topology) -> dict[str, str]:
    """Return the node of each entity: every node plays itself, and the named entities.

    Raises: ConfigError: there is no such node.
    """
    nodes = lab.nodes
    for entity, node in named.items():
        if node not in nodes:
            raise ConfigError(
                f"--entity {entity}={node}: there is no such node",
                hint=did_you_mean.remedy(node, nodes, "one of {}"),
            )
    return {node: node for node in nodes} | dict(named)


# --- before anything is touched -------------------------------------------------------------------


def prepare(request: RunRequest) -> PreparedRun:
    """Check scenario, arguments, host, pages, profile and topology; changes nothing.

    Raises:
        ConfigError: the first of them that is wrong, with all its faults.
        HostError: a program of the link is missing.
    """
    # The lab, and the scenario with its values. The name of a job decides its capabilities, so a
    # further job never gets those of the shipped one of the same name.
    further = request.link.profile_terminals()
    lab = request.link.topology(further)
    entities = lab.nodes if request.entities is None else request.entities
    warnings: list[Fault] | None = [] if request.jobs else None
    loaded = scenario.load(
        request.scenario,
        descriptor.all_jobs(request.jobs),
        entities,
        endless=request.endless,
        warnings=warnings,
        terminals=len(clients(lab)),
    )
    values = catalog.settings(request.scenario, loaded.arguments, request.settings)
    bound = ipv6_scenarios.bind(loaded, values, lab, request.link.ip)
    missing = sorted({started.entity for started in bound.jobs()} - set(entities))
    if missing:  # a mere warning of `scenario.load`, as OpenBACH reads scenarios
        hint = f"say who plays each: --entity {missing[0]}=NODE"
        raise ConfigError(f"no node plays {', '.join(missing)}", hint=hint)

    # What else the run uses.
    host_needs.check(bound)
    granted = privileges_file.load(request.privileges) if request.privileges else {}
    for page in web_target.names():
        web_target.load(page)
    scenario_value_checks.check(bound, request.deadline_s)
    if request.influx is not None:
        influx.Database.of(request.influx)

    # The link.
    run_id = request.run_id or new_run_id(bound.name, request.link.profile)
    folder = RunFolder(request.runs / run_id)
    asked = request.link.request(
        run_id, folder.metrics, folder.logs, timeline_starts="on-request", terminals=further
    )
    link = testbed_parameters.starting_with(asked, request.at_start)
    if link.emulator == "opensand":
        opensand.prepare(link.profile, lab, paths.SATLINK)
    plan = plan_link(build_config(lab, lab_id(run_id), link, metrics=folder.metrics))

    about = RunPlan(
        run_id=run_id,
        scenario=bound,
        file=request.scenario,
        link=plan,
        profile=Path(request.link.profile).name,
        emulator=link.emulator,
        seed=request.link.seed,
        options=request.link.arguments(),
    )
    used = {started.job.name: started.job for started in bound.jobs()}
    noted = [*(warnings or ()), *(warning for job in used.values() for warning in job.warnings)]
    return PreparedRun(request, lab, link, about, granted, tuple(dict.fromkeys(noted)))


def lab_id(run_id: str) -> str:
    """Return the id of a run's lab."""
    return f"run-{run_id[9:15]}-{run_id[-4:]}"


# --- the run --------------------------------------------------------------------------------------


def execute(
    prepared: PreparedRun,
    log: ProgressLog,
    stop: threading.Event,
    watch: runner.Watch = runner.nobody_watches,
) -> RunResult:
    """Execute a prepared run; `watch` is called at every step.

    Raises:
        HostError: the disk is nearly full, or the host cannot go on; the folder then says so, too.
    """
    request = prepared.request
    lab_owners.sweep()
    existing = next(
        p for p in (request.runs.absolute(), *request.runs.absolute().parents) if p.exists()
    )
    free = shutil.disk_usage(existing).free
    if free < FREE_BYTES_NEEDED:
        raise HostError(
            f"{existing}: {free // 1_000_000} MB free, a run needs {FREE_BYTES_NEEDED // 1_000_000} MB",
            "free space, or --runs elsewhere",
        )
    if request.influx is not None:
        influx.Database.of(request.influx).prepare()
    opensand_program = opensand.find_program() if prepared.link.emulator == "opensand" else None
    enforced_by = sandbox.enforced_by()
    for lack in sandbox.not_enforced(enforced_by):
        log.line(f"note: {lack}")

    def on_lab(
        lab: Lab, on_event: Callable[[runner.JobProgress], None], halt: threading.Event
    ) -> runner.ScenarioResult:
        folder = prepared.folder
        feeding = influx.feeding(request.influx, folder.path, prepared.about.run_id, log)
        with feeding, scratch.folder("run") as private:
            measure_browser_yardstick.write(lab, prepared.scenario, folder.raw, log, halt)
            lab.start_timeline()
            return runner.run(
                prepared.scenario,
                LabHost(lab, private, request.entities, request.jobs, prepared.granted, layers),
                folder.raw,
                on_event,
                halt,
                request.deadline_s,
                request.first_ids,
                watch,
            )

    with playbook_packages.of_jobs(prepared.with_layers, log) as layers:
        return prepared.folder.record(
            replace(prepared.about, enforced_by=enforced_by),
            manifest.versions(paths.SATLINK, opensand_program),
            NetnsHost(lab_id(prepared.about.run_id), prepared.topology, prepared.link),
            on_lab,
            log,
            stop,
            f"{prepared.scenario.name} over {prepared.about.profile}" if request.report else None,
        )


def calibrated(
    prepared: PreparedRun, patience: Patience, log: ProgressLog, stop: threading.Event
) -> RunResult:
    """Execute a prepared run. Repeat it as a new run while it is out of calibration.

    Raises:
        ConfigError: a run id was requested, and the run must be repeated.
        HostError: the host cannot go on.
        KeyboardInterrupt: `stop` was set before a run began.
    """
    first = [prepared]

    def take() -> RunResult:
        if stop.is_set():
            raise KeyboardInterrupt
        return execute(first.pop() if first else prepare(prepared.request), log, stop)

    def why(result: RunResult) -> str:
        return (
            f"{result.folder.name}: {result.reason}"
            if result.status == ExitStatus.UNCALIBRATED
            else ""
        )

    return quiet_host.measured(take, why, patience, log, stop)
