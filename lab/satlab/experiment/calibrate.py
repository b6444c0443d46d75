# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated link against its plan: measured before a run, watched during it.

Three quantities are measured from outside, with the tools that users would take (ping, iperf3 over UDP): RTT, forward
rate and loss. During the run the emulator's own release error is watched. Each check has an expected value and
bounds; one check out of bounds marks the whole run (exit status 4), it never discards it.
"""

import contextlib
import json
import math
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from satlab.link.config import Emulator
from satlab.link.expectation import Expectation, expectation
from satlab.link.plan import LinkPlan

LOSS_SLACK = 0.001
"""Loss ratio allowed on top of the binomial bounds: packets in flight when the probe's sender stops."""
LATE_RATIO_LIMIT = 0.01
"""Share of packets that may leave later than satlink's limit on the release error (header of its metrics) while the
scenario runs. What the emulator reaches on a quiet host is a promise of its own, measured in docs/measurements.md."""
PROBE_OVERLOAD = 1.1
"""Offered UDP rate of the probe as a multiple of the link rate, so that the link is the limit."""
PROBE_DATAGRAM_BYTES = 1472
PROBE_PORT = 5299
PROBE_SOCKET_BUFFER = "2M"
"""Of both ends: a starved receiver must not pass for a lossy link."""
ECHOES = 40


class Shell(Protocol):
    """Where commands run: the lab gives the prefix that enters a node."""

    def enter_argv(self, node: str) -> list[str]:
        """Return the argv prefix that runs a command inside `node`."""


@dataclass(frozen=True)
class CalibrationCheck:
    """One measured quantity against its bounds; `measured` is None when the measurement failed."""

    name: str
    unit: str
    expected: float
    measured: float | None
    low: float
    high: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class Echoes:
    """What a series of echoes gave; times in ms. ping prints single times of 100 ms and more without decimals."""

    received: int
    min_ms: float
    mean_ms: float
    max_ms: float

    def __str__(self) -> str:
        """Tell number and range."""
        return f"mean of {self.received} echoes, {self.min_ms:g} to {self.max_ms:g} ms"


@dataclass(frozen=True)
class Probe:
    """What the probes saw. Rates in bit/s of UDP payload, times in ms; None where a probe failed, `notes` say why."""

    rtt: Echoes | None
    rate_bps: float | None
    packets: int
    lost_packets: int
    queue_drops: int
    notes: Mapping[str, str]


def check(
    name: str, unit: str, expected: float, measured: float | None, low: float, high: float, note: str = ""
) -> CalibrationCheck:
    """Compare a measured value with its bounds; a missing value is never ok."""
    return CalibrationCheck(
        name, unit, expected, measured, low, high, measured is not None and low <= measured <= high, note
    )


def before(plan: LinkPlan, probe: Probe, emulator: Emulator = "satlink") -> list[CalibrationCheck]:
    """Judge the probes that ran before the scenario."""
    wanted = expectation(plan, emulator)
    rtt = probe.rtt.mean_ms if probe.rtt else None
    rtt_note = probe.notes.get("rtt", str(probe.rtt))
    rate_note = probe.notes.get("rate", f"UDP, {PROBE_DATAGRAM_BYTES}-byte payloads, {PROBE_OVERLOAD:g} x link rate")
    rate_low, rate_high = wanted.rate_low_bps, wanted.rate_high_bps
    checks = [
        check("rtt_ms", "ms", wanted.rtt_ms, rtt, wanted.rtt_low_ms, wanted.rtt_high_ms, rtt_note),
        check("forward_udp_goodput_bps", "bit/s", wanted.rate_bps, probe.rate_bps, rate_low, rate_high, rate_note),
    ]
    return [*checks, loss_check(plan, probe)] if wanted.loss else checks


def loss_check(plan: LinkPlan, probe: Probe) -> CalibrationCheck:
    """Judge the losses that no full queue explains, within four standard deviations of the binomial distribution.

    A lost frame takes every packet that has a byte in it: with the loss unit `frame`, a packet of n bytes in frames
    of m bytes is hit with 1 - (1 - p)^k, k between n/m (rounded up) and one more. Losses that come in bursts are
    recorded, not judged: a probe of seconds sees too few bursts.
    """
    p, note = plan.forward.loss_ratio, probe.notes.get("rate", "")
    if probe.packets == 0:
        return check("forward_loss_ratio", "", p, None, 0, 0, note or "no packet was seen")
    low, high = p, p
    if plan.forward.loss_unit == "frame":
        spans = math.ceil((PROBE_DATAGRAM_BYTES + 28) / plan.forward.frame_payload_bytes)
        high = 1 - (1 - p) ** (spans + 1)
    if set(plan.forward.loss_models) - {"bernoulli"}:
        low, high = 0.0, 1.0
    deviation = 4 * math.sqrt(high * (1 - high) / probe.packets)
    measured = max(0, probe.lost_packets - probe.queue_drops) / probe.packets
    return check(
        "forward_loss_ratio", "", p, measured, max(0.0, low - deviation - LOSS_SLACK), high + deviation + LOSS_SLACK,
        note or f"{probe.lost_packets} lost of {probe.packets}, {probe.queue_drops} of them in the full queue",
    )  # fmt: skip


def during(
    metrics: Iterable[Mapping[str, Any]], wanted: Expectation, since_unix_s: float = 0.0
) -> list[CalibrationCheck]:
    """Judge satlink's release error from `since_unix_s` (Unix time, s; start of the scenario) to the end of `metrics`.

    A single late packet marks no run, however few there are.
    """
    limit, has_end = None, False
    released, late = Counter[str](), Counter[str]()
    worst = dict.fromkeys(wanted.watched, 0.0)
    for line in metrics:  # one at a time: those of a long run do not fit in memory
        has_end = has_end or line.get("type") == "end"
        if line.get("type") == "header" and limit is None:
            limit = line.get("late_limit_us")
        if line.get("type") == "sample" and line["t_unix_s"] > since_unix_s:
            for direction in wanted.watched:
                if (one := line[direction]) is not None:
                    released[direction] += one["out_packets"]
                    late[direction] += one["late_packets"]
                    worst[direction] = max(worst[direction], one["late_max_us"] or 0.0)
    if not has_end:
        note = "the emulator's metrics have no end line: it died or was killed"
        return [check("late_packet_ratio", "", 0, None, 0, LATE_RATIO_LIMIT, note)]
    checks = []
    for direction in wanted.watched:
        count = released[direction]
        note = f"later than {limit} us, of {count}; max {worst[direction]:.0f} us" if count else "no packet crossed"
        most = max(LATE_RATIO_LIMIT, 1 / max(count, 1))
        ratio = late[direction] / max(count, 1)
        checks.append(check(f"late_packet_ratio.{direction}", "", 0, ratio, 0, most, note))
    return checks


def write(path: Path, run_id: str, checks: Sequence[CalibrationCheck]) -> bool:
    """Write raw/calibration.json (schemas/calibration.schema.json); tell whether every check held."""
    ok = all(c.ok for c in checks)
    document = {
        "schema": "satlab/calibration/1",
        "run_id": run_id,
        "ok": ok,
        "checks": [asdict(c) for c in checks],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return ok


# --- the probes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricsFile:
    """The emulator's metrics while it writes them: raw/link.jsonl."""

    path: Path

    def each(self) -> Iterator[dict[str, Any]]:
        """Read the lines written so far one at a time; one that is still being written is left for the next call."""
        with self.path.open(encoding="utf-8") as file:
            yield from (json.loads(line) for line in file if line.endswith("\n"))

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines written so far."""
        return list(self.each())

    def samples(self) -> list[dict[str, Any]]:
        """Return the samples written so far."""
        return [line for line in self.lines() if line["type"] == "sample"]

    def forward_drops(self) -> int:
        """Packets that the full forward queue has refused so far."""
        return sum(sample["forward"]["dropped_packets"] for sample in self.samples() if sample["forward"])

    def settle(self, *, deadline_s: float = 10) -> None:
        """Wait until satlink's satellite queues are empty in two samples: what a probe sent has left the link."""
        start, end = len(self.samples()), time.monotonic() + deadline_s
        while time.monotonic() < end:
            last = self.samples()[start:][-2:]
            queues = [s[d]["queue_packets"] for s in last for d in ("forward", "return") if s[d]]
            if len(last) == 2 and not any(queues):
                return
            time.sleep(0.02)


def probe_link(
    lab: Shell,
    plan: LinkPlan,
    server: str,
    metrics: MetricsFile,
    *,
    emulator: Emulator = "satlink",
    seconds: float = 3.0,
    node: str = "client",
) -> Probe:
    """Measure RTT, then the saturated forward rate and its losses. Takes about `seconds` + 12 RTT.

    `server` is the server's IPv4 address; `metrics` tell how many packets the full queue dropped; `node` is where the
    echoes start and the flow ends.
    """
    notes: dict[str, str] = {}
    rtt: Echoes | None = None
    result: dict[str, Any] = {}
    try:
        rtt = _echo(lab, server, ECHOES, node)
    except ProbeError as error:
        notes["rtt"] = str(error)
    dropped = metrics.forward_drops()
    try:
        offered_bps = int(plan.forward.rate_bps * PROBE_OVERLOAD)
        result = udp_flow(lab, ("server", server), node, offered_bps, seconds)
    except ProbeError as error:
        notes["rate"] = str(error)
    metrics.settle()
    if emulator == "opensand":
        _drain(lab, server, expectation(plan, emulator).rtt_high_ms)
    return probe_of(rtt, result, metrics.forward_drops() - dropped, notes)


def probe_of(rtt: Echoes | None, result: Mapping[str, Any], queue_drops: int, notes: Mapping[str, str]) -> Probe:
    """Read what the probes saw from ping's echoes and iperf3's result; `result` is empty where iperf3 failed."""
    received = result.get("end", {}).get("sum_received") or result.get("end", {}).get("sum", {})
    return Probe(
        rtt=rtt,
        rate_bps=steady_rate_bps(result),
        packets=int(received.get("packets", 0)),
        lost_packets=int(received.get("lost_packets", 0)),
        queue_drops=queue_drops,
        notes=notes,
    )


def _drain(lab: Shell, server: str, idle_ms: float, *, deadline_s: float = 10) -> None:
    """Wait until an echo meets no queue in OpenSAND, whose queues nobody else sees. An echo that fails is no answer."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with contextlib.suppress(ProbeError):
            if _echo(lab, server, 1).max_ms <= idle_ms:
                return


class ProbeError(Exception):
    """A probe could not measure; the text says why."""


def _echo(lab: Shell, server: str, count: int, node: str = "client") -> Echoes:
    """Send `count` echoes of 84-byte packets, 25 ms apart; the last one is waited for 3 s."""
    return echoes(_output([*lab.enter_argv(node), *echo_argv(server, count)], deadline_s=15))


def echo_argv(server: str, count: int) -> list[str]:
    """Return the command of a series of echoes, 25 ms apart."""
    return ["ping", "-n", "-q", "-c", str(count), "-i", "0.025", "-W", "3", server]


def echoes(output: str) -> Echoes:
    """Read the summary of iputils ping; no reply is an error."""
    received = re.search(r"(\d+) received", output)
    times = re.search(r"min/avg/max/\w+ = ([\d.]+)/([\d.]+)/([\d.]+)/", output)
    if not received or not times:
        raise ProbeError("no echo came back")
    return Echoes(int(received[1]), *(float(time_ms) for time_ms in times.groups()))


def steady_rate_bps(result: Mapping[str, Any]) -> float | None:
    """Mean of iperf3's 100 ms intervals of full length, first half left out: the queue has filled by then."""
    sums = [i["sum"] for i in result.get("intervals", ())]
    whole = [s["bits_per_second"] for s in sums if s["seconds"] > 0.09]
    steady = whole[len(whole) // 2 :]
    return statistics.fmean(steady) if steady else None


def udp_flow(lab: Shell, sender: tuple[str, str], receiver: str, offered_bps: int, seconds: float) -> dict[str, Any]:
    """Run iperf3 over UDP from `sender` (node and its IPv4 address) to the node `receiver`; give the receiver's JSON.

    `offered_bps` is payload; 0 is as fast as iperf3 goes.

    Raises:
        ProbeError: iperf3 failed or gave no result.
    """
    node, address = sender
    listener = subprocess.Popen(
        [*lab.enter_argv(node), "iperf3", "-s", "-1", "-B", address, "-p", str(PROBE_PORT)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for_listener(listener, PROBE_PORT, deadline_s=5)
        client = udp_argv(address, offered_bps, seconds)
        return read_result(_output([*lab.enter_argv(receiver), *client], deadline_s=seconds + 25))
    finally:
        listener.terminate()
        listener.wait(5)


def udp_argv(address: str, offered_bps: int, seconds: float) -> list[str]:
    """Return the receiver's command of a UDP flow from the listener at `address`; it prints JSON."""
    rate = ["-u", "-R", "-i", "0.1", "-t", f"{seconds:g}", "-b", str(offered_bps), "-l", str(PROBE_DATAGRAM_BYTES)]
    wait = ["-w", PROBE_SOCKET_BUFFER, "--connect-timeout", "5000", "-p", str(PROBE_PORT)]
    return ["iperf3", "-J", *rate, *wait, "-c", address]


def wait_for_listener(process: "subprocess.Popen[bytes]", port: int, *, deadline_s: float) -> None:
    """Wait until `process`' network namespace has a TCP socket listening on `port`."""
    table = Path(f"/proc/{process.pid}/net/tcp")
    end = time.monotonic() + deadline_s
    while time.monotonic() < end and process.poll() is None:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
        if any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows):
            return
        time.sleep(0.01)
    raise ProbeError(f"nothing listens on port {port} after {deadline_s:g} s")


def read_result(text: str) -> dict[str, Any]:
    """Read iperf3's JSON; what it tells as an error is a ProbeError."""
    try:
        result: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProbeError(f"iperf3 gave no JSON: {error}") from error
    if "error" in result:
        raise ProbeError(f"iperf3: {result['error']}")
    return result


def _output(argv: list[str], *, deadline_s: float) -> str:
    """Return a command's stdout whatever its status: ping and iperf3 tell failures there, too."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"{argv[-1]}: no answer within {deadline_s:g} s") from error
    return done.stdout
