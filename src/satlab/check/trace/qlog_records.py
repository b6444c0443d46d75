# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON records of a qlog file, read in parts: plain, gzip or zstd; one document, JSON-SEQ
(RFC 7464) or a record per line.

The file is untrusted and may be cut off or damaged anywhere. A damaged record is left out and
counted. What is decompressed, a record's size, and the CPU time of the reader have limits.
"""

import codecs
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, BinaryIO, Literal, Protocol

MAX_BYTES = 1 << 30
"""Largest file, after decompression, and several times the usual size. For 400 MB in 180 s ngtcp2
0.12.1 writes more than 256 MiB at each end.
"""
CHUNK_BYTES = 1 << 20
MAX_RECORD_BYTES = 256 << 10
"""Largest record. A longer one counts as damaged."""
MAX_TRACES = 1024
MAX_WINDOW_BYTES = 8 << 20
"""Largest window of zstd, as RFC 8878 recommends."""
MAX_CPU_S = 120.0
"""Longest CPU time for one file, including the work of its reader, s. Usual files take less than
0.1 s for each MiB.
"""
ZSTD_READ_BYTES = 8 << 10
"""What is lost before a damaged place, at most."""
RECORD_SEPARATOR = b"\x1e"
"""RFC 7464, section 2."""
TEXT = "latin-1"
"""Each byte is one character, so that places in the text are places in the file. The names that
satlab reads are ASCII.
"""
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""One decoder for all records: `json.loads` with an argument makes a new one for each record, which
takes longer than the record.
"""
_NEXT_EVENT = re.compile(r",\s*(?=[\[{])")
"""What stands before the next event of an array, but not only there."""
_SKIPPED = {mark: re.compile(rf"[ \t\r\n{re.escape(mark)}]*") for mark in ("", ",", ":", "]")}
_TIMES = {"time", "relative_time", "delta_time"}
_AFTER_EVENTS = re.compile(
    r"\]\s*,\s*\"(?:vantage_point|common_fields|configuration|event_fields)\""
)

Kind = Literal["missing", "broken", "too large", "does not fit"]


class QlogError(ValueError):
    """A file cannot be used; the text says where and why."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind

    def __reduce__(self) -> tuple[type["QlogError"], tuple[Kind, str]]:
        """Pickle both arguments, so that another process can make the error again."""
        return QlogError, (self.kind, str(self))


class Budget:
    """The CPU time that a file may take in the thread that reads it."""

    def __init__(self) -> None:
        self._end_s = thread_time() + MAX_CPU_S

    def check(self) -> None:
        """Raises QlogError."""
        if thread_time() > self._end_s:
            raise QlogError("too large", f"it takes more than {MAX_CPU_S:g} s of CPU time to read")


@dataclass
class Records:
    """The events of a file. `damaged` counts the records that were left out until now."""

    budget: Budget = field(default_factory=Budget)
    damaged: int = 0
    events: Iterator[Any] = field(default_factory=lambda: iter(()))


@dataclass(frozen=True)
class Trace:
    """A trace of a document: its fields without the events, and the place of these in the file."""

    fields: dict[str, Any]
    events_at: int | None


# --- bytes ----------------------------------------------------------------------------------------


class Reader(Protocol):
    def read(self, most: int, /) -> bytes: ...


class _Gzip:
    """Decompresses gzip in parts. A stream that is cut off or damaged ends there."""

    def __init__(self, file: BinaryIO, records: Records) -> None:
        self._file, self._records = file, records
        self._stream, self._rest = zlib.decompressobj(31), b""

    def read(self, most: int) -> bytes:
        out = b""
        while len(out) < most:
            if self._stream.eof:  # another member may follow
                self._rest, self._stream = self._stream.unused_data, zlib.decompressobj(31)
            part = self._rest or self._file.read(CHUNK_BYTES)
            if not part:
                break
            try:
                out += self._stream.decompress(part, most - len(out))
            except zlib.error:
                self._records.damaged += 1
                self._file.seek(0, 2)
                self._rest = b""
                break
            self._rest = b"" if self._stream.eof else self._stream.unconsumed_tail
        return out


class _Zstd:
    """Decompresses zstd in parts. A stream that is cut off or damaged ends there."""

    def __init__(self, file: BinaryIO, records: Records) -> None:
        try:
            import zstandard  # noqa: PLC0415 - only these files need it
        except ImportError as error:
            raise QlogError(
                "broken",
                "it is compressed with zstd, which needs the Python package zstandard; install it,"
                " or switch the compression off",
            ) from error
        self._error, self._records = zstandard.ZstdError, records
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        self._stream = decompressor.stream_reader(file, read_across_frames=True, closefd=False)
        self._has_ended = False

    def read(self, most: int) -> bytes:
        out = bytearray()
        while len(out) < most and not self._has_ended:
            try:
                part = self._stream.read(min(most - len(out), ZSTD_READ_BYTES))
            except self._error:
                self._records.damaged += 1
                part = b""
            self._has_ended = not part
            out += part
        return bytes(out)


class _Bounded:
    """Reads a file from its start, at most MAX_BYTES in all."""

    def __init__(self, file: BinaryIO, records: Records) -> None:
        file.seek(0)
        magic = file.read(4)
        file.seek(0)
        self._reader: Reader = file
        if magic.startswith(b"\x1f\x8b"):
            self._reader = _Gzip(file, records)
        elif magic == b"\x28\xb5\x2f\xfd":
            self._reader = _Zstd(file, records)
        self._read, self._budget = 0, records.budget

    def read(self, most: int) -> bytes:
        """Raises QlogError."""
        self._budget.check()
        part = self._reader.read(most)
        self._read += len(part)
        if self._read > MAX_BYTES:
            raise QlogError("too large", f"it has more than {MAX_BYTES >> 20} MiB")
        return part


# --- sequences ------------------------------------------------------------------------------------


def header_of_sequence(file: BinaryIO, records: Records) -> dict[str, Any] | None:
    """Return the header if the file is a sequence, whose events become those of `records`; None if
    it is a document.

    Raises QlogError.
    """
    reader = _Bounded(file, records)
    start = reader.read(CHUNK_BYTES)
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if text.startswith(RECORD_SEPARATOR):
        found = _separated(text, reader, RECORD_SEPARATOR, records)
    else:
        first = text.partition(b"\n")[0]
        header = _value(first) if len(first) <= MAX_RECORD_BYTES else None
        if not isinstance(header, dict) or _has_events(header):
            return None
        found = _separated(text, reader, b"\n", records)
    header = next(found, None)
    is_header = isinstance(header, dict) and (
        {"trace", "qlog_version", "qlog_format", "file_schema"} & header.keys()
    )
    if not is_header:
        raise QlogError("broken", "its first record is not a qlog header")
    records.events = found
    return header


def _has_events(header: dict[str, Any]) -> bool:
    trace = header.get("trace")
    return "traces" in header or (isinstance(trace, dict) and "events" in trace)


def _separated(start: bytes, reader: Reader, separator: bytes, records: Records) -> Iterator[Any]:
    """Yield each record. One that the end of the file cuts off is left out: its writer was ended
    (RFC 7464, section 2.4).
    """
    rest, part, is_too_long = b"", start, False
    while part:
        *whole, rest = (rest + part).split(separator)
        if is_too_long and whole:
            whole, is_too_long = whole[1:], False
        for text in whole:
            yield from _record(text, records)
        if len(rest) > MAX_RECORD_BYTES:
            records.damaged += not is_too_long
            is_too_long, rest = True, b""
        part = reader.read(CHUNK_BYTES)
    if rest.endswith(b"\n"):
        yield from _record(rest, records)
    elif (last := _value(rest.strip(RECORD_SEPARATOR))) is not None:
        yield last


def _record(text: bytes, records: Records) -> Iterator[Any]:
    """Yield the value of a record, which may consist of several lines."""
    text = text.strip(RECORD_SEPARATOR + b" \t\r\n")
    if not text:
        return
    value = _value(text) if len(text) <= MAX_RECORD_BYTES else None
    if value is None and b"\n" in text:
        for line in text.split(b"\n"):
            yield from _record(line, records)
    elif value is None:
        records.damaged += 1
    else:
        yield value


def _value(text: bytes) -> Any:
    """Parse a JSON text. Return None for invalid JSON."""
    try:
        return _DECODER.decode(text.decode(TEXT))
    except (ValueError, RecursionError):
        return None


# --- documents ------------------------------------------------------------------------------------


def traces(file: BinaryIO, records: Records) -> list[Trace]:
    """Return the traces of a document, without their events. Raises QlogError."""
    found: list[Trace] = []
    try:
        text = _Text(_Bounded(file, records), records)
        if text.next() != "{":
            raise QlogError("broken", "it is neither a JSON document nor a sequence of records")
        for key in text.members():
            if key == "traces" and text.next() == "[":
                text.at += 1
                while text.next() == "{" and len(found) < MAX_TRACES:
                    _trace(text, found)
                    text.skip(",")
                if text.next() == "]":
                    text.at += 1
            elif key == "trace" and text.next() == "{":
                _trace(text, found)
            else:
                text.value()
    except _DamagedError as error:
        if not found:
            raise QlogError("broken", f"it is not JSON: {error}") from error
    return found


def _trace(text: "_Text", found: list[Trace]) -> None:
    """Read one trace. It counts from its first field on, in case the file is cut off in it."""
    fields: dict[str, Any] = {}
    at = len(found)
    found.append(Trace(fields, None))
    for key in text.members():
        if key == "events" and text.next() == "[":
            text.at += 1
            found[at] = Trace(fields, text.place)
            for _ in text.elements():
                pass
            text.skip("]")
        else:
            fields[key] = text.value()


def events_at(file: BinaryIO, place: int, records: Records) -> Iterator[Any]:
    """Yield the events of an array that begins at `place`."""
    text = _Text(_Bounded(file, records), records)
    while text.place + len(text.buffer) - text.at < place and text.more():
        text.at = len(text.buffer)
    text.at = place - text.base
    return text.elements()


class _DamagedError(Exception):
    """A value is not JSON."""


class _Text:
    """JSON text that is read in parts.

    `at` is the place in `buffer`, `place` that in the file.
    """

    def __init__(self, reader: Reader, records: Records) -> None:
        self._reader, self._records = reader, records
        self.base, self.at, self.buffer = 0, 0, ""
        self.more()
        if self.buffer.startswith(codecs.BOM_UTF8.decode(TEXT)):
            self.at = len(codecs.BOM_UTF8)

    @property
    def place(self) -> int:
        return self.base + self.at

    def more(self) -> bool:
        """Read on; what lies before `at` is dropped. False at the end of the file."""
        part = self._reader.read(CHUNK_BYTES)
        self.base, self.buffer, self.at = (
            self.base + self.at,
            self.buffer[self.at :] + part.decode(TEXT),
            0,
        )
        return bool(part)

    def skip(self, characters: str) -> None:
        """Go on to the first character that is neither white space nor one of these."""
        pattern = _SKIPPED[characters]
        while True:
            self.at = pattern.match(self.buffer, self.at).end()  # type: ignore[union-attr]
            if self.at < len(self.buffer) or not self.more():
                return

    def next(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        self.skip("")
        return self.buffer[self.at : self.at + 1]

    def value(self) -> Any:
        """Raises _DamagedError."""
        self.next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self.buffer, self.at)
            except (ValueError, RecursionError) as error:
                if len(self.buffer) - self.at > MAX_RECORD_BYTES or not self.more():
                    raise _DamagedError(str(error)[:80]) from error
                continue
            if end == len(self.buffer) and isinstance(value, int | float) and self.more():
                continue  # further digits may follow
            self.at = end
            return value

    def members(self) -> Iterator[str]:
        """Yield the keys of an object whose `{` is next; the caller reads each value.

        Raises _DamagedError.
        """
        self.at += 1
        while self.next() == '"':
            key = self.value()
            self.skip(":")
            yield str(key)
            self.skip(",")
        if self.next() == "}":
            self.at += 1

    def elements(self) -> Iterator[Any]:
        """Yield the events of an array up to its end or the end of the file; damaged ones are left
        out.
        """
        while self.next() not in ("]", ""):
            try:
                element = self.value()
            except _DamagedError:
                if not self._find_event():
                    return
                self._records.damaged += 1
                continue
            yield element
            self.skip(",")

    def _find_event(self) -> bool:
        """Go to the next event after a damaged one, or to the end of the events; False if there is
        none: the file is cut off.
        """
        while True:
            found, end = (
                pattern.search(self.buffer, self.at + 1) for pattern in (_NEXT_EVENT, _AFTER_EVENTS)
            )
            if end is not None and (found is None or end.start() <= found.start()):
                self.at = end.start()
                return True
            if found is None:
                self.at = max(self.at, len(self.buffer) - 100)  # it may lie across two parts
                if not self.more():
                    return False
                continue
            self._records.budget.check()
            self.at = found.end()
            place = self.place
            try:
                is_event = _is_event(self.value())
            except _DamagedError:
                is_event = False
            self.at = place - self.base
            if is_event:
                return True


def _is_event(value: Any) -> bool:
    """Whether a value looks like an event, not like a part of one."""
    if isinstance(value, list):
        return len(value) > 2 and isinstance(value[1], str) and isinstance(value[-1], dict)
    return isinstance(value, dict) and "data" in value and bool(_TIMES & value.keys())
