# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the functions of an OpenBACH scenario as a graph: who waits for whom, and who stops whom.

The document may be anything: what cannot be read is left out. No I/O.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import islice
from typing import Any

from markupsafe import Markup

from satlab.common.escape import visible
from satlab.report.plot_svg import label

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 200, 50, 20, 34, 12
"""Size of a box, gaps between boxes, and margin, px."""
SIDE = 48
"""Room at the right for the arrows of functions that stop others, px."""
MOST_FUNCTIONS, MOST_EDGES, MOST_NAME, MOST_TEXT = 120, 400, 100, 26
WAITS: Mapping[str, tuple[str, str]] = {
    "finished_ids": ("var(--c1)", ""),
    "ended_ids": ("var(--c1)", ""),
    "launched_ids": ("var(--c1)", "3 4"),
    "running_ids": ("var(--c1)", "3 4"),
}
"""Colour and dash of an edge by the field of `wait`."""
STOPS = ("var(--bad)", "6 3")


@dataclass(frozen=True)
class Function:
    """A function: what it is and does in words, the functions it waits for by field, and those it
    stops.
    """

    number: int
    name: str
    what: str
    waits: tuple[tuple[str, int], ...]
    stops: tuple[int, ...]


def functions(document: Mapping[str, Any]) -> list[Function]:
    """Return the functions of a scenario that have a number, at most MOST_FUNCTIONS."""
    listed = document.get("openbach_functions")
    found = {
        each["id"]: each
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict) and _is_number(each.get("id"))
    }
    return [_function(each) for each in list(found.values())[:MOST_FUNCTIONS]]


def _function(each: Mapping[str, Any]) -> Function:
    wait = each.get("wait")
    wait = wait if isinstance(wait, dict) else {}
    stop = each.get("stop_job_instances")
    stopped = _numbers(stop.get("openbach_function_ids")) if isinstance(stop, dict) else ()
    what = _what(each)
    named = each.get("label")
    return Function(
        each["id"],
        (str(named) if named else what)[:MOST_NAME],
        what[:MOST_NAME] if named else "",
        tuple((field, number) for field in WAITS for number in _numbers(wait.get(field))),
        stopped,
    )


def _what(each: Mapping[str, Any]) -> str:
    """Return in words what a function does."""
    call = each.get("start_job_instance")
    if isinstance(call, dict):
        job = next((n for n, value in call.items() if isinstance(value, dict)), "a job")
        return f"{job} on {call.get('entity_name', '?')}"
    call = each.get("start_scenario_instance")
    if isinstance(call, dict):
        return f"scenario {call.get('scenario_name', '?')}"
    known = {"id", "label", "wait", "on_fail"}
    return next((name.replace("_", " ") for name in each if name not in known), "nothing")


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _numbers(value: object) -> tuple[int, ...]:
    listed = value if isinstance(value, list) else ()
    return tuple(dict.fromkeys(each for each in listed if _is_number(each)))


def _rows(found: list[Function]) -> dict[int, int]:
    """Return the row of each function by its number: below all that it waits for. Stops even if
    functions wait for each other.
    """
    rows = {one.number: 0 for one in found}
    for _ in found:
        moved = False
        for one in found:
            before = [rows[number] for _, number in one.waits if number in rows]
            place = min(max(before, default=-1) + 1, len(found) - 1)
            if place > rows[one.number]:
                rows[one.number], moved = place, True
        if not moved:
            break
    return rows


def drawing(document: Mapping[str, Any]) -> Markup:
    """Return the graph as an SVG element; if there are no functions, a text that says so."""
    found = functions(document)
    if not found:
        return Markup('<p class="note">There are no functions yet.</p>')
    rows = _rows(found)
    lengths = Counter(rows.values())
    widest = max(lengths.values()) * (WIDTH + ACROSS) - ACROSS
    used: Counter[int] = Counter()
    corners: dict[int, tuple[int, int]] = {}
    for one in found:
        row = rows[one.number]
        left = MARGIN + (widest - lengths[row] * (WIDTH + ACROSS) + ACROSS) // 2
        corners[one.number] = (
            left + used[row] * (WIDTH + ACROSS),
            MARGIN + row * (HEIGHT + DOWN),
        )
        used[row] += 1
    width = 2 * MARGIN + widest + (SIDE if any(one.stops for one in found) else 0)
    height = 2 * MARGIN + (max(lengths) + 1) * (HEIGHT + DOWN) - DOWN
    said = "; ".join(f"{one.number} {one.name}: {one.what}" for one in found)
    parts = [
        f'<svg class="static" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' font-size="13" fill="var(--text)" role="img" aria-label="{escape(visible(said))}">',
        *islice((edge for one in found for edge in _edges(one, corners)), MOST_EDGES),
        *(part for one in found for part in _box(one, *corners[one.number])),
        "</svg>",
    ]
    return Markup("".join(parts))  # noqa: S704 - texts are escaped


def _edges(one: Function, corners: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """Yield an arrow from each function that this one waits for, and to each that it stops."""
    x, y = corners[one.number]
    middle = WIDTH // 2
    for field, number in one.waits:
        if number in corners:
            from_x, from_y = (corners[number][0] + middle, corners[number][1] + HEIGHT)
            bend = f"C{from_x} {from_y + 24} {x + middle} {y - 30} {x + middle} {y}"
            yield _arrow(f"M{from_x} {from_y}{bend}", f"M{x + middle} {y}l-4 -8h8z", *WAITS[field])
    for number in one.stops:
        if number in corners:
            (to_x, to_y), right = corners[number], x + WIDTH
            to_x, to_y, from_y = to_x + WIDTH, to_y + HEIGHT // 2, y + HEIGHT // 2
            side = max(right, to_x) + SIDE
            bend = f"C{side} {from_y} {side} {to_y} {to_x} {to_y}"
            yield _arrow(f"M{right} {from_y}{bend}", f"M{to_x} {to_y}l8 -4v8z", *STOPS)


def _arrow(way: str, head: str, colour: str, dash: str) -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{way}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes}/>'
        f'<path d="{head}" fill="{colour}"/>'
    )


def _box(one: Function, x: int, y: int) -> Iterator[str]:
    yield (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="var(--card)"'
        ' stroke="var(--muted)"/>'
    )
    name = f"{one.number}  {one.name}"
    yield label(x + 10, y + (20 if one.what else 30), name, "start", most=MOST_TEXT)
    if one.what:
        yield label(x + 10, y + 38, one.what, "start", most=MOST_TEXT, fill="var(--muted)")
