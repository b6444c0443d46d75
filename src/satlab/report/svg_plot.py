# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots as SVG: what a report shows before its scripts run, without them, and in print.

Colours are CSS variables (`--c1`), which the page's theme sets. Values are in the plot's units,
positions in px of the view box.
"""

import html
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from markupsafe import Markup

from satlab.common import escape
from satlab.report import plotly
from satlab.report.page import Axis, Mark, Plot, Points, Series, Spans, Value

WIDTH = 880.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 16.0, 20.0, 46.0
"""Width of the view box, and margins of the plot in it; more on the left for long categories."""
MOST_LEFT = 260.0
HEADING, GAP = 22.0, 14.0
"""Height of a row's heading, and distance of two rows."""
LINE, CHARACTER = 20.0, 7.2
"""Height of a line of the legend, and width of one of its characters."""
DASHES = {"solid": "", "dash": "8 4", "dot": "2 3", "dashdot": "8 3 2 3", "longdash": "14 4"}
OTHER_DASH = "14 3 2 3"
BOX = 0.7
"""Share of a category's width that bars and boxes take."""


@dataclass(frozen=True)
class Scale:
    """Maps values of an axis to positions between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool
    ticks: tuple[tuple[float, str], ...]
    categories: Mapping[str, int]

    @property
    def length(self) -> float:
        """Return the length of the axis, px."""
        return abs(self.end - self.start)

    @property
    def first(self) -> float:
        """Return its end on the left or at the top, px."""
        return min(self.start, self.end)

    def at(self, value: Value) -> float:
        number = float(self.categories[value]) if isinstance(value, str) else value
        if self.is_log:
            number = math.log10(max(number, 1e-12))
        return self.start + (number - self.low) / (self.high - self.low) * (self.end - self.start)


def render(plot: Plot) -> Markup:
    """Return a plot as one SVG element."""
    named = _legend(plot)
    lines = _lines(named)
    height = max(float(plot.height), 220.0)
    bottom = height - BOTTOM - LINE * len(lines)
    rows = list(_rows(plot, bottom))
    longest = max((len(name) for scale in rows for name in scale.categories), default=0)
    left = min(max(LEFT, CHARACTER * longest + 12), MOST_LEFT)
    x = _scale(plot.x, _of_x(plot), left, WIDTH - RIGHT, 10)
    parts = [
        f'<svg class="static" viewBox="0 0 {WIDTH:g} {height:g}" aria-hidden="true"'
        ' xmlns="http://www.w3.org/2000/svg">',
        *_x_axis(plot, x, TOP, bottom),
    ]
    for number, (axis, scale) in enumerate(zip(plot.y, rows, strict=True)):
        clip = f"{re.sub(r'[^A-Za-z0-9_-]', '-', plot.key)}-{number}"
        top = scale.first
        size = f'width="{x.length:.1f}" height="{scale.length:.1f}"'
        parts.append(f'<clipPath id="{clip}"><rect x="{left:g}" y="{top:.1f}" {size}/></clipPath>')
        parts += _y_axis(axis, scale, x)
        parts.append(f'<g clip-path="url(#{clip})">')
        parts += _series(plot, number, x, scale)
        parts.append("</g>")
        parts += (part for mark in plot.marks for part in _y_mark(mark, number, scale, x))
    parts += (part for mark in plot.marks for part in _x_mark(mark, x, TOP, bottom))
    parts += _drawn_legend(lines, bottom + BOTTOM)
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - numbers, and texts that are escaped


# --- axes -----------------------------------------------------------------------------------------


def nice_step(span: float, most: int) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that needs at most `most` steps."""
    rough = span / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))


def _scale(axis: Axis, values: Iterable[Value], start: float, end: float, most: int) -> Scale:
    known = list(values)
    texts = [value for value in known if isinstance(value, str)]
    names = list(dict.fromkeys([*(axis.categories or ()), *texts]))
    if axis.is_reversed:
        start, end = end, start
    if names:
        ticks = tuple((float(place), name) for place, name in enumerate(names))
        places = {name: place for place, name in enumerate(names)}
        return Scale(-0.5, len(names) - 0.5, start, end, False, ticks, places)
    numbers = [one for one in known if not isinstance(one, str) and math.isfinite(one)]
    if axis.scale == "log":
        return _logarithmic([one for one in numbers if one > 0], start, end)
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    if axis.range is not None:
        low, high = axis.range
    else:
        low = min(low, 0.0) if axis.from_zero else low
        high += 0.04 * (high - low)
    if high <= low:
        high = low + 1
    if axis.ticks is not None:
        ticks = tuple(axis.ticks.items())
    else:
        step = axis.step or nice_step(high - low, most)
        first = math.ceil(low / step - 1e-9)
        count = math.floor(high / step + 1e-9) - first + 1
        places_of = (round((first + n) * step, 10) for n in range(count))
        ticks = tuple((place, f"{place:,.10g}") for place in places_of)
    return Scale(low, high, start, end, False, ticks, {})


def _logarithmic(numbers: Sequence[float], start: float, end: float) -> Scale:
    low = math.floor(math.log10(min(numbers, default=1.0)))
    high = max(math.ceil(math.log10(max(numbers, default=10.0))), low + 1)
    ticks = tuple((10.0**power, f"{10.0**power:,.6g}") for power in range(low, high + 1))
    return Scale(low, high, start, end, True, ticks, {})


def _rows(plot: Plot, bottom: float) -> Iterator[Scale]:
    """Yield the scale of each row, from the top."""
    shares = sum(axis.share for axis in plot.y)
    top = TOP
    for number, axis in enumerate(plot.y):
        below = top + (bottom - TOP) * axis.share / shares
        first = top + (HEADING if axis.heading else GAP if number else 0.0)
        last = below - (GAP if number < len(plot.y) - 1 else 0.0)
        values = [*_of_y(plot, number)]
        values += [mark.at for mark in plot.marks if mark.axis == "y" and mark.row == number]
        yield _scale(axis, values, last, first, max(3, round((last - first) / 40)))
        top = below


def _of_x(plot: Plot) -> Iterator[Value]:
    for one in plot.series:
        if isinstance(one, Series):
            yield from one.x
        else:
            yield from one.start
            yield from (a + b for a, b in zip(one.start, one.length, strict=False))
            yield from () if one.start else (0.0, *one.length)


def _of_y(plot: Plot, row: int) -> Iterator[Value]:
    stacked: dict[Value, float] = {}
    for one in plot.series:
        if isinstance(one, Spans):
            yield from one.y if row == 0 else ()
            yield from _around(one.y) if row == 0 else ()
        elif one.row == row:
            yield from one.y
            yield from (y + half for y, half in zip(one.y, one.interval, strict=False))
            if one.shape == "bars":
                yield 0.0
                for x, y in zip(one.x, one.y, strict=True):
                    stacked[x] = stacked.get(x, 0.0) + y
    if plot.bars == "stack":
        yield from stacked.values()


def _around(values: Sequence[Value]) -> Iterator[Value]:
    """Yield room for a bar above the first and below the last of numbered rows."""
    numbers = [one for one in values if not isinstance(one, str)]
    if numbers:
        yield min(numbers) - 0.6
        yield max(numbers) + 0.6


def _text(raw: str) -> str:
    return html.escape(escape.visible(raw))


def _x_axis(plot: Plot, x: Scale, top: float, bottom: float) -> Iterator[str]:
    for place, label in x.ticks:
        at = x.at(place) if not x.categories else x.at(label)
        if not plot.x.is_bare and not x.categories:
            yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top:g}" y2="{bottom:g}"/>'
        if not plot.x.is_bare or plot.x.ticks:
            side = "end" if at > WIDTH - RIGHT - 12 else "middle"
            yield f'<text x="{at:.1f}" y="{bottom + 16:g}" text-anchor="{side}">{_text(label)}</text>'
    middle = x.first + x.length / 2
    title = _text(plot.x.title.replace("\n", ", "))
    yield f'<text x="{middle:g}" y="{bottom + 34:g}" text-anchor="middle">{title}</text>'


def _y_axis(axis: Axis, y: Scale, x: Scale) -> Iterator[str]:
    left, right = x.first, WIDTH - RIGHT
    room = int((left - 12) / CHARACTER)
    for place, label in y.ticks:
        at = y.at(place) if not y.categories else y.at(label)
        if not axis.is_bare and not y.categories:
            yield f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{at:.1f}" y2="{at:.1f}"/>'
        if not axis.is_bare or axis.ticks:
            short = label if len(label) <= room else f"{label[: room - 1]}…"
            yield f'<text x="{left - 6:g}" y="{at + 4:.1f}" text-anchor="end">{_text(short)}</text>'
    top, middle = y.first, (y.start + y.end) / 2
    if axis.heading:
        heading = f"{axis.heading} ({axis.title})" if axis.title else axis.heading
        yield f'<text class="heading" x="{left:g}" y="{top - 7:.1f}">{_text(heading)}</text>'
    elif axis.title:
        turned = f'transform="rotate(-90 14 {middle:.1f})" text-anchor="middle"'
        title = _text(axis.title.replace("\n", ", "))
        yield f'<text x="14" y="{middle:.1f}" {turned}>{title}</text>'


# --- marks ----------------------------------------------------------------------------------------


def _y_mark(mark: Mark, row: int, y: Scale, x: Scale) -> Iterator[str]:
    if mark.axis != "y" or mark.row != row:
        return
    at = y.at(mark.at)
    if mark.until is not None:
        top, height = min(at, y.at(mark.until)), abs(y.at(mark.until) - at)
        width = x.length
        yield f'<rect class="area" x="{x.first:g}" y="{top:.1f}" width="{width:g}" height="{height:.1f}"/>'
    else:
        yield f'<line class="level" x1="{x.first:g}" x2="{WIDTH - RIGHT:g}" y1="{at:.1f}" y2="{at:.1f}"/>'
    if mark.label:
        end = WIDTH - RIGHT - 2
        yield f'<text x="{end:g}" y="{at - 5:.1f}" text-anchor="end">{_text(mark.label)}</text>'


def _x_mark(mark: Mark, x: Scale, top: float, bottom: float) -> Iterator[str]:
    if mark.axis != "x":
        return
    at, height = x.at(mark.at), bottom - top
    if mark.until is not None:
        width = x.at(mark.until) - at
        yield f'<rect class="area" x="{at:.1f}" y="{top:g}" width="{width:.1f}" height="{height:g}"/>'
    else:
        yield f'<line class="moment" x1="{at:.1f}" x2="{at:.1f}" y1="{top:g}" y2="{bottom:g}"/>'
    if mark.label:
        side = "end" if at > WIDTH - 120 else "start"
        yield f'<text x="{at:.1f}" y="{top - 5:g}" text-anchor="{side}">{_text(mark.label)}</text>'


# --- series ---------------------------------------------------------------------------------------


def colour_of(one: Series | Spans) -> str:
    """Return the colour of a series in CSS."""
    style = 0 if isinstance(one, Spans) else one.style
    colour = one.colour or plotly.COLOURS[style % len(plotly.COLOURS)]
    return f"var({colour})" if colour.startswith("--") else _text(colour)


def _dash_of(one: Series) -> str:
    usual = plotly.DASHES[one.style % len(plotly.DASHES)]
    name = one.dash or ("solid" if one.shape == "marked line" else usual)
    dash = DASHES.get(name, OTHER_DASH)
    return f' stroke-dasharray="{dash}"' if dash else ""


def _series(plot: Plot, row: int, x: Scale, y: Scale) -> Iterator[str]:
    bars = [
        one for one in plot.series if isinstance(one, Series) and one.shape in ("bars", "boxes")
    ]
    stacked: dict[Value, float] = {}
    for one in plot.series:
        if isinstance(one, Spans):
            yield from _spans(one, x, y) if row == 0 else ()
        elif one.row == row:
            points = [
                (x.at(a), y.at(b))
                for a, b in zip(one.x, one.y, strict=True)
                if isinstance(a, str) or (math.isfinite(a) and math.isfinite(b))
            ]
            if one.shape in ("line", "steps", "marked line"):
                yield _line(one, points)
            if one.shape in ("marks", "marked line"):
                yield from (_symbol(one, *point) for point in points)
            if one.shape == "bars":
                yield from _bars(one, plot, bars.index(one), len(bars), stacked, x, y)
            if one.shape == "boxes":
                yield from _boxes(one, bars.index(one), len(bars), x, y)
            for (at, _), value, half in zip(points, one.y, one.interval, strict=False):
                ends = f'y1="{y.at(value - half):.1f}" y2="{y.at(value + half):.1f}"'
                yield f'<line class="whisker" x1="{at:.1f}" x2="{at:.1f}" {ends}/>'


def thinned(points: Points) -> list[tuple[float, float]]:
    """Return a line's points, of many in one px its first, lowest, highest and last."""
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0]), []).append(point)
    kept: list[tuple[float, float]] = []
    for own in columns.values():
        low, high = min(own, key=lambda p: p[1]), max(own, key=lambda p: p[1])
        ends = {own[0], low, high, own[-1]} if len(own) > 4 else set(own)
        kept += [point for point in own if point in ends]
    return kept


def _line(one: Series, points: Points) -> str:
    shown = thinned(points)
    if one.shape == "steps":
        bends = [(after[0], before[1]) for before, after in itertools.pairwise(shown)]
        shown = (
            [p for pair in zip(shown, [*bends, shown[-1]], strict=True) for p in pair]
            if shown
            else []
        )
    texts = " ".join(f"{a:.1f},{b:.1f}" for a, b in shown)
    look = f'stroke="{colour_of(one)}" stroke-width="{one.width:g}" opacity="{one.opacity:g}"'
    return f'<polyline class="drawn" points="{texts}" {look}{_dash_of(one)}/>'


def _symbol(one: Series, x: float, y: float) -> str:
    name = one.symbol or plotly.SYMBOLS[one.style % len(plotly.SYMBOLS)]
    half, colour = one.size / 2, colour_of(one)
    look = f'fill="{colour}" opacity="{one.opacity:g}"'
    if name.endswith("-open"):
        look = f'fill="none" stroke="{colour}" stroke-width="2"'
    match name.removesuffix("-open"):
        case "line-ew":
            ends = f'x1="{x - half:.1f}" x2="{x + half:.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            return f'<line {ends} stroke="{colour}" stroke-width="3"/>'
        case "square":
            corner = f'x="{x - half:.1f}" y="{y - half:.1f}"'
            return f'<rect {corner} width="{one.size:g}" height="{one.size:g}" {look}/>'
        case "diamond":
            corners = ((x - half, y), (x, y - half), (x + half, y), (x, y + half))
        case "triangle-up":
            corners = ((x - half, y + half), (x, y - half), (x + half, y + half), (x, y + half))
        case "x" | "cross":
            ends = f"M{x - half:.1f} {y - half:.1f}l{one.size:g} {one.size:g}"
            return (
                f'<path d="{ends}M{x - half:.1f} {y + half:.1f}l{one.size:g} -{one.size:g}"'
                f' stroke="{colour}" stroke-width="2"/>'
            )
        case _:
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{half:g}" {look}/>'
    texts = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
    return f'<polygon points="{texts}" {look}/>'


def _widths(x: Scale, one: Series) -> float:
    """Return the width of one place of the x axis, px."""
    places = sorted({x.at(value) for value in one.x})
    gaps = [b - a for a, b in itertools.pairwise(places)]
    whole = x.length / max(len(x.categories), 1)
    return min([whole, *gaps]) * BOX


def _bars(
    one: Series,
    plot: Plot,
    place: int,
    count: int,
    stacked: dict[Value, float],
    x: Scale,
    y: Scale,
) -> Iterator[str]:
    width, shift = _widths(x, one), 0.0
    if plot.bars == "group":
        width /= count
        shift = (place - (count - 1) / 2) * width
    for a, b in zip(one.x, one.y, strict=True):
        base = stacked.get(a, 0.0) if plot.bars == "stack" else 0.0
        stacked[a] = base + b
        ends = sorted((y.at(base), y.at(base + b)))
        corner = f'x="{x.at(a) + shift - width / 2:.1f}" y="{ends[0]:.1f}"'
        size = f'width="{width:.1f}" height="{ends[1] - ends[0]:.1f}"'
        yield f'<rect {corner} {size} fill="{colour_of(one)}" opacity="{one.opacity:g}"/>'


def _boxes(one: Series, place: int, count: int, x: Scale, y: Scale) -> Iterator[str]:
    groups: dict[Value, list[float]] = {}
    for a, b in zip(one.x, one.y, strict=True):
        groups.setdefault(a, []).append(b)
    width = _widths(x, one) / count
    colour = colour_of(one)
    for name, values in groups.items():
        middle = x.at(name) + (place - (count - 1) / 2) * width
        left, right = middle - width * 0.35, middle + width * 0.35
        low, half, high = (
            quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
        )
        corner = f'x="{left:.1f}" y="{y.at(high):.1f}" width="{right - left:.1f}"'
        look = f'fill="{colour}" fill-opacity=".2" stroke="{colour}"'
        yield f'<rect {corner} height="{y.at(low) - y.at(high):.1f}" {look}/>'
        ends = f'x1="{left:.1f}" x2="{right:.1f}" y1="{y.at(half):.1f}" y2="{y.at(half):.1f}"'
        yield f'<line {ends} stroke="{colour}" stroke-width="2"/>'
        for value in values:
            yield f'<circle cx="{middle:.1f}" cy="{y.at(value):.1f}" r="2.5" fill="{colour}"/>'


def _spans(one: Spans, x: Scale, y: Scale) -> Iterator[str]:
    """Yield all bars as one path: there may be hundreds."""
    height = y.length / (y.high - y.low) * BOX
    bars = []
    for row, start, length in zip(one.y, one.start or [0.0] * len(one.y), one.length, strict=True):
        left, right = sorted((x.at(start), x.at(start + length)))
        width = max(right - left, 0.5)
        corner = f"M{left:.1f} {y.at(row) - height / 2:.1f}"
        bars.append(f"{corner}h{width:.1f}v{height:.1f}h-{width:.1f}z")
    yield f'<path d="{"".join(bars)}" fill="{colour_of(one)}"/>'


# --- legend ---------------------------------------------------------------------------------------


def _legend(plot: Plot) -> list[Series | Spans]:
    if not plot.has_legend or len(plot.series) < 2:
        return []
    found = {one.name: one for one in reversed(plot.series) if one.in_legend and one.name}
    return list(found.values())[::-1]


def _lines(named: Sequence[Series | Spans]) -> list[list[tuple[float, Series | Spans]]]:
    """Return the lines of the legend: entries with their x."""
    lines: list[list[tuple[float, Series | Spans]]] = []
    at = WIDTH
    for one in named:
        width = 34 + CHARACTER * len(one.name)
        if at + width > WIDTH - RIGHT:
            lines.append([])
            at = LEFT
        lines[-1].append((at, one))
        at += width
    return lines


def _drawn_legend(
    lines: Sequence[Sequence[tuple[float, Series | Spans]]], top: float
) -> Iterator[str]:
    for number, line in enumerate(lines):
        y = top + LINE * (number + 0.5)
        for at, one in line:
            if isinstance(one, Series) and one.shape in ("line", "steps"):
                look = f'stroke="{colour_of(one)}" stroke-width="{one.width:g}"{_dash_of(one)}'
                yield f'<line x1="{at:.1f}" x2="{at + 20:.1f}" y1="{y:.1f}" y2="{y:.1f}" {look}/>'
            elif isinstance(one, Series) and one.shape in ("marks", "marked line"):
                yield _symbol(one, at + 12, y)
            else:
                corner = f'x="{at + 4:.1f}" y="{y - 6:.1f}" width="14" height="12"'
                yield f'<rect {corner} fill="{colour_of(one)}"/>'
            yield f'<text class="name" x="{at + 26:.1f}" y="{y + 4:.1f}">{_text(one.name)}</text>'
