# SPDX-License-Identifier: GPL-3.0-or-later
"""How series of plots look, by their number. Colours are CSS variables of static/report.css."""

import re
from functools import cache
from pathlib import Path

STATIC = Path(__file__).parent / "static"
COLOURS = ("--c1", "--c2", "--c3", "--c4", "--c5", "--c6")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "x")
NEAR_THE_EDGE = 0.9
"""Share of the x axis behind which a label stands left of its mark."""


def dash(style: int) -> str:
    """Return the dash of a series: series of one colour have different ones."""
    return DASHES[(style + style // len(COLOURS)) % len(DASHES)]


@cache
def light_colours() -> dict[str, str]:
    """Return the colours of the light theme by the names of their variables."""
    root = (STATIC / "report.css").read_text().partition("}")[0]
    return dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]+);", root))
