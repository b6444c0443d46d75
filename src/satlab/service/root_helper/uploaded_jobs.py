# SPDX-License-Identifier: GPL-3.0-or-later
"""The uploaded jobs of a run: root's copy of the API's folder, which the API cannot change any
more.
"""

import os
import stat
from pathlib import Path

from collect import raw
from satlab.common.errors import ConfigError

MOST_BYTES = 1 << 30
"""Largest size of all uploaded jobs together, bytes; they are copied to the folder of temporary
files.
"""
MOST_DEPTH = 32
"""Largest depth of folders."""
_CHUNK_BYTES = 1 << 20
_REPAIR = "upload the job again"


def copy(jobs: Path, target: Path) -> None:
    """Copy the folder of uploaded jobs to the new folder `target`.

    A folder that is missing is copied as an empty one.

    Each file is opened below an open folder, so that nothing that is exchanged meanwhile leads
    elsewhere. Raises ConfigError: a link or a special file is in it, or more than MOST_BYTES or
    MOST_DEPTH.
    """
    target.mkdir(mode=0o755)
    if not os.path.lexists(jobs):
        return
    _check(jobs, os.lstat(jobs))
    left = MOST_BYTES
    for name, folders, files, handle in os.fwalk(jobs, follow_symlinks=False):
        below = Path(name).relative_to(jobs)
        if len(below.parts) > MOST_DEPTH:
            raise ConfigError(f"{jobs}: more than {MOST_DEPTH} folders in each other", hint=_REPAIR)
        place = target / below
        for each in folders:
            _check(Path(name, each), os.stat(each, dir_fd=handle, follow_symlinks=False))
            (place / each).mkdir(mode=0o755)
        for each in files:
            left -= _copy_file(Path(name, each), handle, place / each, left)


def _copy_file(path: Path, folder: int, target: Path, most_bytes: int) -> int:
    """Copy a file of an open folder; return its bytes."""
    _check(path, os.stat(path.name, dir_fd=folder, follow_symlinks=False))
    try:
        source = raw.open_in(folder, path.name, MOST_BYTES)
    except (OSError, raw.RefusedError) as error:
        raise ConfigError(f"{path}: {error}", hint=_REPAIR) from error
    size = 0
    with source, target.open("xb") as copied:
        while chunk := source.read(_CHUNK_BYTES):
            size += len(chunk)
            if size > most_bytes:
                raise ConfigError(
                    f"the uploaded jobs have more than {MOST_BYTES} bytes",
                    hint="remove some of them",
                )
            copied.write(chunk)
        os.fchmod(copied.fileno(), stat.S_IMODE(os.fstat(source.fileno()).st_mode) & 0o755)
    return size


def _check(path: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise ConfigError(f"{path}: is a link", hint=_REPAIR)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise ConfigError(f"{path}: is neither a file nor a folder", hint=_REPAIR)
