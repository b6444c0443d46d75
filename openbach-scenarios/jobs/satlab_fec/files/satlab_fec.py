#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run one end of a tunnel that repairs losses (satfec) until the job is stopped.

An ip rule sends packets for the peer to a routing table whose only route is the tunnel; their
addresses stay. A mark exempts the tunnel's own datagrams. If the tunnel is down, the peer is
unreachable, so no packet passes unprotected. When the job is stopped, it removes rule, routes and
processes. When the tunnel dies, the peer stays unreachable until the job runs again.

Exit statuses: 0 stopped, 1 the tunnel died, 2 arguments, 3 the host cannot do it.
"""

import argparse
import json
import os
import re
import tempfile
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import collect_agent
from child_program import Child
from jobkit import (
    argument_parser,
    end,
    matching,
    must_store_json,
    need,
    port,
    ready,
    run,
    run_job,
    stop_event,
    whole,
)

READY_DEADLINE_S = 20.0
WATCH_S = 0.1
STOP_DEADLINE_S = 1.5
MAX_LINES = 1000
MARK = TABLE = 1448
DEVICE = "fec0"
TRANSPORTS = ("udp", "quic-client", "quic-server")


@dataclass(frozen=True)
class Request:
    """The checked arguments; `scratch` is a private folder."""

    own: IPv4Address
    peer: IPv4Address
    code: str
    port: int
    satfec_options: tuple[str, ...]
    scratch: Path

    @property
    def log(self) -> Path:
        return self.scratch / "log"

    @property
    def errors(self) -> Path:
        return self.scratch / "errors"


# --- routing into the tunnel ----------------------------------------------------------------------


def ip(*words: str) -> str:
    """Run ip(8); return its output."""
    return run("ip", *words, hint="the job needs iproute2 and root")


def block(request: Request) -> None:
    """Make the peer unreachable except for marked datagrams."""
    release()
    ip("route", "add", "unreachable", str(request.peer), "table", str(TABLE), "metric", "100")
    ip("rule", "add", "not", "fwmark", str(MARK), "to", str(request.peer), "lookup", str(TABLE))


def lead(request: Request) -> None:
    """Route packets for the peer into the tunnel."""
    way = ("dev", DEVICE, "src", str(request.own))
    ip("route", "add", str(request.peer), *way, "table", str(TABLE), "metric", "10")


def release() -> None:
    """Remove the rule and the routes that are there."""
    ours = rf"not from all to (\S+) fwmark \S+ lookup {TABLE}\b"
    while match := re.search(ours, ip("rule")):
        ip("rule", "del", "not", "fwmark", str(MARK), "to", match[1], "lookup", str(TABLE))
    if f"table {TABLE}" in ip("route", "show", "table", "all"):
        ip("route", "flush", "table", str(TABLE))


# --- life of the tunnel ---------------------------------------------------------------------------


def command(request: Request) -> list[str]:
    """Return satfec's argv."""
    found = need("satfec", "build it: cargo build --release -p satfec")
    ends = ["--listen", f"{request.own}:{request.port}", "--peer", f"{request.peer}:{request.port}"]
    own = ["--device", DEVICE, "--mark", str(MARK), "--code", request.code]
    return [found, *ends, *own, *request.satfec_options]


def serve(request: Request, stop: threading.Event) -> None:
    """Start the tunnel, lead traffic into it, watch it until `stop`, and leave `fec.json`."""
    argv = command(request)
    fault = ""
    block(request)
    child: Child | None = None
    try:
        child = Child.start("satfec", argv, request.errors, request.log)
        protect(request, child, stop)
    except Exception as error:
        # Whatever failed: without the tunnel the peer stays unreachable.
        fault = str(error) or type(error).__name__
        raise
    finally:
        if child is not None:
            end(child.process, STOP_DEADLINE_S)
        if not fault:
            release()
        record(request, argv, fault)


def protect(request: Request, child: Child, stop: threading.Event) -> None:
    """Lead traffic into the tunnel when it is ready, and watch it until `stop`."""

    def wait_for(state: str) -> None:
        def reached() -> bool:
            return any(line["type"] == state for line in lines(request.log))

        child.wait_until(state, reached, stop, READY_DEADLINE_S)

    wait_for("ready")
    if stop.is_set():
        return
    lead(request)
    wait_for("connected")
    if stop.is_set():
        return
    with ready("satlab_fec"):
        while not stop.wait(WATCH_S):
            child.check(stop)


def record(request: Request, argv: list[str], fault: str) -> None:
    """Store what the tunnel was and what it counted, and send its last counters."""
    try:
        report = lines(request.log)
    except ValueError:  # not JSON: that is the fault
        report = []
    content = {
        "schema": "satlab/fec/1",
        "version": next((line["version"] for line in report if line["type"] == "ready"), ""),
        "argv": argv,
        "peer": str(request.peer),
        "code": request.code,
        "report": report[-MAX_LINES:],
        "fault": fault,
    }
    counted: dict[str, Any] = next(
        (line for line in reversed(report) if line["type"] in ("counters", "summary")), {}
    )
    names = (
        "sources_received",
        "repairs_received",
        "recovered",
        "lost",
        "recovery_delay_mean_ms",
        "repairs_sent",
        "code_changes",
    )
    if counted:
        collect_agent.send_stat(collect_agent.now(), **{name: counted[name] for name in names})
    must_store_json("fec_json", content)


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the whole lines of satfec so far; none if it never started."""
    if not log.exists():
        return []
    whole = log.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


# --- arguments ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    options = argument_parser(__doc__)
    options.add_argument(
        "own_ip", type=IPv4Address, help="address of this node, peer_ip of the other end"
    )
    options.add_argument("peer_ip", type=IPv4Address, help="address of the node with the other end")
    options.add_argument(
        "code",
        type=matching(r"none|adaptive|[1-9]\d{0,3},[1-9]\d{0,3}", "none, adaptive or K,Z"),
        help=(
            "none, adaptive, or K,Z: one repair packet after every K packets, computed over the"
            " last Z packets"
        ),
    )
    options.add_argument("-l", "--port", type=port, default=5800, help="UDP port of both ends")
    options.add_argument("-o", "--deliver", choices=("immediate", "in-order"), default="in-order")
    options.add_argument(
        "-w",
        "--hold-ms",
        type=whole(1, 10000),
        default=200,
        help="with in-order: longest wait for a missing packet, ms",
    )
    options.add_argument(
        "-m",
        "--mtu",
        type=whole(576, 9000),
        default=1400,
        help="longest packet, bytes; equal at both ends",
    )
    options.add_argument(
        "-s",
        "--peer-timeout-s",
        type=whole(1, 3600),
        default=10,
        help="end after this silence of the other end, s",
    )
    options.add_argument(
        "-t",
        "--transport",
        choices=TRANSPORTS,
        default="udp",
        help="what carries the frames of the tunnel",
    )
    options.add_argument(
        "-c",
        "--congestion-control",
        choices=("off", "cubic", "reno"),
        default="cubic",
        help="of the QUIC connection, for what this end sends",
    )
    options.add_argument(
        "-n",
        "--server-name",
        type=matching(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "the name of a host"),
        help=("only with quic-client: name in the other end's certificate; default: its address"),
    )
    pki = os.environ.get("SATLAB_PKI", "/etc/satlab/pki")
    options.add_argument(
        "--pki",
        type=Path,
        default=pki,
        help="with QUIC: folder of certificates; default: $SATLAB_PKI or /etc/satlab/pki",
    )
    return options


def outer(arguments: argparse.Namespace) -> list[str]:
    """Return satfec's options of the transport of its frames."""
    pki: Path = arguments.pki
    trust = {
        "udp": [],
        "quic-client": ["--ca", str(pki / "ca.crt")],
        "quic-server": ["--cert", str(pki / "server.crt"), "--key", str(pki / "server.key")],
    }[arguments.transport]
    if not trust:
        return []
    if arguments.transport == "quic-client" and arguments.server_name:
        trust += ["--server-name", arguments.server_name]
    return ["--transport", "quic", "--congestion-control", arguments.congestion_control, *trust]


def main() -> None:
    """Be one end of a tunnel until SIGTERM or SIGINT."""
    arguments = parser().parse_args()
    stop = stop_event()
    names = ("deliver", "hold_ms", "mtu", "peer_timeout_s")
    more = [
        word
        for name in names
        for word in (f"--{name.replace('_', '-')}", str(getattr(arguments, name)))
    ]
    more += outer(arguments)
    with tempfile.TemporaryDirectory(prefix="satlab_fec_") as scratch:
        request = Request(
            own=arguments.own_ip,
            peer=arguments.peer_ip,
            code=arguments.code,
            port=arguments.port,
            satfec_options=tuple(more),
            scratch=Path(scratch),
        )
        serve(request, stop)


if __name__ == "__main__":
    run_job(__file__, main)
