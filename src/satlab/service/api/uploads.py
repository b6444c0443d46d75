# SPDX-License-Identifier: GPL-3.0-or-later
"""Uploaded archives, unpacked with limits: no links, no devices, nothing outside the folder, no
bombs.
"""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from satlab.common.archive import ArchiveError, Gunzip, Limits, Place, Reader
from satlab.common.errors import ConfigError
from satlab.openbach.json_document import NAME_RULE, is_name

MAX_FILES = 200
MAX_BYTES = 32 << 20
LIMITS = Limits(MAX_BYTES + MAX_FILES * 1024, MAX_FILES)
"""Limits of an unpacked archive."""
_PREFIX = ".upload-"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # renameat2(2)


def unpack(archive: IO[bytes], target: Path, check: Callable[[Path], object]) -> None:
    """Unpack a .tar.gz to `target`, completely or not at all.

    An earlier `target` stays until `check` has passed.

    `check` raises if it refuses the new content, in a folder of the same name. Raises ConfigError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=target.parent))
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
    except (ArchiveError, OSError, ValueError) as error:
        raise ConfigError(f"the archive cannot be read: {error}", hint="send a .tar.gz") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def sweep(jobs: Path) -> None:
    """Remove the remains of interrupted uploads and removals from the folder of uploaded jobs."""
    for left in jobs.glob(f"{_PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


def remove(target: Path) -> None:
    """Remove an unpacked folder: it is renamed first, so that no part of it is ever seen.

    Raises OSError.
    """
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=target.parent))
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


def _unpack(archive: IO[bytes], scratch: Path) -> None:
    reader, count = Reader(Gunzip(archive), LIMITS), 0
    with Place(scratch, LIMITS) as place:
        for count, member in enumerate(reader, 1):  # noqa: B007 - also read below
            checked(member.name)
            place.put(member, reader.content(), 0o777 if member.mode & 0o100 else 0o666)
    if count == 0:
        raise ConfigError("the archive is empty")


def checked(name: str) -> PurePosixPath:
    """Return the path of a member below its archive's folder. Raises ConfigError."""
    path = PurePosixPath(name)
    parts = [part for part in path.parts if part != "."]
    if path.is_absolute() or len(parts) > 8 or not all(is_name(part) for part in parts):
        raise ConfigError(f"{name[:100]!r} is not a valid name", hint=NAME_RULE)
    return PurePosixPath(*parts)
