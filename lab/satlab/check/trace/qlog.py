# SPDX-License-Identifier: GPL-3.0-or-later
"""qlog files that programs from outside leave (draft-ietf-quic-qlog-main-schema), read with bounds.

JSON-SEQ with a record a line, as ngtcp2 and quiche write it (qlog 0.3 and later), and one JSON document with `traces`,
whose events may be arrays, as picoquic writes it (draft-00). Nobody vouches for what is in them: links and devices are
not followed, and size, lines, nesting, numbers and events have bounds.
"""

import itertools
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FILE_BYTES = 256 << 20
"""ngtcp2 writes a third of what it sends: this is a transfer of 750 MB."""
DOCUMENT_BYTES = 16 << 20
"""Of a single JSON document, all of which is in memory at once."""
LINE_BYTES = 256 << 10
EVENTS = 3_000_000
FILES = 64
NUMBER = float(1 << 53)
"""Numbers from here on are none: JSON does not hold them exactly, and quiche writes 2^64 - 1 for what is unlimited."""
RECORD = b"\x1e"
"""RFC 7464, section 2."""

Side = Literal["client", "server"]
Kind = Literal["missing", "broken", "too large", "does not fit"]


class QlogError(ValueError):
    """A file cannot be used; `kind` tells how, the text where and why."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind


@dataclass(frozen=True)
class Event:
    """Something that happened at `t_s`, by the clock of who wrote it; `name` is without its schema's or category's."""

    t_s: float
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class QlogFile:
    """A file: whose it is, how many ms a unit of its times is, and its events, which are read as they are taken."""

    side: Side
    unit_ms: float
    events: Iterator[Event]


def newest(folder: Path) -> Path | None:
    """Return the file in a folder or below that was written last; a connection's log is done when it ends."""
    found = []
    walked = itertools.islice(os.walk(folder), FILES)
    for place, _, names in walked if folder.is_dir() and not folder.is_symlink() else ():
        for name in names[:FILES]:
            status = (Path(place) / name).lstat()
            if name.endswith((".qlog", ".sqlog")) and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, Path(place) / name))
    return max(found)[1] if found else None


def opened(path: Path) -> QlogFile:
    """Open a file. Taking its events may raise QlogError, too.

    Raises:
        QlogError: it is too large or no qlog.
    """
    records = _records(path)
    head = next(records, None)
    if not isinstance(head, dict):
        raise QlogError("broken", "its first record is no qlog header")
    if "traces" in head:
        return _of_document(head)
    return _of_trace(head.get("trace"), records)


def number(data: Any, name: str) -> float | None:
    """Return a number of an object; None where there is none that is finite, from 0 up and below 2^53."""
    value = data.get(name) if isinstance(data, dict) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < NUMBER:
        return float(value)
    return None


def _records(path: Path) -> Iterator[Any]:
    """Yield the JSON texts of a file: one a line, or all of it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise QlogError("broken", str(error.strerror)) from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise QlogError("broken", "it is no file")
        if status.st_size > FILE_BYTES:
            raise QlogError("too large", f"it has more than {FILE_BYTES >> 20} MiB")
        is_sequence = path.name.endswith(".sqlog") or file.read(1) == RECORD
        file.seek(0)
        if is_sequence:
            yield from _sequence(file)
        elif status.st_size > DOCUMENT_BYTES:
            raise QlogError("too large", f"it is one document of more than {DOCUMENT_BYTES >> 20} MiB")
        else:
            yield _parsed(file.read(DOCUMENT_BYTES), "the document")


def _sequence(file: Any) -> Iterator[Any]:
    """Yield each record; one without an end is the last, as of a program that was ended (RFC 7464, section 2.4)."""
    for count in itertools.count(1):
        line = file.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            if len(line) == LINE_BYTES:
                raise QlogError("too large", f"line {count} has more than {LINE_BYTES >> 10} KiB")
            return
        if count > EVENTS:
            raise QlogError("too large", f"it has more than {EVENTS} events")
        text = line.strip(RECORD + b" \r\n")
        if text:
            yield _parsed(text, f"line {count}")


def _parsed(text: bytes, place: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise QlogError("broken", f"{place} is no JSON: {str(error)[:80]}") from error


def _of_document(head: dict[str, Any]) -> QlogFile:
    traces = head["traces"]
    if not isinstance(traces, list) or len(traces) != 1 or not isinstance(traces[0], dict):
        raise QlogError("broken", "it is not of one connection")
    events = traces[0].get("events")
    return _of_trace(traces[0], events if isinstance(events, list) else [])


def _of_trace(trace: Any, events: Iterable[Any]) -> QlogFile:
    """Read what is common to all events of a trace, then its events."""
    trace = trace if isinstance(trace, dict) else {}
    view, common, old = (trace.get(name) for name in ("vantage_point", "common_fields", "configuration"))
    side = view.get("type") if isinstance(view, dict) else None
    if side not in ("client", "server"):
        raise QlogError("broken", "it does not tell whether it is the client's or the server's")
    unit_ms = 1e-3 if isinstance(old, dict) and old.get("time_units") == "us" else 1.0
    way = common.get("time_format") if isinstance(common, dict) else None
    is_relative = way in ("delta", "relative_to_previous_event")
    fields = trace.get("event_fields")
    return QlogFile(side, unit_ms, _events(events, fields, unit_ms, is_relative=is_relative))


def _events(events: Iterable[Any], fields: Any, unit_ms: float, *, is_relative: bool) -> Iterator[Event]:
    """Yield the events with times that never go back."""
    names = [str(name).lower() for name in fields] if isinstance(fields, list) else []
    now = 0.0
    for count, raw in enumerate(events):
        if count > EVENTS:
            raise QlogError("too large", f"it has more than {EVENTS} events")
        told = _named(names, raw) if isinstance(raw, list) else raw
        time = number(told, "time")
        if time is None or not isinstance(told.get("name"), str):
            raise QlogError("broken", f"event {count} has no name or no time")
        t_s = time * unit_ms / 1e3
        now = now + t_s if is_relative else max(now, t_s)
        if not math.isfinite(now) or now > NUMBER:
            raise QlogError("broken", f"event {count} is at no time")
        data = told.get("data")
        name = told["name"].lower().rpartition(":")[2].removeprefix("recovery_")
        yield Event(now, name, data if isinstance(data, dict) else {})


def _named(names: list[str], values: list[Any]) -> dict[str, Any]:
    """Return an event that is an array as one that is an object."""
    found = dict(zip(names, values, strict=False))
    return {
        "time": found.get("relative_time"),
        "name": found.get("event", found.get("event_type")),
        "data": found.get("data"),
    }
