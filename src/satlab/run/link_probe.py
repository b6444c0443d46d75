# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures a link with UDP echoes and a train of datagrams, independently of the emulator's own
metrics.
"""

import contextlib
import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Annotated, Any, cast

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from collect import raw
from satlab.common import processes
from satlab.link.calibration_bounds import expectation
from satlab.link.config import Emulator
from satlab.link.plan import LinkPlan
from satlab.run import udp_probe
from satlab.run.metrics_file import MetricsFile

PROBE_OVERLOAD = 1.1
"""Rate of the train as a multiple of the link rate, so that the link is the limit."""
PROBE_DATAGRAM_BYTES = udp_probe.TRAIN_BYTES
PROBE_PORT = 5299
PROBE_S = 2.2
"""Length of the train, s."""
ECHOES = 20
WARM_UP_ECHOES = 3
"""Echoes before those that count. They resolve neighbours and load the programs' memory."""
ECHO_INTERVAL_S = 0.025
ANSWER_S = 1.0
"""Longest time for an answer beyond the largest expected RTT, s."""
START_S = 15.0
"""Longest time until a program has started, s: Python on a busy host, or over ssh."""
DRAIN_DEADLINE_S = 10.0
END_S = 1.0
SILENCE_S = 5.0
"""Longest pause of a sender on a busy host, s."""
MOST_LINE = 1 << 14
"""Longest line of a program, bytes: a host of the VM lab may be under the control of its jobs."""
MOST_WORDS = 300
"""Longest text of a program in a message, characters."""
TEXT = Path(udp_probe.__file__).read_bytes()
PROGRAM = ("python3", "-I", "-S", "-c", f"import sys; exec(sys.stdin.buffer.read({len(TEXT)}))")
"""A program whose text comes on stdin: a host of the VM lab does not have it."""


class ProbeError(Exception):
    """A probe could not measure; the text says why."""


Count = Annotated[int, Field(ge=0, le=udp_probe.MOST_TRAIN)]
Enter = Callable[..., list[str]]
"""Returns the argv that runs a command, the words after the first, on a node, the first word."""


@dataclass(frozen=True)
class Echoes:
    """Round-trip times of the echoes that came back, ms."""

    received: int
    min_ms: float
    mean_ms: float
    max_ms: float

    @classmethod
    def of(cls, rtts_ms: Sequence[float | None]) -> "Echoes | None":
        """Return the figures of a series with an RTT for each echo; None if none came back."""
        known = [rtt_ms for rtt_ms in rtts_ms if rtt_ms is not None]
        if not known:
            return None
        return cls(len(known), min(known), sum(known) / len(known), max(known))

    def __str__(self) -> str:
        return f"mean of {self.received} echoes over UDP, {self.min_ms:.2f} to {self.max_ms:.2f} ms"


@dataclass(frozen=True)
class Probe:
    """Results of a probe. Rates in bit/s of UDP payload, times in ms; None: the probe failed, and
    `notes` say why. `lost_packets` of the train's `packets` did not arrive.
    """

    rtt: Echoes | None
    rate_bps: float | None
    packets: int
    lost_packets: int
    queue_drops: int
    notes: Mapping[str, str]


@dataclass(frozen=True)
class ProbePath:
    """The nodes of a measurement, with their IPv4 addresses: echoes and train go from `server` to
    `client`, which answers.
    """

    client: str
    client_address: str
    server: str
    server_address: str


@dataclass(frozen=True)
class Measured:
    """What both programs counted: RTT of each echo, ms (None: it did not come back); datagrams of
    the train, and the rate of its second half, bit/s of payload.
    """

    rtts_ms: Sequence[FiniteFloat | None]
    sent: Count
    received: Count
    rate_bps: FiniteFloat | None


_MEASURED = TypeAdapter(Measured)


def probe_link(
    enter: Enter,
    plan: LinkPlan,
    emulator: Emulator,
    path: ProbePath,
    metrics: MetricsFile | None = None,
    known: Probe | None = None,
) -> Probe:
    """Measure RTT, the saturated forward rate, and losses. Takes about `PROBE_S` + 1 s + RTT / 2.

    `metrics` count the packets that the queue drops; None where no satlink is on the path. With the
    `known` rate and losses of an equal link only the RTT is measured: about 1 s + RTT.
    """
    longest_ms = expectation(plan, emulator).rtt_high_ms
    samples_before = len(metrics.samples()) if metrics and not known else 0
    seconds, bps = 0.0 if known else PROBE_S, plan.forward.rate_bps * PROBE_OVERLOAD
    notes = dict(known.notes) if known else {}
    try:
        found = measure(enter, path, bps, seconds, WARM_UP_ECHOES + ECHOES, longest_ms)
    except ProbeError as error:
        return Probe(None, None, 0, 0, 0, {"rtt": str(error), "rate": str(error)})
    rtt = Echoes.of(found.rtts_ms[WARM_UP_ECHOES:])
    if rtt is None:
        notes["rtt"] = "no echo came back"
    if known:
        return replace(known, rtt=rtt, notes=notes)
    if found.rate_bps is None:
        notes["rate"] = f"{found.received} of {found.sent} datagrams arrived"
    if metrics:
        metrics.settle()
    if emulator == "opensand":
        _drain(enter, path, longest_ms)
    return Probe(
        rtt=rtt,
        rate_bps=found.rate_bps,
        packets=found.sent,
        lost_packets=found.sent - found.received,
        queue_drops=metrics.forward_drops(samples_before) if metrics else 0,
        notes=notes,
    )


def _drain(enter: Enter, path: ProbePath, idle_ms: float) -> None:
    """Wait until an echo meets no queue in OpenSAND, which does not report its queues.

    A failed echo does not count.
    """
    end = time.monotonic() + DRAIN_DEADLINE_S
    while time.monotonic() < end:
        with contextlib.suppress(ProbeError):
            rtt_ms = measure(enter, path, 0, 0, 1, idle_ms).rtts_ms[-1]
            if rtt_ms is not None and rtt_ms <= idle_ms:
                return


def measure(
    enter: Enter,
    path: ProbePath,
    bps: float,
    seconds: float,
    echoes: int = 0,
    longest_ms: float = 1000.0,
) -> Measured:
    """Send echoes, then a train of `bps` (payload) and `seconds`.

    An echo has `longest_ms` + `ANSWER_S` to come back.

    Raises:
        ProbeError: a program failed, or did not end in time.
    """
    answer_s = longest_ms / 1e3 + ANSWER_S
    begin = TEXT + secrets.token_hex(8).encode() + b"\n"
    port, here, there = str(PROBE_PORT), path.client_address, path.server_address
    numbers = map(str, (echoes, ECHO_INTERVAL_S, bps, seconds, answer_s))
    answer = ("answer", here, port, str(answer_s + SILENCE_S))
    send = ("send", there, port, here, *numbers)
    within_s = START_S + echoes * ECHO_INTERVAL_S + 2 * seconds + 2 * answer_s
    with (
        _started(enter(path.client, *PROGRAM, *answer)) as answering,
        _started(enter(path.server, *PROGRAM, *send)) as sending,
    ):
        for process in (answering, sending):
            _tell(process, begin)
        _line(answering, START_S)
        _tell(sending, b"\n")
        sent = _line(sending, within_s)
        got = _line(answering, within_s)
    try:
        return _MEASURED.validate_python(sent | got)
    except ValidationError as error:
        fault = raw.first_fault(error)
        raise ProbeError(f"the probe did not answer with figures: {fault}") from error


@contextlib.contextmanager
def _started(argv: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the probe's program while the block runs."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
    with process:
        try:
            yield process
        finally:
            processes.finish(process, END_S)


def _tell(process: "subprocess.Popen[bytes]", words: bytes) -> None:
    """Write to a program's stdin; the pipe holds all of it. Why a program failed is on its stderr."""
    with contextlib.suppress(BrokenPipeError):
        cast("IO[bytes]", process.stdin).write(words)


def _line(process: "subprocess.Popen[bytes]", within_s: float) -> dict[str, Any]:
    """Return the next line that a program prints, which is a JSON object.

    Raises:
        ProbeError: there is none in time. The text has the last line of the program's stderr.
    """
    out, line, until = cast("IO[bytes]", process.stdout), b"", time.monotonic() + within_s
    while not line.endswith(b"\n"):
        if not select.select([out], [], [], max(0.0, until - time.monotonic()))[0]:
            raise ProbeError(f"the probe did not answer within {within_s:.0f} s")
        if not (part := os.read(out.fileno(), 1)):  # no more: what follows is the next line
            raise ProbeError(f"the probe failed: {_last_words(process)}")
        line += part
        if len(line) > MOST_LINE:
            raise ProbeError(f"the probe's answer has more than {MOST_LINE} bytes")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProbeError(f"the probe did not answer with JSON: {line[:MOST_WORDS]!r}") from error
    if not isinstance(found, dict):
        raise ProbeError(f"the probe did not answer with an object: {line[:MOST_WORDS]!r}")
    return found


def _last_words(process: "subprocess.Popen[bytes]") -> str:
    errors = cast("IO[bytes]", process.stderr)
    waits = select.select([errors], [], [], END_S)[0]
    said = os.read(errors.fileno(), 1 << 16).decode(errors="replace").strip() if waits else ""
    return said.splitlines()[-1][:MOST_WORDS] if said else "without a word"
