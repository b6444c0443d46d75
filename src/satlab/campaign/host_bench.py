# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench host`: how many labs this host bears at once, and how exact its timers are, within
a minute.

The result is kept for campaigns (docs/campaigns.md), with the stamp of the host that it was
measured on.
"""

import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.files import write_atomically
from satlab.link.config import LinkRequest
from satlab.run import calibrate, host_stamp
from satlab.run.lab_session import QUIET, NetnsHost, new_lab_id

LIMIT_S = 60.0
"""No further number of labs is tried if all tries together would take longer than this, s."""
MOST_LABS = 32
WAKES = 2000
WAKE_PERIOD_S = 0.001
FIFO_PRIORITY = 50


def measure(log: ProgressLog) -> dict[str, Any]:
    """Calibrate 1, 2, 4 ... labs of 20 Mbit/s at once until one of them is out of calibration, and
    keep the result.

    `labs`: the largest number at which all held; 0 if one lab alone does not. `timer_p99_us`: how
    late a thread of the real-time class wakes up.

    Raises:
        ConfigError, HostError: this host cannot run a lab.
    """
    began, count, tried = time.monotonic(), 1, dict[str, list[list[str]]]()
    digest, facts = host_stamp.stamp()
    timers = wakes()
    while count <= MOST_LABS:
        before = time.monotonic()
        with log.step(f"{count} labs at once") as step:
            tried[str(count)] = labs_at_once(count)
            failed = sum(bool(deviations) for deviations in tried[str(count)])
            step.outcome = f"{failed} out of calibration" if failed else "all in calibration"
        now = time.monotonic()
        if failed or now - began + 2 * (now - before) > LIMIT_S:
            break
        count *= 2
    held = [int(number) for number, labs in tried.items() if not any(labs)]
    result = {
        "schema": host_stamp.SCHEMA,
        "stamp": digest,
        "facts": facts,
        "measured_unix_s": round(time.time(), 1),
        "labs": max(held, default=0),
        "tried": tried,
        "timer_p99_us": round(timers.late.p99_us or 0.0, 1),
        "took_s": round(time.monotonic() - began, 1),
    }
    file = host_stamp.file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(file, json.dumps(result, indent=1) + "\n")
    return result


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result as text."""
    rows = []
    for count, labs in result["tried"].items():
        bad = sorted({name for deviations in labs for name in deviations})
        rows.append(
            f"{count} labs at once:"
            f" {'out of calibration: ' + ', '.join(bad) if bad else 'all in calibration'}"
        )
    rows.append(f"timers: 99 % of wake-ups within {result['timer_p99_us']:g} us")
    rows.append(
        f"campaigns measure {max(1, result['labs'])} labs at once on this host (stamp"
        f" {result['stamp']})"
    )
    return rows


def lab_of(profile: Path, folder: Path, terrestrial_delay_ms: float | None = None) -> NetnsHost:
    """Return a lab over a profile, not up yet; its metrics are in a file of the folder."""
    name = new_lab_id("bench")
    request = LinkRequest(
        profile, metrics=folder / f"{name}.jsonl", terrestrial_one_way_delay_ms=terrestrial_delay_ms
    )
    return NetnsHost(name, topology.load(paths.LAB_FILE), request)


def labs_at_once(count: int) -> list[list[str]]:
    """Calibrate several labs of 20 Mbit/s at the same time, and return the failed checks of each
    lab.
    """
    with (
        tempfile.TemporaryDirectory(prefix="satlab-bench-") as name,
        contextlib.ExitStack() as stack,
    ):
        hosts = [lab_of(paths.PROFILES / "geo", Path(name)) for _ in range(count)]
        labs = [stack.enter_context(host.opened(QUIET)) for host in hosts]
        with ThreadPoolExecutor(count) as pool:
            before = list(pool.map(lambda host, lab: host.calibrate(lab), hosts, labs))
        stack.close()
        return [
            calibrate.deviations([*checks, *host.release_errors(lab, 0.0)])
            for host, lab, checks in zip(hosts, labs, before, strict=True)
        ]


@dataclass(frozen=True)
class ReleaseErrors:
    """Release error of one direction over a lab's life, us; None if no packet crossed."""

    p50_us: float | None
    p99_us: float | None
    max_us: float | None


@dataclass(frozen=True)
class TimerBaseline:
    """A thread under SCHED_FIFO that wakes every millisecond: how late, us, and the CPU time of one
    wake, us.
    """

    late: ReleaseErrors
    cpu_us_per_wake: float


def wakes(
    count: int = WAKES, core: int | None = None, period_s: float = WAKE_PERIOD_S
) -> TimerBaseline:
    """Measure how late this thread wakes up in the real-time class, on any core or bound to one."""
    late: list[float] = []
    before, cores = (os.sched_getscheduler(0), os.sched_getparam(0)), os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores if core is None else {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    try:
        cpu_s, due = time.thread_time(), time.clock_gettime(time.CLOCK_MONOTONIC)
        for _ in range(count):
            due += period_s
            time.sleep(max(0.0, due - time.clock_gettime(time.CLOCK_MONOTONIC)))
            late.append((time.clock_gettime(time.CLOCK_MONOTONIC) - due) * 1e6)
        cpu_s = time.thread_time() - cpu_s
    finally:
        os.sched_setscheduler(0, *before)
        os.sched_setaffinity(0, cores)
    p99 = statistics.quantiles(late, n=100)[98]
    return TimerBaseline(
        ReleaseErrors(statistics.median(late), p99, max(late)), cpu_s / count * 1e6
    )
