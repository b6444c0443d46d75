#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: one end of a tunnel that repairs losses (satfec), until it is stopped.

What this node sends to the peer goes through the tunnel, with addresses unchanged: a rule leads it
to a table of its own, and the tunnel's datagrams have a mark that spares them. The table has no
other way: without a tunnel the peer is unreachable, so nothing passes unprotected. When the job is
stopped, rule, routes and processes are as before; when the tunnel dies, the peer stays unreachable
until the job runs again. Exit statuses: 0 stopped, 1 the tunnel died, 2 arguments, 3 the host
cannot do it.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import collect_agent

READY_DEADLINE_S = 20.0
WATCH_S = 0.1
STOP_DEADLINE_S = 1.5
AGENT_S = 5.0
"""An agent that stops a job ends its children first, by force if they take long; the job hears of
it seconds later.
"""
MAX_LINES = 1000
MARK = TABLE = 1448
DEVICE = "fec0"
TRANSPORTS = ("udp", "quic-client", "quic-server")


class JobError(Exception):
    """An expected end of the job: what happened, the next command, the exit status."""

    def __init__(self, message: str, hint: str = "", status: int = 3) -> None:
        super().__init__(message)
        self.hint = hint
        self.status = status


@dataclass(frozen=True)
class Request:
    """What to protect, checked; `scratch` is a private folder."""

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


def run(*argv: str) -> str:
    """Run a short command and return its output."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{argv[0]}: {error}", "apt-get install iproute2") from error
    if done.returncode:
        raise JobError(f"{' '.join(argv)}: {done.stderr.strip()}", "the job needs root")
    return done.stdout


# --- what leads into the tunnel -------------------------------------------------------------------


def block(request: Request) -> None:
    """Leave no way to the peer but for marked datagrams."""
    release()
    run(
        "ip", "route", "add", "unreachable", str(request.peer), "table", str(TABLE), "metric", "100"
    )
    run(
        "ip",
        "rule",
        "add",
        "not",
        "fwmark",
        str(MARK),
        "to",
        str(request.peer),
        "lookup",
        str(TABLE),
    )


def lead(request: Request) -> None:
    """Lead what goes to the peer into the tunnel."""
    way = ("dev", DEVICE, "src", str(request.own))
    run("ip", "route", "add", str(request.peer), *way, "table", str(TABLE), "metric", "10")


def release() -> None:
    """Take rule and routes away, as far as they are there."""
    while match := re.search(
        rf"not from all to (\S+) fwmark \S+ lookup {TABLE}\b", run("ip", "rule")
    ):
        run("ip", "rule", "del", "not", "fwmark", str(MARK), "to", match[1], "lookup", str(TABLE))
    if f"table {TABLE}" in run("ip", "route", "show", "table", "all"):
        run("ip", "route", "flush", "table", str(TABLE))


# --- life of the tunnel ---------------------------------------------------------------------------


def command(request: Request) -> list[str]:
    """Return satfec's argv."""
    found = shutil.which("satfec") or shutil.which(
        "satfec", path="/usr/sbin:/usr/local/sbin:/usr/local/bin"
    )
    if not found:
        raise JobError("satfec is not installed", "build it: cargo build --release -p satfec")
    ends = ["--listen", f"{request.own}:{request.port}", "--peer", f"{request.peer}:{request.port}"]
    return [
        found,
        *ends,
        "--device",
        DEVICE,
        "--mark",
        str(MARK),
        "--code",
        request.code,
        *request.satfec_options,
    ]


def serve(request: Request, stop: threading.Event) -> None:
    """Start the tunnel, lead traffic into it, watch it until `stop`, and leave `fec.json`."""
    argv, fault = command(request), ""
    block(request)
    with request.log.open("wb") as output, request.errors.open("wb") as errors:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
    try:
        await_line("ready", request, child, stop)
        lead(request)
        await_line("connected", request, child, stop)
        with announce():
            while not stop.wait(WATCH_S):
                check_alive(request, child, stop)
    except JobError as error:
        fault = str(error)
        raise
    finally:
        end(child)
        if not fault:
            release()
        record(request, argv, fault)


def announce() -> socket.socket:
    """Report to the job satlab_await that this job is ready, until the socket is closed."""
    collect_agent.send_stat(collect_agent.now(), ready=1)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_fec")
    return door


def await_line(
    kind: str, request: Request, child: subprocess.Popen[bytes], stop: threading.Event
) -> None:
    """Poll satfec's output for a line until the deadline."""
    for _ in range(round(READY_DEADLINE_S / WATCH_S)):
        check_alive(request, child, stop)
        if any(line["type"] == kind for line in lines(request.log)) or stop.wait(WATCH_S):
            return
    raise JobError(
        f"satfec was not {kind} after {READY_DEADLINE_S:g} s: {tail(request.errors)}", status=1
    )


def check_alive(request: Request, child: subprocess.Popen[bytes], stop: threading.Event) -> None:
    """Raise if satfec has ended, unless all is being stopped: then an agent may have asked it first
    to end.
    """
    code = child.poll()
    was_asked = code in (0, -signal.SIGTERM, -signal.SIGKILL) and stop.wait(AGENT_S)
    if code is not None and not was_asked:
        raise JobError(
            f"satfec ended with status {code}: {tail(request.errors)}",
            "see the job's log",
            status=1,
        )


def end(child: subprocess.Popen[bytes]) -> None:
    """Ask the child to end, then make it end."""
    child.terminate()
    try:
        child.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def record(request: Request, argv: list[str], fault: str) -> None:
    """Store what the tunnel was and what it counted, and send its last counters."""
    report = lines(request.log)
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
    path = request.scratch / "fec.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if str(answer := collect_agent.store_files(collect_agent.now(), fec_json=str(path))).startswith(
        "KO"
    ):
        raise JobError(
            f"the collector refused fec.json: {answer}", "see the collector's log", status=1
        )


def lines(log: Path) -> list[dict[str, Any]]:
    """Return the whole lines of satfec so far."""
    whole = log.read_text(encoding="utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in whole.splitlines()]


def tail(errors: Path) -> str:
    """Return what satfec said of its end, on one line."""
    return (
        errors.read_text(encoding="utf-8", errors="replace").strip().replace("\n", " / ")
        or "no output"
    )


# --- arguments ------------------------------------------------------------------------------------


def code(text: str) -> str:
    """Accept none, adaptive or K,Z; satfec checks the numbers."""
    if not re.fullmatch(r"none|adaptive|[1-9]\d{0,3},[1-9]\d{0,3}", text):
        raise argparse.ArgumentTypeError("is neither none, adaptive nor K,Z")
    return text


def number(least: int, most: int) -> Any:
    """Return a function that accepts whole numbers of a range."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\d{1,9}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument(
        "own_ip", type=IPv4Address, help="address of this node that the peer knows"
    )
    options.add_argument("peer_ip", type=IPv4Address, help="the node of the other end")
    options.add_argument(
        "code",
        type=code,
        help="none; K,Z: one repair packet after K packets over the last Z; or adaptive",
    )
    options.add_argument(
        "-l", "--port", type=number(1, 65535), default=5800, help="UDP port of both ends"
    )
    options.add_argument("-o", "--deliver", choices=("immediate", "in-order"), default="in-order")
    options.add_argument(
        "-w", "--hold-ms", type=number(1, 10000), default=200, help="in order: longest wait, ms"
    )
    options.add_argument(
        "-m", "--mtu", type=number(576, 9000), default=1400, help="longest packet, bytes"
    )
    options.add_argument(
        "-s", "--peer-timeout-s", type=number(1, 3600), default=10, help="longest silence, s"
    )
    options.add_argument(
        "-t", "--transport", choices=TRANSPORTS, default="udp", help="below the tunnel's frames"
    )
    options.add_argument(
        "-c",
        "--congestion-control",
        choices=("off", "cubic", "reno"),
        default="cubic",
        help="of QUIC",
    )
    options.add_argument(
        "-n",
        "--server-name",
        type=server_name,
        help="of quic-server's certificate, not its address",
    )
    pki = os.environ.get("SATLAB_PKI", "/etc/satlab/pki")
    options.add_argument(
        "--pki", type=Path, default=pki, help="quic: certificates; $SATLAB_PKI or /etc/satlab/pki"
    )
    return options


def server_name(text: str) -> str:
    """Accept the name of a host."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError("is not the name of a host")
    return text


def outer(arguments: argparse.Namespace) -> list[str]:
    """Return satfec's options of what carries its frames."""
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


def main() -> int:
    """Be one end of a tunnel until SIGTERM or SIGINT."""
    arguments = parser().parse_args()
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    names = ("deliver", "hold_ms", "mtu", "peer_timeout_s")
    more = [
        word
        for name in names
        for word in (f"--{name.replace('_', '-')}", str(getattr(arguments, name)))
    ]
    more += outer(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="satlab_fec_") as scratch:
            request = Request(
                arguments.own_ip,
                arguments.peer_ip,
                arguments.code,
                arguments.port,
                tuple(more),
                Path(scratch),
            )
            serve(request, stop)
    except JobError as error:
        print(f"error: {error}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(
        str(Path(__file__).with_name("satlab_fec_rstats_filter.conf"))
    ):
        sys.exit(main())
