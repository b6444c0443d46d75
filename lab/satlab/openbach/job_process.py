# SPDX-License-Identifier: GPL-3.0-or-later
"""One job as a Linux process, with everything it has started; found through /proc and signalled by pid alone."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from satlab.common.processes import ProcfsProcess, read_process

FAMILY_GRACE_S = 1.0
JOB_GRACE_S = 2.0
"""How long OpenBACH's agent waits after SIGTERM before SIGKILL: for a job's descendants, for the job itself."""

_GONE_S = 1.0
_COMMAND_STOP_S = 10.0

_Waiting = Generator[None, float, None]


def _all() -> list[ProcfsProcess]:
    found = (read_process(int(entry)) for entry in os.listdir("/proc") if entry.isdecimal())  # noqa: PTH208 - names only
    return [process for process in found if process is not None and not process.dead]


def _has_environment(process: ProcfsProcess, marks: Mapping[str, str]) -> bool:
    try:
        entries = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return all(os.fsencode(f"{name}={value}") in entries for name, value in marks.items())


def marked(marks: Mapping[str, str]) -> list[ProcfsProcess]:
    """Find live processes, other than this one, that were started with these environment variables."""
    return [process for process in _all() if process.pid != os.getpid() and _has_environment(process, marks)]


def end(find: Callable[[], list[ProcfsProcess]], grace_s: float) -> _Waiting:
    """SIGTERM what `find` returns, SIGKILL what is left after the grace time. Send it the time at each yield."""
    now = yield
    targets = find()
    for process in targets:
        process.send(signal.SIGTERM)
    deadline = now + grace_s
    while now < deadline and any(process.alive for process in targets):
        now = yield
    deadline = now + _GONE_S
    while now < deadline and (left := {*find(), *(process for process in targets if process.alive)}):
        for process in left:
            process.send(signal.SIGKILL)
        now = yield


class JobProcess:
    """A started job. `poll` it with the time until it returns the exit status."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stop_argv: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        marks: Mapping[str, str],
    ) -> None:
        """Start the job in a session of its own, with stdout and stderr in `log`.

        `marks` are those variables of `environment` by which descendants that left the session are found.

        Raises OSError when the program cannot be started.
        """
        self.argv = tuple(argv)
        self._stop_argv = tuple(stop_argv)
        self._environment = dict(environment)
        self._folder = folder
        self._log = log
        self._marks = dict(marks)
        self._popen = self._spawn(self.argv)
        self._own = read_process(self._popen.pid)
        self._stopping: _Waiting | None = None
        self.pidfd = os.pidfd_open(self._popen.pid)

    @property
    def stopping(self) -> bool:
        """Return whether a stop was requested."""
        return self._stopping is not None

    def stop(self) -> None:
        """Begin to stop the job as OpenBACH's agent does; `poll` carries it out."""
        if self._stopping is None:
            self._stopping = self._stop()
            next(self._stopping)

    def poll(self, now: float) -> int | None:
        """Continue a stop; return the exit status (negative: signal) once the job, and the stop, are over."""
        if self._stopping is None:
            return self._popen.poll()
        try:
            self._stopping.send(now)
        except StopIteration:  # a process that SIGKILL cannot end hangs in the kernel; nothing is gained by waiting
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
                cwd=self._folder,
                env=self._environment,
                start_new_session=True,
            )

    def _stop(self) -> _Waiting:
        yield from end(self._family, FAMILY_GRACE_S)
        yield from end(self._job, JOB_GRACE_S)
        if not self._stop_argv:
            return
        try:
            command = self._spawn(self._stop_argv)
        except OSError:
            return
        deadline = (yield) + _COMMAND_STOP_S
        while command.poll() is None and (yield) < deadline:
            pass
        if command.poll() is None:
            command.kill()
            command.wait()

    def _job(self) -> list[ProcfsProcess]:
        self._popen.poll()  # reaps it
        return [self._own] if self._own is not None and self._own.alive else []

    def _family(self) -> list[ProcfsProcess]:
        """Return the live descendants: by parent, by session, and by environment for those that left both."""
        everyone = _all()
        own = self._popen.pid
        family = {process.pid for process in everyone if process.session == own} | {own}
        grown = True
        while grown:
            children = {process.pid for process in everyone if process.parent in family} - family
            family |= children
            grown = bool(children)
        found = [process for process in everyone if process.pid in family]
        found += [process for process in marked(self._marks) if process.pid not in family]
        return [process for process in found if process.pid != own]
