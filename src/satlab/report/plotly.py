# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots as Plotly documents. Colours are CSS variables (`--c1`), which the page's theme sets."""

import html
import math
from collections.abc import Sequence
from typing import Any

from satlab.common import escape
from satlab.report.page import Axis, Heat, Mark, Plot, Series, Spans, Value
from satlab.report.styles import COLOURS, NEAR_THE_EDGE, SYMBOLS, dash

Json = dict[str, Any]

PATTERN = {
    "fillmode": "overlay",
    "fgcolor": "--card",
    "fgopacity": 0.55,
    "size": 6,
    "solidity": 0.2,
}
HEADING_PX, GAP_PX = 22, 22
"""Height of a row's heading, and of the gap below a row, px."""


def document(plot: Plot) -> Json:
    """Return data and layout."""
    axes = {
        f"yaxis{_suffix(row)}": _axis(axis) | _domain(plot, row) for row, axis in enumerate(plot.y)
    }
    headings = [
        _note(f"<b>{text(axis.heading)}</b>", "paper", 0, "paper", _top(plot.y, row), "left", "top")
        for row, axis in enumerate(plot.y)
        if axis.heading
    ]
    layout: Json = {
        "xaxis": _axis(plot.x) | {"anchor": f"y{_suffix(len(plot.y) - 1)}"},
        **axes,
        "barmode": plot.bars,
        "boxmode": "group",
        "bargap": 0.15 if plot.bars == "overlay" else 0.2,
        "shapes": [_shape(mark) for mark in plot.marks],
        "annotations": [_label(mark, plot) for mark in plot.marks if mark.label] + headings,
    }
    if not plot.has_legend:  # else Plotly shows one where there are several series
        layout["showlegend"] = False
    has_labels = any(mark.axis == "x" and mark.label for mark in plot.marks)
    if plot.room:
        layout["margin"] = {"l": 56, "r": 12, "t": 28 if has_labels else 12, "b": plot.room}
    drawn = [_drawn(one) for one in plot.series]
    return {"data": drawn, "layout": layout}


def _drawn(one: Series | Spans | Heat) -> Json:
    if isinstance(one, Heat):
        return _heat(one)
    return _spans(one) if isinstance(one, Spans) else _series(one)


def text(raw: str) -> str:
    """Make text safe for Plotly, which reads a subset of HTML in labels."""
    return html.escape(escape.visible(raw), quote=False)


def _suffix(row: int) -> str:
    return str(row + 1) if row else ""


def _axis(axis: Axis) -> Json:
    made: Json = {"title": {"text": "<br>".join(map(text, axis.title.split("\n")))}}
    if axis.range is not None:
        is_log = axis.scale == "log"
        made["range"] = [round(math.log10(end) if is_log else end, 3) for end in axis.range]
    if axis.scale == "log":
        made["type"] = "log"
    if axis.from_zero:
        made["rangemode"] = "tozero"
    if axis.categories is not None:
        order = [text(name) for name in axis.categories]
        made |= {"type": "category", "categoryorder": "array", "categoryarray": order}
    if axis.ticks is not None:
        texts = [text(label) for label in axis.ticks.values()]
        made |= {"tickvals": list(axis.ticks), "ticktext": texts, "tickangle": 0}
    if axis.step is not None:
        made["dtick"] = axis.step
    if axis.is_reversed:
        made["autorange"] = "reversed"
    if axis.is_bare:
        made |= {"showgrid": False, "zeroline": False}
        made |= {} if axis.title or axis.ticks else {"showticklabels": False}
    return made


def _top(axes: Sequence[Axis], row: int) -> float:
    return 1 - sum(axis.share for axis in axes[:row]) / sum(axis.share for axis in axes)


def _domain(plot: Plot, row: int) -> Json:
    """Return the part of the height that a row has, without its heading and the gap below it."""
    axes = plot.y
    if len(axes) == 1:
        return {}
    top, bottom = _top(axes, row), _top(axes, row + 1)
    above = HEADING_PX if axes[row].heading else 0
    below = GAP_PX if row + 1 < len(axes) else 0
    return {"domain": [max(0.0, bottom) + below / plot.height, top - above / plot.height]}


def _series(one: Series) -> Json:
    colour = one.colour or COLOURS[one.style % len(COLOURS)]
    symbol = one.symbol or SYMBOLS[one.style % len(SYMBOLS)]
    stroke = {"color": colour, "width": one.width}
    made: Json = {
        "name": text(one.name),
        "x": _values(one.x),
        "y": _values(one.y),
        "yaxis": f"y{_suffix(one.row)}",
        "opacity": one.opacity,
        "hoverlabel": {"namelength": -1},
    }
    if not one.in_legend:
        made["showlegend"] = False
    if one.group:
        made["legendgroup"] = text(one.group)
    if one.hover == "skip":
        made["hoverinfo"] = "skip"
    elif one.hover:
        made["hovertemplate"] = one.hover
    if any(one.interval):
        made["error_y"] = {"type": "data", "array": list(one.interval), "visible": True}
    match one.shape:
        case "line" | "steps":
            stroke["dash"] = one.dash or dash(one.style)
            bends = {"shape": "hv"} if one.shape == "steps" else {}
            return made | {"type": "scatter", "mode": "lines", "line": stroke | bends}
        case "marked line":
            marker = {"color": colour, "symbol": symbol, "size": one.size}
            made |= {"type": "scatter", "mode": "lines+markers"}
            return made | {"marker": marker, "line": stroke | ({"dash": one.dash or "solid"})}
        case "marks":
            edge = {"width": 2 if symbol.endswith("-open") else 3 if "line" in symbol else 0}
            marker = {"color": colour, "symbol": symbol, "size": one.size}
            return made | {
                "type": "scatter",
                "mode": "markers",
                "marker": marker | {"line": edge | {"color": colour}},
            }
        case "bars":
            return made | {"type": "bar", "marker": {"color": colour}}
        case "boxes":
            return made | {"type": "box", "boxpoints": "all", "marker": {"color": colour}}


def _heat(one: Heat) -> Json:
    return {
        "type": "heatmap",
        "name": text(one.name),
        "x": _values(one.x),
        "y": _values(one.y),
        "z": one.shares(),
        "zmin": 0,
        "zmax": 1,
        "text": [[text(each) for each in row] for row in one.texts],
        "texttemplate": "%{text}",
        "textfont": {"color": "--text"},
        "hovertemplate": "%{x}, %{y}: %{text}",
        "colorscale": [[0, "--card"], [1, "--heat"]],
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
    }


def _spans(one: Spans) -> Json:
    made: Json = {
        "type": "bar",
        "orientation": "h",
        "name": text(one.name),
        "x": _values(one.length),
        "y": _values(one.y),
        "marker": {
            "color": one.colour,
            "line": {"width": 0},
            "pattern": {**PATTERN, "shape": one.pattern},
        },
        "hovertemplate": "<br>".join(["%{text}"] * bool(one.texts) + [one.hover] * bool(one.hover)),
    }
    if not one.in_legend:
        made["showlegend"] = False
    if one.start:
        made["base"] = _values(one.start)
    if one.texts:
        made |= {"text": [text(each) for each in one.texts], "textposition": "none"}
    return made


def _values(values: Sequence[Value]) -> list[Value]:
    return [text(value) if isinstance(value, str) else round(value, 4) for value in values]


def _shape(mark: Mark) -> Json:
    until = mark.at if mark.until is None else mark.until
    own, other = ("x", "y") if mark.axis == "x" else ("y", "x")
    own_axis = f"y{_suffix(mark.row)}" if mark.axis == "y" else "x"
    place = {
        f"{own}0": mark.at,
        f"{own}1": until,
        f"{own}ref": own_axis,
        f"{other}0": 0,
        f"{other}1": 1,
        f"{other}ref": "paper",
    }
    if mark.until is not None:
        area = {"line": {"width": 0}, "fillcolor": "--c2", "opacity": 0.15, "layer": "below"}
        return {"type": "rect", **place, **area}
    if mark.axis == "x":
        return {"type": "line", **place, "line": {"color": "--text", "width": 1, "dash": "dot"}}
    return {"type": "line", **place, "line": {"color": "--muted", "width": 1.5}}


def _label(mark: Mark, plot: Plot) -> Json:
    if mark.axis == "y":
        above = _note(text(mark.label), "paper", 1, f"y{_suffix(mark.row)}", mark.at, "right")
        return above | {"font": {"color": "--muted", "size": 12}}
    is_right = plot.x.range is not None and mark.at > NEAR_THE_EDGE * plot.x.range[1]
    side = "right" if is_right else "auto"
    return _note(text(mark.label), "x", mark.at, "paper", 1, side)


def _note(
    label: str, x_of: str, x: float, y_of: str, y: float, x_side: str, y_side: str = "bottom"
) -> Json:
    place = {"x": x, "y": y, "xref": x_of, "yref": y_of, "xanchor": x_side, "yanchor": y_side}
    return {"text": label, "showarrow": False, **place}
