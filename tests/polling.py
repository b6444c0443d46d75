# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting in tests: poll a state with a deadline."""

import time
from collections.abc import Callable
from typing import Any

POLL_S, MOST_S = 0.02, 0.4
"""First and longest pause: what takes long is looked at less often, since looking takes CPU time
from it.
"""
GROWTH = 1.3


def until(condition: Callable[[], Any], what: str = "the condition", *, seconds: float = 60) -> Any:
    """Poll until a condition holds; return its value. The test fails after `seconds`."""
    deadline, pause_s = time.monotonic() + seconds, POLL_S
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, MOST_S)
    return value
