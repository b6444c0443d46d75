# SPDX-License-Identifier: GPL-3.0-or-later
"""The state folder: one server uses it at a time, and the API's folder in it belongs to the API's
user.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satlab.common.errors import HostError
from satlab.lab import privileges


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Create the folder if needed, and hold its lock: two servers must not share a queue.

    Raises HostError.
    """
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not state.stat().st_mode & stat.S_IXOTH:
        hint = f"chmod o+x {state}, or choose another --state; private folders in it stay closed"
        raise HostError(f"{state}: the service's own user cannot open it", hint)
    (state / "api").mkdir(mode=0o700, exist_ok=True)
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise HostError(
            f"{state}: another satlab serve uses it", "stop that one, or choose another --state"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def check_owner(state: Path) -> None:
    """Check that the API's folder and all in it belong to the API's user; a new folder is given to
    that user.

    Raises HostError. Nothing else is changed: root must not follow what the API's user may have
    made.
    """
    place = state / "api"
    place.mkdir(mode=0o700, exist_ok=True)
    try:
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(
            f"{place}: {error.strerror}", "move it away, or choose another --state"
        ) from error
    try:
        with os.scandir(handle) as entries:
            owners = {each.name: each.stat(follow_symlinks=False).st_uid for each in entries}
        if os.fstat(handle).st_uid == os.geteuid() and not owners:
            os.fchown(handle, privileges.API_UID, privileges.API_UID)
        owners["."] = os.fstat(handle).st_uid
    finally:
        os.close(handle)
    for name, uid in owners.items():
        if uid != privileges.API_UID:
            user = f"{privileges.API_UID}:{privileges.API_UID}"
            hint = f"stop satlab serve, then: chown -hR {user} {place}"
            raise HostError(
                f"{place / name}: belongs to user {uid}, not to the service's own user", hint
            )
