# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files (flock(2)): whoever has the descriptor, also by inheritance, holds what was taken with it."""

import fcntl
import os
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
