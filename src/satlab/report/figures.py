# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures as Plotly documents, for papers/reproduction_page.py alone: it goes, and this with it.

Other pages are data (page.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from satlab.report.page import Points
from satlab.report.plotly import COLOURS, DASHES, Json, text

__all__ = ["COLOURS", "DataTable", "Figure", "Json", "axis", "line"]


@dataclass(frozen=True)
class DataTable:
    """The data of a plot as text."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Figure:
    """One plot: what it shows in words, its Plotly document, its height in px, its data as a table."""

    key: str
    title: str
    caption: str
    document: Json
    height: int
    table: DataTable


def axis(title: str, **more: Any) -> Json:
    """Return an axis with its title, which names the unit."""
    return {"title": {"text": title}, **more}


def line(points: Points, name: str, style: int, **more: Any) -> Json:
    """Return a line; its dash distinguishes it as well as its colour."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(name),
        "x": [round(x, 3) for x, _ in points],
        "y": [round(y, 4) for _, y in points],
        "line": {"color": COLOURS[style % 6], "dash": DASHES[style % 6], "width": 2},
        **more,
    }
