# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches browser-speed`: page loads of a browser that is slowed down, as on a slower
host, and the part of their times that is then the host's: the source of its limit.

The limit is good if each load that is more than TOLERANCE slower than the median without slow-down
was marked, and hardly any without slow-down was.
"""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import collect
from collect import browser_yardstick
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.common.paths import SCENARIOS
from satlab.link.options import LinkOptions
from satlab.run import host_load, scenario_run
from satlab.run.scenario_run import RunRequest

Kind = Literal["h1", "h2", "h3"]
TOLERANCE = 0.1
LONGEST_LOAD_S = 120.0
SampleDocument = Mapping[str, float]


def measure(
    levels: Sequence[float], samples: int, kind: Kind, profile: str, runs: Path, log: ProgressLog
) -> dict[str, Any]:
    """Load a page `samples` times at each slow-down, the smallest first.

    Raises:
        ConfigError, HostError: this host cannot run a lab, or has no yardstick.
    """
    found = {}
    for level in sorted(set(levels)):
        with log.step(f"slow-down {level:g}") as step:
            found[level] = _loads(samples, level, kind, profile, runs)
            step.outcome = f"{len(found[level])} of {samples} loads"
    return {
        "schema": "satlab/bench-browser-speed/1",
        "kind": kind,
        "profile": profile,
        "limit": host_load.BROWSER_HOST_LIMIT,
        **judged(found, host_load.BROWSER_HOST_LIMIT),
    }


def _loads(count: int, level: float, kind: Kind, profile: str, runs: Path) -> list[SampleDocument]:
    settings = {"protocol": kind, "runs": str(count), "cpu_slowdown": f"{level:g}"}
    link = LinkOptions.of(profile=profile, timing="opensand")
    request = RunRequest(
        SCENARIOS / "page_load.json",
        link,
        settings,
        runs,
        deadline_s=LONGEST_LOAD_S * count,
        report=False,
    )
    stop = threading.Event()
    result = scenario_run.execute(scenario_run.prepare(request), ProgressLog(quiet=True), stop)
    stored = result.collected.stored
    if not stored.yardsticks.yardsticks:
        raise HostError("the host was too busy for its yardstick", "try again when it is quiet")
    return [_sample(one.load, stored.yardsticks) for one in stored.loads if one.load.status == "ok"]


def _sample(load: collect.PageLoad, known: browser_yardstick.BrowserYardsticks) -> SampleDocument:
    """Return the times of a load as if nobody had asked for its slow-down."""
    as_of_host = load.model_copy(update={"cpu_slowdown": 1.0})
    return {
        "time_ms": load.page_load_time_ms or 0.0,
        "first_contentful_paint_ms": load.first_contentful_paint_ms or 0.0,
        "task_ms": load.yardstick_ms or 0.0,
        "host_ms": browser_yardstick.host_ms(as_of_host, known) or 0.0,
    }


def judged(found: Mapping[float, Sequence[SampleDocument]], limit: float) -> dict[str, Any]:
    """Return the table of the levels: medians, how many loads are marked, how many are slower, and
    how many of these are not marked.
    """
    first_ms = median(one["time_ms"] for one in found[min(found)])
    table = []
    for level, samples in sorted(found.items()):
        shares = [one["host_ms"] / one["time_ms"] for one in samples]
        marked = [share > limit for share in shares]
        slower = [one["time_ms"] > (1 + TOLERANCE) * first_ms for one in samples]
        table.append(
            {
                "slowdown": level,
                "n": len(samples),
                **{name: median(one[name] for one in samples) for name in samples[0]},
                "share": median(shares),
                "marked": sum(marked),
                "slower": sum(slower),
                "slower_and_not_marked": sum(
                    is_slower and not is_marked
                    for is_slower, is_marked in zip(slower, marked, strict=True)
                ),
                "samples": list(samples),
            }
        )
    return {"first_ms": first_ms, "tolerance": TOLERANCE, "levels": table}


def lines(result: Mapping[str, Any]) -> list[str]:
    """Return the result as text."""
    head = (
        f"{result['kind']} over {result['profile']}, medians; slower: more than {TOLERANCE:.0%}"
        f" above {result['first_ms']:,.0f} ms; limit of the host's part {result['limit']:.0%}"
    )
    rows = [
        f"{one['slowdown']:4g} times: {one['time_ms']:7,.0f} ms, of which the host"
        f" {one['host_ms']:6,.0f} ms ({one['share']:.0%}); {one['marked']} of {one['n']} marked,"
        f" {one['slower']} slower, {one['slower_and_not_marked']} of them not marked"
        for one in result["levels"]
    ]
    return [head, *rows]
