# SPDX-License-Identifier: GPL-3.0-or-later
"""HyStart of the kernel's CUBIC, which has one setting for the whole host (RFC 9406 describes the
idea).
"""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from satlab.common.errors import HostError
from satlab.common.locks import open_lock, try_lock

PARAMETER = Path("/sys/module/tcp_cubic/parameters/hystart")
LOCK = Path("/run/lock/satlab-hystart")
RESTORE_S = 10.0
_RESTORE = 'cat >/dev/null; printf "%s\\n" "$1" >"$2"'


@dataclass
class _Held:
    """The setting that blocks of this process share, their number, and the process that restores
    the setting after the last one.
    """

    is_on: bool = False
    blocks: int = 0
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)


_HELD = _Held()
_GUARD = threading.Lock()


@contextlib.contextmanager
def setting(is_on: bool | None) -> Iterator[None]:
    """Switch HyStart on or off during the block; None changes nothing. It applies to new
    connections of the whole host. Blocks of one process may overlap if they need the same setting.

    Raises: HostError: another process has set it, a block of this process needs the other setting,
    or the kernel has no HyStart.
    """
    if is_on is None:
        yield
        return
    with _GUARD:
        if not _HELD.blocks or _HELD.is_on != is_on:
            _HELD.stack.enter_context(_held(is_on))
            _HELD.is_on = is_on
        _HELD.blocks += 1
    try:
        yield
    finally:
        with _GUARD:
            _HELD.blocks -= 1
            if not _HELD.blocks:
                _HELD.stack.close()


@contextlib.contextmanager
def _held(is_on: bool) -> Iterator[None]:
    """Set it. A child process restores the earlier setting when the block or this process ends,
    even by SIGKILL. Until then it holds a lock: one process of the host at a time.
    """
    with contextlib.ExitStack() as stack:
        try:
            lock = open_lock(LOCK)
            stack.callback(os.close, lock)
            if not try_lock(lock):
                raise HostError("another run has set HyStart of this host", hint="wait for its end")
            before = PARAMETER.read_text().strip()
        except OSError as error:
            raise HostError(
                f"{error.filename or LOCK}: {error.strerror}", hint="modprobe tcp_cubic"
            ) from error
        # A session of its own: a signal to our group must not end it before it has restored the
        # setting.
        argv = ["sh", "-c", _RESTORE, "sh", before, str(PARAMETER)]
        keeper = subprocess.Popen(
            argv, stdin=subprocess.PIPE, pass_fds=(lock,), start_new_session=True
        )
        stack.callback(keeper.communicate, timeout=RESTORE_S)
        try:
            PARAMETER.write_text("1\n" if is_on else "0\n")
        except OSError as error:
            raise HostError(
                f"{PARAMETER}: {error.strerror}", hint="HyStart is set by root alone"
            ) from error
        yield
