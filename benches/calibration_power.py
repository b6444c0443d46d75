# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches calibration`: dose and response of calibration, the source of its limits.

Labs whose link deviates from its plan by a known amount are calibrated again and again: in rate
(another bandwidth), losses, or round-trip time (another terrestrial delay). The last level has a
link as planned next to busy processes.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from benches.figures_under_load import burning
from benches.loaded_lab import scratch_folder
from collect.calibration import CalibrationCheck
from satlab.check.case_link import edit
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.link.config import Direction, LinkRequest, Loss
from satlab.run.lab_session import NetnsHost, new_lab_id, run_session

BUSY, BODY_S = 4, 1.0
"""Processes of the busy level, and how long a session's body lasts there, s."""


@dataclass(frozen=True)
class Level:
    """A deviation: of the forward rate, ratio of lost packets, RTT in ms; or busy processes."""

    name: str
    rate: float = 0.0
    loss: float = 0.0
    rtt_ms: float = 0.0
    busy: int = 0


LEVELS = (
    Level("as planned"),
    Level("rate -1 %", rate=-0.01),
    Level("rate -2 %", rate=-0.02),
    Level("loss 0.05 %", loss=0.0005),
    Level("loss 0.1 %", loss=0.001),
    Level("RTT +1 ms", rtt_ms=1.0),
    Level("RTT +2 ms", rtt_ms=2.0),
    Level(f"{BUSY} busy processes", busy=BUSY),
)


@dataclass(frozen=True)
class Calibrations:
    """The checks of each calibration of a lab, and the time each took, s."""

    checks: list[list[CalibrationCheck]]
    times_s: list[float]


def measure(
    profile: str, samples: int, labs: int, levels: tuple[str, ...], log: ProgressLog
) -> dict[str, Any]:
    """Calibrate `samples` times at each level (no names: all) in `labs` labs. All labs are up at
    once, but for those next to busy processes.

    Raises:
        HostError: a lab cannot be brought up.
    """
    chosen = [level for level in LEVELS if not levels or level.name in levels]
    found: dict[str, list[Calibrations]] = {level.name: [] for level in chosen}
    quiet = [(level, lab) for level in chosen if not level.busy for lab in range(labs)]
    with scratch_folder() as folder, ThreadPoolExecutor(max(1, len(quiet))) as pool:
        if quiet:
            with log.step(f"{len(quiet)} labs"):
                made = pool.map(
                    lambda one: _calibrated(one[0], one[1], profile, folder, samples // labs),
                    quiet,
                )
                for (level, _), one in zip(quiet, made, strict=True):
                    found[level.name].append(one)
        for level in (level for level in chosen if level.busy):
            with log.step(level.name):
                found[level.name].append(_next_to_busy(level, profile, folder, samples))
    return {
        "schema": "satlab/bench-calibration/1",
        "profile": profile,
        "labs_at_once": len(quiet),
        "levels": [_level(name, calibrations) for name, calibrations in found.items()],
    }


def _host(level: Level, number: int, profile: str, folder: Path) -> NetnsHost:
    """Return a lab whose link deviates; `number` is that of its seed."""
    name, lab = new_lab_id("dose"), topology.load(paths.LAB_FILE)
    copy = folder / name
    shutil.copytree(paths.PROFILES / profile, copy)
    if level.rate:
        khz = 50_000
        edit(copy / "topology.xml", (f">{khz}<", f">{khz * (1 + level.rate):.0f}<"))
    delay_ms = next(net.one_way_delay_ms for net in lab.networks.values() if net.one_way_delay_ms)
    request = LinkRequest(
        copy,
        seed=1 + number,
        metrics=folder / f"{name}.jsonl",
        forward=Direction(loss=Loss(ratio=level.loss)),
        terrestrial_one_way_delay_ms=delay_ms + level.rtt_ms / 2,
    )
    return NetnsHost(name, lab, request)


def _calibrated(
    level: Level, number: int, profile: str, folder: Path, samples: int
) -> Calibrations:
    """Judge the link of a level by the plan of a link without deviation."""
    quiet = ProgressLog(quiet=True)
    with _host(Level("as planned"), number, profile, folder).opened(quiet) as lab:
        plan = lab.plan
    host, found = _host(level, number, profile, folder), Calibrations([], [])
    with host.opened(quiet) as lab:
        for _ in range(samples):
            began = time.monotonic()
            found.checks.append(host.calibrate(replace(lab, plan=plan)))
            found.times_s.append(time.monotonic() - began)
    return found


def _next_to_busy(level: Level, profile: str, folder: Path, samples: int) -> Calibrations:
    """Judge sessions, which also judge the host while their body lasts."""
    found = Calibrations([], [])
    with burning(level.busy):
        for number in range(samples):
            began = time.monotonic()
            host = _host(level, number, profile, folder)
            found.checks.append(run_session(host, lambda _, halt: halt.wait(BODY_S)).checks)
            found.times_s.append(time.monotonic() - began)
    return found


def _level(name: str, labs: list[Calibrations]) -> dict[str, Any]:
    """Count what was marked, and by which checks."""
    found = [checks for lab in labs for checks in lab.checks]
    failed = Counter(check.name for checks in found for check in checks if not check.ok)
    return {
        "level": name,
        "samples": len(found),
        "marked": sum(any(not check.ok for check in checks) for checks in found),
        "causes": dict(failed),
        "calibration_s": round(fmean(time_s for lab in labs for time_s in lab.times_s), 2),
        "figures": {
            figure: _spread([c.measured for checks in found for c in checks if c.name == figure])
            for figure in ("rtt_ms", "forward_udp_goodput_bps", "forward_loss_ratio")
        },
    }


def _spread(values: list[float | None]) -> dict[str, float]:
    """Return mean, deviation and extremes."""
    known = [value for value in values if value is not None]
    if not known:
        return {}
    return {"mean": fmean(known), "sd": pstdev(known), "min": min(known), "max": max(known)}


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    for level in result["levels"]:
        causes = ", ".join(f"{name} {count}" for name, count in level["causes"].items())
        yield (
            f"{level['level']}: {level['marked']} of {level['samples']} marked"
            f" ({causes or 'no check failed'}); {level['calibration_s']} s each"
        )
