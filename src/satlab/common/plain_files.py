# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that other users may write while root reads them. Every such file is opened here.

No symbolic link is followed anywhere on a path. Only plain files are opened, without waiting for
the writer of a pipe, and at most as many bytes are read as the caller allows. Files below a folder
must belong to the folder's owner, so a hard link to another user's file is refused. If root's own
folder may lie behind an operator's link, the caller resolves the link first. `collect` must not
import this module and opens raw files in the same way (`collect/raw.py`).
"""

import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LARGEST = 1 << 62
"""Size limit of files that are not read as a whole, bytes."""


class RefusedError(Exception):
    """A file exists, but we refuse to read it."""


def named(path: Path) -> Path:
    """Return the absolute form of a user's path, without `.` and `..`. Links are neither read nor
    followed.
    """
    return Path(os.path.abspath(path))  # noqa: PTH100 - Path.resolve() follows links


def opened(path: Path) -> BufferedReader:
    """Open a file that a user named, without following a link on its path.

    Raises OSError, RefusedError.
    """
    path = named(path)
    at = _folder(path.parent)
    try:
        return _opened(at, path.name, LARGEST)
    finally:
        os.close(at)


def modes(folder: Path) -> dict[str, int]:
    """Return the modes (inode(7)) of a folder's entries by name.

    Raises OSError, NotADirectoryError for a link.
    """
    handle = _folder(folder)
    try:
        with os.scandir(handle) as entries:
            return {entry.name: entry.stat(follow_symlinks=False).st_mode for entry in entries}
    finally:
        os.close(handle)


def below(root: Path, name: str, most: int = LARGEST) -> BufferedReader:
    """Open a file of at most `most` bytes below a folder. Raises OSError, RefusedError."""
    *folders, last = _parts(name)
    top = _folder(root)
    try:
        owner = os.fstat(top).st_uid
    finally:
        os.close(top)
    at = _folder(root, folders)
    try:
        file = _opened(at, last, most)
    finally:
        os.close(at)
    if os.fstat(file.fileno()).st_uid != owner:
        file.close()
        raise RefusedError("belongs to another user than its folder")
    return file


def _folder(root: Path, folders: Sequence[str] = ()) -> int:
    """Open a folder; no part of its whole path may be a link.

    The caller closes the handle. Raises OSError.
    """
    at = os.open("/", _FOLDER)
    for part in (*named(root).parts[1:], *folders):
        try:
            lower = os.open(part, _FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = lower
    return at


def _parts(name: str) -> tuple[str, ...]:
    found = PurePosixPath(name).parts
    if not found or found[0] == "/" or ".." in found or "\0" in name:
        raise RefusedError("lies outside its folder")
    return found


def _opened(folder: int, name: str, most: int) -> BufferedReader:
    """Open a plain file of an open folder. Raises OSError, RefusedError."""
    # A device is not opened, because opening it can have effects. If something replaces the plain
    # file meanwhile, it is refused below.
    _check(os.stat(name, dir_fd=folder, follow_symlinks=False), most)
    handle = os.open(
        name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder
    )
    file = os.fdopen(handle, "rb")
    try:
        _check(os.fstat(handle), most)
    except RefusedError:
        file.close()
        raise
    return file


def _check(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("is not a plain file")
    if status.st_size > most:
        raise RefusedError(f"has more than {most} bytes")


def put(root: Path, name: str, source: Path) -> None:
    """Write a copy of `source` below a folder, in place of what has the name; folders are made.

    Who can write below the folder cannot lead it elsewhere. Raises OSError, RefusedError.
    """
    *folders, last = _parts(name)
    at = _folder(root)
    try:
        for part in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            lower = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = lower
        scratch = f".{last}.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with (
            os.fdopen(os.open(scratch, flags, 0o666, dir_fd=at), "wb") as copy,
            source.open("rb") as file,
        ):
            shutil.copyfileobj(file, copy)
        os.replace(scratch, last, src_dir_fd=at, dst_dir_fd=at)
    finally:
        os.close(at)


def start_of(root: Path, name: str, most: int) -> str | None:
    """Return the beginning of a file below a folder, at most `most` bytes; None where it cannot be
    read.
    """
    try:
        with below(root, name) as file:
            return file.read(most).decode(errors="replace")
    except (OSError, RefusedError):
        return None


def end_of(root: Path, name: str, most: int) -> str:
    """Return the end of a file below a folder, at most `most` bytes; empty where it cannot be read."""
    try:
        with below(root, name) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode(errors="replace")
    except (OSError, RefusedError):
        return ""


@dataclass(frozen=True)
class Found:
    """A plain file below a folder: its path from there, its size in bytes, and when it was changed,
    ns.
    """

    name: str
    size: int
    changed_ns: int


def walk(root: Path, depth: int, folders: int, entries: int) -> Iterator[Found]:
    """Yield the plain files below a folder by name, those of a folder before those of the folders
    in it.

    The number of folders, their depth, and the entries of each are limited. Folders that cannot be
    listed are left out.
    """
    waiting: list[tuple[str, ...]] = [()]
    for _ in range(folders):
        if not waiting:
            return
        place = waiting.pop()
        below_it = []
        for name, status in _entries(root, place, entries):
            if stat.S_ISDIR(status.st_mode) and len(place) + 1 < depth:
                below_it.append((*place, name))
            elif stat.S_ISREG(status.st_mode):
                yield Found("/".join((*place, name)), status.st_size, status.st_mtime_ns)
        waiting += reversed(below_it)


def _entries(root: Path, place: Sequence[str], most: int) -> list[tuple[str, os.stat_result]]:
    found = []
    with contextlib.suppress(OSError):
        handle = _folder(root, place)
        try:
            with os.scandir(handle) as listed:
                for entry in itertools.islice(listed, most):
                    with contextlib.suppress(OSError):  # removed meanwhile
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        finally:
            os.close(handle)
    return sorted(found)
