# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a quiet host has an end; what is out of calibration is taken again, as often as
requested.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.link.options import LinkOptions
from satlab.run import quiet_host, scenario_run
from satlab.run.quiet_host import HostClock, Patience

LOG = ProgressLog(quiet=True)


@dataclass
class SteppedHost:
    """Each window has its share of the time in which a task waits for a core; the last one stays."""

    shares: Sequence[float]
    windows: int = 0
    now_s: float = 0.0
    pressure_s: float = 0.0

    def pause(self, _: threading.Event, seconds: float) -> None:
        share = self.shares[min(self.windows, len(self.shares) - 1)]
        self.windows += 1
        self.now_s += seconds
        self.pressure_s += share * seconds

    def wait(self, seconds: float, stop: threading.Event | None = None) -> bool:
        clock = HostClock(lambda: self.now_s, lambda: self.pressure_s, self.pause)
        return quiet_host.wait_until_quiet(seconds, LOG, stop or threading.Event(), clock)


@pytest.mark.parametrize(
    ("shares", "is_quiet", "windows"),
    [((1.0, 1.0, 0.0), True, 3), ((1.0,), False, 5), ((0.09,), True, 1), ((0.11,), False, 5)],
)
def test_a_quiet_host_is_waited_for_and_no_longer_than_requested(
    shares: Sequence[float], is_quiet: bool, windows: int
) -> None:
    host = SteppedHost(shares)
    assert (host.wait(5 * quiet_host.WINDOW_S), host.windows) == (is_quiet, windows)


def test_without_a_request_nobody_looks_and_a_stop_ends_the_wait() -> None:
    host, stop = SteppedHost((0.0,)), threading.Event()
    assert not host.wait(0)
    stop.set()
    assert not host.wait(3600, stop)
    assert host.windows == 0


def test_this_host_counts_the_time_in_which_tasks_wait() -> None:
    assert quiet_host.cpu_pressure_s() > 0


@pytest.mark.parametrize(
    ("retries", "results", "taken"),
    [(0, "bg", 1), (2, "g", 1), (2, "bg", 2), (2, "bbbg", 3), (3, "bbbg", 4)],
)
def test_what_is_out_of_calibration_is_taken_again(retries: int, results: str, taken: int) -> None:
    left = list(results)
    found = quiet_host.measured(
        lambda: left.pop(0),
        lambda one: "late" if one == "b" else "",
        Patience(0, retries),
        LOG,
        threading.Event(),
    )
    assert len(results) - len(left) == taken and found == results[taken - 1]


def test_a_stop_before_a_run_begins_leaves_no_run(tmp_path: Path) -> None:
    request = scenario_run.RunRequest(
        paths.SCENARIOS / "ping.json", LinkOptions(), {}, tmp_path / "runs"
    )
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        scenario_run.calibrated(scenario_run.prepare(request), Patience(600, 2), LOG, stop)
    assert not request.runs.exists()
