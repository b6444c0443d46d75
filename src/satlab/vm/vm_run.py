# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario on the VM lab: the same run folder, calibration and report as in the embedded lab.

Jobs are started over ssh by the runner, or by an OpenBACH controller through its REST API.
"""

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError
from satlab.common.processes import Entrance
from satlab.common.terminals import clients
from satlab.common.topology import Role
from satlab.link.config import Emulator, LinkConfig
from satlab.link.plan import LinkPlan
from satlab.openbach import descriptor, runner, scenario
from satlab.run import catalog, manifest
from satlab.run.lab_session import Host
from satlab.run.run_folder import RunFolder, RunPlan, RunResult
from satlab.run.run_id import new_run_id
from satlab.vm import controller_run
from satlab.vm.controller_client import Controller
from satlab.vm.provision import CONTROL_THERE
from satlab.vm.ssh_job import SEPARATOR, fetch
from satlab.vm.vm_lab import VmLab
from satlab.vm.vm_session import UnreachedHost, VmHost

PROGRAMS = ("satlink", "satlab-jobs", "satperf", "satpep", "opensand")
"""Packages of emulators and of satlab, whose versions go into the manifest, as do the versions of
the measuring programs.
"""


class _Jobs:
    """Runs jobs on the lab's hosts, each through a local process."""

    def __init__(self, lab: VmLab) -> None:
        self._lab = lab

    def usage(self, _: Sequence[str]) -> None:
        """Return nothing: the usage of jobs is unknown here."""

    def enter(self, entity: str, job: str, variables: Mapping[str, str]) -> Entrance:
        """Return how a job's command runs there; its privileges follow from its name
        (`lab.privileges`).
        """
        del job
        modules = os.pathsep.join([str(paths.ROOT / "src"), str(paths.ROOT)])
        local = ["env", f"PYTHONPATH={modules}", sys.executable, "-m", "satlab.vm.ssh_job"]
        return Entrance((*local, *self._lab.ssh(entity)[:-1], SEPARATOR), variables)

    def environment(self, entity: str) -> dict[str, str]:
        """Return the agent's name and satlink's control socket; pages and certificates are where
        jobs look.
        """
        return {"SATLAB_AGENT": entity, "SATLAB_CONTROL": CONTROL_THERE, "HOME": str(Path.home())}

    def grant(self, path: Path) -> None:
        """Do nothing: the local process of a job runs as our user."""

    def keep(self) -> None:
        """Do nothing: jobs write to the run folder itself."""


@dataclass(frozen=True)
class PreparedVmRun:
    """A scenario that was checked against the lab. `controller` None: jobs start over ssh."""

    about: RunPlan
    lab: VmLab
    emulator: Emulator
    controller: Controller | None = None


def prepare(
    file: Path, settings: Mapping[str, str], lab: VmLab, controller: Controller | None = None
) -> PreparedVmRun:
    """Check a scenario against a lab that is provisioned; changes nothing.

    `controller` None: jobs start over ssh.

    Raises:
        ConfigError: the scenario is not usable, or the lab was never provisioned.
    """
    try:
        link = LinkConfig.model_validate_json(lab.folder.link.read_bytes())
        plan = LinkPlan.model_validate_json(lab.folder.plan.read_bytes())
    except FileNotFoundError as error:
        raise (
            ConfigError("the VM lab was never provisioned", hint="bring it up: satlab vm up")
            if controller is None
            else ConfigError(
                f"no link is described for the hosts of {controller}",
                hint="describe it once: satlab vm inventory --profile NAME",
            )
        ) from error
    jobs = descriptor.load_jobs(paths.JOBS)
    loaded = scenario.load(file, jobs, lab.topology.nodes, terminals=len(clients(lab.topology)))
    bound = scenario.bind(loaded, catalog.settings(file, loaded.arguments, settings))
    about = RunPlan(
        run_id=new_run_id(bound.name, "vm"),
        scenario=bound,
        file=file,
        link=plan,
        profile=Path(plan.profile).name,
        emulator=link.emulator if lab.is_up else "unknown",
        seed=link.seed,
        lab="vm",
    )
    return PreparedVmRun(about, lab, link.emulator, controller)


def execute(
    prepared: PreparedVmRun, runs: Path, log: ProgressLog, stop: threading.Event, deadline_s: float
) -> RunResult:
    """Calibrate, run the scenario, collect, report. Leaves a run folder with the result."""
    about, lab = prepared.about, prepared.lab
    folder = RunFolder(runs / about.run_id)
    host: Host[VmLab] = UnreachedHost(lab)
    if lab.is_up:
        host = VmHost(lab, about.link, prepared.emulator, folder.metrics)

    def run_scenario(
        _: VmLab, on_event: Callable[[runner.JobProgress], None], halt: threading.Event
    ) -> runner.ScenarioResult:
        if prepared.controller is not None:
            return controller_run.run(
                prepared.controller,
                about.scenario,
                about.file,
                folder.raw,
                on_event,
                halt,
                deadline_s,
            )
        result = runner.run(about.scenario, _Jobs(lab), folder.raw, on_event, halt, deadline_s)
        for node in lab.topology.nodes:
            fetch(lab.ssh(node), about.run_id, folder.raw)
        return result

    return folder.record(
        about, _versions(lab), host, run_scenario, log, stop, f"{about.scenario.name} on the VM lab"
    )


def _versions(lab: VmLab) -> dict[str, str]:
    versions = manifest.versions(paths.SATLINK)
    for role in (Role.CLIENT, Role.SERVER, Role.SAT) if lab.is_up else ():
        name = lab.topology.node_of(role)
        listing = lab.output(name, "dpkg-query", "-W", "-f", "${Package} ${Version}\n").decode()
        installed = dict(line.split(" ", 1) for line in listing.splitlines())
        known = (*manifest.MEASURING_PACKAGES, *PROGRAMS)
        versions |= {
            f"{name}:{package}": installed[package] for package in known if package in installed
        }
    return versions
