# SPDX-License-Identifier: GPL-3.0-or-later
"""One run of a paper's cell: its outcome, and whether it failed or is out of calibration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collect import browser_yardstick
from satlab.papers.figures import FIGURES, Spread
from satlab.papers.scenario_figures import Records


@dataclass(frozen=True)
class Run:
    """One run that is done: its number, and the outcome of its flows or the records of its
    scenario.

    `failed`: a connection ended before its time, or a sample failed.
    """

    number: int
    outcome: Any
    failed: bool
    is_uncalibrated: bool

    def spread(self, figure: str, phase: int) -> Spread | None:
        """Return a figure, and its standard deviation over the time of a phase if it has one."""
        return FIGURES[figure].read(self.outcome, phase)

    def has_failed(self, figure: str) -> bool:
        """Return whether the run counts as failed for a figure: in a scenario if its sample failed,
        with flows if any flow failed.
        """
        if isinstance(self.outcome, Records):
            return self.spread(figure, 0) is None
        return self.failed


def in_calibration(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that are judged; the others are only shown."""
    return [run for run in runs if not run.is_uncalibrated]


def unequal_hosts(runs: Sequence[Run]) -> str:
    """Return the protocols for which the browsers of the runs' hosts are not equally fast, with
    their times for the page over a bare wire; "" if they are.
    """
    records = [run.outcome for run in runs if isinstance(run.outcome, Records)]
    values_ms = (pair for one in records for pair in one.yardsticks_ms.items())
    return ", ".join(browser_yardstick.unequal(values_ms))


def of_flows(number: int, outcome: Mapping[str, Any]) -> Run:
    """Return the run of an outcome. Only outcomes on the real clock have a calibration."""
    failed = any(flow["status"] == "failed" for flow in outcome["flows"])
    return Run(number, outcome, failed, bool(outcome.get("calibration")))
