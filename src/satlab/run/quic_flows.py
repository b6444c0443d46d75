# SPDX-License-Identifier: GPL-3.0-or-later
"""Congestion windows of open QUIC connections, which satperf and satpep report every 100 ms.

The kernel does not know them. Sources: satperf's --output (schemas/satperf.schema.json),
satpep's --metrics (schemas/satpep.schema.json), found among the files that the process has open.
Other programs report nothing and are left out. Users can give a program and its files the same
names, so only plain files are read, up to limits.
"""

import contextlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import ConfigDict, Field, with_config

MOST_FILES = 16
MOST_READ = 256 << 10
MOST_DESCRIPTORS = 64
"""Limits of a sample: processes whose file is read, bytes read of each, open files checked of a
process. satperf writes about 5 kB a second.
"""
LONGEST_LINE = 64 << 10
MOST_CONNECTIONS = 64
"""Largest number of connections of one satpep; the latest are kept."""
RECENT_S = 5.0
"""Age from which a line is out of date, s."""
KERNEL = "kernel"
_FOREIGN = re.compile(r"[^A-Za-z0-9_.+:\[\] -]")
_LONGEST_SOURCE = 40
_LARGEST = 1 << 53

Line = Mapping[str, Any]


Text64 = Annotated[str, Field(max_length=64)]
Count = Annotated[int, Field(ge=0)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Flow:
    """An established connection that has sent data, as its sender sees it. `node` is the node of
    the sender.

    `source` says who reports the flow: the kernel, satperf with its stack, or satpep. Fields that
    the source does not report are None or empty.
    """

    source: Text64
    local: Text64
    peer: Text64
    algorithm: Annotated[str, Field(max_length=24)]
    cwnd_bytes: Count
    rtt_ms: Annotated[float, Field(ge=0)]
    in_flight_bytes: Count | None
    acked_bytes: Count | None
    node: str


class Reporter(Protocol):
    """State of the connections by the lines of one file so far."""

    def add(self, line: Line) -> None:
        """Take the next line."""

    def skipped(self) -> None:
        """Some lines are missing here."""

    def flows(self, now: float) -> Iterator[Flow]:
        """Yield the connections that are open at a moment, s since the epoch."""


# --- satperf --------------------------------------------------------------------------------------


@dataclass
class _Side:
    """Connections of one side in satperf's lines, which do not name them: with several open, none
    can be shown.
    """

    start: Line | None = None
    last: Line | None = None
    open: int = 0
    mixed: bool = False


@dataclass
class SatperfLines:
    """satperf's lines: the connection whose payload it sends."""

    node: str
    _sides: dict[str, _Side] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        name, kind = line.get("side"), line.get("type")
        if name not in ("client", "server"):
            return
        side = self._sides.setdefault(name, _Side())
        if kind == "start":
            side.open += 1
            side.mixed |= side.open > 1
            side.start, side.last = (line, None)
        elif kind == "interval":
            side.last = line
        elif kind == "summary":
            side.open = max(0, side.open - 1)
            side.mixed &= side.open > 0
            side.last = None

    def skipped(self) -> None:
        """Forget the open connections."""
        self._sides = {name: _Side(mixed=True, open=1) for name in ("client", "server")}

    def flows(self, now: float) -> Iterator[Flow]:
        for side in self._sides.values():
            if (
                side.mixed
                or side.start is None
                or side.last is None
                or side.start.get("role") != "sender"
            ):
                continue
            begun, since = _number(side.start.get("t_unix_s")), _number(side.last.get("t_s"))
            if begun is None or since is None or not _is_recent(begun + since, now):
                continue
            options = side.start.get("options")
            algorithm = options.get("congestion_control") if isinstance(options, dict) else None
            source = f"satperf, {_text(side.start.get('stack'), _LONGEST_SOURCE)}"
            peer = _text(side.start.get("peer"), 64)
            yield from _flow(source, self.node, side.last, peer, algorithm)


# --- satpep ---------------------------------------------------------------------------------------


@dataclass
class SatpepLines:
    """satpep's samples: both legs of each connection."""

    node: str
    _last: dict[int, Line] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        number = line.get("connection")
        if isinstance(number, int) and not isinstance(number, bool) and 0 < number < _LARGEST:
            self._last.pop(number, None)
            self._last[number] = line
            while len(self._last) > MOST_CONNECTIONS:
                self._last.pop(next(iter(self._last)))

    def skipped(self) -> None:
        """Nothing changes, as each line is complete."""

    def flows(self, now: float) -> Iterator[Flow]:
        for number, line in self._last.items():
            when = _number(line.get("unix_s"))
            if when is None or not _is_recent(when, now):
                continue
            for side in ("client", "server"):
                leg = line.get(f"{side}_side")
                if isinstance(leg, dict):
                    peer = f"{side} side of connection {number}"
                    yield from _flow("satpep", self.node, leg, peer, None)


def _flow(source: str, node: str, line: Line, peer: str, algorithm: object) -> Iterator[Flow]:
    """Yield the flow that a line reports, if it has a window and a round-trip time."""
    cwnd, rtt = _number(line.get("cwnd_bytes")), _number(line.get("rtt_ms"))
    in_flight = _number(line.get("in_flight_bytes"))
    if cwnd is not None and rtt is not None:
        yield Flow(
            source=source,
            local="",
            peer=peer,
            algorithm=_text(algorithm, 24),
            cwnd_bytes=int(cwnd),
            rtt_ms=round(rtt, 1),
            in_flight_bytes=None if in_flight is None else int(in_flight),
            acked_bytes=None,
            node=node,
        )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < _LARGEST else None


def _is_recent(when: float, now: float) -> bool:
    return abs(now - when) <= RECENT_S


def _text(value: object, most: int) -> str:
    """Return a text with what can be shown everywhere, addresses and ports among it; empty for
    anything else.
    """
    return _FOREIGN.sub("_", value[:most]) if isinstance(value, str) else ""


# --- files ----------------------------------------------------------------------------------------

REPORTERS: Mapping[str, tuple[str, Callable[[str], Reporter]]] = {
    "satperf": ("satperf.jsonl", SatperfLines),
    "satpep": ("satpep.jsonl", SatpepLines),
}
"""By program: the name of its file, and what reads it; this takes the name of the node."""


@dataclass
class Followed:
    """A growing file: the offset up to which it was read, and the state from its lines."""

    reporter: Reporter
    offset: int = 0
    _rest: bytes = b""

    def span(self, size: int) -> tuple[int, int]:
        """Return offset and number of the new bytes to read in a file of this size, at most
        MOST_READ.

        A file that has become shorter was emptied, and is read from its start.
        """
        if size < self.offset:
            self._restart(0)
        if size - self.offset > MOST_READ:
            self._restart(size - MOST_READ)
        return self.offset, size - self.offset

    def add(self, data: bytes) -> None:
        """Add the bytes that were read.

        An incomplete line is kept until its rest is read. Lines that are not JSON are ignored.
        """
        self.offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for text in lines:
            with contextlib.suppress(ValueError, RecursionError):
                line = json.loads(text) if len(text) <= LONGEST_LINE else None
                if isinstance(line, dict):
                    self.reporter.add(line)
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
            self.reporter.skipped()

    def _restart(self, offset: int) -> None:
        self.offset, self._rest = offset, b""
        self.reporter.skipped()


def open_report(pid: int, name: str) -> int | None:
    """Return a descriptor of the plain file of this name that a process has open; None if there is
    none.

    Raises:
        OSError: the process has ended.
    """
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in itertools.islice(entries, MOST_DESCRIPTORS):
            with contextlib.suppress(OSError):  # closed meanwhile
                place = Path(entry.path)
                if place.readlink().name != name or not place.is_file():
                    continue
                found = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if stat.S_ISREG(os.fstat(found).st_mode):
                    return found
                os.close(found)
    return None


class ReportedFlows:
    """Follows the files of the processes of a lab."""

    def __init__(self) -> None:
        self._followed: dict[tuple[int, int], Followed] = {}

    def read(self, programs: Mapping[tuple[int, int], tuple[str, str]], now: float) -> list[Flow]:
        """Return the connections that are open now, s since the epoch.

        `programs`: node and program by pid and start of the process; those that are not there any
        more are forgotten.
        """
        known = {key: each for key, each in programs.items() if each[1] in REPORTERS}
        self._followed = {key: each for key, each in self._followed.items() if key in known}
        found: list[Flow] = []
        for key, (node, program) in itertools.islice(sorted(known.items()), MOST_FILES):
            name, make = REPORTERS[program]
            followed = self._followed.setdefault(key, Followed(make(node)))
            with contextlib.suppress(OSError):  # the process has ended
                follow(followed, key[0], name)
            found += followed.reporter.flows(now)
        return found


def follow(followed: Followed, pid: int, name: str) -> None:
    """Return the samples that a process has written since the last call."""
    descriptor = open_report(pid, name)
    if descriptor is None:
        return
    try:
        start, count = followed.span(os.fstat(descriptor).st_size)
        followed.add(os.pread(descriptor, count, start))
    finally:
        os.close(descriptor)
