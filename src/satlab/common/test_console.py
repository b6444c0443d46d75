# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables on terminals of different widths."""

import io

import pytest
from rich.console import Console

from satlab.common import console

HEAD = ("Run", "Retransmitted or lost", *(f"Goodput {n} (Mbit/s)" for n in range(6)))
ROWS = [("bulk_tcp over geo", "12,345", *(f"{n}8.04" for n in range(1, 7)))]


@pytest.mark.parametrize("width", [200, 80, 40])
def test_no_figure_is_cut(width: int) -> None:
    out = Console(file=io.StringIO(), width=width)
    made = console.table("Bulk transfer", HEAD, ROWS, right=HEAD[1:])
    out.print(console.fitting(made, out))
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    assert all(figure in text for figure in ROWS[0][1:])
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
