# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of runs belong to the process that runs them. The next run removes the lab of a killed one.

The owner holds a lock on `/run/satlab-owners/<lab id>`; the kernel releases it when the process
ends, however it ends.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from satlab.common import locks, scratch
from satlab.common.errors import HostError
from satlab.lab import lab

OWNERS = Path("/run/satlab-owners")


@contextmanager
def owned(lab_id: str) -> Iterator[str]:
    """Own a lab's id during the block."""
    descriptor = _locked(OWNERS / lab_id)
    try:
        yield lab_id
    finally:
        _forget(OWNERS / lab_id)
        os.close(descriptor)


def _locked(path: Path) -> int:
    """Open and lock a lock file.

    A sweep may hold the lock for a moment, and may have removed the file meanwhile.
    """
    try:
        while (descriptor := locks.hold_removable(path, wait=True)) is None:
            pass
    except PermissionError as error:
        raise HostError(
            "a run needs root: it makes network namespaces", "run the same command as root"
        ) from error
    return descriptor


def _forget(path: Path) -> None:
    """Remove a lock file, and the folder if that is then empty."""
    path.unlink(missing_ok=True)
    with suppress(OSError):
        path.parent.rmdir()


def sweep() -> list[str]:
    """Take down the labs whose owners have died, and remove their temporary folders; return the
    labs' ids.
    """
    dead = []
    for path in sorted(OWNERS.glob("*")) if OWNERS.is_dir() else ():
        descriptor = locks.hold_left_behind(path)
        if descriptor is None:  # its owner holds it, or has just removed it
            continue
        try:
            lab.down(path.name)
            _forget(path)
        finally:
            os.close(descriptor)
        dead.append(path.name)
    scratch.sweep()
    return dead


def make_folder(folder: Path) -> None:
    """Make a new folder, and the ones above it, owned by the person who called sudo.

    Raises FileExistsError.
    """
    if not folder.parent.exists():
        make_folder(folder.parent)
    folder.mkdir()
    chown_to_caller(folder)


def chown_to_caller(path: Path) -> None:
    """Give a file, or a folder with its content, to the user who called sudo, else to root."""
    if os.geteuid() != 0:
        return
    uid, gid = os.environ.get("SUDO_UID", "0"), os.environ.get("SUDO_GID", "0")
    # A job may have left links and deep folders. chown(1) follows no link, not even one that is
    # made meanwhile.
    argv = ["chown", "-hRP", "--", f"{int(uid)}:{int(gid)}", str(path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise HostError(
            f"{path}: its owner cannot be changed:"
            f" {done.stderr.decode(errors='replace').strip()[:200]}"
        )
