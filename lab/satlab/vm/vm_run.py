# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario on the VM lab: the same run folder, calibration and report as in the embedded lab.

Jobs are started over ssh by the runner, or by an OpenBACH controller through its REST API.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import collect
from satlab import report
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, ExitStatus, SatlabError
from satlab.common.topology import Role
from satlab.experiment import calibrate, manifest
from satlab.experiment import run as embedded
from satlab.experiment.calibrate import CalibrationCheck
from satlab.experiment.manifest import Manifest
from satlab.experiment.run import CALIBRATION, LOGS, METRICS, RAW, RunResult
from satlab.experiment.run_id import new_run_id
from satlab.link.linkplan import LinkConfig, LinkPlan
from satlab.netlab import ownership
from satlab.openbach import descriptor, runner, scenario
from satlab.openbach.model import BoundScenario
from satlab.vm import controller_run
from satlab.vm.controller import Controller
from satlab.vm.emulator_units import VmLink
from satlab.vm.provision import CONTROL_THERE
from satlab.vm.ssh_job import SEPARATOR, fetch
from satlab.vm.vm_hosts import VmLab

PROGRAMS = ("satlink", "satlab-jobs", "satperf", "satpep", "opensand")
"""Packages of emulators and of ours, whose versions stand in the manifest beside those of what measures."""


class _Jobs:
    """Runs jobs on the lab's hosts, each through a local process that stands for it."""

    def __init__(self, lab: VmLab) -> None:
        self._lab = lab

    def enter_argv(self, entity: str, job: str) -> list[str]:
        """Return the argv prefix of a job's command; its privileges follow from its name (`netlab.privileges`)."""
        del job
        modules = os.pathsep.join([str(paths.ROOT / "lab"), str(paths.ROOT)])
        here = ["env", f"PYTHONPATH={modules}", sys.executable, "-m", "satlab.vm.ssh_job"]
        return [*here, *self._lab.ssh(entity)[:-1], SEPARATOR]

    def environment(self, entity: str) -> dict[str, str]:
        """Return the agent's name and satlink's control socket; pages and certificates are where jobs look."""
        return {"SATLAB_AGENT": entity, "SATLAB_CONTROL": CONTROL_THERE}

    def give(self, path: Path) -> None:
        """Do nothing: what stands for a job here is ours."""

    def show(self, path: Path) -> None:
        """Do nothing, for the same reason."""


@dataclass(frozen=True)
class PreparedVmRun:
    """A scenario that was checked against the lab."""

    scenario: BoundScenario
    file: Path
    lab: VmLab
    link: LinkConfig
    plan: LinkPlan
    controller: Controller | None = None

    @property
    def emulator(self) -> str:
        """Who carries the satellite link; hosts that are not reached do not tell."""
        return self.link.emulator if self.lab.is_up else "unknown"


def prepare(file: Path, settings: Mapping[str, str], lab: VmLab, controller: Controller | None = None) -> PreparedVmRun:
    """Check a scenario against a lab that is provisioned; touches nothing. `controller` None: jobs start over ssh.

    Raises:
        ConfigError: the scenario is not usable, or the lab was never provisioned.
    """
    try:
        link = LinkConfig.model_validate_json(lab.folder.link.read_bytes())
        plan = LinkPlan.model_validate_json(lab.folder.plan.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError("the VM lab was never provisioned", hint="bring it up: satlab vm up") from error
    jobs = descriptor.load_jobs(paths.JOBS)
    bound = scenario.bind(scenario.load(file, jobs, lab.topology.nodes), settings)
    return PreparedVmRun(bound, file, lab, link, plan, controller)


def execute(
    prepared: PreparedVmRun, runs: Path, log: ProgressLog, stop: threading.Event, deadline_s: float
) -> RunResult:
    """Calibrate, run the scenario, collect, report. Leaves a run folder that tells how it went."""
    run_id = new_run_id(prepared.scenario.name, "vm")
    folder = runs / run_id
    ownership.make_folder(folder)
    (folder / LOGS).mkdir(parents=True)
    log.line(f"run {run_id}")
    document = {
        "schema": "satlab/plan/1",
        "run_id": run_id,
        "scenario": prepared.scenario.name,
        "arguments": dict(prepared.scenario.values),
        "emulator": prepared.emulator,
        "link": prepared.plan.model_dump(by_alias=True),
    }
    manifest.write_atomically(folder / "plan.json", json.dumps(document, indent=1) + "\n")
    record = _manifest(prepared, run_id)
    record.write(folder / "manifest.json")
    status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
    try:
        status, reason = _measure(prepared, folder, log, stop, deadline_s)
    except KeyboardInterrupt:
        status, reason = ExitStatus.INTERRUPTED, "interrupted"
    except SatlabError as error:
        status, reason = error.status, str(error)
        raise
    finally:
        embedded.finish(record, folder, status, reason)
        ownership.give_to_caller(folder)
    with log.step("collect and report"):
        records = collect.collect(folder)
        report.build([folder], folder / "report" / "index.html", f"{prepared.scenario.name} on the VM lab")
    ownership.give_to_caller(folder)
    return RunResult(folder, embedded.worst(status, records), reason, records)


def _measure(
    prepared: PreparedVmRun, folder: Path, log: ProgressLog, stop: threading.Event, deadline_s: float
) -> tuple[ExitStatus, str]:
    emulated = VmLink(prepared.lab, prepared.plan, prepared.link.emulator, folder / METRICS)
    if prepared.lab.is_up:
        with log.step("emulator"):
            emulated.restart()
        with log.step("calibration") as step:
            checks = emulated.before()
            step.outcome = embedded.verdict(checks) or "within tolerance"
    else:
        checks = [_NOT_CALIBRATED]
    began_unix_s = time.time()
    with log.step(f"scenario {prepared.scenario.name}") as step:

        def tell(event: runner.JobProgress) -> None:
            step.now(f"{event.label} on {event.entity}: {event.status}")

        result = _run_scenario(prepared, folder / RAW, tell, stop, deadline_s)
        step.outcome = f"{result.status}{': ' if result.reason else ''}{result.reason}"
    if prepared.lab.is_up:
        checks += emulated.during(began_unix_s)
    calibrated = calibrate.write(folder / CALIBRATION, folder.name, checks)
    if stop.is_set():
        return ExitStatus.INTERRUPTED, "interrupted"
    if result.outcome == "failed":
        return ExitStatus.FAILED, result.reason
    if not calibrated:
        return ExitStatus.UNCALIBRATED, f"calibration: {embedded.verdict(checks)}"
    return ExitStatus.OK, ""


_NOT_CALIBRATED = CalibrationCheck(
    "rtt_ms", "ms", 0, None, 0, 0, ok=False, note="the hosts are not reached over ssh: nothing was calibrated"
)


def _run_scenario(
    prepared: PreparedVmRun,
    raw: Path,
    tell: Callable[[runner.JobProgress], None],
    stop: threading.Event,
    deadline_s: float,
) -> runner.ScenarioResult:
    bound, lab = prepared.scenario, prepared.lab
    if prepared.controller is not None:
        return controller_run.run(prepared.controller, bound, prepared.file, raw, tell, stop, deadline_s)
    result = runner.run(bound, _Jobs(lab), raw, tell, stop, deadline_s)
    for node in lab.topology.nodes:
        fetch(lab.ssh(node), raw.parent.name, raw)
    return result


def _manifest(prepared: PreparedVmRun, run_id: str) -> Manifest:
    plan, versions = prepared.plan, manifest.versions(paths.SATLINK)
    for node in (Role.CLIENT, Role.SERVER, Role.SAT) if prepared.lab.is_up else ():
        name = prepared.lab.topology.node_of(node)
        listed = prepared.lab.output(name, "dpkg-query", "-W", "-f", "${Package} ${Version}\n").decode()
        found = dict(line.split(" ", 1) for line in listed.splitlines())
        versions |= {f"{name}:{p}": found[p] for p in (*manifest.MEASURING_PACKAGES, *PROGRAMS) if p in found}
    return Manifest(
        run_id=run_id,
        scenario=prepared.scenario.name,
        scenario_sha256=manifest.sha256(prepared.file),
        profile=Path(plan.profile).name,
        profile_sha256=plan.profile_sha256,
        arguments=dict(prepared.scenario.values),
        seed=prepared.link.seed,
        lab="vm",
        emulator=prepared.emulator,
        started_unix_s=time.time(),
        host=manifest.host(),
        versions=versions,
    )
