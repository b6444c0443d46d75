# SPDX-License-Identifier: GPL-3.0-or-later
"""What the API process has counted since it started."""

import threading
from typing import Literal, get_args

Name = Literal["runs_launched", "runs", "run_seconds", "logins_refused", "requests"]
LABELS: dict[Name, tuple[str, tuple[str, ...]]] = {
    "runs_launched": ("", ("",)),
    "runs": ("outcome", ("ok", "failed", "stopped")),
    "run_seconds": ("outcome", ("ok", "failed", "stopped")),
    "logins_refused": ("reason", ("wrong", "limited", "busy", "token")),
    "requests": ("code", ("1xx", "2xx", "3xx", "4xx", "5xx")),
}
"""Label of each count, and its values: a fixed number of series, whatever clients send."""


class Tally:
    """Thread-safe counts, which only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {name: dict.fromkeys(LABELS[name][1], 0.0) for name in get_args(Name)}

    def add(self, name: Name, value: str = "", amount: float = 1) -> None:
        """Add an amount of at least 0 to the count with this value of its label.

        Raises KeyError: there is none.
        """
        with self._lock:
            self._counts[name][value] += max(0.0, amount)

    def of(self, name: Name) -> dict[str, float]:
        """Return a count by the value of its label."""
        with self._lock:
            return dict(self._counts[name])
