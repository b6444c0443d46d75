# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench host-load`: dose and response of page loads to the host's load, the source of the host's limits.

At each level so many processes keep a core busy, while page loads run over a LEO link. A load is off if its Page Load
Time differs from the median without load by more than TOLERANCE. The limits are good if each load that is off was
marked, and hardly any without load was.
"""

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import collect
from satlab.common import processes
from satlab.common.console import ProgressLog
from satlab.common.paths import SCENARIOS
from satlab.experiment import host_load as limits
from satlab.experiment import run
from satlab.experiment.run import RunRequest
from satlab.link.options import LinkOptions

TOLERANCE = 0.05
METRICS = ("page_load_time_ms", "first_contentful_paint_ms", "response_start_ms")
END_S = 5.0


def measure(levels: Sequence[int], samples: int, protocol: str, runs: Path, log: ProgressLog) -> dict[str, Any]:
    """Load a page `samples` times at each level of load, the lowest first.

    Raises:
        ConfigError, HostError: this host cannot run a lab.
    """
    found = {level: _level(level, samples, protocol, runs, log) for level in sorted(set(levels))}
    return {
        "schema": "satlab/bench-host-load/1",
        "protocol": protocol,
        "limit": limits.BROWSER_WAIT_LIMIT,
        **judged(found),
    }


def judged(found: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the table of the levels: medians, how many loads are off, how many of these were not marked."""
    first = found[min(found)]
    quiet_ms = median(one["page_load_time_ms"] for one in first)
    table = []
    for level, loads in found.items():
        off = [one for one in loads if abs(one["page_load_time_ms"] / quiet_ms - 1) > TOLERANCE]
        medians = {metric: median(one[metric] for one in loads) for metric in METRICS}
        table.append(
            {
                "processes": level, "n": len(loads), **medians,
                "wait_ratio": median(one["wait_ratio"] for one in loads),
                "yardstick_ms": median(one["yardstick_ms"] for one in loads),
                "marked": sum(one["is_marked"] for one in loads),
                "off": len(off), "off_and_not_marked": sum(not one["is_marked"] for one in off), "loads": loads,
            }
        )  # fmt: skip
    return {"quiet_ms": quiet_ms, "tolerance": TOLERANCE, "levels": table}


def _level(level: int, samples: int, protocol: str, runs: Path, log: ProgressLog) -> list[dict[str, Any]]:
    with log.step(f"{level} processes") as step, burning(level):
        settings = {"protocol": protocol, "runs": str(samples)}
        request = RunRequest(SCENARIOS / "page_load.json", LinkOptions(profile="leo"), settings, runs, report=False)
        result = run.execute(run.prepare(request), ProgressLog(quiet=True), threading.Event())
        loads = [_figures(one.load) for one in result.collected.stored.loads if one.load.status == "ok"]
        step.outcome = f"{len(loads)} of {samples} loads"
    return loads


def _figures(load: collect.PageLoad) -> dict[str, Any]:
    ratio = limits.wait_ratio(load) or 0.0
    own = {metric: getattr(load, metric) for metric in (*METRICS, *collect.HOST_METRICS)}
    return own | {"wait_ratio": ratio, "is_marked": ratio > limits.BROWSER_WAIT_LIMIT}


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    """Keep `count` processes busy during the block."""
    burners = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            processes.finish(burner, END_S)


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as text."""
    head = f"page loads over {result['protocol']} and LEO, medians; off: more than {TOLERANCE:.0%} from "
    rows = [
        f"{one['processes']:3} processes: PLT {one['page_load_time_ms']:7,.0f} ms, FCP "
        f"{one['first_contentful_paint_ms']:7,.0f} ms, longest wait {one['wait_ratio']:5.1%}, known task "
        f"{one['yardstick_ms']:6,.0f} ms; {one['marked']} of {one['n']} marked, {one['off']} off, "
        f"{one['off_and_not_marked']} of them not marked"
        for one in result["levels"]
    ]
    return [f"{head}{result['quiet_ms']:,.0f} ms; limit of the wait {result['limit']:.0%}", *rows]
