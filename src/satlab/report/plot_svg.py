# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots as static SVG: for print, for readers without scripts, and as files of their own.

Colours are CSS variables (`--c1`), which the page's theme sets; a file of its own has them in it.
"""

import html
import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import NamedTuple

from satlab.common import escape
from satlab.report.axis_ticks import Tick, step_of, ticks_within
from satlab.report.page import Axis, Heat, Mark, Plot, Series, Spans, Value
from satlab.report.styles import COLOURS, NEAR_THE_EDGE, SYMBOLS, dash, light_colours

WIDTH = 800
LEFT, RIGHT, BOTTOM = 64, 12, 46
"""Margins of the plot, px; the bottom one has labels and title of the x axis."""
MOST_LEFT, MOST_NAME = 190.0, 24
"""Largest left margin, px, and largest number of characters of a name in it."""
LINE = 19
"""Height of a line of text, px."""
GAP = 16
"""Between two rows of a plot, px."""
LETTER = 7.5
"""Mean width of a character, px."""
SWATCH = 26
DOTS = {
    "solid": "",
    "dash": "8 5",
    "dot": "2 4",
    "dashdot": "8 4 2 4",
    "longdash": "14 6",
    "longdashdot": "14 5 2 5",
}
HALF_BAR, HALF_BOX = 0.36, 0.3
"""Half widths of bars and boxes, as shares of the distance between two of them."""
LEAST, MOST = 1e-9, 1e100
"""Smallest range of an axis, and values that it need not contain."""
LEAST_PX = 0.05
"""Length of the shortest bar that is written: shorter ones cannot be seen."""
MOST_LABEL = 60
"""Characters of a label; a longer one is cut."""


def drawing(plot: Plot, width: int = WIDTH) -> str:
    """Return the plot as an SVG element of a width, px."""
    return "".join(_Drawing(plot, width).parts())


def document(plot: Plot) -> str:
    """Return the plot as a file, with title and caption, in the light colours."""
    made = _Drawing(plot, WIDTH)
    head = 2 * LINE + 10
    most = int((WIDTH - 20) / LETTER)
    caption = textwrap.wrap(plot.caption, most, break_long_words=False, break_on_hyphens=False)
    height = made.height + head + LINE * len(caption)
    colours = "".join(f"{name}:{value};" for name, value in light_colours().items())
    texts = "".join(
        f'<text x="10" y="{head - 6 + LINE * index}" fill="var(--muted)">{_text(part)}</text>'
        for index, part in enumerate(caption)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
        f' height="{height}" font-family="sans-serif" font-size="13" fill="var(--text)">'
        f"<style>:root{{{colours}}}</style>"
        '<rect width="100%" height="100%" fill="var(--card)"/>'
        f'<text x="10" y="26" font-size="17" font-weight="bold">'
        f"{_text(plot.title)}</text>{texts}"
        f'<g transform="translate(0 {head + LINE * (len(caption) - 1)})">'
        f"{''.join(made.content())}</g></svg>\n"
    )


@dataclass
class _Scale:
    """Maps values of an axis to px: `start` for the lowest one, `length` until the highest."""

    axis: Axis
    low: float
    high: float
    start: float
    length: float
    places: Mapping[str, int] = field(default_factory=dict)
    """Numbers of texts."""
    is_across: bool = False

    def value(self, value: Value) -> float:
        """Return the number of a value; that of a text is its place."""
        return float(self.places[value]) if isinstance(value, str) else value

    def at(self, value: Value) -> float:
        """Return the px of a value, within a plot's length of the plot."""
        number = self.value(value)
        low, high = self.low, self.high
        if self.axis.scale == "log":
            number, low, high = (math.log10(max(one, 1e-12)) for one in (number, low, high))
        share = (number - low) / (high - low)
        return self.start + min(max(share, -1.0), 2.0) * self.length

    def ticks(self) -> list[Tick]:
        """Return values and texts of the axis."""
        axis = self.axis
        if self.places:
            longest = max(map(len, self.places)) * LETTER + 10 if self.is_across else LINE
            every = math.ceil(len(self.places) * longest / max(abs(self.length), 1))
            return [Tick(at, name) for name, at in self.places.items() if at % every == 0]
        if axis.ticks is not None:
            return [Tick(at, name) for at, name in axis.ticks.items()]
        if axis.is_bare and not axis.title:
            return []
        if axis.scale == "log":
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if len(powers) > 3 else (1, 2, 5)
            return [
                Tick(step * 10.0**power, f"{step * 10.0**power:,g}")
                for power in powers
                for step in steps
            ]
        most = max(2, int(abs(self.length) / (90 if self.is_across else 36)))
        step = axis.step if axis.step is not None else step_of(self.high - self.low, most)
        return ticks_within(self.low, self.high, max(step, step_of(self.high - self.low, 20)))


class _Box(NamedTuple):
    left: float
    top: float
    width: float
    height: float


class _Drawing:
    def __init__(self, plot: Plot, width: int) -> None:
        self._plot, self._width = plot, width
        self._id = re.sub(r"[^A-Za-z0-9]", "-", plot.key)
        names = [
            *(y for one in plot.series for y in one.y if isinstance(y, str)),
            *(name for axis in plot.y for name in (axis.ticks or {}).values()),
        ]
        self._left = min(max(LEFT, 16 + LETTER * max(map(len, names), default=0)), MOST_LEFT)
        self._left += LINE if names and any(axis.title for axis in plot.y) else 0
        self._legends = [list(self._legend(row)) for row in range(len(plot.y))]
        heights = [self._head(row) for row in range(len(plot.y))]
        room = max(plot.height - BOTTOM - plot.room, 60 * len(plot.y))
        whole = sum(axis.share for axis in plot.y)
        self._x = self._scale_x()
        self._rows: list[_Scale] = []
        y = 0.0
        for row, axis in enumerate(plot.y):
            length = room * axis.share / whole
            y += heights[row]
            self._rows.append(self._scale_y(row, y, length))
            y += length + (GAP if row + 1 < len(plot.y) else 0)
        self._labelled: list[tuple[float, float]] = []
        """Begin and end of the labels of marks: of those that would cover each other the first stays."""
        self._bottom = y
        self.height = round(y + BOTTOM)

    def _head(self, row: int) -> float:
        """Return the height of what stands above a row: its heading, its legend, marks' labels."""
        has_labels = row == 0 and any(mark.axis == "x" and mark.label for mark in self._plot.marks)
        lines = bool(self._plot.y[row].heading) + len(self._lines(row)) + has_labels
        return lines * LINE + 8

    def parts(self) -> Iterator[str]:
        yield (
            f'<svg class="static" viewBox="0 0 {self._width} {self.height}" width="{self._width}"'
            f' height="{self.height}" aria-hidden="true" font-size="13" fill="var(--text)">'
        )
        yield from self.content()
        yield "</svg>"

    def content(self) -> Iterator[str]:
        plot = self._plot
        clip = f"clip-{self._id}"
        for name in sorted({one.pattern for one in plot.series if isinstance(one, Spans)} - {""}):
            yield _pattern(name, f"{self._id}-{ord(name)}")
        for row, scale in enumerate(self._rows):
            yield from self._grid(row, scale)
        for mark in plot.marks:
            yield from self._mark(mark)
        for row, scale in enumerate(self._rows):
            top = scale.start + min(scale.length, 0)
            yield (
                f'<clipPath id="{clip}-{row}"><rect x="{self._left}" y="{top - 4:.1f}"'
                f' width="{self._width - self._left - RIGHT}" height="{abs(scale.length) + 8:.1f}"/>'
                "</clipPath>"
                f'<g clip-path="url(#{clip}-{row})">'
            )
            yield from self._row(row)
            yield "</g>"
            yield from self._above(row, top)
        yield label(
            (self._left + self._width - RIGHT) / 2, self._bottom + 40, plot.x.title, "middle"
        )

    # --- scales ---

    def _scale_x(self) -> _Scale:
        values: list[Value] = []
        ends: dict[Value, float] = {}
        for one in self._plot.series:
            if isinstance(one, Spans):
                for _, begin, end in self._ends(one, ends):
                    values += [begin, end]
            else:
                values += one.x
        width = self._width - self._left - RIGHT
        return _scale(
            self._plot.x, values, self._left, width, wide=self._has_blocks, is_across=True
        )

    @property
    def _has_blocks(self) -> bool:
        return any(
            isinstance(one, Series) and one.shape in ("bars", "boxes") for one in self._plot.series
        )

    def _scale_y(self, row: int, top: float, length: float) -> _Scale:
        values: list[Value] = []
        is_spans = False
        for one in self._plot.series:
            if isinstance(one, Spans) and row == 0:
                values += one.y
                is_spans = True
            elif isinstance(one, Heat):
                values += one.y
            elif isinstance(one, Series) and one.row == row:
                half = [*one.interval, *[0.0] * (len(one.y) - len(one.interval))]
                values += [
                    y + way * end for y, end in zip(one.y, half, strict=True) for way in (-1, 1)
                ]
                values += [0.0] if one.shape == "bars" else []
        values += [mark.at for mark in self._plot.marks if mark.axis == "y" and mark.row == row]
        start, length = (top, length) if self._plot.y[row].is_reversed else (top + length, -length)
        return _scale(self._plot.y[row], values, start, length, wide=is_spans)

    # --- frame ---

    def _grid(self, row: int, y: _Scale) -> Iterator[str]:
        top, bottom = sorted((y.start, y.start + y.length))
        is_last = row + 1 == len(self._rows)
        grid, below = "", []
        for tick in self._x.ticks():
            x = self._x.at(tick.at)
            if not self._left - 1 <= x <= self._width - RIGHT + 1:
                continue
            if not self._x.axis.is_bare and not self._x.places:
                grid += f"M{x:.1f} {top:.1f}V{bottom:.1f}"
            if is_last:
                below.append(label(x, bottom + 20, tick.text, "middle"))
        labels = []
        for tick in y.ticks():
            at = y.at(tick.at)
            if not top - 1 <= at <= bottom + 1:
                continue
            if not y.axis.is_bare and not y.places:
                grid += f"M{self._left:g} {at:.1f}H{self._width - RIGHT}"
            labels.append(f'<text y="{at + 4.5:.1f}">{_text(_cut(tick.text, MOST_NAME))}</text>')
        if grid:  # one path takes a third of the bytes of lines
            yield f'<path d="{grid}" stroke="var(--grid)"/>'
        yield from below
        yield f'<g transform="translate({self._left - 7:g})" text-anchor="end">'
        yield from (*labels, "</g>")
        if not y.axis.is_bare:
            yield _stroke(self._left, top, self._left, bottom, "var(--line)")
            yield _stroke(self._left, bottom, self._width - RIGHT, bottom, "var(--line)")
        if y.axis.title:
            middle = (top + bottom) / 2
            yield (
                f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle"'
                f">{_text(y.axis.title)}</text>"
            )

    def _above(self, row: int, top: float) -> Iterator[str]:
        """Yield heading and legend of a row."""
        lines = self._lines(row)
        y = top - 6 - LINE * (len(lines) - 1) if lines else top - 6
        if row == 0 and any(mark.axis == "x" and mark.label for mark in self._plot.marks):
            y -= LINE
        if self._plot.y[row].heading:
            at = y - LINE if lines else y
            yield (
                f'<text x="{self._left}" y="{at:.0f}" font-weight="bold">'
                f"{_text(self._plot.y[row].heading)}</text>"
            )
        for entries in lines:
            x = float(self._left)
            for one in entries:
                if isinstance(one, Spans):
                    yield self._bars([_Box(x, y - 10.5, SWATCH - 4, 12)], one)
                elif isinstance(one, Series):
                    yield _swatch(one, x, y - 4.5)
                yield label(x + SWATCH + 5, y, one.name, "start")
                x += _width(one)
            y += LINE

    def _legend(self, row: int) -> Iterator[Series | Spans | Heat]:
        named: set[str] = set()
        shown = [one for one in self._plot.series if one.in_legend]
        if not self._plot.has_legend or len(shown) < 2:
            return
        for one in shown:
            own = row == (one.row if isinstance(one, Series) else 0)
            if own and one.name not in named:
                named.add(one.name)
                yield one

    def _mark(self, mark: Mark) -> Iterator[str]:
        top = min(scale.start + min(scale.length, 0) for scale in self._rows)
        if mark.axis == "y":
            y = self._rows[mark.row].at(mark.at)
            yield _stroke(self._left, y, self._width - RIGHT, y, "var(--muted)", 1.5)
            if mark.label:
                yield label(self._width - RIGHT, y - 4, mark.label, "end", fill="var(--muted)")
            return
        x = self._x.at(mark.at)
        if mark.until is not None:
            end = self._x.at(mark.until)
            yield (
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{max(end - x, 1):.1f}"'
                f' height="{self._bottom - top:.1f}" fill="var(--c2)" opacity=".15"/>'
            )
        else:
            yield _stroke(x, top, x, self._bottom, "var(--text)", 1, "2 4")
        is_right = x > self._left + NEAR_THE_EDGE * (self._width - self._left - RIGHT)
        begin = x - is_right * LETTER * len(mark.label)
        end = begin + LETTER * len(mark.label)
        is_free = not any(begin < others[1] and others[0] < end for others in self._labelled)
        if mark.label and is_free:
            self._labelled.append((begin, end))
            yield label(x, top - 5, mark.label, "end" if is_right else "start")

    # --- series ---

    def _row(self, row: int) -> Iterator[str]:
        ends: dict[Value, float] = {}
        blocks = [
            one
            for one in self._plot.series
            if isinstance(one, Series) and one.shape in ("bars", "boxes") and one.row == row
        ]
        for one in self._plot.series:
            if isinstance(one, Spans):
                if row == 0:
                    yield from self._spans(one, ends)
            elif isinstance(one, Heat):
                yield from self._heat(one)
            elif one.row == row:
                place = next((n for n, block in enumerate(blocks) if block is one), 0)
                yield from self._series(one, row, place, len(blocks))

    def _spans(self, one: Spans, ends: dict[Value, float]) -> Iterator[str]:
        scale = self._rows[0]
        half = max(2.0, HALF_BAR * abs(scale.length) / max(scale.high - scale.low, 1))
        boxes = [
            _Box(
                self._x.at(begin), scale.at(y) - half, self._x.at(end) - self._x.at(begin), 2 * half
            )
            for y, begin, end in self._ends(one, ends)
            if self._x.at(end) - self._x.at(begin) >= LEAST_PX
        ]
        if boxes:
            yield self._bars(boxes, one)

    def _heat(self, one: Heat) -> Iterator[str]:
        x, y = self._x, self._rows[0]
        width, height = abs(x.at(1) - x.at(0)), abs(y.at(1) - y.at(0))
        for y_name, shares, texts in zip(one.y, one.shares(), one.texts, strict=True):
            for x_name, share, text in zip(one.x, shares, texts, strict=True):
                left, top = x.at(x_name) - width / 2, y.at(y_name) - height / 2
                if share is not None:
                    yield (
                        f'<rect x="{left + 1:.1f}" y="{top + 1:.1f}" width="{width - 2:.1f}"'
                        f' height="{height - 2:.1f}" fill="var(--heat)" fill-opacity="{share:.2f}"'
                        ' stroke="var(--grid)"/>'
                    )
                most = max(3, int(width / LETTER))
                yield label(x.at(x_name), y.at(y_name) + 4.5, text, "middle", most=most)

    def _lines(self, row: int) -> list[list["Series | Spans | Heat"]]:
        """Divide the legend of a row into lines that fit."""
        lines: list[list[Series | Spans | Heat]] = []
        room = 0.0
        for one in self._legends[row]:
            if not lines or _width(one) > room:
                lines.append([])
                room = float(self._width - self._left - RIGHT)
            lines[-1].append(one)
            room -= _width(one)
        return lines

    def _bars(self, boxes: Sequence[_Box], one: Spans) -> str:
        outlines = "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z" for x, y, w, h in boxes)
        fills = [f"var({one.colour})"]
        fills += [f"url(#{self._id}-{ord(one.pattern)})"] if one.pattern else []
        return "".join(f'<path d="{outlines}" fill="{fill}"/>' for fill in fills)

    def _ends(self, one: Spans, ends: dict[Value, float]) -> Iterator[tuple[Value, float, float]]:
        """Yield place, begin and end of each bar. A stacked bar begins where the one before it ends."""
        starts = one.start or [0.0] * len(one.length)
        for y, start, length in zip(one.y, starts, one.length, strict=True):
            begin = ends.get(y, 0.0) if self._plot.bars == "stack" else start
            ends[y] = begin + length
            yield y, begin, ends[y]

    def _series(self, one: Series, row: int, place: int, count: int) -> Iterator[str]:
        y, colour = self._rows[row], _colour(one)
        points = [(self._x.at(x), y.at(value)) for x, value in zip(one.x, one.y, strict=True)]
        if one.shape in ("bars", "boxes"):
            width = abs(self._x.at(1) - self._x.at(0)) if self._x.places else 30.0
            half = (HALF_BAR if one.shape == "bars" else HALF_BOX) * width
            if self._plot.bars == "group" and count > 1:
                half, shift = half / count, (2 * place + 1 - count) * half / count
                points = [(x + shift, value) for x, value in points]
        if one.shape == "bars":
            zero = y.at(max(0.0, y.low))
            for x, value in points:
                yield _rect(x - half, min(value, zero), 2 * half, abs(zero - value), colour)
        elif one.shape == "boxes":
            yield from _boxes(points, half, colour)
        elif one.shape == "marks":
            yield _symbols(one, points)
        else:
            yield _polyline(points, one)
            if one.shape == "marked line":
                yield _symbols(one, points)
        for (x, _), value, half_length in zip(points, one.y, one.interval, strict=False):
            if half_length:
                low, high = y.at(value - half_length), y.at(value + half_length)
                yield _stroke(
                    x, low, x, high, "var(--text)" if one.shape == "bars" else colour, 1.5
                )


# --- shapes ---------------------------------------------------------------------------------------


def _scale(
    axis: Axis,
    values: Sequence[Value],
    start: float,
    length: float,
    *,
    wide: bool,
    is_across: bool = False,
) -> _Scale:
    """Return the scale of an axis. `wide`: with half a unit of room at both ends, for blocks."""
    texts = [value for value in values if isinstance(value, str)]
    if axis.categories is not None or texts:
        names = dict.fromkeys([*(axis.categories or ()), *texts])
        places = {name: place for place, name in enumerate(names)}
        end = max(len(places), 1) - 0.5
        return _Scale(axis, -0.5, end, start, length, places, is_across)
    numbers = [value for value in values if not isinstance(value, str) and abs(value) < MOST]
    if axis.range is not None:
        low, high = axis.range
    elif axis.scale == "log":
        positive = [value for value in numbers if value > 0] or [1.0]
        low, high = min(positive) / 1.2, max(positive) * 1.2
    else:
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        if axis.from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        room = 0.5 if wide else 0.05 * (high - low)
        low = low if axis.from_zero and low == 0 else low - room
        high += room
    high = high if high - low > LEAST or axis.scale == "log" else low + max(1.0, abs(low))
    return _Scale(axis, low, high, start, length, is_across=is_across)


def _colour(one: Series) -> str:
    return f"var({one.colour or COLOURS[one.style % len(COLOURS)]})"


PATTERNS = {
    "/": "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "\\": "M6 -2L10 2M0 0L8 8M-2 6L2 10",
    "x": "M0 8L8 0M0 0L8 8",
    ".": "M3 4h2",
    "-": "M0 4h8",
    "|": "M4 0v8",
    "+": "M0 4h8M4 0v8",
}
"""Strokes of Plotly's patterns in a square of 8 px, which repeats over a bar."""


def _pattern(name: str, key: str) -> str:
    """Return the definition of a pattern; a page has several plots, so its id has the plot's."""
    return (
        f'<pattern id="{key}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{PATTERNS[name]}" stroke="var(--card)" stroke-width="1.5" opacity=".75"/>'
        "</pattern>"
    )


def _boxes(points: Sequence[tuple[float, float]], half: float, colour: str) -> Iterator[str]:
    """Yield a box of quartiles, whiskers and points for each place."""
    by_place: dict[float, list[float]] = {}
    for x, y in points:
        by_place.setdefault(x, []).append(y)
    for x, found in by_place.items():
        first, middle, third = quantiles(found, n=4, method="inclusive") if found[1:] else found * 3
        yield _stroke(x, min(found), x, max(found), colour)
        yield (
            f'<rect x="{x - half:.1f}" y="{first:.1f}" width="{2 * half:.1f}"'
            f' height="{max(third - first, 1):.1f}" fill="{colour}" fill-opacity=".25"'
            f' stroke="{colour}"/>'
        )
        yield _stroke(x - half, middle, x + half, middle, colour, 2.5)
        for y in found:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}" opacity=".7"/>'


def _polyline(points: Sequence[tuple[float, float]], one: Series) -> str:
    drawn: list[str] = []
    last: tuple[float, float] | None = None
    for x, y in _visible(points):
        if one.shape == "steps" and last is not None and last[1] != y:
            drawn.append(f"{x:.1f},{last[1]:.1f}")
        drawn.append(f"{x:.1f},{y:.1f}")
        last = (x, y)
    dots = DOTS[one.dash or ("solid" if one.shape == "marked line" else dash(one.style))]
    dashes = f' stroke-dasharray="{dots}"' if dots else ""
    shade = f' opacity="{one.opacity:g}"' if one.opacity != 1 else ""
    return (
        f'<polyline points="{" ".join(drawn)}" fill="none" stroke="{_colour(one)}"'
        f' stroke-width="{one.width:g}" stroke-linejoin="round"{dashes}{shade}/>'
    )


def _visible(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return what is seen of a line: of many points within a px its first, lowest, highest and last
    one.
    """
    found: list[tuple[float, float]] = []
    for _, group in itertools.groupby(points, key=lambda point: int(point[0])):
        column = list(group)
        if len(column) > 4:
            ends = {0, len(column) - 1}
            ends |= {f(range(len(column)), key=lambda n: column[n][1]) for f in (min, max)}
            column = [column[n] for n in sorted(ends)]
        found += column
    return found


def _symbols(one: Series, points: Sequence[tuple[float, float]]) -> str:
    """Return the marks of a series, in its size."""
    name = one.symbol or SYMBOLS[one.style % len(SYMBOLS)]
    colour, r = _colour(one), one.size / 2
    shape = name.removesuffix("-open")
    filled = {
        "circle": f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z",
        "square": f"m{-r:g} {-r:g}h{2 * r:g}v{2 * r:g}h{-2 * r:g}z",
        "triangle-up": f"m0 {-r:g}l{r:g} {2 * r:g}h{-2 * r:g}z",
        "diamond": f"m0 {-r:g}l{r:g} {r:g}l{-r:g} {r:g}l{-r:g} {-r:g}z",
    }
    strokes = {
        "cross": f"m{-r:g} 0h{2 * r:g}m{-r:g} {-r:g}v{2 * r:g}",
        "x": f"m{-r:g} {-r:g}l{2 * r:g} {2 * r:g}m0 {-2 * r:g}l{-2 * r:g} {2 * r:g}",
        "line-ew": f"m{-r:g} 0h{2 * r:g}",
    }
    width = 3 if shape == "line-ew" else 2
    is_open = name.endswith("-open") or shape in strokes
    paint = f'fill="none" stroke="{colour}" stroke-width="{width}"'
    paint = paint if is_open else f'fill="{colour}"'
    shade = f' opacity="{one.opacity:g}"' if one.opacity != 1 else ""
    places = dict.fromkeys(f"M{x:.1f} {y:.1f}" for x, y in points)
    outlines = "".join(f"{place}{(filled | strokes)[shape]}" for place in places)
    return f'<path d="{outlines}" {paint}{shade}/>'


def _swatch(one: Series, x: float, y: float) -> str:
    middle = x + SWATCH / 2 - 2
    if one.shape in ("bars", "boxes"):
        return _rect(x, y - 6, SWATCH - 4, 12, _colour(one))
    line = _polyline([(x, y), (x + SWATCH - 4, y)], one)
    match one.shape:
        case "marks":
            return _symbols(one, [(middle, y)])
        case "marked line":
            return line + _symbols(one, [(middle, y)])
    return line


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _stroke(
    x: float, y: float, x2: float, y2: float, colour: str, width: float = 1, dash: str = ""
) -> str:
    """Return a straight line; `dash`: lengths of its dashes and gaps, px."""
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width:g}"{dashes}/>'
    )


def label(
    x: float, y: float, text: str, anchor: str, *, most: int = MOST_LABEL, fill: str = ""
) -> str:
    """Return a text, cut at `most` characters; its `anchor` (start, middle, end) is at `x`."""
    own = f' text-anchor="{anchor}"' if anchor != "start" else ""
    own += f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{own}>{_text(_cut(text, most))}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _text(raw: str) -> str:
    return html.escape(escape.visible(raw))


# --- legend ---------------------------------------------------------------------------------------


def _width(one: Series | Spans | Heat) -> float:
    return SWATCH + 5 + LETTER * min(len(one.name), MOST_LABEL) + 14
