# SPDX-License-Identifier: GPL-3.0-or-later
"""The VM lab as the host of a session: its emulator as units of the machines, its probes over ssh."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collect import opensand
from collect.calibration import CalibrationCheck
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.common.topology import Role
from satlab.link.calibration_bounds import expectation
from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan
from satlab.run import calibrate, lab_session, link_probe
from satlab.run.link_probe import ProbePath
from satlab.run.metrics_file import MetricsFile
from satlab.vm.inventory import side, terminals
from satlab.vm.provision import METRICS_THERE
from satlab.vm.vm_lab import VmLab

ECHO_DEADLINE_S = 30.0
NOT_CALIBRATED = calibrate.check(
    "rtt_ms",
    "ms",
    0,
    None,
    0,
    0,
    "the hosts are not reached over ssh: nothing was calibrated",
)


@dataclass(frozen=True)
class _Metrics(MetricsFile):
    """satlink's metrics, copied from its host at each read."""

    lab: VmLab

    def lines(self) -> list[dict[str, Any]]:
        self.path.write_bytes(
            self.lab.output(self.lab.topology.node_of(Role.SAT), "cat", METRICS_THERE)
        )
        return super().lines()


@dataclass(frozen=True)
class VmHost:
    """A link that is emulated on the machines of a lab;

    `metrics` is the file that satlink's are copied to.

    OpenSAND writes none: no satlink has a part in the path then, since hosts carry the terrestrial
    segment themselves. Its logs are copied to the folder `logs` next to that file.
    """

    lab: VmLab
    plan: LinkPlan
    emulator: Emulator
    metrics: Path
    probed: dict[str, int | None] = field(default_factory=dict, compare=False)
    """Number of losses in OpenSAND's logs at the end of calibration."""

    @contextlib.contextmanager
    def opened(self, log: ProgressLog) -> Iterator[VmLab]:
        """Restart the emulator. After a block without errors, end the emulator, so that it writes
        the last line of its metrics.
        """
        with log.step("emulator"):
            self.restart()
        yield self.lab
        if self.emulator == "satlink":
            sat = self.lab.topology.node_of(Role.SAT)
            self.lab.output(sat, "systemctl", "stop", self.emulator)
            _Metrics(self.metrics, self.lab).lines()
            self.lab.output(sat, "systemctl", "start", self.emulator)

    def restart(self) -> None:
        """Restart the emulator: metrics of one run alone, losses from the seed's beginning; then
        wait for an echo.

        Raises:
            HostError: it does not start, or no echo crosses the path.
        """
        nodes = (
            [self.lab.topology.node_of(Role.SAT)]
            if self.emulator == "satlink"
            else self._entities()
        )
        for node in nodes:
            self.lab.output(node, "systemctl", "restart", self.emulator)
        path = self._path
        try:
            ping = f"ping -n -q -c 1 -w {ECHO_DEADLINE_S:.0f} {path.server_address}"
            self.lab.output(path.client, *ping.split())
        except HostError as error:
            raise HostError(
                "no echo crosses the VM lab", "look at it: satlab vm status, satlab vm provision"
            ) from error

    @property
    def _path(self) -> ProbePath:
        topology = self.lab.topology
        client, server = topology.node_of(Role.CLIENT), topology.node_of(Role.SERVER)
        return ProbePath(
            client, topology.address_of(Role.CLIENT), server, topology.address_of(Role.SERVER)
        )

    def calibrate(self, lab: VmLab) -> list[CalibrationCheck]:
        """Measure RTT, rate and losses on the machines; with satlink again after a pause."""
        if self.emulator == "satlink":
            metrics = _Metrics(self.metrics, lab)
            return lab_session.calibrated(lambda: self._probe(metrics), metrics)
        checks = self._probe(None)
        self.probed.update(self._lost())
        return checks

    def _probe(self, metrics: MetricsFile | None) -> list[CalibrationCheck]:
        probe = link_probe.probe_link(self.lab.argv, self.plan, self.emulator, self._path, metrics)
        return calibrate.before(self.plan, probe, self.emulator)

    def broken(self, _: VmLab) -> str:
        """Return nothing: the failure of a machine is a failure of its jobs."""
        return ""

    def release_errors(self, _: VmLab, since_unix_s: float) -> list[CalibrationCheck]:
        """Judge release errors by satlink's metrics; with OpenSAND, judge the losses in its
        logs.
        """
        if self.emulator != "satlink":
            return calibrate.opensand_losses(self.probed, self._lost())
        expected = expectation(self.plan, self.emulator)
        return calibrate.during(MetricsFile(self.metrics).each(), expected, since_unix_s)

    def _entities(self) -> list[str]:
        """Return the nodes of OpenSAND's entities in the order of their start:

        SAT, GW, then the terminals.
        """
        topology = self.lab.topology
        return [topology.node_of(Role.SAT), topology.node_of(Role.GW), *terminals(topology)]

    def _lost(self) -> Mapping[str, int | None]:
        """Copy OpenSAND's logs since its last start, and count what they report as lost;

        None where one is missing.
        """
        logs = self.metrics.parent / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        try:
            for node in self._entities():
                started = (
                    self.lab.output(node, "systemctl", "show", "-P", "InvocationID", "opensand")
                    .decode()
                    .strip()
                )
                selection = f"_SYSTEMD_INVOCATION_ID={started}"
                log = self.lab.output(node, "journalctl", "--no-pager", "-o", "cat", selection)
                (logs / f"opensand-{side(self.lab.topology, node)}.log").write_bytes(log)
        except HostError:
            return dict.fromkeys((loss.cause for loss in opensand.LOSSES), None)
        return opensand.all_losses(logs.parent)


@dataclass(frozen=True)
class UnreachedHost:
    """Machines behind a controller elsewhere: satlab neither sets them up nor measures on them."""

    lab: VmLab

    def opened(self, _: ProgressLog) -> contextlib.AbstractContextManager[VmLab]:
        return contextlib.nullcontext(self.lab)

    def calibrate(self, _: VmLab) -> list[CalibrationCheck]:
        return [NOT_CALIBRATED]

    def broken(self, _: VmLab) -> str:
        return ""

    def release_errors(self, *_: object) -> list[CalibrationCheck]:
        return []
