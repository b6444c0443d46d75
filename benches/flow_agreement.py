# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches flows --agree`: compare flows under the virtual clock with the same file of flows
on the real clock.

Both have the same wire, libraries and starts. Which of several equal flows is ahead at a moment
depends on a packet more or less: so the flows of each clock are compared by their rank, the fastest
with the fastest, and runs by their medians. Under the virtual clock each run has a seed of its own.
"""

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from satlab.common.console import ProgressLog
from satlab.flows import real_clock, satvirtual

TOLERANCE = 0.03
"""Relative difference that counts as agreement."""
FLOWS = (2, 4, 16)
DURATION_S = 40.0
STEP_S = 20.0
STAGGER_S = 0.05
SEEDS = 9
"""Fewest runs under the virtual clock."""
HOST_LATENCY_US = 100
"""Delay with which a real host wakes a program. Without that the minimum RTT of BBR flows is the
same to the nanosecond: they probe it together, and leave 4 to 6 % of the link unused.
"""
Scenario = Literal["cubic", "bbr3", "mixed-step"]
SCENARIOS: Mapping[Scenario, tuple[tuple[str, str], ...]] = {
    "cubic": (("quinn", "cubic"),),
    "bbr3": (("noq", "bbr3"),),
    "mixed-step": (("quinn", "reno"), ("noq", "cubic")),
}
"""Stacks and congestion controls that the flows have in turn."""


@dataclass(frozen=True)
class Compared:
    """What is compared: each scenario with each number of flows, in `runs` labs, `parallel` of them
    at once.
    """

    scenarios: Sequence[Scenario]
    counts: Sequence[int]
    runs: int = 1
    parallel: int = 1


def measure(request: Compared, log: ProgressLog, stop: threading.Event) -> dict[str, Any]:
    """Compare the clocks in each case.

    Raises ConfigError, HostError, and KeyboardInterrupt after `stop`.
    """
    cases = []
    for name in request.scenarios:
        for count in request.counts:
            with (
                log.step(f"{name}, {count} flows") as step,
                tempfile.TemporaryDirectory(prefix="satlab-flows-") as place,
            ):
                seeds = range(1, max(SEEDS, request.runs) + 1)
                virtual = [_simulated(name, count, seed, Path(place)) for seed in seeds]
                real = _measured(name, count, request, Path(place), stop)
                cases.append({"scenario": name, "flows": count} | compared(virtual, real))
                step.outcome = _outcome(cases[-1])
    return {
        "schema": "satlab/bench-flow-agreement/2",
        "tolerance": TOLERANCE,
        "duration_s": DURATION_S,
        "host_latency_us": HOST_LATENCY_US,
        "parallel": request.parallel,
        "cases": cases,
        "agree": all(case["agrees"] for case in cases if case["is_measurable"]),
        "is_measurable": all(case["is_measurable"] for case in cases),
    }


def _simulated(name: Scenario, count: int, seed: int, place: Path) -> dict[str, Any]:
    file = place / "flows.json"
    file.write_text(
        json.dumps(flows(name, count) | {"seed": seed, "host_latency_us": HOST_LATENCY_US})
    )
    found: dict[str, Any] = json.loads(satvirtual.simulated(file))
    return found


def _measured(
    name: Scenario, count: int, request: Compared, place: Path, stop: threading.Event
) -> list[dict[str, Any]]:
    """Return the outcomes of the labs of a case. The first that breaks ends the others."""

    def outcome(number: int) -> dict[str, Any]:
        folder = place / str(number)
        folder.mkdir()
        file = folder / "flows.json"
        file.write_text(json.dumps(flows(name, count)))
        return real_clock.run(file, folder / "real", ProgressLog(quiet=True), stop)

    with ThreadPoolExecutor(request.parallel) as pool:
        labs = [pool.submit(outcome, number) for number in range(request.runs)]
        try:
            return [lab.result() for lab in labs]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def flows(name: Scenario, count: int) -> dict[str, Any]:
    """Return the flows of a case over 20 Mbit/s and 100 ms; with the delay step 200 ms from half of
    the time on.
    """
    stacks = SCENARIOS[name]
    half = {"rate_mbps": 20, "delay_ms": 50, "queue": {"bdp": 1}}
    step = [{"at_s": STEP_S, "direction": "both", "delay_ms": 100}] if "step" in name else []
    each = [
        {
            "id": f"flow-{index}",
            "from": f"server{1 + index % 2}",
            "to": f"client{1 + index % 2}",
            "stack": stacks[index % len(stacks)][0],
            "congestion_control": stacks[index % len(stacks)][1],
            "start_s": round(STAGGER_S * index, 2),
        }
        for index in range(count)
    ]
    return {
        "schema": "satlab/virtual-flows/1",
        "seed": 1,
        "duration_s": DURATION_S,
        "phases_s": [STEP_S],
        "wire": {"forward": half, "return": half, "timeline": step},
        "flows": each,
    }


def compared(
    virtual: Sequence[Mapping[str, Any]], real: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return figures of the runs of both clocks, and the deviations of their medians, real /
    virtual - 1.

    Not measurable: half of the real runs or more are out of calibration; those are left out.
    """
    usable = [one for one in real if not one["calibration"]] or real
    by_clock = {"virtual": virtual, "real": usable}
    ranked = {clock: _by_rank(runs) for clock, runs in by_clock.items()}
    by_rank = [deviation(*pair) for pair in zip(ranked["real"], ranked["virtual"], strict=True)]
    found: dict[str, dict[str, Any]] = {}
    for name in ("jain", "utilisation"):
        values = {
            clock: [one["groups"][0][name] for one in runs] for clock, runs in by_clock.items()
        }
        medians = {clock: _median(each) for clock, each in values.items()}
        found[name] = values | {
            "deviation": round(deviation(medians["real"], medians["virtual"]), 5)
        }
    failed = {
        clock: sum(one["groups"][0]["failed"] for one in runs) for clock, runs in by_clock.items()
    }
    judged = [found["jain"]["deviation"], found["utilisation"]["deviation"], median(by_rank)]
    return {
        "goodput_mbps": ranked,
        "deviation_by_rank": [round(one, 5) for one in by_rank],
        **found,
        "failed": failed,
        "agrees": all(abs(one) <= TOLERANCE for one in judged) and not any(failed.values()),
        "is_measurable": 2 * sum(not one["calibration"] for one in real) > len(real),
        "out_of_calibration": sorted({check for one in real for check in one["calibration"]}),
    }


def _by_rank(runs: Sequence[Mapping[str, Any]]) -> list[float | None]:
    """Return the median over runs of the slowest flow's goodput, of the next one's, and so on,
    Mbit/s.
    """
    ranked = [sorted(flow["goodput_mbps"] or 0.0 for flow in one["flows"]) for one in runs]
    return [_median(each) for each in zip(*ranked, strict=True)]


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median; None where one of the values is missing."""
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


def deviation(ours: float | None, theirs: float | None) -> float:
    """Return ours / theirs - 1; infinite where one is missing or nothing was carried."""
    return ours / theirs - 1 if ours is not None and theirs else float("inf")


def _outcome(case: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name} {case[name]['deviation']:+.1%}" for name in ("jain", "utilisation"))
    off = (
        ""
        if case["is_measurable"]
        else f"; out of calibration: {', '.join(case['out_of_calibration'])}"
    )
    return text + ("" if case["agrees"] else "  OFF") + off


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    for case in result["cases"]:
        worst = max(case["deviation_by_rank"], key=abs)
        yield (
            f"{case['scenario']:18} {case['flows']:3} flows: {_outcome(case)}; largest by rank"
            f" {worst:+.1%}"
        )
