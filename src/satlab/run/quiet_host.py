# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a quiet host, and repeating measurements that were made on a busy one."""

import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from satlab.common.console import ProgressLog
from satlab.common.processes import host_ticks

QUIET_SHARE = 0.1
"""Share of the time in which any task waits for a core; below it a host is quiet."""
WINDOW_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """Longest wait for a quiet host before each measurement, s; number of repetitions of a
    measurement out of calibration.
    """

    wait_quiet_s: float = 0.0
    retries: int = 0


def stalled_us(resource: str) -> int | None:
    """Return the time in which any task waited for a resource, us (the kernel's accounting/psi.rst);
    None without this counter.
    """
    try:
        found = re.search(r"some .*total=(\d+)", Path(f"/proc/pressure/{resource}").read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


def cpu_pressure_s() -> float:
    """Return the time in which any task waited for a core, s.

    Without that counter, return the busy time of all cores, per core (proc(5), stat), which is
    never less.
    """
    if (stalled := stalled_us("cpu")) is not None:
        return stalled / 1e6
    ticks = host_ticks()
    return (sum(ticks) - ticks[3] - ticks[4]) / 100 / (os.cpu_count() or 1)


@dataclass(frozen=True)
class HostClock:
    """Time and load of this host; tests step their own.

    `pressure_s` is the time since the start of the host in which a task waited for a core, s.
    """

    now_s: Callable[[], float] = time.monotonic
    pressure_s: Callable[[], float] = cpu_pressure_s
    pause: Callable[[threading.Event, float], object] = threading.Event.wait


def measured(
    take: Callable[[], T],
    is_off: Callable[[T], str],
    patience: Patience,
    log: ProgressLog,
    stop: threading.Event,
) -> T:
    """Measure on a quiet host, and repeat the measurement while it is out of calibration (`is_off`
    returns the reason). Return the last measurement. The log has the reasons of the earlier ones.
    """
    for attempt in range(patience.retries + 1):
        wait_until_quiet(patience.wait_quiet_s, log, stop)
        found = take()
        why = is_off(found)
        if not why or attempt == patience.retries or stop.is_set():
            break
        log.line(f"  {why} (repeated now, {attempt + 1} of {patience.retries})")
    return found


def wait_until_quiet(
    seconds: float,
    log: ProgressLog,
    stop: threading.Event,
    host: HostClock | None = None,
) -> bool:
    """Wait up to `seconds` until the host is quiet for WINDOW_S; return whether it is. 0: do not
    look.
    """
    host = host or HostClock()
    end = host.now_s() + seconds
    share, is_reported = 1.0, False
    while seconds and not stop.is_set():
        before, began = host.pressure_s(), host.now_s()
        host.pause(stop, WINDOW_S)
        share = (host.pressure_s() - before) / max(host.now_s() - began, 1e-9)
        if share < QUIET_SHARE:
            return True
        if host.now_s() >= end:
            log.line(
                f"  the host is not quiet after {seconds:g} s: tasks wait for a core"
                f" {100 * share:.0f} % of the time"
            )
            return False
        if not is_reported:
            log.line(
                f"  waiting for a quiet host, at most {seconds:g} s: tasks wait for a core"
                f" {100 * share:.0f} % of the time"
            )
            is_reported = True
    return share < QUIET_SHARE
