# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluate a condition under the virtual clock: the reference's transfer, then that of the stack
under test.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from satlab.check import case_link, time_floors
from satlab.check.backend.virtual_clock import VirtualClock
from satlab.check.case_link import CaseLink
from satlab.check.search import faults
from satlab.check.search.conditions import Changes, Space
from satlab.check.search.faults import Limits, Observed
from satlab.check.search.search_file import Finding
from satlab.check.search.search_loop import Evaluation
from satlab.check.suite import Suite
from satlab.common.errors import ConfigError

LONGEST_S = 3600.0
"""Longest virtual time of a transfer, s: the limit of suites."""
GRACE_S = 30.0
REFERENCE_FACTOR = 20
"""Longest transfer of the reference, as a multiple of the arithmetic time."""


@dataclass(frozen=True)
class Evaluator:
    """`reference` None: arithmetic. Files are in folders below `work`, which are removed after each
    evaluation.
    """

    space: Space
    stack: VirtualClock
    reference: VirtualClock | None
    limits: Limits
    work: Path

    def __call__(self, changes: Changes, seed: int) -> Evaluation:
        """Return the evaluation of a condition, with its fault. Raises as VirtualClock.sample."""
        with TemporaryDirectory(dir=self.work, ignore_cleanup_errors=True) as folder:
            return self._evaluate(changes, seed, Path(folder))

    def _evaluate(self, changes: Changes, seed: int, folder: Path) -> Evaluation:
        suite = self.space.suite_of(changes, seed=seed, timeout_s=LONGEST_S)
        [case] = suite.cases
        try:
            link = case_link.build(suite, case, folder / "profiles")
        except ConfigError:
            if not changes:
                raise
            # Such a link is impossible: for example, its queue holds no packet.
            return Evaluation(None, is_judged=False)
        values = self.space.base | dict(changes)
        rate_mbps = link.rate_mbps(case)
        allowed_s = faults.allowed_wait_s(values, rate_mbps, self.limits)
        payload_bytes = suite.marks_mb[-1] * 1e6
        floors = time_floors.floors_of(link, case)
        floor_s = time_floors.least_time_ms(floors, case, payload_bytes) / 1e3
        reference_s = faults.arithmetic_s(floor_s, values, rate_mbps)
        if self.reference is not None:
            limit_s = min(LONGEST_S, REFERENCE_FACTOR * reference_s + GRACE_S)
            found = self._observed(self.reference, changes, seed, limit_s, link, folder)
            if faults.fault(found, None, allowed_s, self.limits) or found.time_s is None:
                return Evaluation(None, is_judged=False)
            reference_s = found.time_s
        if reference_s / self.limits.share + allowed_s + GRACE_S > LONGEST_S:
            return Evaluation(None, is_judged=False)
        timeout_s = limit_of(reference_s, allowed_s, self.limits)
        found = self._observed(self.stack, changes, seed, timeout_s, link, folder)
        if found.status == "unsupported":
            return Evaluation(None, is_judged=False, reason=found.reason)
        kind = faults.fault(found, reference_s, allowed_s, self.limits)
        return Evaluation(kind, True, found.reason, found.time_s, reference_s, found.wait_s)

    def suite_of(self, finding: Finding, name: str) -> Suite:
        """Return a finding as a suite: one sample with the finding's seed. It misses its target as
        long as the fault persists.
        """
        plain = self.space.suite_of(finding.changes, seed=finding.seed, timeout_s=LONGEST_S)
        [case] = plain.cases
        with TemporaryDirectory(dir=self.work, ignore_cleanup_errors=True) as folder:
            rate_mbps = case_link.build(plain, case, Path(folder)).rate_mbps(case)
        allowed_s = faults.allowed_wait_s(self.space.base | finding.changes, rate_mbps, self.limits)
        return self.space.suite_of(
            finding.changes,
            seed=finding.seed,
            timeout_s=limit_of(finding.reference_s or 0.0, allowed_s, self.limits),
            target_s=target_of(finding, allowed_s, self.limits),
            name=name,
        )

    def _observed(
        self,
        clock: VirtualClock,
        changes: Changes,
        seed: int,
        timeout_s: float,
        link: CaseLink,
        folder: Path,
    ) -> Observed:
        suite = self.space.suite_of(changes, seed=seed, timeout_s=timeout_s)
        [case] = suite.cases
        sample = clock.sample(suite, case, link, seed, folder)
        time_s = sample.times_s[-1] if sample.status == "ok" else None
        outcome = folder / f"{case.id}-{seed}.outcome.json"
        wait_s = None
        if outcome.is_file():
            document = json.loads(outcome.read_text())
            start_s = document["transfers"][-1]["started_s"]
            end_s = start_s + document["transfers"][-1]["duration_s"]
            wait_s = faults.longest_wait_s(document["samples"], start_s, end_s)
        return Observed(sample.status, sample.reason, time_s, wait_s)


def limit_of(reference_s: float, allowed_wait_s: float, limits: Limits) -> float:
    """Return the time limit of a condition, s, long enough to recognise slow transfers and stalls."""
    return round(reference_s / limits.share + allowed_wait_s + GRACE_S, 3)


def target_of(finding: Finding, allowed_wait_s: float, limits: Limits) -> float:
    """Return the target that a finding's case misses as long as the fault persists, s.

    A transfer that dies misses any target. The target of a stalled transfer is its time minus the
    excess of its longest wait.
    """
    if finding.kind == "stalls" and finding.time_s is not None and finding.wait_s is not None:
        return round(finding.time_s - (finding.wait_s - allowed_wait_s), 3)
    return round((finding.reference_s or LONGEST_S) / limits.share, 3)
