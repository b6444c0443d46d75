# SPDX-License-Identifier: GPL-3.0-or-later
"""The tunnel of a file of flows in a lab: satfec at both ends, and routes into it for all flows. If
the tunnel fails, the other end is unreachable, so no packet bypasses it. The routes end with the
lab.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.check import sandboxed_program
from satlab.check.sandboxed_program import ExitReport, NotStartedError, SandboxedProcess
from satlab.common import paths
from satlab.common.errors import HostError
from satlab.common.processes import wait
from satlab.flows.flow_nodes import ip
from satlab.lab.lab import Lab
from satlab.lab.netns import open_tun_to_jobs
from satlab.lab.sandbox import Limits, Mount, Sandbox

DEVICE = "fec0"
"""Name of the tunnel's device at both ends."""
PORT = 5800
MARK = TABLE = 1448
"""The tunnel's datagrams have this mark. All other packets to the other end follow this routing
table into the device.
"""
READY_S = 20.0
MOST_S = 12_000.0
"""Longest life of a tunnel: the longest flows, and the time before and after them."""
PEER_TIMEOUT_S = 30


@dataclass
class Tunnel:
    """Both ends of a tunnel.

    `addresses` and `nodes` by side; `options` are the field `fec` of a checked file.
    """

    lab: Lab
    options: Mapping[str, Any]
    addresses: Mapping[str, str]
    nodes: Mapping[str, str]
    logs: Path
    processes: dict[str, SandboxedProcess] = field(default_factory=dict)

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """Keep the tunnel up during the block. Raises HostError if an end does not start or does
        not hear the other.
        """
        try:
            for side, node in self.nodes.items():
                other = self.addresses[_other(side)]
                ip(self.lab, node, f"route add unreachable {other} table {TABLE} metric 100")
                ip(self.lab, node, f"rule add not fwmark {MARK} to {other} lookup {TABLE}")
                self.processes[side] = self._started(side)
            self._await("ready")
            for side, node in self.nodes.items():
                way = f"{self.addresses[_other(side)]} dev {DEVICE} src {self.addresses[side]}"
                ip(self.lab, node, f"route add {way} table {TABLE} metric 10")
            self._await("connected")
            yield
        finally:
            for process in self.processes.values():
                process.stop()

    @property
    def gone(self) -> tuple[str, ExitReport] | None:
        """Return which end has ended, and how; None while both run."""
        ended = ((side, process.poll()) for side, process in self.processes.items())
        return next(
            ((f"tunnel's end at the {side}", report) for side, report in ended if report), None
        )

    def _started(self, side: str) -> SandboxedProcess:
        own, other = (f"{self.addresses[one]}:{PORT}" for one in (side, _other(side)))
        hold_ms = self.options["hold_ms"]
        order = (
            ["--deliver", "in-order", "--hold-ms", str(hold_ms)]
            if hold_ms
            else ["--deliver", "immediate"]
        )
        argv = [str(paths.SATFEC), "--listen", own, "--peer", other]
        argv += ["--device", DEVICE, "--mark", str(MARK)]
        argv += ["--code", self.options["code"], "--peer-timeout-s", str(PEER_TIMEOUT_S), *order]
        box = Sandbox(
            place=self.lab.place(self.nodes[side]),
            mounts=(Mount.ours(paths.SATFEC), Mount.ours(open_tun_to_jobs(), writable=True)),
            name=f"tunnel-{side}",
            limits=Limits(seconds=MOST_S),
            capabilities=("net_admin",),
        )
        try:
            return sandboxed_program.start(box, argv, self._log(side))
        except NotStartedError as error:
            raise HostError(f"the tunnel does not start: {error}") from error

    def _log(self, side: str) -> Path:
        return self.logs / f"tunnel-{side}.log"

    def _await(self, kind: str) -> None:
        """Wait until both ends have printed a line of a kind."""

        def all_have() -> bool:
            return self.gone is not None or all(_has(self._log(side), kind) for side in self.nodes)

        is_there = wait(all_have, READY_S)
        if self.gone is not None:
            side, report = self.gone
            raise HostError(f"the {side} {report.reason or 'ended'}")
        if not is_there:
            raise HostError(
                f"the tunnel is not {kind} after {READY_S:g} s", hint=f"see {self._log('client')}"
            )


def _other(side: str) -> str:
    return "client" if side == "server" else "server"


def _has(log: Path, kind: str) -> bool:
    """Return whether satfec has printed a line of a type."""
    return any(line["type"] == kind for line in sandboxed_program.read_json_lines(log))
