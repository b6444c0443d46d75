# SPDX-License-Identifier: GPL-3.0-or-later
"""Talk to the person at the terminal: all of it on stderr. Bars only on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def printable(text: str) -> str:
    """Return text without control characters, so that nothing a file or a server says can steer the terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


@dataclass
class ProgressLog:
    """Progress of a command. `quiet` says nothing but errors."""

    quiet: bool = False
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False))

    def line(self, text: str) -> None:
        """Say one line."""
        if not self.quiet:
            self.console.print(escape(printable(text)), soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator["Step"]:
        """Show that `what` is going on, and how long it took once it ended."""
        began = time.monotonic()
        with Step(self, what) as step:
            yield step
        self.line(f"  {what}: {step.outcome or 'done'} ({time.monotonic() - began:.1f} s)")


class Step:
    """One thing that lasts. On a terminal a line that moves; `now()` changes what it says."""

    def __init__(self, log: ProgressLog, what: str) -> None:
        self.outcome = ""
        self._what = what
        self._bar: Progress | None = None
        if log.console.is_terminal and not log.quiet:
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self._bar = Progress(*columns, console=log.console, transient=True)
            self._task = self._bar.add_task(escape(what))

    def __enter__(self) -> "Step":
        """Start to show."""
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to show."""
        if self._bar:
            self._bar.stop()

    def now(self, detail: str) -> None:
        """Say what goes on at this moment."""
        if self._bar:
            self._bar.update(self._task, description=escape(printable(f"{self._what}: {detail}")))
