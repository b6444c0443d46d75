# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a check."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import satlab
from satlab.check import check_file
from satlab.check.case_link import CaseLink
from satlab.check.check_file import Case, CheckFile, Compared, Verdict
from satlab.check.provenance import BaselineFile, Provenance
from satlab.check.samples import Options, Sample
from satlab.check.suite import Suite
from satlab.check.trace import causes
from satlab.check.verdict import BaselineComparison, Samples, TargetVerdict
from satlab.common.errors import ExitStatus


@dataclass(frozen=True)
class SampleInput:
    """Inputs of samples besides suite and case."""

    clock: Literal["virtual", "real"]
    stack: str
    client: Options = field(default_factory=dict)
    server: Options = field(default_factory=dict)
    seed: int = 1
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def ends(self) -> tuple[str, str]:
        """Names of client and server. The stack is called NAME if both are equal, otherwise CLIENT
        to SERVER.
        """
        client, _, server = self.stack.partition(" to ")
        return client, server or client

    def document(self) -> dict[str, Any]:
        """Return the input as in check.json; with variables of the programs only if there are
        any.
        """
        options = {"client": dict(self.client), "server": dict(self.server)}
        document = {"clock": self.clock, "stack": self.stack, "options": options, "seed": self.seed}
        variables = {side: dict(values) for side, values in self.environment.items() if values}
        return document | ({"environment": variables} if variables else {})


@dataclass(frozen=True)
class CheckResult:
    """Samples and links by case.

    `comparisons`, `baseline` (its samples) and `baseline_file` are None without a baseline;
    `others` are documents of other checks.
    """

    suite: Suite
    input: SampleInput
    links: dict[str, CaseLink]
    samples: dict[str, list[Sample]]
    verdicts: list[TargetVerdict]
    comparisons: list[BaselineComparison] | None
    others: Sequence[CheckFile]
    folder: Path
    began_unix_s: float
    real_s: float
    provenance: Provenance
    baseline: Samples | None = None
    baseline_file: BaselineFile | None = None

    @property
    def status(self) -> ExitStatus:
        """1: a case is slower than its baseline or failed; a target is missed by a case without
        one; 4: not measurable; 5: nothing is supported; 6: no comparison is decided.
        """
        results = {one.result for one in self.verdicts}
        compared = {(one.case, one.mark_mb) for one in self.comparisons or ()}
        is_missed = any(
            one.result == "fail" for one in self.verdicts if (one.case, one.mark_mb) not in compared
        )
        if is_missed or any(one.is_slower for one in self.comparisons or ()):
            return ExitStatus.FAILED
        found = {one.result for one in self.comparisons or ()}
        if "not measurable" in results | found:
            return ExitStatus.UNCALIBRATED
        if found - {"unsupported"} == {"undecided"}:
            return ExitStatus.UNDECIDED
        return ExitStatus.UNSUPPORTED if results == {"unsupported"} else ExitStatus.OK

    @property
    def simulated_s(self) -> float | None:
        """Virtual time of all samples together; None for the real clock."""
        times = [one.simulated_s for samples in self.samples.values() for one in samples]
        return sum(time or 0.0 for time in times) if any(times) else None

    def spent_s(self, case: str) -> dict[str, float] | None:
        """Return the mean seconds per cause of a case's transfers; None if none was traced."""
        traced = [one.spent_s for one in self.samples[case] if one.spent_s is not None]
        return causes.mean(traced) if traced else None

    def document(self) -> dict[str, Any]:
        """Return the contents of check.json as values for `json.dumps`."""
        return check_file.plain(self.contents())

    def contents(self) -> CheckFile:
        """Return the contents of check.json."""
        found = {
            "schema": "satlab/check/1",
            "version": satlab.__version__,
            "suite": self.suite.name,
            "source": self.suite.source,
            "marks_mb": list(self.suite.marks_mb),
            **self.input.document(),
            "began_unix_s": round(self.began_unix_s, 3),
            "real_s": round(self.real_s, 3),
            "simulated_s": None if self.simulated_s is None else round(self.simulated_s, 3),
            "cases": [self._case(name) for name in self.samples],
            "compared": (
                None if self.comparisons is None else [_comparison(one) for one in self.comparisons]
            ),
            "provenance": self.provenance,
            "baseline": self.baseline_file,
        }
        return cast("CheckFile", found)

    def _case(self, name: str) -> Case:
        link = self.links[name]
        found = {
            "id": name,
            **link_of(link),
            "spent_s": self.spent_s(name),
            "verdicts": [_verdict(one) for one in self.verdicts if one.case == name],
            "samples": self.samples[name],
        }
        return cast("Case", found)


def link_of(link: CaseLink) -> dict[str, Any]:
    """Return a link as in the case of a check.json."""
    return {
        "forward_mbps": link.forward_mbps,
        "return_mbps": link.return_mbps,
        "rtt_ms": link.plan.rtt_ms.mean,
        "queue_bytes": (link.plan.forward.queue_bytes, link.plan.return_.queue_bytes),
    }


def _verdict(one: TargetVerdict) -> Verdict:
    return {
        "mark_mb": one.mark_mb,
        "target_s": one.target_s,
        "median_s": _finite(one.median_s),
        "n": one.n,
        "censored": one.censored,
        "died": list(one.died),
        "result": one.result,
        "off": one.off,
        "low_s": _finite(one.interval_s.low) if one.has_interval else None,
        "high_s": _finite(one.interval_s.high) if one.has_interval else None,
    }


def _comparison(one: BaselineComparison) -> Compared:
    times = {"median_s": one.median_s, "baseline_s": one.baseline_s}
    derived = {"ratio": one.ratio, "is_slower": one.is_slower, "grew": one.grew}
    found = asdict(one) | {key: _finite(value) for key, value in times.items()} | derived
    return cast("Compared", found)


def _finite(value: float) -> float | None:
    """Return null for infinity, which JSON does not have: the time of a mark that was never
    reached.
    """
    return None if math.isinf(value) else value


def worst_status(found: Sequence[ExitStatus]) -> ExitStatus:
    """Return the status of several checks: the first of 1, 4, 6, 0 and 5 that one of them has."""
    order = (
        ExitStatus.FAILED,
        ExitStatus.UNCALIBRATED,
        ExitStatus.UNDECIDED,
        ExitStatus.OK,
        ExitStatus.UNSUPPORTED,
    )
    return min(found, key=order.index)
