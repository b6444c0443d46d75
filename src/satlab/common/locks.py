# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files (flock(2)). A process that inherits the descriptor also holds the lock."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


def open_lock(file: Path) -> int:
    """Open a lock file, made where it is missing, and return its descriptor; nothing is held yet."""
    return os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file, if it is free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def hold_removable(file: Path, *, wait: bool) -> int | None:
    """Make and lock a file that its last holder removes, with its folder; return its descriptor.

    None: another holds it, or it was removed between its opening and its lock. `wait`: until it is
    free.
    """
    # The folder may go between its making and the look at it (FileExistsError), or before the file
    # is opened.
    with suppress(FileNotFoundError, FileExistsError):
        file.parent.mkdir(mode=0o700, exist_ok=True)
        return _lock_unless_removed(open_lock(file), file, wait=wait)
    return None


def hold_left_behind(file: Path) -> int | None:
    """Lock a file of `hold_removable` that is there and that nobody holds; return its descriptor."""
    with suppress(FileNotFoundError):
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        return _lock_unless_removed(descriptor, file, wait=False)
    return None


def _lock_unless_removed(descriptor: int, file: Path, *, wait: bool) -> int | None:
    """Lock an open file; close it where another holds it, or where it is `file` no more."""
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if os.path.samestat(os.fstat(descriptor), file.stat()):
            return descriptor
    os.close(descriptor)
    return None
