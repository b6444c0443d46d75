# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives from users, unpacked with bounds: no links, no devices, no way out of the folder, no bombs."""

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
from typing import IO

from satlab.common.errors import ConfigError
from satlab.openbach.document import NAME_RULE, is_name

MOST_FILES = 200
MOST_BYTES = 32 << 20
"""Bounds on what an archive holds, unpacked."""
_CHUNK = 1 << 16
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # renameat2(2)


class _Bounded(io.RawIOBase):
    """Reads at most `most` bytes of a stream: headers and padding of a bomb count, too."""

    def __init__(self, stream: gzip.GzipFile, most: int) -> None:
        self._stream, self._left = stream, most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise ConfigError(f"the archive holds more than {MOST_BYTES} bytes")
        return data


def unpack(archive: IO[bytes], target: Path, check: Callable[[Path], object]) -> None:
    """Unpack a .tar.gz to `target`, whole or not at all. What was there stays until the new content has passed `check`.

    `check` gets a folder of the same name with the new content, and refuses it by raising. Raises ConfigError.
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
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ConfigError(f"the archive cannot be read: {error}", hint="it is a .tar.gz") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove(target: Path) -> None:
    """Remove what was unpacked: first from sight, at once, then from the disk. Raises OSError."""
    scratch = Path(tempfile.mkdtemp(prefix=".upload-", dir=target.parent))
    try:
        target.rename(scratch / target.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Let two paths change places at once. Raises OSError, also where the file system cannot do it (NFS)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(other))


def _unpack(archive: IO[bytes], scratch: Path) -> None:
    bounded = _Bounded(gzip.GzipFile(fileobj=archive, mode="rb"), MOST_BYTES + MOST_FILES * 1024)
    count = 0
    with tarfile.open(fileobj=bounded, mode="r|") as members:
        for count, member in enumerate(members, 1):
            if count > MOST_FILES:
                raise ConfigError(f"the archive holds more than {MOST_FILES} files")
            path = scratch / checked(member.name)
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(members.extractfile(member), path, executable=bool(member.mode & 0o100))
            else:
                raise ConfigError(f"{member.name[:100]!r} is neither file nor folder", hint="links are not taken")
    if count == 0:
        raise ConfigError("the archive holds nothing")


def checked(name: str) -> PurePosixPath:
    """Return the place of a member below its archive's folder. Raises ConfigError."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or len(parts) > 8 or not all(is_name(part) for part in parts):
        raise ConfigError(f"{name[:100]!r} is not a name to unpack", hint=NAME_RULE)
    return PurePosixPath(*parts)


def _write(source: IO[bytes] | None, path: Path, *, executable: bool) -> None:
    if source is None:
        raise ConfigError(f"{path.name} cannot be read")
    with path.open("xb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
    path.chmod(0o755 if executable else 0o644)
