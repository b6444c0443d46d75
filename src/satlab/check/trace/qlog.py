# SPDX-License-Identifier: GPL-3.0-or-later
"""Read qlog files of external programs (draft-ietf-quic-qlog-main-schema), with limits.

docs/qlog.md says what is read of which program. Fields of draft-00 to the current draft are known;
what is not known is skipped and counted. `qlog_records` reads the JSON.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pydantic import ConfigDict, with_config

from satlab.check.trace import qlog_records
from satlab.check.trace.qlog_records import Kind, QlogError, Records, Trace
from satlab.common import plain_files
from satlab.common.plain_files import Found, RefusedError

__all__ = [
    "Event",
    "Kind",
    "QlogError",
    "QlogFile",
    "Side",
    "as_number",
    "names",
    "newest",
    "number",
    "opened",
]

ENDINGS = tuple(f".{name}{packed}" for name in ("qlog", "sqlog") for packed in ("", ".gz", ".zst"))
MAX_EVENTS = 3_000_000
MAX_FILES, MAX_DEPTH = 64, 64
MAX_NUMBER = float(1 << 53)
"""Larger numbers are ignored: JSON is not exact beyond, and quiche writes 2^64 - 1 for unlimited.
"""
_DECIMAL = re.compile(r"\d{1,20}(?:\.\d{1,20})?", re.ASCII)
"""A number as text: qlog allows it for 64-bit integers."""
_DELTAS = ("delta", "relative_to_previous_event")
_TIMES = ("time", "relative_time", "delta_time")
_NAMES = ("name", "event", "event_type", "type")
OTHER_SCHEMAS = ("http", "http3", "h3", "qpack", "moqt", "webtransport", "tcp", "tls")
"""Schemas whose events may have the names of QUIC's."""

Side = Literal["client", "server"]


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass(frozen=True)
class Event:
    """An event, `t_s` after the first one of its file.

    `name` is without schema or category, and empty for an event of another protocol than QUIC.
    """

    t_s: float
    name: str
    data: dict[str, Any]


@dataclass(frozen=True)
class QlogFile:
    """`side` is the endpoint that wrote the file, None if the file does not say it; `unit_ms` its
    unit of time.

    Events are read during iteration; `records` counts the damaged ones meanwhile.
    """

    side: Side | None
    unit_ms: float
    events: Iterator[Event]
    records: Records


def newest(folder: Path) -> Path | None:
    """Return the last written qlog file in `folder` or below. Each connection has its own log."""
    last = max(_files(folder), key=lambda found: (found.changed_ns, found.name), default=None)
    return None if last is None else folder / last.name


def names(folder: Path) -> list[str]:
    """Return the names of the qlog files below `folder`, relative to it, in order."""
    return sorted(found.name for found in _files(folder))


def total_bytes(folder: Path) -> int:
    """Return the size of all qlog files in `folder` or below."""
    return sum(found.size for found in _files(folder))


def _files(folder: Path) -> Iterator[Found]:
    """Yield the qlog files in `folder` or below, MAX_FILES in each of as many folders at most."""
    found = plain_files.walk(folder, MAX_DEPTH, MAX_FILES, MAX_FILES)
    return (file for file in found if file.name.endswith(ENDINGS))


def opened(path: Path, side: Side | None = None) -> QlogFile:
    """Open a file; see `of_file`. Raises QlogError."""
    return of_file(plain(path), side)


def plain(path: Path) -> BinaryIO:
    """Open a plain file without following links. Raises QlogError."""
    try:
        file = plain_files.below(path.parent, path.name)
    except OSError as error:
        raise QlogError("broken", str(error.strerror)) from error
    except RefusedError as error:
        raise QlogError("broken", f"it {error}") from error
    if os.fstat(file.fileno()).st_size > qlog_records.MAX_BYTES:
        file.close()
        raise QlogError("too large", f"it has more than {qlog_records.MAX_BYTES} bytes")
    return file


def of_file(file: BinaryIO, side: Side | None = None) -> QlogFile:
    """Read the start of a file. Reading its events may raise QlogError, too.

    Of several traces the last one of `side` is taken, or the last one that does not say whose it
    is.

    Raises:
        QlogError: the file is too large, or not a qlog file.
    """
    records = Records()
    header = qlog_records.header_of_sequence(file, records)
    if header is not None:
        trace = header.get("trace")
        return _of_trace(trace if isinstance(trace, dict) else {}, records)
    traces = [one for one in qlog_records.traces(file, records) if one.events_at is not None]
    if not traces:
        raise QlogError("broken", "it has no trace")
    chosen = max(enumerate(traces), key=lambda one: (_fitness(one[1], side), one[0]))[1]
    records.damaged = 0  # until here, those of all traces
    records.events = qlog_records.events_at(file, chosen.events_at or 0, records)
    return _of_trace(chosen.fields, records)


def _fitness(trace: Trace, side: Side | None) -> int:
    found = _vantage_point(trace.fields)
    return 2 if found == side else int(found in ("", "unknown"))


def _vantage_point(trace: dict[str, Any]) -> str:
    """Return the type of a trace's vantage point; empty without one."""
    point = trace.get("vantage_point")
    return str(point.get("type") or "").lower() if isinstance(point, dict) else ""


def number(data: Any, name: str) -> float | None:
    """Return a number of a JSON object as `as_number`; None also if it is missing."""
    return as_number(data.get(name)) if isinstance(data, dict) else None


def as_number(value: Any) -> float | None:
    """Return a number, also one that is written as text; None if it is none, negative, not finite,
    or MAX_NUMBER or more.
    """
    if isinstance(value, str) and len(value) <= 41 and _DECIMAL.fullmatch(value):
        value = float(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_NUMBER:
        return float(value)
    return None


def _of_trace(trace: dict[str, Any], records: Records) -> QlogFile:
    point = _vantage_point(trace)
    if point == "network":
        raise QlogError("broken", "its vantage point is the network, not the client or the server")
    side: Side | None = "client" if point == "client" else "server" if point == "server" else None
    places = [trace, trace.get("configuration"), trace.get("common_fields")]
    known = [one for one in places if isinstance(one, dict)]
    unit_ms = 1e-3 if any(one.get("time_units") == "us" for one in known) else 1.0
    formats = [one["time_format"] for one in known if "time_format" in one]
    fields = trace.get("event_fields")
    names = [str(name).lower() for name in fields] if isinstance(fields, list) else []
    logged = _logged(records, names, formats[-1] if formats else None)
    return QlogFile(side, unit_ms, _events(logged, unit_ms), records)


@dataclass(frozen=True)
class _Logged:
    """An event as it is logged; `time` in the unit of the file."""

    time: float
    name: str
    data: dict[str, Any]


def _events(logged: Iterator[_Logged], unit_ms: float) -> Iterator[Event]:
    """Yield the events; times never decrease.

    An event that is later than the next one has that one's time: only its own time is damaged.
    """
    start: float | None = None
    now = 0.0
    one = next(logged, None)
    while one is not None:
        following = next(logged, None)
        time = one.time if following is None else min(one.time, following.time)
        start = time if start is None else start
        now = max(now, (time - start) * unit_ms / 1e3)
        yield Event(now, one.name, one.data)
        one = following


def _logged(records: Records, names: list[str], time_format: Any) -> Iterator[_Logged]:
    previous: float | None = None
    count = 0
    for count, raw in enumerate(records.events, 1):
        if count > MAX_EVENTS:
            raise QlogError("too large", f"it has more than {MAX_EVENTS} events")
        event = dict(zip(names, raw, strict=False)) if isinstance(raw, list) else raw
        time, name = _first_number(event), _name(event)
        if time is None or name is None:
            records.damaged += 1
            continue
        if event.get("time_format", time_format) in _DELTAS or "delta_time" in event:
            time += previous or 0.0
        previous = time
        data = event.get("data")
        yield _Logged(time, name, data if isinstance(data, dict) else {})
    if records.damaged and previous is None:
        raise QlogError("broken", f"none of its {max(count, records.damaged)} events can be read")


def _first_number(event: Any) -> float | None:
    for name in _TIMES:
        value = number(event, name)
        if value is not None:
            return value
    return None


def _name(event: Any) -> str | None:
    """Return the name of an event without schema; empty for that of another protocol."""
    if not isinstance(event, dict):
        return None
    found = [event[name] for name in _NAMES if isinstance(event.get(name), str)]
    if not found:
        return None
    schema, _, name = str(found[0]).lower().rpartition(":")
    schema = schema or str(event.get("category", "")).lower()
    if schema in OTHER_SCHEMAS:
        return ""
    if name == "parameters_set" and schema == "recovery":
        return "recovery_parameters_set"  # its name since 0.4
    return name if name == "recovery_parameters_set" else name.removeprefix("recovery_")
