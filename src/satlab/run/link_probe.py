# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures a link with ping, and iperf3 over UDP, independently of the emulator's own metrics."""

import contextlib
import json
import math
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from satlab.common import processes
from satlab.lab.lab import Lab
from satlab.link.calibration_bounds import expectation
from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan
from satlab.run.metrics_file import MetricsFile

PROBE_OVERLOAD = 1.1
"""Offered UDP rate of the probe as a multiple of the link rate, so that the link is the limit."""
PROBE_DATAGRAM_BYTES = 1472
PROBE_PORT = 5299
PROBE_S = 3.0
PROBE_SOCKET_BUFFER = "2M"
"""Socket buffer of sender and receiver, so that drops of a slow receiver do not count as losses of
the link.
"""
ECHOES = 40
WARM_UP_ECHOES = 3
"""Echoes before the measurement, which resolve neighbours and load ping and the emulator's memory.
"""
ECHO_DEADLINE_S = 15.0
FLOW_ATTEMPTS = 3
_LOST_HANDSHAKE = "unable to read from stream socket"
FLOW_DEADLINE_S = 25.0
"""Time of a flow in addition to its length, s: start, handshake, report."""
LISTEN_DEADLINE_S = 5.0
DRAIN_DEADLINE_S = 10.0
DROPS_AT_HEAD = ("codel", "fq-codel", "dualpi2")
"""Queue disciplines that drop a packet when it leaves the queue, not when it enters."""
END_S = 5.0


class ProbeError(Exception):
    """A probe could not measure; the text says why."""


class LostHandshakeError(ProbeError):
    """The one datagram by which iperf3 opens a UDP flow, or its answer, was lost: iperf3 repeats
    neither.
    """


@dataclass(frozen=True)
class Echoes:
    """Result of a series of echoes; times in ms. ping prints single times of 100 ms and more
    without decimals.
    """

    received: int
    min_ms: float
    mean_ms: float
    max_ms: float

    def __str__(self) -> str:
        return f"mean of {self.received} echoes, {self.min_ms:g} to {self.max_ms:g} ms"


@dataclass(frozen=True)
class Probe:
    """Results of a probe. Rates in bit/s of UDP payload, times in ms; None: the probe failed, and
    `notes` say why.
    """

    rtt: Echoes | None
    rate_bps: float | None
    packets: int
    lost_packets: int
    queue_drops: int
    notes: Mapping[str, str]


@dataclass(frozen=True)
class ProbePath:
    """The nodes of a measurement: echoes start, and the flow ends, at `client`; `address` is the
    server's IPv4.
    """

    client: str
    server: str
    address: str


class Shell(Protocol):
    """Where the probes' programs run."""

    def output(self, node: str, argv: Sequence[str], within_s: float) -> str:
        """Return a command's stdout.

        Raises:
            ProbeError: there was none before the deadline.
        """

    def listener(self, node: str, address: str) -> AbstractContextManager[object]:
        """Have iperf3 listen on `PROBE_PORT` of `address` when the block begins, for one flow.

        Raises:
            ProbeError: nothing listens in time.
        """


@dataclass(frozen=True)
class NamespaceShell:
    """The nodes of the embedded lab."""

    lab: Lab

    def output(self, node: str, argv: Sequence[str], within_s: float) -> str:
        """Return a command's stdout with any exit status: ping and iperf3 write failures to it,
        too.
        """
        argv = [*self.lab.enter_argv(node), *argv]
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=within_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ProbeError(f"{argv[-1]}: no answer within {within_s:g} s") from error
        return done.stdout

    @contextlib.contextmanager
    def listener(self, node: str, address: str) -> Iterator[None]:
        argv = [*self.lab.enter_argv(node), *listener_argv(address)]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(argv, stdin=quiet, stdout=quiet, stderr=quiet)
        try:
            wait_for_listener(process, PROBE_PORT, deadline_s=LISTEN_DEADLINE_S)
            yield
        finally:
            processes.finish(process, END_S)


def probe_link(
    shell: Shell,
    plan: LinkPlan,
    emulator: Emulator,
    path: ProbePath,
    metrics: MetricsFile | None = None,
) -> Probe:
    """Measure RTT, then the saturated forward rate and its losses. Takes about `PROBE_S` + 13 RTT.

    `metrics` count the packets that the queue drops; None where no satlink is on the path.
    """
    notes: dict[str, str] = {}
    result: dict[str, Any] = {}
    rtt = _rtt(shell, path, notes)
    samples_before = len(metrics.samples()) if metrics else 0
    try:
        result = udp_flow(shell, path, int(plan.forward.rate_bps * PROBE_OVERLOAD), PROBE_S)
    except ProbeError as error:
        notes["rate"] = str(error)
    if metrics:
        metrics.settle()
    if emulator == "opensand":
        _drain(shell, path, expectation(plan, emulator).rtt_high_ms)
    received = result.get("end", {}).get("sum_received") or result.get("end", {}).get("sum", {})
    packets = int(received.get("packets", 0))
    at_head = plan.forward.queue_discipline in DROPS_AT_HEAD
    return Probe(
        rtt=rtt,
        rate_bps=steady_rate_bps(result),
        packets=packets,
        lost_packets=int(received.get("lost_packets", 0)),
        queue_drops=(
            metrics.forward_drops(samples_before, packets, at_head=at_head) if metrics else 0
        ),
        notes=notes,
    )


def probe_rtt(shell: Shell, path: ProbePath, known: Probe, note: str) -> Probe:
    """Measure only the RTT; rate and losses come from an earlier probe of an equal link, which
    `note` names.

    Takes about 1 s + 2 RTT.
    """
    notes = {"rate": note}
    return replace(known, rtt=_rtt(shell, path, notes), notes=notes)


def _rtt(shell: Shell, path: ProbePath, notes: dict[str, str]) -> Echoes | None:
    """Measure the RTT after a warm-up; None, with the reason in `notes`, if no answer came."""
    try:
        _ping(shell, path, WARM_UP_ECHOES)
        return echoes(_ping(shell, path, ECHOES))
    except ProbeError as error:
        notes["rtt"] = str(error)
        return None


def _drain(shell: Shell, path: ProbePath, idle_ms: float) -> None:
    """Wait until an echo meets no queue in OpenSAND, which does not report its queues.

    A failed echo does not count.
    """
    end = time.monotonic() + DRAIN_DEADLINE_S
    while time.monotonic() < end:
        with contextlib.suppress(ProbeError):
            if echoes(_ping(shell, path, 1)).max_ms <= idle_ms:
                return


def _ping(shell: Shell, path: ProbePath, count: int) -> str:
    """Send `count` echoes of 84-byte packets, 25 ms apart; the last one is waited for 3 s."""
    argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.025", "-W", "3", path.address]
    return shell.output(path.client, argv, ECHO_DEADLINE_S)


def echoes(output: str) -> Echoes:
    """Read the summary of iputils ping; no reply is an error."""
    received = re.search(r"(\d+) received", output)
    times = re.search(r"min/avg/max/\w+ = ([\d.]+)/([\d.]+)/([\d.]+)/", output)
    if not received or not times:
        raise ProbeError("no echo came back")
    return Echoes(int(received[1]), *(float(time_ms) for time_ms in times.groups()))


def steady_rate_bps(result: Mapping[str, Any]) -> float | None:
    """Return the rate over iperf3's 100 ms intervals, first half left out: the queue has filled by
    then.

    On a busy host intervals are longer and shorter than 100 ms: each counts by its length.
    """
    sums = [i["sum"] for i in result.get("intervals", ())]
    steady = sums[len(sums) // 2 :]
    seconds = math.fsum(s["seconds"] for s in steady)
    return sum(s["bytes"] for s in steady) * 8 / seconds if seconds else None


def udp_flow(shell: Shell, path: ProbePath, offered_bps: int, seconds: float) -> dict[str, Any]:
    """Run iperf3 over UDP from `path`'s server to its client; return the receiver's JSON.

    `offered_bps` is payload; 0 is as fast as iperf3 goes. A flow whose handshake is lost is begun
    again.

    Raises:
        ProbeError: iperf3 failed or returned no result.
    """
    for _ in range(FLOW_ATTEMPTS - 1):
        with contextlib.suppress(LostHandshakeError):
            return _flow(shell, path, offered_bps, seconds)
    return _flow(shell, path, offered_bps, seconds)


def _flow(shell: Shell, path: ProbePath, offered_bps: int, seconds: float) -> dict[str, Any]:
    with shell.listener(path.server, path.address):
        argv = udp_argv(path.address, offered_bps, seconds)
        return read_result(shell.output(path.client, argv, seconds + FLOW_DEADLINE_S))


def listener_argv(address: str, *options: str) -> list[str]:
    """Return the sender's command of a UDP flow: it serves one and ends."""
    return ["iperf3", "-s", "-1", *options, "-B", address, "-p", str(PROBE_PORT)]


def udp_argv(address: str, offered_bps: int, seconds: float) -> list[str]:
    """Return the receiver's command of a UDP flow from the listener at `address`; it prints JSON."""
    rate = ["-u", "-R", "-i", "0.1", "-t", f"{seconds:g}"]
    rate += ["-b", str(offered_bps), "-l", str(PROBE_DATAGRAM_BYTES)]
    wait = ["-w", PROBE_SOCKET_BUFFER, "--connect-timeout", "5000", "-p", str(PROBE_PORT)]
    return ["iperf3", "-J", *rate, *wait, "-c", address]


def wait_for_listener(process: "subprocess.Popen[bytes]", port: int, *, deadline_s: float) -> None:
    """Wait until `process`' network namespace has a TCP socket listening on `port` (proc_net(5)).

    Raises:
        ProbeError: it has none in time, or the process has ended.
    """
    table = Path(f"/proc/{process.pid}/net/tcp")

    def listens() -> bool:
        with contextlib.suppress(OSError):  # it ended meanwhile
            rows = [line.split() for line in table.read_text().splitlines()[1:]]
            return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)
        return False

    is_over = processes.wait(lambda: process.poll() is not None or listens(), deadline_s)
    if not is_over or process.poll() is not None:
        raise ProbeError(f"nothing listens on port {port} after {deadline_s:g} s")


def read_result(text: str) -> dict[str, Any]:
    """Read iperf3's JSON.

    Raises:
        ProbeError: it is not JSON, or reports an error (LostHandshakeError: that one).
    """
    try:
        result: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProbeError(f"iperf3 did not return JSON: {error}") from error
    if _LOST_HANDSHAKE in result.get("error", ""):
        raise LostHandshakeError(f"iperf3: {result['error']}")
    if "error" in result:
        raise ProbeError(f"iperf3: {result['error']}")
    return result
