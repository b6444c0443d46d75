# SPDX-License-Identifier: GPL-3.0-or-later
"""How many cores a job's programs, and all programs of the host, keep busy over time."""

import contextlib
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

STEP_S = 0.1
MOST = 600
"""Most samples. When there are so many, each two become one, and the step doubles."""
CPUCLOCK_SCHED = 2
"""Kind of the clock of a process's CPU time (the kernel's include/linux/posix-timers.h). It counts
ns at the cost of one system call; /proc counts ticks of 10 ms.
"""
IDLE = slice(3, 5)
"""Idle time and waits for disks, among the times of /proc/stat (proc(5))."""


class Sample(NamedTuple):
    """A step: its end, ms since the curve began; cores that the processes below this one kept busy
    in it; cores that all programs of the host kept busy.
    """

    end_ms: float
    own_cores: float
    host_cores: float


class CpuCurve:
    """Takes samples of CPU time in a thread, from `with` to the end of its block."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._step_s = STEP_S
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._seen: set[str] = set()
        self._known = {os.getpid()}
        self._own_s: dict[int, float] = {}
        self._find()
        self._own_s = self._read()

    def __enter__(self) -> "CpuCurve":
        self._began_s = self._last_s = time.monotonic()
        self._host_s = busy_s()
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ends.wait(self._step_s):
            self._take()
        if time.monotonic() - self._last_s > STEP_S / 2:  # in less there are too few ticks
            self._take()

    def _take(self) -> None:
        self._find()
        own_s, host_s, now_s = self._read(), busy_s(), time.monotonic()
        length_s = max(now_s - self._last_s, 1e-3)
        used_s = sum(used - self._own_s.get(pid, 0.0) for pid, used in own_s.items())
        self.samples.append(
            Sample(
                round(1000 * (now_s - self._began_s), 1),
                round(used_s / length_s, 2),
                round(max(0.0, host_s - self._host_s) / length_s, 2),
            )
        )
        self._own_s, self._host_s, self._last_s = own_s, host_s, now_s
        if len(self.samples) == MOST:
            pairs = zip(self.samples[::2], self.samples[1::2], strict=True)
            begins_ms = [0.0, *(sample.end_ms for sample in self.samples[1::2])]
            self.samples = [joined(*one) for one in zip(begins_ms, pairs, strict=False)]
            self._step_s *= 2

    def _find(self) -> None:
        """Look at the processes that are new: a child of a known one is known, too."""
        new = set(os.listdir("/proc")) - self._seen  # noqa: PTH208 - a third of the time
        self._seen |= new
        parents = {}
        for pid in map(int, filter(str.isdigit, new)):
            if fields := stat_of(pid):
                parents[pid] = int(fields[1])
        while found := {p for p, parent in parents.items() if parent in self._known} - self._known:
            self._known |= found

    def _read(self) -> dict[int, float]:
        """Return the CPU seconds of each process below this one."""
        used = {}
        for pid in self._known - {os.getpid()}:
            with contextlib.suppress(OSError):  # it has ended
                used[pid] = time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
        return used


def busy_s() -> float:
    """Return the CPU seconds of all programs of the host since it started, those of other machines
    left out.
    """
    with Path("/proc/stat").open(encoding="ascii") as file:
        times = list(map(int, file.readline().split()[1:8]))
    return (sum(times) - sum(times[IDLE])) / os.sysconf("SC_CLK_TCK")


def stat_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat behind the name (proc(5)); none if the process has ended."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()
    return []


def joined(begin_ms: float, steps: tuple[Sample, Sample]) -> Sample:
    """Return two steps, of which the first began at `begin_ms`, as one."""
    a, b = steps
    part = (a.end_ms - begin_ms) / (b.end_ms - begin_ms)
    own, host = (x * part + y * (1 - part) for x, y in zip(a[1:], b[1:], strict=True))
    return Sample(b.end_ms, round(own, 2), round(host, 2))
