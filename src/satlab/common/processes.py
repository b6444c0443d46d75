# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that outlive the program that starts them: start, inspect, signal, reap."""

import contextlib
import os
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pydantic import BaseModel, ConfigDict

from satlab.common.errors import HostError

POLL_S = 0.01
LOG_LINES = 5
LOG_TAIL_BYTES = 4096
"""Lines of a log that are quoted, and bytes in which they are looked for. OpenSAND may write an
error for every lost packet.
"""


@dataclass(frozen=True)
class Entrance:
    """How to run a command in another place: the words before it, and all its variables."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class TrackedProcess(BaseModel):
    """A process and its log; `start_ticks` (/proc/PID/stat) distinguishes it from a later one of
    the same number.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    pid: int
    start_ticks: int
    log: Path

    def is_alive(self) -> bool:
        """Return whether the process runs; a zombie does not."""
        return start_ticks(self.pid) == self.start_ticks

    def exit_code(self) -> int | None:
        """Return the exit status, -N for signal N; None while the process runs, or if this program
        is not its parent.
        """
        with contextlib.suppress(ChildProcessError):
            # WNOWAIT leaves it to be reaped.
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return None

    def is_reaped(self) -> bool:
        """Reap the process if it is a child of this program. Its last thread may end a moment after
        its first.
        """
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return True

    def last_words(self) -> str:
        """Return the end of the process's log on one line."""
        text = log_tail(self.log)
        if text is None:
            return "it left no log"
        return " | ".join(text.strip().splitlines()[-LOG_LINES:]) or "it said nothing"


@dataclass(frozen=True)
class ProcfsProcess:
    """A process as /proc shows it; `start_ticks` (since boot) distinguishes it from a later one of
    the same number.

    `own_ticks`: its CPU time; `cpu_ticks`: with that of the children that it waited for.
    """

    name: str
    pid: int
    parent: int
    session: int
    start_ticks: int
    dead: bool
    own_ticks: int
    cpu_ticks: int

    @property
    def alive(self) -> bool:
        """Return whether this very process still runs; a zombie does not."""
        return start_ticks(self.pid) == self.start_ticks

    def send(self, number: signal.Signals) -> None:
        """Signal this very process; nothing happens when it is gone."""
        send({self.pid}, lambda: {self.pid} if self.alive else set(), number)


def read_process(pid: int) -> ProcfsProcess | None:
    """Read a process in any state from /proc; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return parse_process(stat)


def parse_process(stat: str) -> ProcfsProcess:
    """Return the process of a /proc/PID/stat."""
    # The name in parentheses may hold anything, so fields are counted from its end; proc(5) numbers
    # them from 3.
    before, _, after = stat.rpartition(")")
    pid, _, name = before.partition(" (")
    fields = after.split()
    ticks = [int(field) for field in fields[11:15]]
    return ProcfsProcess(
        name,
        int(pid),
        int(fields[1]),
        int(fields[3]),
        int(fields[19]),
        fields[0] in "ZX",
        sum(ticks[:2]),
        sum(ticks),
    )


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks after boot; None when there is none, or only a
    zombie.
    """
    process = read_process(pid)
    return None if process is None or process.dead else process.start_ticks


def host_ticks() -> list[int]:
    """Return the CPU time of all cores since the start of the host, in ticks: user, nice, system,
    idle, iowait, irq, softirq, steal (proc(5), stat). Guest time is in user time.
    """
    with Path("/proc/stat").open(encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def log_tail(log: Path) -> str | None:
    """Return the last `LOG_TAIL_BYTES` of a log; None when it cannot be read."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(-min(LOG_TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read().decode(errors="replace")
    return None


def start(argv: list[str], *, out: Path, log: Path) -> TrackedProcess:
    """Start a process in a new session, so that it outlives this program and its terminal.

    `out` and `log` take its stdout and stderr, private to root; they may be one file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(out), flags, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, str(log), flags, 0o600),
    ]
    # SIGPIPE and SIGXFSZ: Python ignores them, and the child would inherit that.
    default = [signal.SIGPIPE, signal.SIGXFSZ]
    try:
        pid = os.posix_spawnp(
            argv[0], argv, os.environ, file_actions=files, setsid=True, setsigdef=default
        )
    except OSError as error:
        raise HostError(f"{argv[0]}: {error.strerror}", "install util-linux") from error
    return TrackedProcess(pid=pid, start_ticks=start_ticks(pid) or 0, log=log)


def finish(child: "subprocess.Popen[bytes] | subprocess.Popen[str]", within_s: float) -> None:
    """Terminate a child of this program, kill it if it does not end in time, and reap it."""
    child.terminate()
    reap(child, within_s)


def reap(child: "subprocess.Popen[bytes] | subprocess.Popen[str]", within_s: float) -> None:
    """Wait for a child's end, and kill the child if it does not end in time."""
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def send(pids: set[int], belong: Callable[[], set[int]], number: signal.Signals) -> None:
    """Send a signal to processes through pidfds. Each process is checked again once its pidfd is
    open, because another process may have taken its number.
    """
    with contextlib.ExitStack() as held:
        handles = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
                held.callback(os.close, handles[pid])
        still = belong() if handles else set()
        for pid, handle in handles.items():
            if pid in still:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handle, number)


def children_cpu_s() -> float:
    """Return the CPU time of all children that this process has waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until `condition` holds; False when it does not within `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True


def stop_on_signal() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; a second signal interrupts at once."""
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        signal.signal(number, handle)

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stop
