# SPDX-License-Identifier: GPL-3.0-or-later
"""Progress and messages of a command, on stderr; bars only on a terminal, plain lines elsewhere.

Tables on stdout.
"""

import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from satlab.common import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Column, Table

FILE_WIDTH = 200
"""Width of tables that are not printed on a terminal, columns."""


def for_tables() -> "Console":
    """Return the console for tables on stdout: as wide as the terminal; in a file or a pipe no cell
    is cut.
    """
    from rich.console import Console

    width = None if sys.stdout.isatty() else FILE_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    unwrapped: Collection[str] = (),
) -> "Table":
    """Return a table of texts, which may be untrusted.

    `right`, `unwrapped`: names of columns.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(title=escape.terminal(title), title_justify="left", title_style="bold")
    lines = [[escape.terminal(cell) for cell in row] for row in rows]
    for place, name in enumerate(head):
        heading = [name]
        if name in right:  # a figure is never cut; the words of its name are below each other
            longest = max((len(line[place]) for line in lines), default=0)
            heading = textwrap.wrap(name, max(longest, *map(len, name.split()), 1))
        made.add_column(
            Text("\n").join(map(escape.terminal, heading)),
            justify="right" if name in right else "left",
            no_wrap=name in right or name in unwrapped,
            overflow="fold",
        )
    for line in lines:
        made.add_row(*line)
    return made


def fitting(made: "Table", console: "Console") -> "Table":
    """Return a table, or if it is wider than the console its rows below each other, a line for each
    column.
    """
    from rich.measure import Measurement
    from rich.table import Table

    whole = console.options.update(width=sum(map(_longest, made.columns)) + 4 * len(made.columns))
    if Measurement.get(console, whole, made).minimum <= console.width:
        return made
    upright = Table(title=made.title, title_justify="left", title_style="bold", show_header=False)
    upright.add_column(overflow="fold")
    upright.add_column(overflow="fold")
    names = [" ".join(str(column.header).split()) for column in made.columns]
    for cells in zip(*(list(column.cells) for column in made.columns), strict=True):
        for name, cell in zip(names, cells, strict=True):
            upright.add_row(name, cell)
        upright.add_section()
    return upright


def _longest(column: "Column") -> int:
    """Return the length of the longest text of a column."""
    return max(len(str(text)) for text in (column.header, *column.cells))


def say(text: object = "") -> None:
    """Print text on stdout. Untrusted parts of it cannot control the terminal."""
    print(escape.lines(str(text)))


@dataclass
class ProgressLog:
    """Progress of a command; `quiet` suppresses it, errors are printed elsewhere."""

    quiet: bool = False

    @cached_property
    def console(self) -> "Console":
        """stderr."""
        from rich.console import Console

        return Console(stderr=True, highlight=False, markup=False)

    def line(self, text: str) -> None:
        if not self.quiet:
            self.console.print(escape.terminal(text), soft_wrap=True)

    @contextmanager
    def step(self, what: str) -> Iterator["Step"]:
        """Show that `what` is in progress, and afterwards how long it took."""
        began = time.monotonic()
        with Step(self, what) as step:
            yield step
        self.line(f"  {what}: {step.outcome or 'done'} ({time.monotonic() - began:.1f} s)")


class Step:
    """One step of a command. On a terminal an animated line; `now()` changes its text."""

    def __init__(self, log: ProgressLog, what: str) -> None:
        self.outcome = ""
        self._what = what
        self._bar: Progress | None = None
        if log.console.is_terminal and not log.quiet:
            from rich import progress

            columns = (
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}", markup=False),
                progress.TimeElapsedColumn(),
            )
            self._bar = progress.Progress(*columns, console=log.console, transient=True)
            self._task = self._bar.add_task(escape.visible(what))

    def __enter__(self) -> "Step":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def now(self, detail: str) -> None:
        """Show what is in progress now."""
        if self._bar:
            self._bar.update(self._task, description=escape.visible(f"{self._what}: {detail}"))
