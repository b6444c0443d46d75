#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: responsiveness under load by the method of RRUL; `server` on one node, then
`client` on another.

TCP transfers fill both directions at once (iperf3). Small UDP packets cross the path and come back,
first while it is idle, then beside the load. Exit statuses: 0 done, 1 no reply came, a transfer
failed, or the job was stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import collect_agent
from bound_ports import is_bound
from jobkit import (
    JobError,
    argument_parser,
    end,
    need,
    ready,
    real,
    run_job,
    stop_event,
    store_json,
    whole,
)

Address = IPv4Address | IPv6Address
HEADER = struct.Struct("!4s8sI")
"""Mark, random name of the measurement, number of the packet."""
MARK, PROBE_BYTES = b"SRRU", 64
INTERVAL_S = "0.1"
"""Of iperf3's figures."""
START_S = 10.0
MARGIN_S = 60.0
"""What a transfer may take beyond its duration: a full buffer drains, results cross the link."""
LATE_S = 5.0
"""How long replies are awaited after the load."""
SO_TIMESTAMPNS = 35
"""Time of arrival by the kernel (socket(7), <asm-generic/socket.h>): it does not grow while the
job waits for a core.
"""
TIMESPEC = struct.Struct("@qq")
MOST_OF_A_FAULT = 300
MOST_TAKEN = 1000
"""Replies that are taken before the next look at the clock."""


@dataclass
class Probes:
    """Packets of one measurement: when each was sent, s since its start, and its round-trip time,
    None without a reply.
    """

    name: bytes
    sent_s: list[float] = field(default_factory=list)
    rtt_ms: list[float | None] = field(default_factory=list)

    def packet(self, now_s: float) -> bytes:
        """Return the next packet, sent at `now_s`."""
        self.sent_s.append(now_s)
        self.rtt_ms.append(None)
        return HEADER.pack(MARK, self.name, len(self.sent_s) - 1).ljust(PROBE_BYTES, b"\0")

    def take(self, packet: bytes, now_s: float) -> float | None:
        """Take a packet that came at `now_s`; return its round-trip time in ms, None if it is not
        the first reply to one of ours.
        """
        if len(packet) != PROBE_BYTES:
            return None
        mark, name, number = HEADER.unpack_from(packet)
        if (mark, name) != (MARK, self.name) or number >= len(self.sent_s):
            return None
        if self.rtt_ms[number] is not None or now_s < self.sent_s[number]:
            return None
        rtt_ms: float = round((now_s - self.sent_s[number]) * 1000, 3)
        self.rtt_ms[number] = rtt_ms
        return rtt_ms


# --- iperf3 ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def transfers(*argvs: Sequence[str]) -> Iterator[list["Transfer"]]:
    """Start programs of iperf3 at once, and end what is left of them."""
    program = need("iperf3", "apt-get install iperf3")
    with tempfile.TemporaryDirectory(prefix="satlab_rrul_") as folder:
        started: list[Transfer] = []
        try:
            for number, argv in enumerate(argvs):
                output = Path(folder) / f"{number}.json"
                with output.open("wb") as file:
                    process = subprocess.Popen(
                        [program, "-J", "-i", INTERVAL_S, *argv], stdout=file
                    )
                started.append(Transfer(process, output))
            yield started
        finally:
            for one in started:
                end(one.process, 2.0)


@dataclass
class Transfer:
    """A running iperf3 and its output."""

    process: "subprocess.Popen[bytes]"
    output: Path

    def store(self) -> None:
        """Store the output as it is."""
        answer = collect_agent.store_files(collect_agent.now(), iperf3_json=str(self.output))
        if answer != "OK":
            raise JobError(f"the collector refused iperf3.json: {answer}", status=1)

    def fault(self) -> str:
        """Return why the ended transfer failed; empty if it did not."""
        try:
            report = json.loads(self.output.read_bytes())
            error = str(report.get("error", "")) if isinstance(report, dict) else "no JSON object"
        except ValueError:
            error = f"iperf3 printed no JSON, exit status {self.process.returncode}"
        return f"iperf3: {error}"[:MOST_OF_A_FAULT] if error else ""


# --- both sides -----------------------------------------------------------------------------------


def serve(options: argparse.Namespace, stop: threading.Event) -> int:
    """Serve both transfers and echo each probe until stopped. Return 0 if both transfers ended."""
    server = ["-s", "-1", "-B", str(options.bind)]
    ports = options.port, options.port + 1
    with (
        udp_socket(options.bind) as echo,
        transfers(*([*server, "-p", str(port)] for port in ports)) as running,
    ):
        try:
            echo.bind((str(options.bind), options.port))
        except OSError as error:
            raise JobError(f"UDP port {options.port}: {error.strerror}", "set port") from error
        await_start(running, ports, stop)
        echo.settimeout(0.1)
        left = list(running)
        with ready("satlab_rrul"):
            while not stop.is_set():
                with contextlib.suppress(TimeoutError, ConnectionRefusedError):
                    packet, sender = echo.recvfrom(2 * PROBE_BYTES)
                    if len(packet) == PROBE_BYTES and packet.startswith(MARK):
                        echo.sendto(packet, sender)
                for one in [one for one in left if one.process.poll() is not None]:
                    one.store()
                    left.remove(one)
        return 1 if left else 0


def await_start(running: Sequence[Transfer], ports: Sequence[int], stop: threading.Event) -> None:
    """Wait until iperf3 listens. Raises JobError."""
    deadline = time.monotonic() + START_S
    while not stop.is_set() and not all(is_bound(("tcp", "tcp6"), port) for port in ports):
        ended = next((one for one in running if one.process.poll() is not None), None)
        if ended or time.monotonic() >= deadline:
            why = ended.fault() if ended else f"iperf3 did not listen within {START_S:g} s"
            raise JobError(why, "another program may have the port: set port")
        stop.wait(0.02)


def udp_socket(address: Address) -> socket.socket:
    """Return a socket of the address's IP version."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    return socket.socket(family, socket.SOCK_DGRAM)


def measure(options: argparse.Namespace, stop: threading.Event) -> int:
    """Measure the idle path, then the path under load; 0 if all is there."""
    origin = time.time()
    probes = Probes(os.urandom(8))
    with udp_socket(options.server_ip) as path:
        path.connect((str(options.server_ip), options.port))
        path.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        path.setblocking(False)
        probing = Probing(path, probes, origin, options.interval_s)
        probing.until(lambda now_s: now_s >= options.idle_s or stop.is_set())
        client = ["-c", str(options.server_ip), "-t", str(options.duration_s)]
        client += ["-P", str(options.flows), "--connect-timeout", "10000"]
        ways = (["-p", str(options.port)], ["-p", str(options.port + 1), "-R"])
        with transfers(*([*client, *way] for way in ways)) as running:
            load_start_s = time.time() - origin
            latest_s = load_start_s + options.duration_s + MARGIN_S
            probing.until(
                lambda now_s: (
                    all(one.process.poll() is not None for one in running)
                    or now_s >= latest_s
                    or stop.is_set()
                )
            )
            faults = [
                one.fault() if one.process.poll() is not None else "iperf3: not over in time"
                for one in running
            ]
            last_s = time.time() - origin + LATE_S
            probing.until(
                lambda now_s: stop.is_set() or probes.rtt_ms[-1] is not None or now_s >= last_s
            )
            for one in running:
                one.store()
    if stop.is_set():
        faults = ["stopped"]
    elif not any(rtt is not None for rtt in probes.rtt_ms):
        faults = [f"none of {len(probes.sent_s)} probes came back"]
    fault = next(filter(None, faults), "")
    made = document(options, probes, origin, load_start_s, fault)
    if fault:
        print(f"error: {fault}", file=sys.stderr)
    return 0 if store_json("rrul_json", made) == "OK" and not fault else 1


@dataclass
class Probing:
    """Sends a probe at each interval over a connected socket, and takes the replies."""

    path: socket.socket
    probes: Probes
    origin: float
    interval_s: float
    due_s: float = 0.0

    def until(self, is_over: Callable[[float], bool]) -> None:
        """Go on until `is_over`, which is asked at least at each probe, with s since the start."""
        while not is_over(now_s := time.time() - self.origin):
            if now_s >= self.due_s:
                # a server that is not there, or no longer, is a lost probe
                with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                    self.path.send(self.probes.packet(time.time() - self.origin))
                self.due_s = max(self.due_s + self.interval_s, now_s)
            select.select([self.path], [], [], max(0.0, self.due_s - now_s))
            with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                for _ in range(MOST_TAKEN):
                    self._take()

    def _take(self) -> None:
        packet, ancillary, _, _ = self.path.recvmsg(2 * PROBE_BYTES, socket.CMSG_SPACE(16))
        stamps = [data for level, kind, data in ancillary if kind == SO_TIMESTAMPNS]
        arrived = time.time()
        if stamps:
            seconds, nanoseconds = TIMESPEC.unpack(stamps[0])
            arrived = seconds + nanoseconds / 1e9
        rtt_ms = self.probes.take(packet, arrived - self.origin)
        if rtt_ms is not None:
            collect_agent.send_stat(round(arrived * 1000), rtt_ms=rtt_ms)


def document(
    options: argparse.Namespace, probes: Probes, origin: float, load_start_s: float, fault: str
) -> dict[str, Any]:
    """Return the job's file (schemas/rrul.schema.json)."""
    return {
        "schema": "satlab/rrul/1",
        "start_unix_s": origin,
        "server": str(options.server_ip),
        "interval_s": options.interval_s,
        "idle_s": options.idle_s,
        "settle_s": options.settle_s,
        "duration_s": options.duration_s,
        "flows": options.flows,
        "load_start_s": round(load_start_s, 6),
        "fault": fault,
        "probes": [
            [round(sent, 6), rtt] for sent, rtt in zip(probes.sent_s, probes.rtt_ms, strict=True)
        ],
    }


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument(
        "-p", "--port", type=whole(1, 65534), default=5201, help="this port and the next one"
    )
    modes = options.add_subparsers(dest="mode", required=True)
    server = modes.add_parser("server")
    server.add_argument("-B", "--bind", type=ip_address, default=IPv4Address(0))
    client = modes.add_parser("client")
    client.add_argument("server_ip", type=ip_address)
    client.add_argument("-t", "--duration-s", type=whole(10, 600), default=30)
    client.add_argument("-d", "--idle-s", type=real(1, 600), default=5.0)
    client.add_argument("-s", "--settle-s", type=real(0, 9), default=5.0)
    client.add_argument("-f", "--flows", type=whole(1, 64), default=4)
    client.add_argument("-i", "--interval-s", type=real(0.01, 10), default=0.1)
    return options


def main() -> int:
    """Run one side."""
    options = parser().parse_args()
    stop = stop_event()
    return serve(options, stop) if options.mode == "server" else measure(options, stop)


if __name__ == "__main__":
    run_job(__file__, main)
