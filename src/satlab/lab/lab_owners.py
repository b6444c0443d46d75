# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of runs belong to the process that runs them. The next run removes the lab of a killed one.

The owner holds a lock on `/run/satlab-owners/<lab id>`; the kernel releases it when the process
ends, however it ends.
"""

import os
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
    file = OWNERS / lab_id
    try:
        while (descriptor := locks.hold_removable(file, wait=True)) is None:
            continue  # a sweep has removed the file meanwhile
    except PermissionError as error:
        raise HostError(
            "a run needs root: it makes network namespaces", "run the same command as root"
        ) from error
    try:
        yield lab_id
    finally:
        _forget(file)
        os.close(descriptor)


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
