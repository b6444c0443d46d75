# SPDX-License-Identifier: GPL-3.0-or-later
"""Line charts as numbers for an SVG template: points in view-box units, ticks at round figures. No I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 8.0, 10.0, 28.0
"""Size of the view box, and margins of the plot in it."""
LEAST = 1e-9
"""A curve that never rises above it is drawn as none that does."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, and what it says."""

    at: float
    text: str


@dataclass(frozen=True)
class Line:
    """One curve: its name, the number of its colour, points for an SVG polyline, last and largest value in words."""

    name: str
    colour: int
    points: str
    last: str
    most: str


@dataclass(frozen=True)
class Chart:
    """One chart over seconds. `marker` is where the scenario began."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    marker: float | None

    @property
    def summary(self) -> str:
        """Say in words what the chart shows last."""
        return ", ".join(f"{line.name} {line.last}" for line in self.lines)


def chart(
    title: str, unit: str, curves: Sequence[tuple[str, Points]], marker_s: float | None = None, colour: int = 1
) -> Chart:
    """Lay out curves of (time in s, value); values are not negative, times start at 0. `colour`: of the first."""
    until = max([1.0, *(points[-1][0] for _, points in curves if points)])
    top = max([*(value for _, points in curves for _, value in points), 0.0])
    y_step = _step(top if top > LEAST else 1.0, 4)
    y_end = max(1, math.ceil(top / y_step - 1e-9)) * y_step
    x_step = _step(until, 6)

    def x(seconds: float) -> float:
        return LEFT + seconds / until * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return TOP + (1 - value / y_end) * (HEIGHT - TOP - BOTTOM)

    lines = tuple(
        Line(name, number, " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in points), *_said(points, unit))
        for number, (name, points) in enumerate(curves, colour)
    )
    return Chart(
        title,
        unit,
        lines,
        tuple(Tick(x(n * x_step), f"{n * x_step:g}") for n in range(math.floor(until / x_step + 1e-9) + 1)),
        tuple(Tick(y(n * y_step), f"{n * y_step:g}") for n in range(round(y_end / y_step) + 1)),
        None if marker_s is None or not 0 <= marker_s <= until else x(marker_s),
    )


def _step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that needs at most `most` steps."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def _said(points: Points, unit: str) -> tuple[str, str]:
    if not points:
        return "no sample yet", "nothing"
    return _quantity(points[-1][1], unit), _quantity(max(value for _, value in points), unit)


def _quantity(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
