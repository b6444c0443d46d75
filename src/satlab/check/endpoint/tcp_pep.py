# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference for QUIC: TCP through a PEP on each side of the satellite link.

Kuhn et al., "QUIC: Opportunities and threats in SATCOM", section 4.2: distributed proxies. Here
HAProxy splits the connections: plain TCP without TLS, CUBIC on all legs
(docs/decisions/0007-tcp-pep-and-reproduction.md). Without a preset, the proxies' initial window is
100 packets and their buffers are the kernel's.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.check.endpoint.pair import (
    CLIENT,
    PORT,
    EndpointPair,
    EndpointProgram,
    TransferRequest,
    read_only,
)
from satlab.check.samples import Sample, Status
from satlab.check.sandboxed_program import ExitReport, read_json_lines
from satlab.check.suite import Case
from satlab.check.trace import pcap
from satlab.check.trace.captured_transfer import CapturedTransfer, tcp_retransmitted_share
from satlab.check.trace.packet_capture import Capture
from satlab.common.topology import Role
from satlab.lab import pep_job
from satlab.lab.lab import Lab

INITIAL_WINDOW = 100


@dataclass(frozen=True)
class Preset:
    """Both proxies' initial window, packets, and largest buffers of TCP, bytes (tcp_rmem,
    tcp_wmem).
    """

    initial_window: int
    receive_max: int
    send_max: int


PRESETS = {
    "a": Preset(10, 6_000_000, 4_000_000),
    "b": Preset(100, 6_000_000, 4_000_000),
    "c": Preset(10, 33_000_000, 33_000_000),
    "d": Preset(100, 33_000_000, 33_000_000),
}
"""Table 3 of the paper, without its core buffers (net.core, 0.2 or 33 MB), which do not limit
buffers that TCP tunes itself.
"""
_CAPTURE = "proxy.pcap"
_TRANSFER = Path(__file__).with_name("tcp_transfer.py")


@dataclass(frozen=True)
class TcpPepPair(EndpointPair):
    preset: str | None = None
    protocol = "tcp"

    @property
    def name(self) -> str:
        if self.preset is None:
            return "TCP with PEP (HAProxy, CUBIC, initial window 100)"
        window = PRESETS[self.preset].initial_window
        return f"TCP with PEP {self.preset.upper()} (HAProxy, CUBIC, initial window {window})"

    def unsupported_reason(self, case: Case) -> str:
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        return _python("server", {"host": request.host, "port": PORT})

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        transfer = {
            "direction": request.case.direction,
            "bytes": request.size,
            "marks": request.marks,
        }
        place = {"host": request.host, "port": PORT, "output": str(_file(request, number))}
        return _python("client", {**place, **transfer, "timeout_s": request.case.timeout_s})

    def sample(
        self,
        request: TransferRequest,
        number: int,
        ended: ExitReport,
        wire: CapturedTransfer | None,
    ) -> Sample:
        lines = read_json_lines(_file(request, number))
        if not lines:
            return request.failed(ended.reason or "the client wrote no result")
        [result] = lines
        status: Status = (
            "ok" if result["bytes"] >= request.size else "censored" if result["late"] else "failed"
        )
        reached = [time - result["began"] for time in result["reached"]]
        first = result["first"]
        reason = "" if status == "ok" else f"{result['bytes']} of {request.size} bytes arrived"
        return Sample(
            request.case.id,
            request.seed,
            status,
            reason,
            (*reached, *(None,) * (len(request.marks) - len(reached))),
            handshake_ms=(result["connected"] - result["began"]) * 1000,
            time_to_first_byte_ms=None if first is None else (first - result["began"]) * 1000,
        )

    @contextlib.contextmanager
    def path(self, up: Lab, request: TransferRequest, folder: Path) -> Iterator[list[str]]:
        """Run both proxies during the block; faults are known after it."""
        faults: list[str] = []
        nodes = pep_job.proxies(up)
        with contextlib.ExitStack() as peps:
            peps.enter_context(Capture(up, *_sender(up, request)).running(folder / _CAPTURE))
            for node in nodes:
                preset = PRESETS.get(self.preset or "")
                up.set_congestion_control(
                    node, "cubic", preset.initial_window if preset else INITIAL_WINDOW
                )
                if preset:
                    up.set_tcp_buffers(node, preset.receive_max, preset.send_max)
                peps.enter_context(pep_job.proxy(up, node, [], folder / node, engine="haproxy"))
            yield faults
        idle = [node for node in nodes if not pep_job.connections(folder / node)]
        faults += [f"the PEP on {node} did not split any connection" for node in idle]

    def path_figures(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Return the share of bytes that the sending proxy retransmitted over the satellite link."""
        share = tcp_retransmitted_share(pcap.read(folder / _CAPTURE))
        source = "packets at the proxy"
        return (
            {}
            if share is None
            else {"retransmitted_share": share, "sources": {"retransmitted_share": source}}
        )


def _sender(up: Lab, request: TransferRequest) -> tuple[str, str]:
    """Return the proxy at the payload sender's side of the satellite link, and its interface
    towards the link.
    """
    terminal = up.topology.node_of(Role.GW if request.case.direction == "download" else Role.ST)
    networks = {each.network for each in up.topology.nodes[terminal].interfaces.values()}
    return next(
        (node, name)
        for node in pep_job.proxies(up)
        for name, each in up.topology.nodes[node].interfaces.items()
        if each.network in networks
    )


def _file(request: TransferRequest, number: int) -> Path:
    return request.folder / CLIENT / f"client-{number}.json"


def _python(side: str, request: dict[str, Any]) -> EndpointProgram:
    """Return tcp_transfer.py, run by the base interpreter of this virtual environment."""
    interpreter = Path(sys.executable).resolve()
    base = Path(sys.base_prefix).resolve()
    outside_usr = () if base.is_relative_to("/usr") else (base,)
    argv = (str(interpreter), "-I", "-S", str(_TRANSFER), side, json.dumps(request))
    return EndpointProgram(argv, read_only(_TRANSFER, *outside_usr))
