# SPDX-License-Identifier: GPL-3.0-or-later
"""The counts of `python -m benches check`, with times of a known spread in place of satvirtual's."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benches import false_alarms
from satlab.check import case_link
from satlab.check.backend import virtual_clock
from satlab.check.samples import Sample
from satlab.check.suite import Case, Suite
from satlab.common.console import ProgressLog


def measure(
    monkeypatch: pytest.MonkeyPatch, slowdown: float, spread: Mapping[str, float]
) -> tuple[dict[str, Any], list[int]]:
    """Return the result of 4 comparisons and the seeds of all samples.

    `spread` is relative, by case.
    """
    seeds = []

    def rate(plan: Suite, case: Case, folder: Path) -> float:
        del plan, folder
        return case.forward_mbps

    def run(link: Any, request: Mapping[str, Any], folder: Path, case: Case) -> Sample:
        """Take as long as the rate of the link says, with noise."""
        assert folder.is_dir()
        seeds.append(request["seed"])
        noise = random.Random(request["seed"]).gauss(1, spread[case.id])  # noqa: S311
        times = tuple(mark * 8e-6 / link * noise for mark in request["marks_bytes"])
        return Sample(case.id, request["seed"], "ok", "", times)

    monkeypatch.setattr(case_link, "build", rate)
    monkeypatch.setattr(virtual_clock, "run", run)
    return false_alarms.measure(4, slowdown, ProgressLog(quiet=True)), seeds


def test_slowdowns_beyond_the_spread_are_found_and_equal_builds_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, seeds = measure(monkeypatch, 0.1, {"clean": 0.005, "lossy": 0.005})
    assert (result["false_alarms"], result["caught"]) == (0, {"clean": 4, "lossy": 4})
    assert result["samples_each"] == {"clean": 10, "lossy": 10}
    # A pilot of 10, and 4 comparisons of 2 sides twice, for 2 cases: no seed is used again.
    assert len(seeds) == 2 * (10 + 2 * 4 * 2 * 10) and len(set(seeds)) == len(seeds)


def test_a_slowdown_below_the_tolerance_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = measure(monkeypatch, 0.02, {"clean": 0.0001, "lossy": 0.0001})
    assert (result["false_alarms"], result["caught"]) == (0, {"clean": 0, "lossy": 0})


def test_a_case_with_a_large_spread_takes_more_samples_and_is_counted_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result, _ = measure(monkeypatch, 0.1, {"clean": 0.005, "lossy": 0.5})
    assert result["samples_each"] == {"clean": 10, "lossy": 20}
    assert result["caught"]["clean"] == 4 > result["caught"]["lossy"]
