# SPDX-License-Identifier: GPL-3.0-or-later
"""A page as data: sections of tiles, tables, plots, texts, facts, links and filmstrips.

Builders of pages fill these in; `html.py` writes them as HTML, `plotly.py` and `plot_svg.py` draw the
plots, `text_tables.py` writes tables for terminals and as Markdown. No formatting of HTML here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from collect.percentile import percentile

State = Literal["", "good", "bad"]
"""Of a figure or a verdict: it has a colour and a tick or cross."""


@dataclass(frozen=True)
class Tile:
    """One answer in large print."""

    figure: str
    caption: str
    unit: str = ""
    state: State = ""


@dataclass(frozen=True)
class Tiles:
    """The answers of a page, side by side."""

    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Cell:
    """A cell with more than a plain text. `small` is printed below it."""

    text: str
    state: State = ""
    is_strong: bool = False
    small: str = ""

    def __str__(self) -> str:
        return self.text


Row = Sequence[str | Cell]


@dataclass(frozen=True)
class Table:
    """A table: `rows`, or in their place `groups` of rows below a heading each.

    `numbers`: names of columns that are aligned to the right; `verdict`: name of the one whose
    cells have states with a tick or cross. States of numbers are colours. On a narrow page each row
    of `cards` is a card; `keys` says how many columns, from the left, name it.
    """

    head: tuple[str, ...]
    rows: Sequence[Row] = ()
    groups: Mapping[str, Sequence[Row]] | None = None
    numbers: Collection[str] = ()
    verdict: str = ""
    title: str = ""
    caption: str = ""
    cards: bool = False
    keys: int = 0

    @property
    def parts(self) -> Mapping[str, Sequence[Row]]:
        """Return rows by heading; '' for none."""
        return {"": self.rows} if self.groups is None else self.groups

    @property
    def is_plain(self) -> bool:
        """Whether it has one text column, the first, and each cell is a line without a state."""
        cells = (cell for row in self.rows for cell in row)
        return (
            self.groups is None
            and set(self.numbers) == all_but(self.head, 1)
            and all(isinstance(cell, str) and "\n" not in cell for cell in cells)
        )

    def columns(self, *names: str) -> "Table":
        """Return the table with these columns alone, in this order."""
        places = [self.head.index(name) for name in names]
        kept = {
            heading: [[row[place] for place in places] for row in rows]
            for heading, rows in self.parts.items()
        }
        if self.groups is None:
            return replace(self, head=names, rows=kept[""])
        return replace(self, head=names, groups=kept)

    def ungrouped(self, name: str) -> "Table":
        """Return the table with the headings of its groups as its first column, `name`."""
        rows = [(heading, *row) for heading, rows in self.parts.items() for row in rows]
        return replace(self, head=(name, *self.head), rows=rows, groups=None)


def all_but(head: Sequence[str], texts: int) -> frozenset[str]:
    """Return the names of all columns but the first `texts`."""
    return frozenset(head[texts:])


@dataclass(frozen=True)
class Text:
    """A paragraph, with a list of `items` below it. `code`: commands, each line as it is."""

    text: str
    kind: Literal["plain", "note", "alert", "warning", "code"] = "plain"
    items: Sequence[str] = ()


@dataclass(frozen=True)
class Facts:
    """A list of names and values, for example the origin of a run or definitions of words."""

    facts: Sequence[tuple[str, str]]
    title: str = ""


@dataclass(frozen=True)
class Link:
    """A link that the reader follows by hand: to a file beside the page (`is_file`; `href` is
    relative), or to another site.
    """

    text: str
    href: str
    note: str = ""
    is_file: bool = True


@dataclass(frozen=True)
class Links:
    """A list of links."""

    links: Sequence[Link]
    title: str = ""


# --- plots ----------------------------------------------------------------------------------------

Value = float | str
Points = Sequence[tuple[float, float]]
DECADES = 100
"""Ratio of the largest value to the smallest one from which an axis is logarithmic."""
MOST_STEPS = 200
"""Steps of a distribution: no more can be seen."""


@dataclass(frozen=True)
class Axis:
    """An axis; its title names the unit. `share`: its part of the height, among those of one plot.

    `categories`: texts in their order; `ticks`: texts at values; `heading`: printed above its row.
    """

    title: str
    range: tuple[float, float] | None = None
    scale: Literal["linear", "log"] = "linear"
    from_zero: bool = False
    categories: Sequence[str] | None = None
    ticks: Mapping[float, str] | None = None
    step: float | None = None
    is_reversed: bool = False
    is_bare: bool = False
    heading: str = ""
    share: float = 1.0


@dataclass(frozen=True)
class Series:
    """Values of one thing, drawn alike.

    `style`: number of its colour, dash and symbol, as far as these are not given; `row`: number of
    its y axis, from the top; `interval`: half lengths of the intervals around `y`; `group`: series
    that the legend switches together.
    """

    name: str
    x: Sequence[Value]
    y: Sequence[float]
    shape: Literal["line", "steps", "marks", "marked line", "bars", "boxes"] = "line"
    style: int = 0
    row: int = 0
    interval: Sequence[float] = ()
    colour: str = ""
    dash: str = ""
    symbol: str = ""
    size: float = 8
    width: float = 2
    opacity: float = 1.0
    in_legend: bool = True
    group: str = ""
    hover: str = ""


@dataclass(frozen=True)
class Spans:
    """Horizontal bars that begin at `start`, in the unit of the x axis; one for each of `y`.

    `texts` describe the bars, and appear above `hover` when the pointer is on a bar.
    """

    name: str
    y: Sequence[Value]
    start: Sequence[float]
    length: Sequence[float]
    colour: str
    pattern: str = ""
    texts: Sequence[str] = ()
    hover: str = ""
    in_legend: bool = True


@dataclass(frozen=True)
class Heat:
    """A cell for each pair of texts of both axes: the higher its value, the stronger its colour.

    `values` (None: no value) and `texts`, what stands in the cells, have a row for each of `y`.
    """

    name: str
    x: Sequence[str]
    y: Sequence[str]
    values: Sequence[Sequence[float | None]]
    texts: Sequence[Sequence[str]]
    in_legend: bool = False

    def shares(self) -> list[list[float | None]]:
        """Return the share of colour of each cell: 0 of the lowest value to 1 of the highest."""
        known = [value for row in self.values for value in row if value is not None]
        turn = math.log10 if scale_of(known) == "log" else float
        low, high = (turn(each) for each in (min(known, default=0), max(known, default=0)))
        span = high - low or 1.0
        return [
            [None if value is None else (turn(value) - low) / span for value in row]
            for row in self.values
        ]


@dataclass(frozen=True)
class Mark:
    """A line across the plot at a value of an axis; with `until` the area between both."""

    axis: Literal["x", "y"]
    at: float
    until: float | None = None
    label: str = ""
    row: int = 0


@dataclass(frozen=True)
class Plot:
    """A plot: what it shows in words, its series over one x axis, its height in px, its data as a
    table. A `folded` one is below a summary that opens it.

    `y`: a row of the plot each, from the top; `room`: px for the legend below.
    """

    key: str
    title: str
    caption: str
    x: Axis
    y: tuple[Axis, ...]
    series: Sequence[Series | Spans | Heat]
    height: int
    table: Table
    marks: Sequence[Mark] = ()
    bars: Literal["group", "stack", "overlay"] = "group"
    has_legend: bool = True
    room: int = 0
    folded: bool = False


def scale_of(values: Iterable[float]) -> Literal["linear", "log"]:
    """Return the scale of an axis for these values: logarithmic where they span two decades."""
    known = [value for value in values if math.isfinite(value)]
    is_wide = bool(known) and 0 < DECADES * min(known) <= max(known)
    return "log" if is_wide else "linear"


def cumulative(name: str, values: Sequence[float], style: int = 0) -> Series:
    """Return the shares of values that are at most x, in %, as steps from 0 (an ECDF): of many
    values MOST_STEPS of them.
    """
    ordered = sorted(values)
    every = math.ceil(len(ordered) / MOST_STEPS) or 1
    ranks = sorted({0, *range(every, len(ordered), every), len(ordered)})
    shares = [100 * rank / len(ordered) for rank in ranks] if ordered else []
    places = [ordered[max(rank - 1, 0)] for rank in ranks] if ordered else []
    return Series(name, places, shares, "steps", style)


def line(name: str, points: Points, style: int = 0) -> Series:
    """Return a line through points; its dash distinguishes it as well as its colour."""
    return Series(name, [x for x, _ in points], [y for _, y in points], style=style)


def per_second(points: Points) -> list[tuple[float, float]]:
    """Average values over whole seconds from 0 on, dated at their middle; one less than half full
    is left out.
    """
    buckets: dict[int, list[float]] = {}
    for t, value in points:
        if t > 0:
            buckets.setdefault(int(max(0.0, t - 1e-9)), []).append(value)
    full = max(map(len, buckets.values()), default=0)
    return [
        (second + 0.5, sum(values) / len(values))
        for second, values in sorted(buckets.items())
        if len(values) * 2 >= full
    ]


def side_by_side(columns: Mapping[str, Points]) -> Table:
    """Return means over whole seconds of several series, side by side."""
    seconds = [dict(per_second(points)) for points in columns.values()]
    times = sorted(set().union(*seconds))
    rows = [
        (f"{t:.1f}", *(f"{values[t]:.3f}" if t in values else "" for values in seconds))
        for t in times
    ]
    head = ("time (s)", *columns)
    return Table(head, rows, numbers=all_but(head, 1))


SHARES = (5, 25, 50, 75, 90, 95, 99)
"""Shares in the table of a distribution, %."""


def percentiles(first: str, counted: str, found_ms: Mapping[str, Sequence[float]]) -> Table:
    """Return number and percentiles of several samples, a row each."""
    head = (first, counted, *(f"{share} % below (ms)" for share in SHARES))
    rows = [
        (name, str(len(values)), *(f"{percentile(sorted(values), share):.1f}" for share in SHARES))
        for name, values in found_ms.items()
    ]
    return Table(head, rows, numbers=all_but(head, 1))


# --- filmstrips, pages ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """What a page looked like at a time: picture (JPEG in base64, None: white), share of the change
    in words, and both for those who do not see it.
    """

    jpeg: str | None
    share: str
    label: str


@dataclass(frozen=True)
class Strip:
    """The filmstrip of one load: its name, its Speed Index in words, a frame for each time."""

    name: str
    speed_index: str
    frames: Sequence[Frame]


@dataclass(frozen=True)
class Filmstrip:
    """Several filmstrips over the same times."""

    times: Sequence[str]
    strips: Sequence[Strip]


Part = Tiles | Table | Text | Facts | Links | Plot | Filmstrip


@dataclass(frozen=True)
class Section:
    """Parts below a heading."""

    title: str
    parts: Sequence[Part]

    @classmethod
    def of(cls, table: Table) -> "Section":
        """Return a section of a table alone, with its title."""
        return cls(table.title[:1].upper() + table.title[1:], [table])


@dataclass(frozen=True)
class Page:
    """A page: `lead` stands below its title, before the sections."""

    product: str
    title: str
    lead: Sequence[Part]
    sections: Sequence[Section]

    @property
    def plots(self) -> list[Plot]:
        """Return all plots in their order."""
        parts = [*self.lead, *(part for section in self.sections for part in section.parts)]
        return [part for part in parts if isinstance(part, Plot)]
