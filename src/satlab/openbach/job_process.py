# SPDX-License-Identifier: GPL-3.0-or-later
"""One job as a Linux process: a sandbox, or a program that stands for a job elsewhere.

It ends what the job started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

STOP_S = 6.0
"""Time from SIGTERM to SIGKILL: the grace times of OpenBACH's agent (1 s for descendants, 2 s for
the job) and ssh's.
"""
_COMMAND_STOP_S = 10.0

_Waiting = Generator[None, float, None]


class JobProcess:
    """A started job. `poll` it with the time until it returns the exit status."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stop_argv: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        """Start the job in a new session and in the folder `HOME`, with stdout and stderr in `log`.

        Raises OSError when the program cannot be started.
        """
        self.argv = tuple(argv)
        self._stop_argv = tuple(stop_argv)
        self._environment = dict(environment)
        self._log = log
        self._popen = self._spawn(self.argv)
        self._stopping: _Waiting | None = None
        self.pidfd = os.pidfd_open(self._popen.pid)

    @property
    def stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stopping is not None

    def stop(self) -> None:
        """Begin to stop the job; `poll` carries it out."""
        if self._stopping is None:
            self._stopping = self._stop()
            next(self._stopping)

    def poll(self, now: float) -> int | None:
        """Continue a stop; return the exit status (negative: signal) once the job, and the stop,
        are over.
        """
        if self._stopping is None:
            return self._popen.poll()
        try:
            self._stopping.send(now)
        except (
            StopIteration
        ):  # a process that SIGKILL cannot end hangs in the kernel; nothing is gained by waiting
            status = self._popen.poll()
            return -signal.SIGKILL if status is None else status
        return None

    def close(self) -> None:
        """Close the handle."""
        os.close(self.pidfd)

    def _spawn(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._environment["HOME"],
                env=self._environment,
                start_new_session=True,
            )

    def _stop(self) -> _Waiting:
        now = yield
        yield from _end(self._popen, now, STOP_S)
        if not self._stop_argv:
            return
        try:
            command = self._spawn(self._stop_argv)
        except OSError:
            return
        now = yield
        end = now + _COMMAND_STOP_S
        while command.poll() is None and now < end:
            now = yield
        yield from _end(command, now, STOP_S)


def _end(process: subprocess.Popen[bytes], now: float, within_s: float) -> _Waiting:
    """SIGTERM a process, and SIGKILL its session when it has not ended in time."""
    deadline = now + within_s
    if process.poll() is None:
        process.terminate()
    while process.poll() is None and now < deadline:
        now = yield
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        deadline = now + 1.0
        while process.poll() is None and now < deadline:
            now = yield
