#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run one QUIC transfer with satperf as server or client, and store its JSON lines.

Exit statuses: 0 the transfer is complete, or the server was stopped. Otherwise satperf's own: 1 the
transfer failed, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import ipaddress
import json
import os
import subprocess
import syslog
import tempfile
import time
from pathlib import Path
from typing import Any

import collect_agent
from bound_ports import is_bound
from jobkit import (
    announce,
    argument_parser,
    matching,
    need,
    port,
    real,
    run_job,
    start_stoppable,
    stop_event,
    store_json,
    whole,
)

LEG_OPTIONS = (
    "congestion_control",
    "initial_window",
    "ack_threshold",
    "max_ack_delay_ms",
    "initial_rtt_ms",
)
LEG_OPTIONS_BYTES = ("receive_window", "stream_receive_window")
POLL_S = 0.05
MARGIN_S = 90.0
"""How long satperf may take beyond the transfer; its own deadline is earlier."""

Line = dict[str, Any]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def leg_arguments(options: argparse.Namespace) -> list[str]:
    """Return satperf's options of a leg; what was not chosen is left to it."""
    names = ("stack", *LEG_OPTIONS, *LEG_OPTIONS_BYTES)
    chosen = {name: getattr(options, name) for name in names if getattr(options, name)}
    return [
        word
        for name, value in chosen.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def place_of(address: Address, port: int) -> str:
    """Return address and port in one text; an address of IPv6 has brackets (RFC 3986)."""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def server_arguments(options: argparse.Namespace, pki: Path) -> list[str]:
    """Return satperf's arguments for a server."""
    place = ["--listen", place_of(options.bind, options.port)]
    trust = ["--cert", str(pki / "server.crt"), "--key", str(pki / "server.key")]
    return ["server", *place, *trust, *(["--once"] if options.exit else [])]


def client_arguments(options: argparse.Namespace, pki: Path) -> list[str]:
    """Return satperf's arguments for a client."""
    place = [
        "--connect",
        place_of(options.server_ip, options.port),
        "--server-name",
        options.server_name,
    ]
    amount = (
        ["--bytes", str(options.bytes)]
        if options.bytes
        else ["--duration", f"{options.duration_s:g}"]
    )
    direction = "upload" if options.upload else "download"
    more = ["--direction", direction, "--streams", str(options.streams)]
    session = ["--zero-rtt", options.zero_rtt] if options.zero_rtt else []
    return ["client", *place, "--ca", str(pki / "ca.crt"), *amount, *more, *session]


def run(argv: list[str], output: Path, timeout_s: float | None, serves: int | None) -> int:
    """Run satperf to its end, or until this job is stopped, and return its status.

    `serves`: the port of a server.
    """
    with (
        start_stoppable([*argv, "--output", str(output)], stop_event()) as process,
        contextlib.ExitStack() as until_end,
    ):
        if serves is not None:
            while process.poll() is None and not is_bound(("udp", "udp6"), serves):
                time.sleep(POLL_S)  # satperf ends by itself when it cannot have the port
            until_end.enter_context(announce("satlab_satperf"))
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            collect_agent.send_log(
                syslog.LOG_ERR, f"error: satperf was not over after {timeout_s:g} s"
            )
            return 1


def read(output: Path) -> list[Line]:
    """Read satperf's lines; one that was cut off by its end is left out."""
    lines = []
    for text in output.read_text(encoding="utf-8").splitlines() if output.exists() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            collect_agent.send_log(syslog.LOG_WARNING, "the last line of satperf is incomplete")
    return lines


def send(lines: list[Line]) -> None:
    """Send goodput, window and round-trip time of every interval, and the totals."""
    zero = {line["side"]: line["t_unix_s"] for line in lines if line["type"] == "start"}
    for line in lines:
        if line["type"] == "start" or line["side"] not in zero:
            continue
        moment = round((zero[line["side"]] + line["t_s"]) * 1000)
        names = (
            "goodput_bps",
            "cwnd_bytes",
            "rtt_ms",
            "handshake_ms",
            "time_to_first_byte_ms",
            "bytes",
        )
        figures = {name: line[name] for name in names if line.get(name) is not None}
        suffix = line["side"] if line["type"] == "interval" else f"{line['side']}_total"
        collect_agent.send_stat(moment, suffix, **figures)


def keep(lines: list[Line]) -> bool:
    """Send and store what satperf wrote; return whether it was stored."""
    if not lines:
        return False
    send(lines)
    document = {"schema": "satlab/satperf-run/1", "lines": lines}
    return store_json("satperf_json", document) == "OK"


def main() -> int:
    """Run the job."""
    options = parser().parse_args()
    pki = Path(os.environ.get("SATLAB_PKI", "/etc/satlab/pki"))
    program = need("satperf", "build it: cargo build --release -p satperf")
    serving = options.mode == "server"
    arguments = server_arguments(options, pki) if serving else client_arguments(options, pki)
    timeout_s = None if serving else (options.duration_s if not options.bytes else 600) + MARGIN_S
    with tempfile.TemporaryDirectory(prefix="satlab_satperf_") as folder:
        output = Path(folder) / "satperf.jsonl"
        began = time.monotonic()
        status = run(
            [program, *arguments, *leg_arguments(options)],
            output,
            timeout_s,
            options.port if serving else None,
        )
        stored = keep(read(output))
    collect_agent.send_log(
        syslog.LOG_INFO, f"satperf: status {status} after {time.monotonic() - began:.1f} s"
    )
    if serving:
        return status
    return status or (0 if stored else 1)


def parser() -> argparse.ArgumentParser:
    options = argument_parser(__doc__)
    options.add_argument("-p", "--port", type=port, default=4433)
    options.add_argument("-s", "--stack", choices=("quinn", "quiche"), default="quinn")
    options.add_argument(
        "-C", "--congestion_control", type=matching(r"[a-z][a-z0-9]{0,15}", "a word such as cubic")
    )
    for flag, name in (
        ("-w", "initial_window"),
        ("-a", "ack_threshold"),
        ("-d", "max_ack_delay_ms"),
    ):
        options.add_argument(flag, f"--{name}", type=whole(0, 1_000_000), default=0)
    options.add_argument("--initial_rtt_ms", type=whole(0, 10_000), default=0)
    for name in LEG_OPTIONS_BYTES:
        options.add_argument(f"--{name}", type=whole(0, 2**32), default=0)
    modes = options.add_subparsers(dest="mode", required=True)
    server = modes.add_parser("server")
    server.add_argument("-B", "--bind", type=ipaddress.ip_address, default=ipaddress.IPv4Address(0))
    server.add_argument("-1", "--exit", action="store_true")
    client = modes.add_parser("client")
    client.add_argument("server_ip", type=ipaddress.ip_address)
    client.add_argument("server_name", type=matching(r"[a-z0-9][a-z0-9.-]{0,252}", "a host name"))
    client.add_argument("-t", "--duration_s", type=real(1, 86400), default=15.0)
    client.add_argument("-n", "--bytes", type=whole(0, 10**12), default=0)
    client.add_argument("-u", "--upload", action="store_true")
    client.add_argument("-S", "--streams", type=whole(1, 100), default=1)
    client.add_argument(
        "-z", "--zero_rtt", type=matching(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", "a path")
    )
    return options


if __name__ == "__main__":
    run_job(__file__, main)
