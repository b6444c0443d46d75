# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for a quiet host has an end; what is out of calibration is taken again, as often as
requested.
"""

import threading
from collections.abc import Callable

import pytest

from satlab.common.console import ProgressLog
from satlab.run import quiet_host
from satlab.run.quiet_host import Patience

LOG = ProgressLog(quiet=True)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet_host, "WINDOW_S", 0.02)


def pressure(*shares: float) -> Callable[[], float]:
    """Return a counter that grows by a share of 0.02 s and more in each window; the last share
    stays.
    """
    total, calls = 0.0, 0

    def waited_s() -> float:
        nonlocal total, calls
        if calls % 2:  # the end of a window
            total += 0.02 * shares[min(calls // 2, len(shares) - 1)]
        calls += 1
        return total

    return waited_s


def test_a_quiet_host_is_waited_for_and_no_longer_than_requested() -> None:
    assert quiet_host.wait_until_quiet(5, LOG, threading.Event(), pressure(1.0, 1.0, 0.0))
    assert not quiet_host.wait_until_quiet(0.1, LOG, threading.Event(), pressure(1.0))
    assert quiet_host.cpu_pressure_s() > 0


def test_without_a_request_nobody_looks_and_a_stop_ends_the_wait() -> None:
    def unexpected() -> float:
        raise AssertionError

    assert not quiet_host.wait_until_quiet(0, LOG, threading.Event(), unexpected)
    stop = threading.Event()
    stop.set()
    assert not quiet_host.wait_until_quiet(3600, LOG, stop, unexpected)


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
