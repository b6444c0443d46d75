# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw files as checked objects. An unreadable file is returned as `Unreadable`, never raised."""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

T = TypeVar("T")

DOCUMENT_BYTES = 64 << 20
"""Largest document, bytes. iperf3's document of an hour with ten intervals a second is half as
large.
"""
MOST_VALUES = 2_000_000
"""Largest number of values in a document: each may take 1 kB before it is found to be wrong. An
hour of iperf3 has half as many.
"""
LINES_BYTES = 2 << 30
"""Largest file of lines, bytes; read line by line. The link metrics of a day, the longest run, have
1.4 GB.
"""
LINE_BYTES = 8 << 20
"""Longest line, bytes: a job with the longest arguments that Linux allows (2 MiB), with escapes.
"""
_NAMED_FAULTS = 1000
"""If a document has more faults, none is named: a list of all takes more memory than the document.
"""


class Model(BaseModel):
    """A raw document. It has no field that the model lacks: `collect` and its writer must agree."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Unreadable:
    """Why a raw file cannot be read."""

    reason: str


def read_json(root: Path, name: str, parse: Callable[[bytes], T]) -> T | Unreadable:
    """Read the JSON document `name` below `root`, within limits; `parse` is a model's
    `model_validate_json`.
    """
    try:
        with open_plain(root, name, DOCUMENT_BYTES) as file:
            content = file.read(min(os.fstat(file.fileno()).st_size, DOCUMENT_BYTES))
        _check_values(content)
        return parse(content)
    except OSError as error:
        return Unreadable(f"{_last(name)}: {error.strerror or error}")
    except RefusedError as error:
        return Unreadable(f"{_last(name)}: {error}")
    except ValidationError as error:
        return Unreadable(f"{_last(name)}: {first_fault(error)}")


class Lines(Generic[T]):
    """The JSON lines of a file below `root`, read one at a time, up to the first bad one.

    A writer that was killed leaves an incomplete last line; the lines before it are used. Lines
    after a bad line in the middle are not used. `note` then names the lines left out ("": none).
    """

    def __init__(self, root: Path, name: str, parse: Callable[[bytes], T]) -> None:
        self._root, self._name, self._parse = root, name, parse
        self.note = ""

    def __iter__(self) -> Iterator[T]:
        """Read the file from its beginning. Raises nothing."""
        self.note = ""
        try:
            with open_plain(self._root, self._name, LINES_BYTES) as file:
                yield from self._read(file)
        except OSError as error:
            self.note = f"{_last(self._name)}: {error.strerror or error}"
        except RefusedError as error:
            self.note = f"{_last(self._name)}: {error}"

    def _read(self, file: BinaryIO) -> Iterator[T]:
        left, number = LINES_BYTES, 0
        while line := file.readline(LINE_BYTES + 1):
            number, left = number + 1, left - len(line)
            if left < 0:
                raise RefusedError(f"has more than {LINES_BYTES} bytes; the rest was left out")
            if not line.strip():
                continue
            try:
                _check_size(len(line), LINE_BYTES)
                _check_values(line)
                item = self._parse(line)
            except (RefusedError, ValidationError) as error:
                if not line.endswith(b"\n") and len(line) <= LINE_BYTES:
                    raise RefusedError("the last line is incomplete and was left out") from error
                reason = first_fault(error) if isinstance(error, ValidationError) else str(error)
                raise RefusedError(f"line {number}: {reason}; the rest was left out") from error
            yield item


def read_jsonl(root: Path, name: str, parse: Callable[[bytes], T]) -> tuple[list[T], str]:
    """Read JSON lines below `root`: the lines before the first bad one, and a note ("" if there is
    no bad line).
    """
    lines = Lines(root, name, parse)
    return list(lines), lines.note


class RefusedError(Exception):
    """A file exists, but we refuse to read it."""


class Source(Protocol):
    """Opens and lists the entries of a folder, without following links below it."""

    def open(self, root: Path, name: str, most: int) -> BufferedReader:
        """Open a plain file of at most `most` bytes, without waiting for a writer.

        Raises OSError, RefusedError.
        """

    def names(self, root: Path, folder: str) -> list[str]:
        """Return the names of a folder's entries, sorted; names of folders end with `/`.

        Raises OSError, RefusedError.
        """


class _Disk:
    """Files as this process may open them.

    A job writes to its folders while it runs, so they may hold anything.
    """

    def open(self, root: Path, name: str, most: int) -> BufferedReader:
        *folders, last = _parts(name)
        at = open_folder(root, folders)
        try:
            # Devices are not opened, because opening one can have effects.
            check_plain(os.stat(last, dir_fd=at, follow_symlinks=False), most)
            return open_in(at, last, most)
        finally:
            os.close(at)

    def names(self, root: Path, folder: str) -> list[str]:
        handle = open_folder(root, () if folder == "." else _parts(folder))
        try:
            with os.scandir(handle) as entries:
                return sorted(f"{e.name}{'/' * e.is_dir(follow_symlinks=False)}" for e in entries)
        finally:
            os.close(handle)


DISK: Source = _Disk()
_source = DISK


def read_from(source: Source) -> None:
    """Read all files of this process from another source."""
    global _source  # noqa: PLW0603 - a reading process has one
    _source = source


def open_plain(root: Path, name: str, most: int) -> BufferedReader:
    """Open a plain file below `root`, as `Source.open`."""
    return _source.open(root, name, most)


def names(root: Path, folder: str) -> list[str]:
    """Return the entries of a folder below `root`, as `Source.names`; none if the folder cannot be
    read.
    """
    try:
        return _source.names(root, folder)
    except (OSError, RefusedError):
        return []


def _parts(name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise RefusedError("lies outside its folder")
    return parts


def open_folder(root: Path, parts: Sequence[str]) -> int:
    """Open a folder below `root` without following a link below it.

    The caller closes the handle. Raises OSError.
    """
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at
            )
        finally:
            os.close(at)
        at = below
    return at


def open_in(folder: int, name: str, most: int) -> BufferedReader:
    """Open a plain file of an open folder, as `Source.open`.

    The caller must have checked that it is no device: opening one can have effects.
    """
    handle = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
    )
    file = os.fdopen(handle, "rb")
    try:
        check_plain(os.fstat(handle), most)
    except RefusedError:
        file.close()
        raise
    return file


def check_plain(status: os.stat_result, most: int) -> None:
    """Raise RefusedError unless the entry is a plain file of at most `most` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("is not a plain file")
    _check_size(status.st_size, most)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise RefusedError(f"has more than {most} bytes")


def _check_values(content: bytes) -> None:
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        raise RefusedError(f"holds more than {MOST_VALUES} values")


def _last(name: str) -> str:
    return PurePosixPath(name).name


def first_fault(error: ValidationError) -> str:
    """Name the first fault of a document and how many more there are."""
    if error.error_count() > _NAMED_FAULTS:
        return f"has {error.error_count()} faults"
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    place = ".".join(str(part) for part in faults[0]["loc"])
    more = f" (and {len(faults) - 1} more faults)" if len(faults) > 1 else ""
    return f"{place}: {faults[0]['msg']}{more}" if place else f"{faults[0]['msg']}{more}"


def stored_files(raw: Path, folder: str, name: str) -> list[str]:
    """Return the files that a job stored as statistic `name`, relative to `raw`: `<name>.json`,
    then `<name>-N.json` by N. A folder that is a link is not read.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:-(\d+))?\.json")
    found = (pattern.fullmatch(each.removesuffix("/")) for each in names(raw, f"files/{folder}"))
    matches = [match for match in found if match]
    return [
        f"files/{folder}/{match[0]}"
        for match in sorted(matches, key=lambda match: int(match[1] or 1))
    ]
