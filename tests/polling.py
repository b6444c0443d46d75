# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting in tests: poll a state with a deadline."""

import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02


def until(condition: Callable[[], Any], what: str = "the condition", *, seconds: float = 60) -> Any:
    """Poll until a condition holds; return its value. The test fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {seconds:g} s")
        time.sleep(POLL_S)
    return value
