# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches agree`: compare the virtual clock with a real lab, by the times of the same cases.

Both run the same suite file, link model, and quinn with the same options; or programs of the same
stack, in lock-step with the virtual clock and in a lab. In a lab packets pass through devices, and
programs share the host with other processes. Only cases without losses are compared: losses are
drawn anew in each run, and make times differ by more than the clocks do.
"""

import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from satlab.check import case_link, suite
from satlab.check.backend.real_clock import RealClock
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.case_link import CaseLink
from satlab.check.endpoint.lockstep import LockstepPair
from satlab.check.endpoint.pair import EndpointPair
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.samples import Backend, Options, Sample
from satlab.check.suite import Case, Suite
from satlab.check.trace import causes
from satlab.check.verdict import counted_of, is_measurable, sorted_times
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError, Fault
from satlab.common.statistics import median

TOLERANCE = 0.03
"""Relative difference of medians that counts as agreement."""


@dataclass(frozen=True)
class Agreement:
    """A case at one mark: medians of both clocks, s; infinite where too few samples reached the
    mark.

    Real samples out of calibration are not counted; with too few others nothing is measurable.
    """

    case: str
    mark_mb: float
    virtual_s: float
    real_s: float
    is_measurable: bool = True

    @property
    def deviation(self) -> float | None:
        """Real / virtual - 1; None if one of them is infinite, or the real clock was not
        measurable.
        """
        are_finite = (
            self.is_measurable and math.isfinite(self.virtual_s) and math.isfinite(self.real_s)
        )
        return self.real_s / self.virtual_s - 1 if are_finite else None

    @property
    def holds(self) -> bool:
        return self.deviation is not None and abs(self.deviation) <= TOLERANCE


@dataclass(frozen=True)
class Compared:
    """What is compared: quinn with `options` of client and server on both clocks.

    Or programs of the same stack: in lock-step (`programs`), and in a lab (`pair`).
    """

    options: tuple[Options, Options] = field(default_factory=lambda: ({}, {}))
    programs: LockstepPair | None = None
    pair: EndpointPair | None = None

    def clocks(self) -> tuple[VirtualClock, RealClock]:
        virtual = VirtualClock(*self.options, programs=self.programs)
        return virtual, RealClock(self.pair or SatperfPair("quinn", self.options))


def measure(
    name: str,
    names: Sequence[str],
    up_to_mb: float,
    runs: int,
    compared: Compared,
    log: ProgressLog,
) -> dict[str, Any]:
    """Compare cases of a suite without losses, by default all that both clocks support, at its
    marks up to `up_to_mb`.

    `name` is a shipped suite or a file.

    Raises:
        ConfigError: the suite is invalid, it or a case does not exist, or no case is left.
        HostError: this host cannot bring up a lab.
    """
    plan = _shortened(suite.load(suite.file_of(name)), up_to_mb)
    virtual, real = compared.clocks()
    selected = plan.selected(names)
    lacking = {case.id: _lacking(plan, case, virtual, real) for case in selected}
    if all(lacking.values()):
        reasons = [Fault(name, reason) for name, reason in lacking.items()]
        raise ConfigError(f"nothing of suite {plan.name} can be compared", reasons)
    cases = [case for case in selected if not lacking[case.id]]
    began, load_before = time.time(), os.getloadavg()[0]
    found = [_compared(plan, case, (virtual, real), runs, log) for case in cases]
    return {
        "schema": "satlab/bench-agree/1",
        "suite": plan.name,
        "t_unix_s": began,
        "load_average": [load_before, os.getloadavg()[0]],
        "tolerance": TOLERANCE,
        "runs": runs,
        "stacks": {"virtual": virtual.stack, "real": real.stack},
        "options": {"client": dict(compared.options[0]), "server": dict(compared.options[1])},
        "cases": found,
        "agree": all(
            mark["agrees"] for case in found for mark in case["marks"] if mark["is_measurable"]
        ),
        "is_measurable": all(mark["is_measurable"] for case in found for mark in case["marks"]),
    }


def _lacking(plan: Suite, case: Case, virtual: VirtualClock, real: RealClock) -> str:
    """Return why a case is not compared; empty if it is."""
    if case.loss is not None:
        return "losses are drawn anew in each run"
    if not plan.marks_mb:
        return "the suite has no marks: its test cases are not timed"
    return virtual.lacking(plan, case) or real.lacking(case)


def _shortened(plan: Suite, up_to_mb: float) -> Suite:
    """Drop the marks above `up_to_mb`; transfers end at the last mark."""
    kept = [mark for mark in plan.marks_mb if mark <= up_to_mb] or plan.marks_mb[:1]
    cases = [
        case.model_copy(update={"targets_s": case.targets_s[: len(kept)]}) for case in plan.cases
    ]
    return plan.model_copy(update={"marks_mb": tuple(kept), "cases": tuple(cases)})


def _compared(
    plan: Suite, case: Case, clocks: tuple[Backend, Backend], runs: int, log: ProgressLog
) -> dict[str, Any]:
    with log.step(case.id) as step, tempfile.TemporaryDirectory(prefix="satlab-agree-") as folder:
        link = case_link.build(plan, case, Path(folder) / "profiles")
        samples = [_samples(clock, plan, case, link, runs, Path(folder)) for clock in clocks]
        marks = agreements(plan, case, *samples)
        documents = [_document(one) for one in marks]
        step.outcome = ", ".join(f"{mark['mark_mb']:g} MB {_outcome(mark)}" for mark in documents)
    return {
        "id": case.id,
        "marks": documents,
        "handshake_ms": [[one.handshake_ms for one in clock] for clock in samples],
        "spent_s": [_spent(clock) for clock in samples],
        "acks": [[one.acks for one in clock] for clock in samples],
        "lost_packets": [[one.lost_packets for one in clock] for clock in samples],
        "samples": [[list(one.times_s) for one in clock] for clock in samples],
        "reasons": sorted({one.reason for clock in samples for one in clock if one.reason}),
        "out_of_calibration": [one.calibration for one in samples[1]],
    }


def _samples(
    clock: Backend, plan: Suite, case: Case, link: CaseLink, runs: int, folder: Path
) -> list[Sample]:
    with tempfile.TemporaryDirectory(dir=folder) as raw:
        return [clock.sample(plan, case, link, seed, Path(raw)) for seed in range(1, runs + 1)]


def agreements(
    plan: Suite, case: Case, virtual: Sequence[Sample], real: Sequence[Sample]
) -> list[Agreement]:
    """Compare the medians of both clocks at each mark, by the samples in calibration."""
    counted, has_enough = counted_of(real), is_measurable(real)
    return [
        Agreement(
            case.id,
            mark,
            median(sorted_times(virtual, index)),
            median(sorted_times(counted, index)),
            has_enough,
        )
        for index, mark in enumerate(plan.marks_mb)
    ]


def _spent(samples: Sequence[Sample]) -> dict[str, float] | None:
    """Return the mean seconds per cause."""
    traced = [one.spent_s for one in samples if one.spent_s is not None]
    return causes.mean(traced) if traced else None


def _document(one: Agreement) -> dict[str, Any]:
    times = {"virtual_s": one.virtual_s, "real_s": one.real_s}
    finite = {name: value if math.isfinite(value) else None for name, value in times.items()}
    agreement = {"agrees": one.holds, "is_measurable": one.is_measurable}
    return {"mark_mb": one.mark_mb, **finite, "deviation": one.deviation, **agreement}


def _outcome(mark: dict[str, Any]) -> str:
    if not mark["is_measurable"]:
        return "not measurable"
    return "never" if mark["deviation"] is None else f"{mark['deviation']:+.1%}"


def lines(result: dict[str, Any]) -> list[str]:
    """Return the result as text."""
    virtual, real = (result["stacks"][clock] for clock in ("virtual", "real"))
    taken = f"medians of {result['runs']}, load average {result['load_average'][0]:.1f}"
    head = f"virtual ({virtual}) and real clock ({real}), {taken}"
    times = [
        line
        for case in result["cases"]
        for line in (*(_line(case["id"], mark) for mark in case["marks"]), *_main_cause(case))
    ]
    off = [
        f"{case['id']}: {len(reasons)} of {result['runs']} real samples out of calibration, not"
        " counted: " + "; ".join(sorted(set(reasons)))
        for case in result["cases"]
        if (reasons := [reason for reason in case["out_of_calibration"] if reason])
    ]
    return [head, *times, *off]


def _main_cause(case: dict[str, Any]) -> list[str]:
    """Return the cause whose time differs most, if both clocks were traced."""
    virtual, real = case["spent_s"]
    if virtual is None or real is None:
        return []
    difference = {cause: real[cause] - virtual[cause] for cause in virtual}
    main = max(difference, key=lambda cause: abs(difference[cause]))
    return [f"{case['id']:18} largest difference: {main} {difference[main]:+.3f} s"]


def _line(case: str, mark: dict[str, Any]) -> str:
    times = f"virtual {_seconds(mark['virtual_s'])}  real {_seconds(mark['real_s'])}"
    verdict = "" if mark["agrees"] or not mark["is_measurable"] else "  OFF"
    return f"{case:18} {mark['mark_mb']:5g} MB  {times}  {_outcome(mark)}{verdict}"


def _seconds(value: float | None) -> str:
    return "   never" if value is None else f"{value:8.3f}"
