# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures as plain Plotly documents.

Colours are names of CSS variables (`--c1`), resolved in the browser's theme.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collect import PageLoad, Table
from satlab.common import escape
from satlab.link import modcods
from satlab.report import rows as read
from satlab.report.rows import PAGE_METRICS, PageFigure, PageGroup, Row

Json = dict[str, Any]
Points = Sequence[tuple[float, float]]

SINCE = "Time since the first job began (s)"
"""The time zero of all plots over the time of a run."""
COLOURS = ("--c1", "--c2", "--c3", "--c4", "--c5", "--c6")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "x")
KINDS = {
    "navigation": ("document", "--c4", ""),
    "link": ("style sheet", "--c2", "/"),
    "iframe": ("iframe", "--c1", "."),
    "img": ("image", "--c3", "x"),
    "other": ("other", "--c5", "-"),
}
PATTERN = {
    "fillmode": "overlay",
    "fgcolor": "--card",
    "fgopacity": 0.55,
    "size": 6,
    "solidity": 0.2,
}
SHORT = {
    "response_start_ms": "RS",
    "first_contentful_paint_ms": "FCP",
    "largest_contentful_paint_ms": "LCP",
    "speed_index_ms": "SI",
    "page_load_time_ms": "PLT",
}
KIND_STYLE = {"HTTP/1.1": 1, "HTTP/2": 2, "HTTP/3": 0}


@dataclass(frozen=True)
class DataTable:
    """The data of a plot as text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """One plot: what it shows in words, its Plotly document, its height in px, its data as a table."""

    key: str
    title: str
    caption: str
    document: Json
    height: int
    table: DataTable


def text(raw: str) -> str:
    """Make text safe for Plotly, which reads a subset of HTML in labels."""
    return html.escape(escape.visible(raw), quote=False)


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


# --- bulk -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bulk:
    """One bulk transfer to draw: its name, its run's records, when jobs began (s), how sure its
    clock is (s).

    `capacity`: what the link carries from when on (s since the jobs began, bit/s), where that
    changes.
    """

    name: str
    frame: Table
    transfer: str
    jobs_start_s: float
    clock_error_s: float
    capacity_bps: float | None
    queue_limit_bytes: float | None
    capacity: Points = ()

    @property
    def goodput_mbps(self) -> Points:
        """Return payload at the receiver in Mbit/s; time runs from the start of the run's first
        job.
        """
        return self.since_jobs("goodput_bps", 1e-6, transfer=self.transfer)

    def since_jobs(self, metric: str, scale: float, **labels: str) -> Points:
        """Return a scaled series; time runs from the start of the run's first job."""
        points = read.series(self.frame, metric, **labels)
        return [
            (t - self.jobs_start_s, value * scale)
            for t, value in points
            if t >= self.jobs_start_s - 0.5
        ]


def goodput(bulks: Sequence[Bulk]) -> Figure | None:
    """Draw goodput over time of all transfers."""
    data: list[Json] = []
    table: list[tuple[str, ...]] = []
    for style, bulk in enumerate(bulks):
        points = bulk.goodput_mbps
        seconds = per_second(points)
        faint = line(
            points, f"{bulk.name}, 0.1 s", style, opacity=0.35, showlegend=False, hoverinfo="skip"
        )
        faint["line"] |= {"width": 1, "dash": "solid"}
        steps = [(t - 0.5, value) for t, value in seconds] + [
            (t + 0.5, value) for t, value in seconds[-1:]
        ]
        data += [faint, line(steps, bulk.name, style)]
        data[-1]["line"] |= {"shape": "hv"}
        table += [(bulk.name, f"{t:.1f}", f"{value:.3f}") for t, value in seconds]
    if not table:
        return None
    levels = {
        (bulk.capacity_bps, tuple(bulk.capacity)) for bulk in bulks if bulk.capacity_bps is not None
    }
    capacity, changing = levels.pop() if len(levels) == 1 else (None, ())
    highest = max((value for _, value in changing), default=capacity or 0)
    top = 1.15 * max([highest / 1e6, *(float(value) for _, _, value in table)])
    layout = {
        "xaxis": axis(SINCE, rangemode="tozero"),
        "yaxis": axis("Goodput (Mbit/s)", range=[0, round(top, 3)]),
    }
    if changing:
        data.append(_steps(changing, max(t for each in data for t in each["x"])))
    elif capacity is not None:
        layout |= _level(capacity / 1e6, "y", f"link carries {capacity / 1e6:.2f} Mbit/s")
    caption = (
        "Payload at the receiver, in order: a gap with a peak behind it is data that waited for a"
        " retransmission. Bold: means over 1 s. Faint: over 0.1 s, cut off at the top."
    )
    if capacity is not None:
        caption += " Thin grey line: the TCP payload that framing and encapsulation leave room for"
        caption += " with the MODCOD in force." if changing else "."
    columns = ("transfer", "time (s)", "goodput (Mbit/s)")
    document = {"data": data, "layout": layout}
    return Figure(
        "goodput", "Goodput over time", caption, document, 340, DataTable(columns, tuple(table))
    )


def window(bulk: Bulk, number: int) -> Figure | None:
    """Draw window, forward queue and RTT of one transfer over one time axis."""
    rows: list[tuple[str, str, Points]] = [
        (
            "Congestion window",
            "MB",
            bulk.since_jobs("cwnd_bytes", 1e-6, transfer=bulk.transfer, flow="1"),
        ),
        ("Forward queue", "MB", bulk.since_jobs("link_queue_bytes", 1e-6, direction="forward")),
        (
            "RTT at the sender",
            "ms",
            bulk.since_jobs("tcp_rtt_ms", 1.0, transfer=bulk.transfer, flow="1"),
        ),
        (
            "Drops, forward",
            "packets",
            bulk.since_jobs("link_dropped_packets", 1.0, direction="forward"),
        ),
    ]
    if not rows[0][2]:
        return None
    data, layout = stack(rows)
    if bulk.queue_limit_bytes is not None:
        level = _level(bulk.queue_limit_bytes / 1e6, "y2", "limit")
        layout |= level | {"annotations": [*level["annotations"], *layout["annotations"]]}
    caption = (
        f"Window and RTT are dated to ±{bulk.clock_error_s:.1f} s at worst, queue and drops to the"
        " sampling interval."
    )
    table = side_by_side([(f"{name} ({unit})", points) for name, unit, points in rows])
    title = f"Window and queue: {bulk.name}"
    return Figure(f"window-{number}", title, caption, {"data": data, "layout": layout}, 560, table)


def stack(rows: Sequence[tuple[str, str, Points]]) -> tuple[list[Json], Json]:
    """Return data and layout of several series (name, unit, points), one below the other over one
    time axis.
    """
    last = f"y{len(rows)}" if len(rows) > 1 else "y"
    layout: Json = {"xaxis": axis(SINCE, anchor=last), "showlegend": False}
    data, share = [], 1 / len(rows)
    for index, (name, unit, points) in enumerate(rows):
        suffix = "" if index == 0 else str(index + 1)
        top = 1 - index * share
        layout[f"yaxis{suffix}"] = axis(
            unit, domain=[top - share + 0.075, top - 0.03], rangemode="tozero"
        )
        data.append(
            line(points, f"{name} ({unit})", 0, yaxis=f"y{suffix}", hoverlabel={"namelength": -1})
        )
        data[-1]["line"] |= {"dash": "solid", "color": COLOURS[index]}
    layout["annotations"] = [_row_title(name, 1 - i * share) for i, (name, _, _) in enumerate(rows)]
    return data, layout


def _steps(capacity: Points, end_s: float) -> Json:
    """Return the line of what a link carries, bit/s, from one change to the next."""
    points = [(t, value / 1e6) for t, value in capacity if t <= end_s]
    drawn = line([*points, (end_s, points[-1][1])], "link carries", 0)
    return drawn | {"line": {"color": "--muted", "width": 1.5, "shape": "hv"}}


def _level(value: float, y_axis: str, label: str) -> Json:
    """Return a layout's horizontal line at `value`, labelled at its right end."""
    x_reference = {"xref": "paper" if y_axis == "y" else "x domain", "yref": y_axis}
    shape = {"type": "line", "x0": 0, "x1": 1, "y0": value, "y1": value, **x_reference}
    note = {
        "text": text(label),
        "x": 1,
        "y": value,
        "xanchor": "right",
        "yanchor": "bottom",
        "showarrow": False,
    }
    return {
        "shapes": [shape | {"line": {"color": "--muted", "width": 1.5}}],
        "annotations": [note | x_reference | {"font": {"color": "--muted", "size": 12}}],
    }


def _row_title(name: str, top: float) -> Json:
    where = {
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": top,
        "xanchor": "left",
        "yanchor": "top",
    }
    return {"text": f"<b>{text(name)}</b>", "showarrow": False, **where}


def side_by_side(columns: Sequence[tuple[str, Points]]) -> DataTable:
    """Return means over whole seconds of several series, side by side."""
    seconds = [dict(per_second(points)) for _, points in columns]
    times = sorted(set().union(*seconds))
    rows = [
        (f"{t:.1f}", *(f"{values[t]:.3f}" if t in values else "" for values in seconds))
        for t in times
    ]
    return DataTable(("time (s)", *(name for name, _ in columns)), tuple(rows))


# --- pages ----------------------------------------------------------------------------------------


def page_spread(
    rows: Sequence[Row],
    figures: Sequence[PageFigure],
    published: Mapping[tuple[PageGroup, str], float | None],
    groups: Mapping[PageGroup, str],
) -> Figure | None:
    """Draw every load of every metric as a point, medians as bars, published medians as open
    diamonds.

    `groups`: their names in drawing order; `published` is by group and metric.
    """
    metrics = [metric for metric in PAGE_METRICS if any(f.metric == metric for f in figures)]
    if not metrics:
        return None
    width = 0.8 / max(len(groups), 1)
    has_own_style = len({group.kind for group in groups} & KIND_STYLE.keys()) == len(groups)
    data: list[Json] = []
    for index, (group, name) in enumerate(groups.items()):
        style = KIND_STYLE[group.kind] if has_own_style else index
        places = {
            metric: m + (index - (len(groups) - 1) / 2) * width for m, metric in enumerate(metrics)
        }
        data += _spread(rows, figures, published, places, (group, name), style, width)
    ticks = {
        "tickvals": list(range(len(metrics))),
        "ticktext": [SHORT[metric] for metric in metrics],
        "tickangle": 0,
    }
    layout = {
        "xaxis": {
            **ticks,
            "range": [-0.6, len(metrics) - 0.4],
            "zeroline": False,
            "showgrid": False,
        },
        "yaxis": axis("Time since navigation start (s)", rangemode="tozero"),
    }
    table = tuple(
        (
            groups[read.group_of(r)],
            PAGE_METRICS[metric],
            r.labels["load"],
            milliseconds(r.value) or r.status,
        )
        for metric in metrics
        for r in read.loads(rows, metric)
    )
    caption = (
        f"{'; '.join(f'{SHORT[m]}: {PAGE_METRICS[m]}' for m in metrics)}. One point per load, bar:"
        " median."
    )
    if any(published.values()):
        caption += " Open diamond: published median."
    columns = ("protocol", "metric", "load", "ms")
    document = {"data": data, "layout": layout}
    return Figure(
        "pages", "Page metrics, every load", caption, document, 380, DataTable(columns, table)
    )


def _spread(
    rows: Sequence[Row],
    figures: Sequence[PageFigure],
    published: Mapping[tuple[PageGroup, str], float | None],
    places: Mapping[str, float],
    named: tuple[PageGroup, str],
    style: int,
    width: float,
) -> list[Json]:
    group, name = named
    points, medians, papers = [], [], []
    for metric, x in places.items():
        mine = [r for r in read.loads(rows, metric) if read.group_of(r) == group]
        values = [r.value / 1000 for r in mine if r.value is not None]
        step = width * 0.5 / max(len(values), 1)
        points += [
            (x + (i - (len(values) - 1) / 2) * step, value) for i, value in enumerate(values)
        ]
        medians += [
            (x, f.median / 1000)
            for f in figures
            if (f.group, f.metric) == (group, metric) and f.median is not None
        ]
        paper = published.get((group, metric))
        papers += [] if paper is None else [(x + width * 0.42, paper / 1000)]
    colour, common = COLOURS[style % 6], {"legendgroup": "".join(group)}
    bar = {"symbol": "line-ew", "size": 22, "color": colour, "line": {"width": 3, "color": colour}}
    diamond = {
        "symbol": "diamond-open",
        "size": 11,
        "color": "--text",
        "line": {"width": 2, "color": "--text"},
    }
    return [
        marks(medians, f"{name}, median", bar, showlegend=False, **common),
        marks(
            points,
            name,
            {"symbol": SYMBOLS[style % 6], "size": 8, "color": colour, "opacity": 0.7},
            **common,
        ),
        marks(papers, f"{name}, published", diamond, showlegend=False, **common),
    ]


def marks(points: Points, name: str, marker: Json, **more: Any) -> Json:
    """Return single points."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": text(name),
        "marker": marker,
        "x": [round(x, 4) for x, _ in points],
        "y": [round(y, 4) for _, y in points],
        "hovertemplate": "%{y:.3f} s",
        **more,
    }


def waterfall(load: PageLoad, name: str, number: int, until_s: float) -> Figure:
    """Draw the requests of one load, start to end, in the order they started."""
    objects = sorted(load.resources, key=lambda r: (r.start_ms, r.response_end_ms, r.name))
    kinds: dict[str, list[int]] = {}
    for index, resource in enumerate(objects):
        kinds.setdefault(
            resource.initiator_type if resource.initiator_type in KINDS else "other", []
        ).append(index)
    data = []
    for kind, (label, colour, pattern) in KINDS.items():
        indices = kinds.get(kind, [])
        mine = [objects[i] for i in indices]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "showlegend": bool(mine),
                "y": [i + 1 for i in indices],
                "base": [round(r.start_ms / 1000, 4) for r in mine],
                "x": [round((r.response_end_ms - r.start_ms) / 1000, 4) for r in mine],
                "marker": {"color": colour, "pattern": {"shape": pattern, **PATTERN}},
                "text": [text(short_name(r.name)) for r in mine],
                "textposition": "none",
                "customdata": [[r.encoded_body_bytes, round(r.response_end_ms)] for r in mine],
                "hovertemplate": (
                    "%{text}<br>%{customdata[0]:,} bytes, complete after %{customdata[1]:,} ms"
                ),
            }
        )
    layout: Json = {
        "xaxis": axis("Time since navigation start (s)", range=[0, round(until_s * 1.03, 2)]),
        "yaxis": axis("Request", autorange="reversed", showgrid=False, zeroline=False),
        "barmode": "overlay",
        "bargap": 0.15,
        **_marks_of(load),
    }
    caption = (
        f"Load {load.load_index} of {name}, the one nearest the median Page Load Time:"
        f" {load.objects} objects, {load.body_bytes:,} bytes. A bar begins when the browser asks"
        " for the object, so it includes waiting for a free connection. RS, FCP, PLT: the page"
        " metrics of this load."
    )
    table = DataTable(
        ("request", "kind", "protocol", "start (ms)", "end (ms)", "body (bytes)"),
        tuple(
            (
                short_name(r.name),
                r.initiator_type,
                r.next_hop_protocol,
                milliseconds(r.start_ms),
                milliseconds(r.response_end_ms),
                f"{r.encoded_body_bytes:,}",
            )
            for r in objects
        ),
    )
    return Figure(
        f"waterfall-{number}",
        f"Requests over {name}",
        caption,
        {"data": data, "layout": layout},
        420,
        table,
    )


def _marks_of(load: PageLoad) -> Json:
    moments = {
        "RS": load.response_start_ms,
        "FCP": load.first_contentful_paint_ms,
        "PLT": load.page_load_time_ms,
    }
    shapes, annotations = [], []
    for name, value in moments.items():
        if value is None:
            continue
        at = {
            "x0": value / 1000,
            "x1": value / 1000,
            "y0": 0,
            "y1": 1,
            "xref": "x",
            "yref": "paper",
        }
        shapes.append(
            {"type": "line", **at, "line": {"color": "--text", "width": 1, "dash": "dot"}}
        )
        where = {"x": value / 1000, "y": 1, "xref": "x", "yref": "paper", "yanchor": "bottom"}
        where |= {"xanchor": "right"} if name == "PLT" else {}  # it is at the edge of the plot
        annotations.append({"text": name, "showarrow": False, **where})
    return {"shapes": shapes, "annotations": annotations}


# --- link -----------------------------------------------------------------------------------------


def slots(name: str, start_s: float, frame: Table, number: int) -> Figure | None:
    """Draw the bursts of a return link on demand; time runs from the jobs' start, `start_s`.

    None without demand.
    """
    kinds = ("assigned", "used", "free")
    columns = []
    for kind in kinds:
        points = read.series(frame, f"link_slots_{kind}", direction="return")
        columns.append(
            (
                f"{kind} (bursts)",
                per_second([(t - start_s, value) for t, value in points if t >= start_s]),
            )
        )
    if not columns[0][1]:
        return None
    data = [
        line(points, kind, style)
        for style, (kind, (_, points)) in enumerate(zip(kinds, columns, strict=True))
    ]
    layout = {
        "xaxis": axis(SINCE, rangemode="tozero"),
        "yaxis": axis("Bursts per metrics interval", rangemode="tozero"),
    }
    caption = (
        "Bursts granted to the terminal, those of them that it sent, and those that no terminal was"
        " granted; means over 1 s of the counts of a metrics interval."
    )
    title = f"Return slots: assigned, used, free: {name}"
    return Figure(
        f"slots-{number}",
        title,
        caption,
        {"data": data, "layout": layout},
        300,
        side_by_side(columns),
    )


@dataclass(frozen=True)
class Fading:
    """A run whose forward link may have changed: its name, start of its jobs (s), records, frames
    sent by MODCOD.

    `forward`: the forward link's plan; empty without one.
    """

    name: str
    jobs_start_s: float
    frame: Table
    frames_by_modcod: Mapping[str, float]
    forward: Mapping[str, Any]

    def points(self, metric: str, scale: float = 1.0) -> Points:
        """Return a scaled series of the forward link; time runs from the start of the jobs."""
        found = read.series(self.frame, metric, direction="forward")
        return [
            (t - self.jobs_start_s, value * scale) for t, value in found if t >= self.jobs_start_s
        ]

    def capacity_mbps(self, modcod_ids: Points) -> Points:
        """Return the rate that each MODCOD of a series carries, Mbit/s of frame payload."""
        rates = [
            (t, modcods.forward_rate_bps(self.forward, int(number))) for t, number in modcod_ids
        ]
        return [(t, rate / 1e6) for t, rate in rates if rate is not None]


def adaptation(run: Fading, number: int) -> Figure | None:
    """Draw MODCOD and rate against Es/N0; None where Es/N0 and MODCOD stay as they are."""
    quality, needed = run.points("link_es_n0_db"), run.points("link_threshold_db")
    modcod = run.points("link_modcod_id")
    if len({value for _, value in quality}) < 2 and len({value for _, value in modcod}) < 2:
        return None
    rows = [
        ("Es/N0, and what the MODCOD needs (dashed)", "dB", quality),
        ("MODCOD", "id", modcod),
        ("Rate, and what the MODCOD carries (dashed)", "Mbit/s", run.points("link_rate_bps", 1e-6)),
        ("Frames lost", "frames", run.points("link_lost_frames")),
    ]
    data, layout = stack(rows)
    data.append(line(needed, "needed (dB)", 1, yaxis="y"))
    layout["yaxis"] = layout["yaxis"] | {"rangemode": "normal"}
    capacity = run.capacity_mbps(modcod)
    data.append(line(capacity, "capacity (Mbit/s)", 1, yaxis="y3"))
    for steps in (data[1], data[-2], data[-1]):
        steps["line"] |= {"shape": "hv"}
    used = sorted(run.frames_by_modcod.items(), key=lambda pair: -pair[1])
    sent = ", ".join(f"{name} {count:,.0f}" for name, count in used)
    caption = (
        "A frame is lost where Es/N0 is below what its MODCOD needs. The gateway learns of Es/N0 a"
        " round trip and up to a report period later, and keeps the profile's margin. Frames sent:"
        f" {sent or 'none'}."
    )
    table = side_by_side(
        [("needed (dB)", needed), *((f"{name} ({unit})", points) for name, unit, points in rows)]
    )
    title = f"MODCOD and rate against attenuation: {run.name}"
    return Figure(
        f"adaptation-{number}", title, caption, {"data": data, "layout": layout}, 560, table
    )


def lateness(runs: Iterable[tuple[str, float, Table]], limit_us: float | None) -> Figure | None:
    """Draw how late the emulator released packets;

    `runs` are (name, start of the jobs in s, records).
    """
    data: list[Json] = []
    table: list[tuple[str, ...]] = []
    for number, (name, start_s, frame) in enumerate(runs):
        for style, direction in enumerate(("forward", "return")):
            points = read.series(frame, "link_release_late_p99_us", direction=direction)
            points = [(t - start_s, value) for t, value in points if t >= start_s]
            if not points:
                continue
            label = f"{name}, {direction}"
            data.append(line(points, label, number, opacity=0.9))
            data[-1]["line"] |= {"width": 1.5, "dash": DASHES[style * 2]}
            table += [(label, f"{t:.1f}", f"{value:.1f}") for t, value in per_second(points)]
    if not data:
        return None
    layout: Json = {
        "xaxis": axis(SINCE, rangemode="tozero"),
        "yaxis": axis("Release error, p99 (µs)", type="log"),
    }
    caption = (
        "How late packets left the emulated link, 99th percentile per interval. Solid: forward,"
        " dotted: return."
    )
    if limit_us is not None:
        caption += f" Tolerance: {limit_us:g} µs for 99 of 100 packets of the scenario."
    columns = ("run and direction", "time (s)", "p99, mean over 1 s (µs)")
    document = {"data": data, "layout": layout}
    return Figure(
        "lateness",
        "Release error of the emulator",
        caption,
        document,
        280 + 20 * len(data),
        DataTable(columns, tuple(table)),
    )


def milliseconds(value: float | None) -> str:
    """Return ms without decimals, "" for None."""
    return "" if value is None else f"{value:,.0f}"


def short_name(url: str) -> str:
    """Return the path of a URL."""
    rest = url.split("://", 1)[-1]
    return "/" + rest.split("/", 1)[1] if "/" in rest else rest
