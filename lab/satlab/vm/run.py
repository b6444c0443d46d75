# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario on the VM lab, over ssh: the same runner, run folder, calibration and report as in the embedded lab."""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import collect
from satlab import calibrate, manifest, ownership, paths, report
from satlab import run as embedded
from satlab.calibrate import MetricsFile, Probe
from satlab.errors import ConfigError, ExitStatus, HostError, SatlabError
from satlab.linkplan import LinkConfig, LinkPlan
from satlab.manifest import Manifest
from satlab.openbach import descriptor, runner, scenario
from satlab.openbach.model import BoundScenario
from satlab.process import wait
from satlab.run import CALIBRATION, LOGS, METRICS, RAW, Outcome
from satlab.runid import new_run_id
from satlab.topology import Role, Topology
from satlab.ui import Talk
from satlab.vm.inventory import machines
from satlab.vm.provision import Folder, ssh_options
from satlab.vm.ssh_job import SEPARATOR, fetch

METRICS_THERE = "/var/log/satlink/link.jsonl"
COMMAND_DEADLINE_S = 60.0
ECHO_DEADLINE_S = 30.0
LISTEN_DEADLINE_S = 10.0
PROBE_S = 3.0
PROGRAMS = ("satlink", "satlab-jobs", "satperf", "satpep")
"""Packages of ours, whose versions stand in the manifest beside those of what measures."""


@dataclass(frozen=True)
class Lab:
    """A provisioned lab: its hosts by ssh. `enter` is put before ssh where the control network is not the host's."""

    folder: Folder
    topology: Topology
    user: str = "vagrant"
    enter: Sequence[str] = ()
    keys: Mapping[str, Path] = field(default_factory=dict)

    def ssh(self, node: str) -> list[str]:
        """Give the argv prefix that runs a command on a host.

        Raises:
            ConfigError: the lab has no such host.
        """
        hosts = machines(self.topology).hosts
        if node not in hosts:
            raise ConfigError(f"the VM lab has no host {node!r}", hint=f"one of {', '.join(hosts)}")
        key = self.keys.get(node, self.folder.key)
        target = f"{self.user}@{hosts[node].address}"
        return [*self.enter, "ssh", *ssh_options(self.folder), "-i", str(key), target, "--"]

    def argv(self, node: str, *words: str) -> list[str]:
        """Give the argv that runs a command on a host as root; its words arrive there as they are."""
        return [*self.ssh(node), shlex.join(["sudo", "-n", *words])]

    def output(self, node: str, *argv: str) -> bytes:
        """Give what a command says on a host.

        Raises:
            HostError: the host does not answer, or the command fails.
        """
        try:
            done = subprocess.run(
                self.argv(node, *argv), capture_output=True, timeout=COMMAND_DEADLINE_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{node} does not answer", "look at it: satlab vm status") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise HostError(
                f"{node}: {argv[0]}: {said[-1] if said else done.returncode}", "look at it: satlab vm status"
            )
        return done.stdout


class _Jobs:
    """Runs jobs on the lab's hosts, each through a local process that stands for it."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def enter_argv(self, entity: str, job: str) -> list[str]:
        """Give the words before a job's command. On a guest every job is root's: the guest is its border."""
        del job
        modules = os.pathsep.join([str(paths.ROOT / "lab"), str(paths.ROOT)])
        here = ["env", f"PYTHONPATH={modules}", sys.executable, "-m", "satlab.vm.ssh_job"]
        return [*here, *self._lab.ssh(entity)[:-1], SEPARATOR]

    def environment(self, entity: str) -> dict[str, str]:
        """Give the agent's name; guests have pages and certificates where jobs look for them."""
        return {"SATLAB_AGENT": entity}

    def give(self, path: Path) -> None:
        """Do nothing: what stands for a job here is ours."""


@dataclass(frozen=True)
class Prepared:
    """A scenario that was checked against the lab."""

    scenario: BoundScenario
    file: Path
    lab: Lab
    link: LinkConfig
    plan: LinkPlan


def prepare(file: Path, settings: Mapping[str, str], lab: Lab) -> Prepared:
    """Check a scenario against a lab that is provisioned; touches nothing.

    Raises:
        ConfigError: the scenario is not usable, or the lab was never provisioned.
    """
    try:
        link = LinkConfig.model_validate_json(lab.folder.link.read_bytes())
        plan = LinkPlan.model_validate_json(lab.folder.plan.read_bytes())
    except FileNotFoundError as error:
        raise ConfigError("the VM lab was never provisioned", hint="bring it up: satlab vm up") from error
    if link.emulator != "satlink":
        hint = "run it with OpenSAND in the embedded lab (satlab run --emulator opensand), or provision satlink"
        raise ConfigError("the VM lab runs OpenSAND, whose link nothing here measures yet", hint=hint)
    jobs = descriptor.load_jobs(paths.JOBS)
    bound = scenario.bind(scenario.load(file, jobs, lab.topology.nodes), settings)
    return Prepared(bound, file, lab, link, plan)


def execute(prepared: Prepared, runs: Path, talk: Talk, stop: threading.Event, deadline_s: float) -> Outcome:
    """Calibrate, run the scenario, collect, report. Leaves a run folder that tells how it went."""
    run_id = new_run_id(prepared.scenario.name, "vm")
    folder = runs / run_id
    ownership.make_folder(folder)
    (folder / LOGS).mkdir(parents=True)
    talk.line(f"run {run_id}")
    document = {
        "schema": "satlab/plan/1",
        "run_id": run_id,
        "scenario": prepared.scenario.name,
        "arguments": dict(prepared.scenario.values),
        "emulator": "satlink",
        "link": prepared.plan.model_dump(by_alias=True),
    }
    manifest.write_atomically(folder / "plan.json", json.dumps(document, indent=1) + "\n")
    record = _manifest(prepared, run_id)
    record.write(folder / "manifest.json")
    status, reason = ExitStatus.FAILED, "the program ended unexpectedly"
    try:
        status, reason = _measure(prepared, folder, talk, stop, deadline_s)
    except KeyboardInterrupt:
        status, reason = ExitStatus.INTERRUPTED, "interrupted"
    except SatlabError as error:
        status, reason = error.status, str(error)
        raise
    finally:
        embedded.finish(record, folder, status, reason)
        ownership.give_to_caller(folder)
    with talk.step("collect and report"):
        records = collect.collect(folder)
        report.build([folder], folder / "report" / "index.html", f"{prepared.scenario.name} on the VM lab")
    ownership.give_to_caller(folder)
    return Outcome(folder, embedded.worst(status, records), reason, records)


@dataclass(frozen=True)
class _Metrics(MetricsFile):
    """The emulator's metrics, copied from its host whenever they are looked at."""

    lab: Lab

    def lines(self) -> list[dict[str, Any]]:
        """Give the lines written so far."""
        self.path.write_bytes(self.lab.output(self.lab.topology.node_of(Role.SAT), "cat", METRICS_THERE))
        return super().lines()


def _measure(
    prepared: Prepared, folder: Path, talk: Talk, stop: threading.Event, deadline_s: float
) -> tuple[ExitStatus, str]:
    lab = prepared.lab
    sat = lab.topology.node_of(Role.SAT)
    metrics = _Metrics(folder / METRICS, lab)
    with talk.step("emulator"):
        # A fresh start: metrics of this run alone, and losses from the seed's beginning.
        lab.output(sat, "systemctl", "restart", "satlink")
        _await_echo(lab)
    with talk.step("calibration") as step:
        probe = _probe(lab, prepared.plan, metrics)
        checks = calibrate.before(prepared.plan, probe)
        step.outcome = embedded.verdict(checks) or "within tolerance"
    began_unix_s = time.time()
    with talk.step(f"scenario {prepared.scenario.name}") as step:

        def tell(event: runner.Progress) -> None:
            step.now(f"{event.label} on {event.entity}: {event.status}")

        result = runner.run(prepared.scenario, _Jobs(lab), folder / RAW, tell, stop, deadline_s)
        step.outcome = f"{result.status}{': ' if result.reason else ''}{result.reason}"
    for node in lab.topology.nodes:
        fetch(lab.ssh(node), folder.name, folder / RAW)
    # The last line of the metrics is written when the emulator ends.
    lab.output(sat, "systemctl", "stop", "satlink")
    lines = metrics.lines()
    lab.output(sat, "systemctl", "start", "satlink")
    watched = calibrate.during(lines, calibrate.expectation(prepared.plan, "satlink"), began_unix_s)
    calibrated = calibrate.write(folder / CALIBRATION, folder.name, [*checks, *watched])
    if stop.is_set():
        return ExitStatus.INTERRUPTED, "interrupted"
    if result.outcome == "failed":
        return ExitStatus.FAILED, result.reason
    if not calibrated:
        return ExitStatus.UNCALIBRATED, f"calibration: {embedded.verdict([*checks, *watched])}"
    return ExitStatus.OK, ""


def _server_address(topology: Topology) -> str:
    server = topology.nodes[topology.node_of(Role.SERVER)]
    return str(next(iter(server.interfaces.values())).address)


def _await_echo(lab: Lab) -> None:
    """Wait until an echo crosses the whole path."""
    client = lab.topology.node_of(Role.CLIENT)
    argv = ["ping", "-n", "-q", "-c", "1", "-w", f"{ECHO_DEADLINE_S:.0f}", _server_address(lab.topology)]
    try:
        lab.output(client, *argv)
    except HostError as error:
        raise HostError("no echo crosses the VM lab", "look at it: satlab vm status, satlab vm provision") from error


def _probe(lab: Lab, plan: LinkPlan, metrics: MetricsFile) -> Probe:
    """Measure RTT, then the saturated forward rate and its losses, with ping and iperf3 on the guests."""
    server, client = (lab.topology.node_of(role) for role in (Role.SERVER, Role.CLIENT))
    address = _server_address(lab.topology)
    notes: dict[str, str] = {}
    rtt, result = None, {}
    try:
        rtt = calibrate.echoes(lab.output(client, *calibrate.echo_argv(address, calibrate.ECHOES)).decode())
    except (HostError, calibrate.ProbeError) as error:
        notes["rtt"] = str(error)
    dropped = metrics.forward_drops()
    try:
        port = str(calibrate.PROBE_PORT)
        lab.output(server, "iperf3", "-s", "-1", "-D", "-B", address, "-p", port)
        if not wait(lambda: bool(lab.output(server, "ss", "-Hltn", f"sport = :{port}")), LISTEN_DEADLINE_S):
            raise calibrate.ProbeError(f"nothing listens on {server}, port {port}")
        offered = int(plan.forward.rate_bps * calibrate.PROBE_OVERLOAD)
        result = calibrate.read_result(lab.output(client, *calibrate.udp_argv(address, offered, PROBE_S)).decode())
    except (HostError, calibrate.ProbeError, ValueError) as error:
        notes["rate"] = str(error)
    metrics.settle()
    return calibrate.probe_of(rtt, result, metrics.forward_drops() - dropped, notes)


def _manifest(prepared: Prepared, run_id: str) -> Manifest:
    plan, versions = prepared.plan, manifest.versions(paths.SATLINK)
    for node in (Role.CLIENT, Role.SERVER, Role.SAT):
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
        emulator="satlink",
        started_unix_s=time.time(),
        host=manifest.host(),
        versions=versions,
    )
