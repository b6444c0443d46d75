# SPDX-License-Identifier: GPL-3.0-or-later
"""Read qlog files of external programs (draft-ietf-quic-qlog-main-schema), with limits.

Two forms: JSON-SEQ with one record per line (ngtcp2 and quiche, qlog 0.3 and later), and one JSON
document with `traces`, whose events may be arrays (picoquic, draft-00). The files are untrusted:
links and devices are not opened; size, line length, nesting, numbers, number of events and the CPU
time of their reader have limits.
"""

import codecs
import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Literal

from satlab.common import plain_files
from satlab.common.plain_files import Found, RefusedError

MAX_FILE_BYTES = 1 << 30
"""Largest file, several times the usual size. For 400 MB in 180 s ngtcp2 0.12.1 writes more than
256 MiB at each end.
"""
MAX_DOCUMENT_BYTES = 16 << 20
"""Largest JSON document that is held in memory, bytes; the events of a larger document are read one
by one.
"""
CHUNK_BYTES = 1 << 20
_EVENTS = re.compile(rb'"events"\s*:\s*\[')
MAX_LINE_BYTES = 256 << 10
MAX_EVENTS = 3_000_000
MAX_CPU_S = 120.0
"""Longest CPU time for one file, including the work of its reader, s. Usual files take less than
0.1 s for each MiB.
"""
_CHECKED_EVENTS = 1024
"""Number of events between two checks of the CPU time."""
MAX_FILES, MAX_DEPTH = 64, 64
MAX_NUMBER = float(1 << 53)
"""Larger numbers are ignored: JSON is not exact beyond, and quiche writes 2^64 - 1 for unlimited.
"""
RECORD_SEPARATOR = b"\x1e"
"""RFC 7464, section 2."""
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""One decoder for all lines: `json.loads` with an argument makes a new one for each line, which
takes longer than the line.
"""

Side = Literal["client", "server"]
Kind = Literal["missing", "broken", "too large", "does not fit"]


class QlogError(ValueError):
    """A file cannot be used; the text says where and why."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind

    def __reduce__(self) -> tuple[type["QlogError"], tuple[Kind, str]]:
        """Pickle both arguments, so that another process can make the error again."""
        return QlogError, (self.kind, str(self))


@dataclass(frozen=True)
class Event:
    """An event at `t_s` by its writer's clock; `name` without schema or category."""

    t_s: float
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class QlogFile:
    """`side` is the endpoint that wrote the file, `unit_ms` its unit of time.

    Events are read during iteration.
    """

    side: Side
    unit_ms: float
    events: Iterator[Event]


class _Budget:
    """The CPU time that a file may take in the thread that reads it."""

    def __init__(self) -> None:
        self._end_s = thread_time() + MAX_CPU_S

    def check(self) -> None:
        """Raises QlogError."""
        if thread_time() > self._end_s:
            raise QlogError("too large", f"it takes more than {MAX_CPU_S:g} s of CPU time to read")


def newest(folder: Path) -> Path | None:
    """Return the last written qlog file in `folder` or below. Each connection has its own log."""
    last = max(_files(folder), key=lambda found: (found.changed_ns, found.name), default=None)
    return None if last is None else folder / last.name


def total_bytes(folder: Path) -> int:
    """Return the size of all qlog files in `folder` or below."""
    return sum(found.size for found in _files(folder))


def _files(folder: Path) -> Iterator[Found]:
    """Yield the qlog files in `folder` or below, MAX_FILES in each of as many folders at most."""
    found = plain_files.walk(folder, MAX_DEPTH, MAX_FILES, MAX_FILES)
    return (file for file in found if file.name.endswith((".qlog", ".sqlog")))


def opened(path: Path) -> QlogFile:
    """Open a file. Reading its events may raise QlogError, too.

    Raises:
        QlogError: the file is too large, or not a qlog file.
    """
    budget = _Budget()
    records = _records(path, budget)
    header = next(records, None)
    if not isinstance(header, dict):
        raise QlogError("broken", "its first record is not a qlog header")
    if "traces" in header:
        log = _of_document(header, budget)
        return replace(log, events=_from_open_file(log.events, records))
    return _of_trace(header.get("trace"), records, budget)


def _from_open_file(events: Iterator[Event], records: Iterator[Any]) -> Iterator[Event]:
    """Yield the events while their file, which `records` holds, is open."""
    yield from events
    del records


def number(data: Any, name: str) -> float | None:
    """Return a number of a JSON object; None if it is missing, negative, not finite, or MAX_NUMBER
    or more.
    """
    value = data.get(name) if isinstance(data, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER:
        return float(value)
    return None


def _records(path: Path, budget: _Budget) -> Iterator[Any]:
    """Yield the JSON texts of a file: one per line, or the whole document."""
    try:
        opened_file = plain_files.below(path.parent, path.name)
    except OSError as error:
        raise QlogError("broken", str(error.strerror)) from error
    except RefusedError as error:
        raise QlogError("broken", f"it {error}") from error
    with opened_file as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise QlogError("too large", f"it has more than {MAX_FILE_BYTES >> 20} MiB")
        is_sequence = path.name.endswith(".sqlog") or file.read(1) == RECORD_SEPARATOR
        file.seek(0)
        if is_sequence:
            yield from _sequence(file)
        else:
            yield _document(file, budget)


def _document(file: Any, budget: _Budget) -> Any:
    """Return a document. If it is large or cut off, return only its first trace, whose events are
    read one by one.
    """
    start = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(start) <= MAX_DOCUMENT_BYTES:
        try:
            return _parsed(start, "the document")
        except QlogError:
            if not _EVENTS.search(start, 0, MAX_LINE_BYTES):
                raise
    found = _EVENTS.search(start, 0, MAX_LINE_BYTES)
    if found is None:
        raise QlogError("too large", "it is one large document without events in its first trace")
    header = _parsed(start[: found.end()] + b"]}]}", "the start of the document")
    header["traces"][0]["events"] = _elements(start[found.end() :], file, budget)
    return header


def _elements(text: bytes, file: Any, budget: _Budget) -> Iterator[Any]:
    """Yield the elements of an array up to its end, or to the end of the file."""
    buffer, at = text.decode(errors="replace"), 0
    while True:
        while at < len(buffer) and buffer[at] in ", \t\r\n":
            at += 1
        if buffer[at : at + 1] == "]":
            return
        try:
            element, at = _DECODER.raw_decode(buffer, at)
        except (ValueError, RecursionError):
            budget.check()
            more = file.read(CHUNK_BYTES)
            if not more:
                return  # cut off in an element
            if len(buffer) - at > MAX_LINE_BYTES + CHUNK_BYTES:
                raise QlogError("broken", "an event is not JSON, or too large") from None
            buffer, at = buffer[at:] + more.decode(errors="replace"), 0
            continue
        yield element


def _sequence(file: Any) -> Iterator[Any]:
    """Yield each record.

    A truncated record is the last one: its writer was ended (RFC 7464, section 2.4).
    """
    for count in itertools.count(1):
        line = file.readline(MAX_LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE_BYTES:
                raise QlogError(
                    "too large", f"line {count} has more than {MAX_LINE_BYTES >> 10} KiB"
                )
            return
        if count > MAX_EVENTS:
            raise QlogError("too large", f"it has more than {MAX_EVENTS} events")
        text = line.strip(RECORD_SEPARATOR + b" \r\n")
        if text:
            yield _parsed(text, f"line {count}")


def _parsed(text: bytes, place: str) -> Any:
    try:
        return _DECODER.decode(text.removeprefix(codecs.BOM_UTF8).decode(errors="surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise QlogError("broken", f"{place} is not JSON: {str(error)[:80]}") from error


def _of_document(header: dict[str, Any], budget: _Budget) -> QlogFile:
    traces = header["traces"]
    if not isinstance(traces, list) or not traces or not isinstance(traces[-1], dict):
        raise QlogError("broken", "it has no trace")
    events = traces[-1].get("events")  # of the last connection
    return _of_trace(traces[-1], events if isinstance(events, list | Iterator) else [], budget)


def _of_trace(trace: Any, events: Iterable[Any], budget: _Budget) -> QlogFile:
    trace = trace if isinstance(trace, dict) else {}
    vantage_point, common, configuration = (
        trace.get(name) for name in ("vantage_point", "common_fields", "configuration")
    )
    side = vantage_point.get("type") if isinstance(vantage_point, dict) else None
    if side not in ("client", "server"):
        raise QlogError("broken", "its vantage point is neither client nor server")
    is_us = isinstance(configuration, dict) and configuration.get("time_units") == "us"
    unit_ms = 1e-3 if is_us else 1.0
    time_format = common.get("time_format") if isinstance(common, dict) else None
    is_relative = time_format in ("delta", "relative_to_previous_event")
    fields = trace.get("event_fields")
    return QlogFile(
        side, unit_ms, _events(events, fields, unit_ms, budget, is_relative=is_relative)
    )


def _events(
    events: Iterable[Any], fields: Any, unit_ms: float, budget: _Budget, *, is_relative: bool
) -> Iterator[Event]:
    """Yield the events; times never decrease."""
    names = [str(name).lower() for name in fields] if isinstance(fields, list) else []
    now = 0.0
    for count, raw in enumerate(events):
        if count > MAX_EVENTS:
            raise QlogError("too large", f"it has more than {MAX_EVENTS} events")
        if count % _CHECKED_EVENTS == 0:
            budget.check()
        event = _as_object(names, raw) if isinstance(raw, list) else raw
        time = number(event, "time")
        if time is None or not isinstance(event.get("name"), str):
            raise QlogError("broken", f"event {count} has no name or no time")
        t_s = time * unit_ms / 1e3
        now = now + t_s if is_relative else max(now, t_s)
        if not math.isfinite(now) or now > MAX_NUMBER:
            raise QlogError("broken", f"event {count} has an invalid time")
        data = event.get("data")
        name = event["name"].lower().rpartition(":")[2].removeprefix("recovery_")
        yield Event(now, name, data if isinstance(data, dict) else {})


def _as_object(names: list[str], values: list[Any]) -> dict[str, Any]:
    """Return an array event in the form of an object event."""
    fields = dict(zip(names, values, strict=False))
    return {
        "time": fields.get("relative_time"),
        "name": fields.get("event", fields.get("event_type")),
        "data": fields.get("data"),
    }
