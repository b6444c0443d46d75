# SPDX-License-Identifier: GPL-3.0-or-later
"""The reference that QUIC is held against: TCP through a PEP on both sides of the satellite link.

Kuhn et al., "QUIC: Opportunities and threats in SATCOM", section 4.2, configuration D: distributed proxies with large
buffers and an initial window of 100. Here HAProxy splits (docs/decisions/0007-tcp-pep-and-reproduction.md), plain TCP
without TLS, CUBIC on all legs.
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from satlab.check.endpoint.pair import CLIENT, PORT, EndpointProgram, LabPair, TransferRequest, read_lines, shown
from satlab.check.samples import Sample, Status
from satlab.check.sandbox.sandbox import ExitReport
from satlab.check.suite import Case
from satlab.check.trace import capture, pcap
from satlab.check.trace.capture import Capture
from satlab.check.trace.pcap import CapturedTransfer
from satlab.common.topology import Role
from satlab.netlab import pep
from satlab.netlab.lab import Lab

INITIAL_WINDOW = 100
_TAPPED = "proxy.pcap"
_END = Path(__file__).with_name("tcp_transfer.py")


@dataclass(frozen=True)
class TcpPepPair(LabPair):
    """Plain TCP, split by a proxy on each side of the satellite link."""

    name: str = "TCP with PEP (HAProxy, CUBIC, initial window 100)"
    protocol: Literal["tcp"] = "tcp"

    def lacks(self, case: Case) -> str:
        """Return why it cannot do a case: there is nothing that it cannot."""
        return ""

    def server(self, request: TransferRequest) -> EndpointProgram:
        """Return the server."""
        return _python("server", {"host": request.host, "port": PORT})

    def client(self, request: TransferRequest, number: int) -> EndpointProgram:
        """Return the client."""
        asked = {"direction": request.case.direction, "bytes": request.size, "marks": request.marks}
        place = {"host": request.host, "port": PORT, "output": str(_file(request, number))}
        return _python("client", {**place, **asked, "timeout_s": request.case.timeout_s})

    def sample(self, request: TransferRequest, number: int, ended: ExitReport, wire: CapturedTransfer | None) -> Sample:
        """Read what the client left."""
        told = read_lines(_file(request, number))
        if not told:
            return request.failed(ended.reason or "the client left nothing")
        [found] = told
        status: Status = "ok" if found["bytes"] >= request.size else "censored" if found["late"] else "failed"
        reached = [time - found["began"] for time in found["reached"]]
        first = found["first"]
        reason = "" if status == "ok" else f"{found['bytes']} of {request.size} bytes came"
        return Sample(
            request.case.id, request.seed, status, reason,
            (*reached, *(None,) * (len(request.marks) - len(reached))),
            handshake_ms=(found["connected"] - found["began"]) * 1000,
            time_to_first_byte_ms=None if first is None else (first - found["began"]) * 1000,
        )  # fmt: skip

    @contextlib.contextmanager
    def path(self, up: Lab, request: TransferRequest, folder: Path) -> Iterator[list[str]]:
        """Split connections for as long as the block lasts; what went wrong stands in the list afterwards."""
        faults: list[str] = []
        nodes = pep.proxies(up)
        with contextlib.ExitStack() as peps:
            peps.enter_context(Capture(up, *_sender(up, request)).running(folder / _TAPPED))
            for node in nodes:
                up.set_congestion_control(node, "cubic", INITIAL_WINDOW)
                peps.enter_context(pep.proxy(up, node, [], folder / node, engine="haproxy"))
            yield faults
        idle = [node for node in nodes if not pep.connections(folder / node)]
        faults += [f"the PEP on {node} has split no connection" for node in idle]

    def beyond(self, request: TransferRequest, folder: Path) -> dict[str, Any]:
        """Return the share of the bytes that the sending proxy sent again over the satellite link."""
        share = pcap.tcp_again(capture.read(folder / _TAPPED))
        source = "packets at the proxy"
        return {} if share is None else {"retransmitted_share": share, "sources": {"retransmitted_share": source}}


def _sender(up: Lab, request: TransferRequest) -> tuple[str, str]:
    """Return node and interface where payload leaves for the satellite link: of the proxy next to it."""
    edge = up.topology.node_of(Role.GW if request.case.direction == "download" else Role.ST)
    near = {each.network for each in up.topology.nodes[edge].interfaces.values()}
    return next(
        (node, name)
        for node in pep.proxies(up)
        for name, each in up.topology.nodes[node].interfaces.items()
        if each.network in near
    )


def _file(request: TransferRequest, number: int) -> Path:
    return request.folder / CLIENT / f"client-{number}.json"


def _python(side: str, wanted: dict[str, Any]) -> EndpointProgram:
    """Run our end with the interpreter behind the environment that we run in."""
    interpreter = Path(sys.executable).resolve()
    base = Path(sys.base_prefix).resolve()
    own = () if base.is_relative_to("/usr") else (base,)
    return EndpointProgram((str(interpreter), "-I", "-S", str(_END), side, json.dumps(wanted)), shown(_END, *own))
