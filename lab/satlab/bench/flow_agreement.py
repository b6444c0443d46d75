# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench flows --agree`: compare flows under the virtual clock with the same file of flows on the real clock.

Both have the same wire, libraries and starts. Which of several equal flows is ahead at a moment depends on a packet
more or less: so the flows of each clock are also compared by their rank, the fastest with the fastest.
"""

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from satlab.common.console import ProgressLog
from satlab.flows import real_clock, satvirtual

TOLERANCE = 0.03
"""Relative difference that counts as agreement."""
FLOWS = (2, 4, 16)
DURATION_S = 40.0
STEP_S = 20.0
STAGGER_S = 0.05
SCENARIOS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "cubic": (("quinn", "cubic"),),
    "bbr3": (("noq", "bbr3"),),
    "mixed, delay step": (("quinn", "reno"), ("noq", "cubic")),
}
"""Stacks and congestion controls that the flows have in turn."""


def measure(counts: Sequence[int], log: ProgressLog, stop: threading.Event) -> dict[str, Any]:
    """Compare each scenario with so many flows. Raises ConfigError, HostError, and KeyboardInterrupt after `stop`."""
    cases = []
    for name in SCENARIOS:
        for count in counts:
            with (
                log.step(f"{name}, {count} flows") as step,
                tempfile.TemporaryDirectory(prefix="satlab-flows-") as place,
            ):
                file = Path(place) / "flows.json"
                file.write_text(json.dumps(request(name, count)))
                virtual = json.loads(satvirtual.simulated(file))
                real = real_clock.run(file, Path(place) / "real", ProgressLog(quiet=True), stop).outcome
                cases.append({"scenario": name, "flows": count} | compared(virtual, real))
                step.outcome = _outcome(cases[-1])
    return {
        "schema": "satlab/bench-flow-agreement/1",
        "tolerance": TOLERANCE,
        "duration_s": DURATION_S,
        "cases": cases,
        "agree": all(case["agrees"] for case in cases if case["is_measurable"]),
        "is_measurable": all(case["is_measurable"] for case in cases),
    }


def request(name: str, count: int) -> dict[str, Any]:
    """Return the flows of a case over 20 Mbit/s and 100 ms; with the delay step 200 ms from half of the time on."""
    stacks = SCENARIOS[name]
    half = {"rate_mbps": 20, "delay_ms": 50, "queue": {"bdp": 1}}
    step = [{"at_s": STEP_S, "direction": "both", "delay_ms": 100}] if "step" in name else []
    flows = [
        {
            "id": f"flow-{index}", "from": f"server{1 + index % 2}", "to": f"client{1 + index % 2}",
            "stack": stacks[index % len(stacks)][0], "congestion_control": stacks[index % len(stacks)][1],
            "start_s": round(STAGGER_S * index, 2),
        }
        for index in range(count)
    ]  # fmt: skip
    return {
        "schema": "satlab/virtual-flows/1", "seed": 1, "duration_s": DURATION_S, "phases_s": [STEP_S],
        "wire": {"forward": half, "return": half, "timeline": step}, "flows": flows,
    }  # fmt: skip


def compared(virtual: Mapping[str, Any], real: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of both clocks and their deviations, real / virtual - 1."""
    rates = [[flow["goodput_mbps"] for flow in one["flows"]] for one in (virtual, real)]
    ranked = [sorted(one) for one in rates]
    by_rank = [deviation(ours, theirs) for theirs, ours in zip(*ranked, strict=True)]
    groups = [one["groups"][0] for one in (virtual, real)]
    found = {name: deviation(groups[1][name], groups[0][name]) for name in ("jain", "utilisation")}
    judged = [*found.values(), median(by_rank)]
    return {
        "goodput_mbps": {"virtual": rates[0], "real": rates[1]},
        "deviation_by_rank": [round(one, 5) for one in by_rank],
        "jain": {"virtual": groups[0]["jain"], "real": groups[1]["jain"], "deviation": round(found["jain"], 5)},
        "utilisation": {
            "virtual": groups[0]["utilisation"], "real": groups[1]["utilisation"],
            "deviation": round(found["utilisation"], 5),
        },
        "failed": [one["failed"] for one in groups],
        "agrees": all(abs(one) <= TOLERANCE for one in judged) and not any(one["failed"] for one in groups),
        "is_measurable": not real["calibration"],
        "out_of_calibration": real["calibration"],
    }  # fmt: skip


def deviation(ours: float | None, theirs: float | None) -> float:
    """Return ours / theirs - 1; infinite where one is missing or nothing was carried."""
    return ours / theirs - 1 if ours is not None and theirs else float("inf")


def _outcome(case: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name} {case[name]['deviation']:+.1%}" for name in ("jain", "utilisation"))
    off = "" if case["is_measurable"] else f"; out of calibration: {', '.join(case['out_of_calibration'])}"
    return text + ("" if case["agrees"] else "  OFF") + off


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    for case in result["cases"]:
        worst = max(case["deviation_by_rank"], key=abs)
        yield f"{case['scenario']:18} {case['flows']:3} flows: {_outcome(case)}; largest by rank {worst:+.1%}"
