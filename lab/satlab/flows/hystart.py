# SPDX-License-Identifier: GPL-3.0-or-later
"""HyStart of the kernel's CUBIC, which has one setting for the whole host (RFC 9406 describes the idea)."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from satlab.common.errors import HostError
from satlab.common.locks import open_lock, try_lock

PARAMETER = Path("/sys/module/tcp_cubic/parameters/hystart")
LOCK = Path("/run/lock/satlab-hystart")
RESTORE_S = 10.0
_RESTORE = 'cat >/dev/null; printf "%s\\n" "$1" >"$2"'


@contextlib.contextmanager
def setting(is_on: bool | None) -> Iterator[None]:
    """Switch HyStart on or off during the block; None leaves it as it is. New connections of the whole host have it.

    A child restores what was there when the block ends, or this process does, also by SIGKILL. It holds a lock until
    then: one block at a time on a host.

    Raises:
        HostError: another process has set it, or this host cannot.
    """
    if is_on is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            lock = open_lock(LOCK)
            stack.callback(os.close, lock)
            if not try_lock(lock):
                raise HostError("another run has set HyStart of this host", hint="wait for its end")
            before = PARAMETER.read_text().strip()
        except OSError as error:
            raise HostError(f"{error.filename or LOCK}: {error.strerror}", hint="modprobe tcp_cubic") from error
        # A session of its own: a signal to our group must not end it before it has restored the setting.
        argv = ["sh", "-c", _RESTORE, "sh", before, str(PARAMETER)]
        keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=(lock,), start_new_session=True)
        stack.callback(keeper.communicate, timeout=RESTORE_S)
        try:
            PARAMETER.write_text("1\n" if is_on else "0\n")
        except OSError as error:
            raise HostError(f"{PARAMETER}: {error.strerror}", hint="HyStart is set by root alone") from error
        yield
