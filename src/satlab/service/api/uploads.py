# SPDX-License-Identifier: GPL-3.0-or-later
"""Uploaded archives, unpacked with limits: no links, no devices, nothing outside the folder, no
bombs.
"""

import ctypes
import gzip
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Self

from satlab.common.errors import ConfigError
from satlab.openbach.document import NAME_RULE, is_name

MAX_FILES = 200
MAX_BYTES = 32 << 20
"""Limits of an unpacked archive."""
MOST_EXTENSIONS, EXTENSION_BYTES = 4, 64 << 10
"""Extensions of a member's header, and the largest one: names and attributes of pax, long names of
GNU tar.
"""
_EXTENSIONS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_CHUNK = 1 << 16
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # renameat2(2)


class _Limited(io.RawIOBase):
    """Reads at most `most` bytes of a stream, headers and padding of the archive included."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ConfigError(f"the archive holds more than {MAX_BYTES} bytes")
        return data


def unpack(archive: IO[bytes], target: Path, check: Callable[[Path], object]) -> None:
    """Unpack a .tar.gz to `target`, completely or not at all.

    An earlier `target` stays until `check` has passed.

    `check` raises if it refuses the new content, in a folder of the same name. Raises ConfigError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".upload-", dir=target.parent))
    try:
        made = scratch / target.name
        made.mkdir()
        _unpack(archive, made)
        made.chmod(0o755)
        check(made)
        if os.path.lexists(target):
            _exchange(made, target)
        else:
            made.rename(target)
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise ConfigError(f"the archive cannot be read: {error}", hint="send a .tar.gz") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove(target: Path) -> None:
    """Remove an unpacked folder: it is renamed first, so that no part of it is ever seen.

    Raises OSError.
    """
    scratch = Path(tempfile.mkdtemp(prefix=".upload-", dir=target.parent))
    try:
        target.rename(scratch / target.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Exchange two paths atomically. Raises OSError, also on file systems that cannot (NFS)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
        != 0
    ):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _limited_headers() -> type[tarfile.TarInfo]:
    """Return a class for the headers of one archive:

    `tarfile` reads extensions of any number and size.
    """
    extensions = 0

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            nonlocal extensions
            made = super().frombuf(buf, encoding, errors)
            extensions = extensions + 1 if made.type in _EXTENSIONS else 0
            if extensions > MOST_EXTENSIONS or (extensions and made.size > EXTENSION_BYTES):
                raise ConfigError(
                    "the archive has too many or too large headers", hint="send a plain .tar.gz"
                )
            return made

    return Header


def _unpack(archive: IO[bytes], scratch: Path) -> None:
    limited = _Limited(gzip.GzipFile(fileobj=archive, mode="rb"), MAX_BYTES + MAX_FILES * 1024)
    count = 0
    with tarfile.open(fileobj=limited, mode="r|", tarinfo=_limited_headers()) as members:
        for count, member in enumerate(members, 1):
            if count > MAX_FILES:
                raise ConfigError(f"the archive holds more than {MAX_FILES} files")
            path = scratch / checked(member.name)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(members.extractfile(member), path, executable=bool(member.mode & 0o100))
            else:
                raise ConfigError(
                    f"{member.name[:100]!r} is neither file nor folder",
                    hint="links are not accepted",
                )
    if count == 0:
        raise ConfigError("the archive is empty")


def checked(name: str) -> PurePosixPath:
    """Return the path of a member below its archive's folder. Raises ConfigError."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or len(parts) > 8 or not all(is_name(part) for part in parts):
        raise ConfigError(f"{name[:100]!r} is not a valid name", hint=NAME_RULE)
    return PurePosixPath(*parts)


def _write(source: IO[bytes] | None, path: Path, *, executable: bool) -> None:
    if source is None:
        raise ConfigError(f"{path.name} cannot be read")
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    path.chmod(0o755 if executable else 0o644)
