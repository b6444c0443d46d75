# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulator of the satellite link as units of the lab's hosts, and what its calibration measures there."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common.errors import HostError
from satlab.common.processes import wait
from satlab.common.topology import Role
from satlab.experiment import calibrate
from satlab.experiment.calibrate import CalibrationCheck, MetricsFile, Probe
from satlab.link.config import Emulator
from satlab.link.expectation import expectation
from satlab.link.opensand import START_ORDER
from satlab.link.plan import LinkPlan
from satlab.vm.provision import METRICS_THERE
from satlab.vm.vm_hosts import VmLab

ECHO_DEADLINE_S = 30.0
DRAIN_DEADLINE_S = 10.0
LISTEN_DEADLINE_S = 10.0
PROBE_S = 3.0


@dataclass(frozen=True)
class _Metrics(MetricsFile):
    """satlink's metrics, copied from its host whenever they are looked at."""

    lab: VmLab

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines written so far."""
        self.path.write_bytes(self.lab.output(self.lab.topology.node_of(Role.SAT), "cat", METRICS_THERE))
        return super().lines()


@dataclass(frozen=True)
class VmLink:
    """A link that is emulated on the hosts of a lab; `metrics` is the file that satlink's are copied to.

    OpenSAND gives none: no satlink has a part in the path then, since hosts carry the terrestrial segment themselves.
    """

    lab: VmLab
    plan: LinkPlan
    emulator: Emulator
    metrics: Path

    def restart(self) -> None:
        """Start it afresh: metrics of one run alone, losses from the seed's beginning; then wait for an echo.

        Raises:
            HostError: it does not start, or no echo crosses the path.
        """
        for role in (Role.SAT,) if self.emulator == "satlink" else START_ORDER:
            self.lab.output(self.lab.topology.node_of(role), "systemctl", "restart", self.emulator)
        client = self.lab.topology.node_of(Role.CLIENT)
        argv = ["ping", "-n", "-q", "-c", "1", "-w", f"{ECHO_DEADLINE_S:.0f}", self._server_address]
        try:
            self.lab.output(client, *argv)
        except HostError as error:
            raise HostError(
                "no echo crosses the VM lab", "look at it: satlab vm status, satlab vm provision"
            ) from error

    def before(self) -> list[CalibrationCheck]:
        """Measure RTT, rate and losses before the scenario, and judge them."""
        return calibrate.before(self.plan, self._probe(), self.emulator)

    def during(self, since_unix_s: float) -> list[CalibrationCheck]:
        """Judge how exact the emulator was from `since_unix_s` on; nothing watches OpenSAND."""
        if self.emulator != "satlink":
            return []
        sat = self.lab.topology.node_of(Role.SAT)
        # The last line of the metrics is written when satlink ends.
        self.lab.output(sat, "systemctl", "stop", self.emulator)
        lines = _Metrics(self.metrics, self.lab).lines()
        self.lab.output(sat, "systemctl", "start", self.emulator)
        return calibrate.during(lines, expectation(self.plan, self.emulator), since_unix_s)

    @property
    def _server_address(self) -> str:
        topology = self.lab.topology
        return topology.nodes[topology.node_of(Role.SERVER)].address

    def _probe(self) -> Probe:
        """Measure RTT, then the saturated forward rate and its losses, with ping and iperf3 on the guests."""
        notes: dict[str, str] = {}
        rtt: calibrate.Echoes | None = None
        result: Mapping[str, Any] = {}
        try:
            rtt = self._echoes(calibrate.ECHOES)
        except (HostError, calibrate.ProbeError) as error:
            notes["rtt"] = str(error)
        metrics = _Metrics(self.metrics, self.lab) if self.emulator == "satlink" else None
        dropped = metrics.forward_drops() if metrics else 0
        try:
            result = self._flow()
        except (HostError, calibrate.ProbeError, ValueError) as error:
            notes["rate"] = str(error)
        if metrics is None:
            self._drain()
            return calibrate.probe_of(rtt, result, 0, notes)
        metrics.settle()
        return calibrate.probe_of(rtt, result, metrics.forward_drops() - dropped, notes)

    def _echoes(self, count: int) -> calibrate.Echoes:
        client = self.lab.topology.node_of(Role.CLIENT)
        return calibrate.echoes(self.lab.output(client, *calibrate.echo_argv(self._server_address, count)).decode())

    def _flow(self) -> Mapping[str, Any]:
        """Saturate the forward link with UDP; gives the receiver's JSON."""
        lab, address, port = self.lab, self._server_address, str(calibrate.PROBE_PORT)
        server, client = (lab.topology.node_of(role) for role in (Role.SERVER, Role.CLIENT))
        lab.output(server, "iperf3", "-s", "-1", "-D", "-B", address, "-p", port)
        if not wait(lambda: bool(lab.output(server, "ss", "-Hltn", f"sport = :{port}")), LISTEN_DEADLINE_S):
            raise calibrate.ProbeError(f"nothing listens on {server}, port {port}")
        offered = int(self.plan.forward.rate_bps * calibrate.PROBE_OVERLOAD)
        return calibrate.read_result(lab.output(client, *calibrate.udp_argv(address, offered, PROBE_S)).decode())

    def _drain(self) -> None:
        """Wait until an echo meets no queue, which OpenSAND shows to nobody."""
        idle_ms = expectation(self.plan, self.emulator).rtt_high_ms
        end = time.monotonic() + DRAIN_DEADLINE_S
        while time.monotonic() < end:
            with contextlib.suppress(HostError, calibrate.ProbeError):
                if self._echoes(1).max_ms <= idle_ms:
                    return
