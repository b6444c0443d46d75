# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of pages on a terminal, and as Markdown for pull requests."""

from collections.abc import Collection, Sequence

from rich.table import Table as TerminalTable

from satlab.common import console, escape
from satlab.report.page import Cell, Table


def terminal(table: Table, *, unwrapped: Collection[str] = ()) -> TerminalTable:
    """Return a table for a terminal. `unwrapped`: names of columns."""
    rows = (tuple(map(_text, row)) for rows in table.parts.values() for row in rows)
    return console.table(table.title, table.head, rows, right=table.numbers, unwrapped=unwrapped)


def markdown(table: Table) -> str:
    """Return a table with its title as Markdown."""

    def line(cells: Sequence[str | Cell]) -> str:
        return f"| {' | '.join(escape.markdown(_text(cell)) for cell in cells)} |"

    rows = [line(row) for rows in table.parts.values() for row in rows]
    title = f"#### {escape.markdown(table.title)}\n"
    return "\n".join([title, line(table.head), f"|{' --- |' * len(table.head)}", *rows, ""])


def _text(cell: str | Cell) -> str:
    return str(cell).replace("\n", "; ")
