# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches check`: how many false alarms comparisons with a baseline raise, and how many
slowdowns they find.

Each comparison takes fresh samples of both builds under the virtual clock, over a clean link
(little spread) and over a lossy one (large spread). The slower build is the same stack over a link
with lower rates and a longer round trip, so that each part of a transfer takes longer by the same
factor.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from satlab.check import case_link, verdict
from satlab.check.backend import virtual_clock
from satlab.check.check_run import COMPARED_RUNS, SLOWDOWN
from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.common.console import ProgressLog

SUITE = Suite.model_validate(
    {
        "schema": "satlab/suite/1",
        "name": "power",
        "source": "satlab bench check",
        "link": {"rtt_ms": 650, "queue_bdp": 1.0},
        "marks_mb": [1, 4],
        "cases": [
            {"id": "clean", "forward_mbps": 10, "return_mbps": 2, "targets_s": [None, None]},
            {
                "id": "lossy",
                "forward_mbps": 10,
                "return_mbps": 2,
                "loss": {"ratio": 0.0005},
                "targets_s": [None, None],
            },
        ],
    }
)
TOLERANCE = 0.03


def measure(comparisons: int, slowdown: float, log: ProgressLog) -> dict[str, Any]:
    """Compare equal builds, and a slower build with its baseline, `comparisons` times each."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="satlab-power-") as name,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        equal = _Build(SUITE, Path(name) / "equal", pool)
        slower = _Build(_slower(slowdown), Path(name) / "slower", pool)
        seeds = itertools.count(1)
        runs = equal.planned_runs(seeds)
        with log.step(f"{comparisons} comparisons of equal builds"):
            alarms = [
                _slow_cases(equal.samples(seeds, runs), equal.samples(seeds, runs))
                for _ in range(comparisons)
            ]
        with log.step(f"{comparisons} comparisons with a build that is {slowdown:.0%} slower"):
            caught = [
                _slow_cases(slower.samples(seeds, runs), equal.samples(seeds, runs))
                for _ in range(comparisons)
            ]
    return {
        "schema": "satlab/bench-check/1",
        "comparisons": comparisons,
        "samples_each": runs,
        "tolerance": TOLERANCE,
        "false_alarms": sum(map(bool, alarms)),
        "slowdown": slowdown,
        "caught": {case.id: sum(case.id in slow for slow in caught) for case in SUITE.cases},
        "real_s": round(time.monotonic() - began, 1),
    }


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    count = result["comparisons"]
    caught = ", ".join(f"{case} {number}" for case, number in result["caught"].items())
    yield (
        f"{result['false_alarms']} false alarms in {count} comparisons of equal builds;"
        f" slowdowns found in {count}: {caught}; {result['real_s']} s"
    )


def _slower(slowdown: float) -> Suite:
    factor = 1 + slowdown
    link = SUITE.link.model_copy(update={"rtt_ms": SUITE.link.rtt_ms * factor})
    rates = ("forward_mbps", "return_mbps")
    cases = [
        case.model_copy(update={rate: getattr(case, rate) / factor for rate in rates})
        for case in SUITE.cases
    ]
    return SUITE.model_copy(update={"link": link, "cases": tuple(cases)})


class _Build:
    """A stack and its links. Raw files of samples are removed."""

    def __init__(self, suite: Suite, folder: Path, pool: ThreadPoolExecutor) -> None:
        folder.mkdir()
        self._suite, self._folder, self._pool = suite, folder, pool
        self._links = {
            case.id: case_link.build(suite, case, folder / "profiles") for case in suite.cases
        }

    def planned_runs(self, seeds: Iterator[int]) -> dict[str, int]:
        """Return how many samples each case needs, from a pilot, as `satlab check --baseline` does."""
        pilot = self.samples(seeds, {case.id: COMPARED_RUNS[0] for case in self._suite.cases})
        marks = range(len(self._suite.marks_mb))
        return {
            case: verdict.runs_for(
                [verdict.sorted_times(samples, mark) for mark in marks],
                COMPARED_RUNS,
                SLOWDOWN,
                len(pilot) * len(marks),
            )
            for case, samples in pilot.items()
        }

    def samples(self, seeds: Iterator[int], runs: Mapping[str, int]) -> dict[str, list[Sample]]:
        """Take fresh samples of every case."""
        drawn = {
            case.id: list(itertools.islice(seeds, runs[case.id])) for case in self._suite.cases
        }
        with tempfile.TemporaryDirectory(dir=self._folder) as raw:
            return {
                case.id: list(
                    self._pool.map(
                        lambda seed, case=case: self._one(case, seed, Path(raw)), drawn[case.id]
                    )
                )
                for case in self._suite.cases
            }

    def _one(self, case: Case, seed: int, raw: Path) -> Sample:
        request = virtual_clock.transfer(self._suite, case, seed, {}, {})
        return virtual_clock.run(self._links[case.id], request, raw, case)


def _slow_cases(now: dict[str, list[Sample]], before: dict[str, list[Sample]]) -> set[str]:
    comparisons = verdict.against_baseline(SUITE.marks_mb, now, before, TOLERANCE)
    return {one.case for one in comparisons if one.is_slower}
