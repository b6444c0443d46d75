# SPDX-License-Identifier: GPL-3.0-or-later
"""Line charts for an SVG template: points in view-box units, ticks at round values. No I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from satlab.report.axis_ticks import Tick, step_of
from satlab.report.page import Points

WIDTH, HEIGHT = 640.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 10.0, 28.0
"""Size of the view box, and margins of the plot in it."""
LIMIT = 0
"""Number of the colour of a limit."""
MIN_TOP = 1e-9
"""Smallest maximum that scales the y axis; below it the axis ends at 1."""


@dataclass(frozen=True)
class Line:
    """One curve: name, number of its colour (`LIMIT`: a limit), points of an SVG polyline, last and
    largest value.
    """

    name: str
    colour: int
    points: str
    last: str
    most: str


@dataclass(frozen=True)
class Chart:
    """A chart over seconds."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]

    @property
    def summary(self) -> str:
        """Return the last values as text."""
        return ", ".join(f"{line.name} {line.last}" for line in self.lines)


def chart(
    title: str,
    unit: str,
    curves: Sequence[tuple[str, Points]],
    limit: tuple[str, Points] | None = None,
    colours: Sequence[int] = (1, 2, 3, 4, 5, 6),
) -> Chart:
    """Return a chart of curves of (time in s >= 0, value), each with the number of its colour.

    `limit` is a bound of the first curve, such as the capacity. The y axis contains 0.
    """
    numbered = list(zip(cycle(colours), curves, strict=False)) + (
        [(LIMIT, limit)] if limit is not None and limit[1] else []
    )
    values = [value for _, (_, points) in numbered for _, value in points]
    until = max([1.0, *(points[-1][0] for _, (_, points) in numbered if points)])
    top, bottom = max([*values, 0.0]), min([*values, 0.0])
    y_step = step_of(top - bottom if top - bottom > MIN_TOP else 1.0, 4)
    low = math.floor(bottom / y_step + 1e-9)
    high = max(low + 1, math.ceil(top / y_step - 1e-9))
    x_step = step_of(until, 6)

    def x(seconds: float) -> float:
        return LEFT + seconds / until * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - (value / y_step - low) / (high - low)) * (HEIGHT - TOP - BOTTOM)

    lines = tuple(
        Line(
            name,
            number,
            " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points),
            *_last_and_most(points, unit),
        )
        for number, (name, points) in numbered
    )
    return Chart(
        title,
        unit,
        lines,
        tuple(
            Tick(x(n * x_step), f"{n * x_step:g}")
            for n in range(math.floor(until / x_step + 1e-9) + 1)
        ),
        tuple(Tick(y(n * y_step), f"{n * y_step:g}") for n in range(low, high + 1)),
    )


def _last_and_most(points: Points, unit: str) -> tuple[str, str]:
    if not points:
        return "no sample yet", "nothing"
    return _quantity(points[-1][1], unit), _quantity(max(value for _, value in points), unit)


def _quantity(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
