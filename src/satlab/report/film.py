# SPDX-License-Identifier: GPL-3.0-or-later
"""Observed page loads: filmstrips side by side, and the phases of their requests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from collect import PageObservation
from satlab.report.figures import (
    COLOURS,
    DataTable,
    Figure,
    Json,
    axis,
    milliseconds,
    short_name,
    text,
)

MOST_COLUMNS = 9
PHASES = (
    ("blocked_ms", "waits for a connection", 4, "."),
    ("dns_ms", "name", 3, "+"),
    ("connect_ms", "TCP", 1, "\\"),
    ("tls_ms", "TLS or QUIC", 5, "x"),
    ("send_ms", "sends", 3, "|"),
    ("wait_ms", "waits for the answer", 2, "/"),
    ("receive_ms", "receives", 0, ""),
)
"""Phases of a request in their order: name in words, colour, pattern."""


@dataclass(frozen=True)
class Cell:
    """What a page looked like at a time: picture (JPEG in base64, None: white), share of the change
    in words.
    """

    jpeg: str | None
    share: str
    label: str


@dataclass(frozen=True)
class Strip:
    """The filmstrip of one load: its name, its Speed Index in words, a cell per time."""

    name: str
    speed_index: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Filmstrip:
    """Filmstrips over the same times."""

    times: tuple[str, ...]
    strips: tuple[Strip, ...]


def typical(loads: Sequence[PageObservation]) -> PageObservation | None:
    """Return the load whose Speed Index is the median, of an even number the lower one;

    None if none has one.
    """
    ended = [
        (load.speed_index_ms, load.load_index, load)
        for load in loads
        if load.speed_index_ms is not None
    ]
    ended.sort(key=lambda one: one[:2])
    return ended[(len(ended) - 1) // 2][2] if ended else None


def filmstrip(loads: Sequence[tuple[str, PageObservation]]) -> Filmstrip | None:
    """Return the filmstrips of loads, each with its name, up to the last change of the slowest;

    None without loads.
    """
    until_s = max((frame.t_ms / 1000 for _, load in loads for frame in load.frames), default=0.0)
    if until_s <= 0:
        return None
    step_s = _step(until_s)
    times = [round(number * step_s, 3) for number in range(math.ceil(until_s / step_s - 1e-9) + 1)]
    strips = tuple(
        Strip(
            name,
            f"{milliseconds(load.speed_index_ms)} ms",
            tuple(_cell(name, load, t) for t in times),
        )
        for name, load in loads
    )
    return Filmstrip(tuple(f"{t:g} s" for t in times), strips)


def _step(until_s: float) -> float:
    steps = (factor * 10.0**power for power in range(-2, 5) for factor in (1, 2, 5))
    return next(step for step in steps if math.ceil(until_s / step - 1e-9) < MOST_COLUMNS)


def _cell(name: str, load: PageObservation, t_s: float) -> Cell:
    shown = [frame for frame in load.frames if frame.t_ms <= t_s * 1000 + 1e-6]
    share = shown[-1].visual_completeness if shown else 0.0
    jpeg = next((frame.jpeg for frame in reversed(shown) if frame.jpeg), None)
    return Cell(jpeg, f"{share:.0%}", f"{name} after {t_s:g} s: {share:.0%} of the final picture")


def phases(load: PageObservation, name: str, number: int, until_s: float) -> Figure:
    """Draw the phases of the requests of one load, one bar each, in the order they started."""
    data: list[Json] = []
    base = [one.start_ms for one in load.requests]
    for key, label, colour, pattern in PHASES:
        lengths = [getattr(one, key) or 0.0 for one in load.requests]
        marker: dict[str, Any] = {"color": COLOURS[colour]}
        if pattern:
            marker["pattern"] = {
                "shape": pattern,
                "fillmode": "overlay",
                "fgcolor": "--card",
                "fgopacity": 0.55,
                "size": 6,
            }
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "showlegend": any(lengths),
                "y": list(range(1, len(lengths) + 1)),
                "base": [round(start / 1000, 4) for start in base],
                "x": [round(ms / 1000, 4) for ms in lengths],
                "marker": marker,
                "text": [text(short_name(one.url)) for one in load.requests],
                "textposition": "none",
                "hovertemplate": f"%{{text}}<br>{label}: %{{x:.3f}} s",
            }
        )
        base = [start + ms for start, ms in zip(base, lengths, strict=True)]
    layout: Json = {
        "xaxis": axis("Time since navigation start (s)", range=[0, round(until_s * 1.03, 2)]),
        "yaxis": axis("Request", autorange="reversed", showgrid=False, zeroline=False),
        "barmode": "overlay",
        "bargap": 0.15,
        "shapes": [_task(start, length) for start, length in load.long_tasks],
    }
    busy = sum(length for _, length in load.long_tasks)
    caption = (
        f"Observed load {load.load_index} of {name}: phases of its {len(load.requests)} requests"
        f" over {len({one.connection for one in load.requests})} connections. Shaded: tasks of the"
        f" page above 50 ms ({len(load.long_tasks)}, {busy:,.0f} ms). Pictures take CPU time: the"
        " times of observed loads are not among those of the others."
    )
    columns = (
        "request",
        "type",
        "protocol",
        "priority",
        "connection",
        "start (ms)",
        *(f"{p[1]} (ms)" for p in PHASES),
    )
    rows = tuple(
        (
            short_name(one.url),
            one.type,
            one.protocol,
            one.priority,
            one.connection,
            milliseconds(one.start_ms),
            *(milliseconds(getattr(one, key)) for key, *_ in PHASES),
        )
        for one in load.requests
    )
    document = {"data": data, "layout": layout}
    return Figure(
        f"phases-{number}",
        f"Phases of requests over {name}",
        caption,
        document,
        420,
        DataTable(columns, rows),
    )


def _task(start_ms: float, length_ms: float) -> Json:
    place = {
        "x0": start_ms / 1000,
        "x1": (start_ms + length_ms) / 1000,
        "y0": 0,
        "y1": 1,
        "xref": "x",
        "yref": "paper",
    }
    return {
        "type": "rect",
        **place,
        "line": {"width": 0},
        "fillcolor": "--c2",
        "opacity": 0.15,
        "layer": "below",
    }
