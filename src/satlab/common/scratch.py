# SPDX-License-Identifier: GPL-3.0-or-later
"""Temporary folders of root, below which jobs and programs under test write. They are removed
whatever they contain.
"""

import fcntl
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satlab.common.errors import HostError

REMOVE_S = 20.0
"""Longest removal, s: less than the API's wait for its root helper."""
PREFIX = "satlab-scratch-"
_LOG = logging.getLogger("satlab.scratch")


def remove(path: Path, within_s: float = REMOVE_S) -> None:
    """Remove a file, or a folder and all in it, however deep.

    Links are not followed, other file systems not entered.

    Raises:
        HostError: something is left after `within_s`, or cannot be removed.
    """
    argv = [
        "rm",
        "-rf",
        "--one-file-system",
        "--",
        str(path),
    ]  # shutil.rmtree is recursive: 1000 folders deep it fails
    hint = f"look at what is in it, then: rm -rf {path}"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(f"{path}: is not removed after {within_s:g} s", hint) from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").partition("\n")[0]
        raise HostError(f"{path}: {reason[-200:]}", hint)


def try_remove(path: Path) -> None:
    """Remove as `remove` does; what cannot be removed stays and is logged."""
    try:
        remove(path)
    except HostError as error:
        _LOG.warning("%s", error)


@contextmanager
def folder(purpose: str, mode: int = 0o700) -> Iterator[Path]:
    """Make a temporary folder of root's own for as long as the block lasts.

    A lock shows `sweep` that it is in use.
    """
    path, lock = _locked(purpose)
    try:
        path.chmod(mode)
        yield path
    finally:
        try_remove(path)
        os.close(lock)


def _locked(purpose: str) -> tuple[Path, int]:
    """Make and lock a folder; a sweep may remove one that is not locked yet."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-")).resolve()
        with suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.is_dir():
                return path, lock
            os.close(lock)


def sweep() -> list[Path]:
    """Remove temporary folders whose programs were killed; return them.

    Those of other users stay.
    """
    left = []
    for path in sorted(Path(tempfile.gettempdir()).resolve().glob(f"{PREFIX}*")):
        with suppress(OSError):  # it goes just now, is a link, or is locked by who uses it
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    try_remove(path)
                    left.append(path)
            finally:
                os.close(lock)
    return left
