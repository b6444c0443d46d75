# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts a program that runs as long as its job."""

import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobkit import JobError

POLL_S = 0.05
AGENT_S = 5.0
"""An agent that stops a job ends its children first, by force if they take long. The job gets the
signal up to this much later.
"""


@dataclass(frozen=True)
class Child:
    """A program that was started. `log` holds what it says of its end.

    `agent_s`: how much later than its program a job that is stopped gets the signal.
    """

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    agent_s: float

    @classmethod
    def start(
        cls,
        name: str,
        argv: Sequence[str],
        log: Path,
        output: Path | None = None,
        agent_s: float = AGENT_S,
    ) -> "Child":
        """Start a program with its errors in `log`, and its output there or in another file."""
        with log.open("ab") as errors, (output or log).open("ab") as stdout:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=errors)
        return cls(name, process, log, agent_s)

    def check(self, stop: threading.Event) -> None:
        """Raise JobError if the program has ended, unless the job is being stopped."""
        code = self.process.poll()
        asked = (0, -signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGKILL)
        if code is None or (code in asked and stop.wait(self.agent_s)):
            return
        what = f"{self.name} ended with status {code}: {tail(self.log)}"
        raise JobError(what, "see the job's log", status=1)

    def wait_until(
        self, state: str, reached: Callable[[], bool], stop: threading.Event, deadline_s: float
    ) -> None:
        """Poll until the program has reached a state, or `stop`. Raises JobError."""
        for _ in range(round(deadline_s / POLL_S)):
            self.check(stop)
            if reached() or stop.wait(POLL_S):
                return
        what = f"{self.name} was not {state} after {deadline_s:g} s: {tail(self.log)}"
        raise JobError(what, status=1)


def tail(log: Path) -> str:
    """Return the last lines of a program's output as one line."""
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    return " / ".join(lines[-6:]).strip(" /") or "no output"
