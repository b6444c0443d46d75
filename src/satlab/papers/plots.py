# SPDX-License-Identifier: GPL-3.0-or-later
"""The plots of a paper that is data: figures over a factor, and flows over time."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from satlab.papers.figures import FIGURES, Outcome
from satlab.papers.flow_request import BIN_MS
from satlab.papers.outcome import Run
from satlab.papers.paper import Cell, Paper, Plot
from satlab.papers.results import PaperResults
from satlab.papers.scenario_figures import STEP_S, Curve, Records, mean_curve, rates_mbps
from satlab.report.figures import (
    COLOURS,
    SYMBOLS,
    DataTable,
    Figure,
    Json,
    Points,
    axis,
    line,
    per_second,
    text,
)

BIN_S = BIN_MS / 1000
SERIES = (("Goodput", "Mbit/s"), ("Window", "kB"), ("RTT", "ms"))
Shown = Sequence[tuple[Cell, Run]]


def draw(plot: Plot, results: PaperResults) -> list[Figure]:
    """Draw a plot of the cells that were run; nothing without any."""
    cells = [
        cell for cell in results.cells if fnmatchcase(cell.id, plot.cells) and results.runs[cell.id]
    ]
    shown = [(cell, results.runs[cell.id][0]) for cell in cells]
    if plot.kind == "over_time":
        groups: dict[str, list[tuple[Cell, Run]]] = {}
        for cell, run in shown:
            groups.setdefault(cell.id.rsplit("/", 1)[0], []).append((cell, run))
        return [_over_time(name, group) for name, group in groups.items()]
    if plot.kind == "area":
        return [_working_area(cell, run, results.paper) for cell, run in shown]
    if plot.kind == "received":
        return _received(plot, cells, results)
    if plot.kind == "flows":
        return [_flows(cell, run) for cell, run in shown]
    return [_by_factor(plot, cells, results)] if cells else []


def _by_factor(plot: Plot, cells: Sequence[Cell], results: PaperResults) -> Figure:
    """Draw a figure over a factor: the values of x in their order, a series for each combination of
    the others.
    """
    about, factor = FIGURES[plot.figure], results.paper.factor_titles.get(plot.x, plot.x)
    values = list(dict.fromkeys(str(_short(cell.factors[plot.x])) for cell in cells))
    curves: dict[str, dict[str, tuple[float, float | None]]] = {}
    for cell in cells:
        named = ", ".join(_short(cell.factors[name]) for name in plot.series) or cell.algorithm
        for figure, name in (
            (plot.figure, named),
            *([(plot.formula, "formula")] if plot.formula else []),
        ):
            found = results.figure(cell, figure, plot.phase if FIGURES[figure].is_phased else 0)
            if found is not None and not found.censored:
                curves.setdefault(name, {})[_short(cell.factors[plot.x])] = (
                    found.mean,
                    found.between,
                )
    data = [
        _curve(plot, name, curve, values, style)
        for style, (name, curve) in enumerate(curves.items())
    ]
    unit = f" ({about.unit})" if about.unit else ""
    rows = tuple(
        (
            name,
            x,
            f"{mean:.{about.digits}f}",
            "" if between is None else f"{between:.{about.digits + 1}f}",
        )
        for name, curve in curves.items()
        for x, (mean, between) in curve.items()
    )
    layout: Json = {
        "xaxis": axis(factor, type="category", categoryorder="array", categoryarray=values),
        "yaxis": axis(f"{about.title}{unit}", rangemode="tozero"),
        "barmode": "group",
    }
    table = DataTable(("series", factor, f"{about.title}{unit}", "between runs"), rows)
    key = f"plot-{plot.figure}-{plot.cells}".translate(str.maketrans("/*[].", "-----"))
    return Figure(key, plot.title, plot.caption, {"data": data, "layout": layout}, 340, table)


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _curve(
    plot: Plot,
    name: str,
    curve: dict[str, tuple[float, float | None]],
    values: Sequence[str],
    style: int,
) -> Json:
    xs = [x for x in values if x in curve]
    ys = [round(curve[x][0], 4) for x in xs]
    colour = COLOURS[style % len(COLOURS)]
    if name == "formula":
        dotted = {"color": "--text", "width": 2, "dash": "dot"}
        return {"type": "scatter", "mode": "lines", "name": name, "x": xs, "y": ys, "line": dotted}
    between = [curve[x][1] or 0.0 for x in xs]
    errors = (
        {"error_y": {"type": "data", "array": between, "visible": True}} if any(between) else {}
    )
    if plot.kind == "bars":
        return {
            "type": "bar",
            "name": text(name),
            "x": xs,
            "y": ys,
            "marker": {"color": colour},
            **errors,
        }
    marker = {"color": colour, "symbol": SYMBOLS[style % len(SYMBOLS)], "size": 8}
    stroke = {"color": colour, "width": 2}
    mode = {"type": "scatter", "mode": "lines+markers"}
    return {
        **mode,
        "name": text(name),
        "x": xs,
        "y": ys,
        "marker": marker,
        "line": stroke,
        **errors,
    }


def _points(outcome: Outcome, index: int, name: str, scale: float) -> Points:
    values = enumerate(outcome["flows"][index]["bins"][name])
    return per_second(
        [((n + 1) * BIN_S, value * scale) for n, value in values if value is not None]
    )


def series(run: Run) -> tuple[Points, Points, Points]:
    """Return goodput (Mbit/s), window (kB) and RTT (ms) of the first flow over time, means over 1
    s.
    """
    scales = (("received_bytes", 8e-6 / BIN_S), ("cwnd_bytes", 1e-3), ("rtt_ms", 1.0))
    goodput, window, rtt = (_points(run.outcome, 0, name, scale) for name, scale in scales)
    return goodput, window, rtt


def _flows(cell: Cell, run: Run) -> Figure:
    """Draw the goodput of each flow."""
    flows = run.outcome["flows"]
    lines = [
        _points(run.outcome, index, "payload_bytes", 8e-6 / BIN_S) for index in range(len(flows))
    ]
    data = [
        line(points, flow["id"], style)
        for style, (flow, points) in enumerate(zip(flows, lines, strict=True))
    ]
    rows = tuple(
        (flow["id"], f"{t:.1f}", f"{value:.3f}")
        for flow, points in zip(flows, lines, strict=True)
        for t, value in points[::5]
    )
    layout: Json = {
        "xaxis": axis("Time (s)"),
        "yaxis": axis("Goodput (Mbit/s)", rangemode="tozero"),
    }
    caption = "The first run, means over 1 s."
    table = DataTable(("flow", "time (s)", "Mbit/s"), rows)
    key = f"flows-{cell.id.replace('/', '-')}"
    return Figure(
        key,
        f"{cell.id}: goodput of each flow",
        caption,
        {"data": data, "layout": layout},
        340,
        table,
    )


def _over_time(name: str, group: Sequence[tuple[Cell, Run]]) -> Figure:
    """Draw goodput, window and RTT of the first run of each cell, one below the other."""
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for style, (cell, run) in enumerate(group):
        label = f"{cell.id.rsplit('/', 1)[1]} ({cell.algorithm})"
        for index, points in enumerate(series(run)):
            suffix = "" if index == 0 else str(index + 1)
            more = {"yaxis": f"y{suffix}", "legendgroup": label, "showlegend": index == 0}
            data.append(line(points, label, style, **more))
            rows += [
                (SERIES[index][0], label, f"{t:.1f}", f"{value:.3f}") for t, value in points[::5]
            ]
    share = 1 / len(SERIES)
    layout: Json = {"xaxis": axis("Time (s)", anchor="y3")}
    for index, (title, unit) in enumerate(SERIES):
        suffix = "" if index == 0 else str(index + 1)
        top = 1 - index * share
        layout[f"yaxis{suffix}"] = axis(
            f"{title}<br>({unit})", domain=[top - share + 0.04, top], rangemode="tozero"
        )
    caption = (
        "The first run of each cell, means over 1 s: goodput at the receiver, window and RTT at the"
        " sender."
    )
    table = DataTable(("series", "cell", "time (s)", "value"), tuple(rows))
    key = f"time-{name.replace('/', '-')}"
    return Figure(
        key,
        f"{name}: goodput, window and RTT",
        caption,
        {"data": data, "layout": layout},
        560,
        table,
    )


def _working_area(cell: Cell, run: Run, paper: Paper) -> Figure:
    """Draw delivery rate over RTT, one mark a second, coloured by link."""
    goodput, _, rtt = series(run)
    rates = dict(goodput)
    edges = [*paper.phases_s, paper.duration_s]
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for phase, name in enumerate(paper.phases):
        start = 0.0 if phase == 0 else edges[phase - 1]
        marks = [(value, rates[t]) for t, value in rtt if start <= t < edges[phase] and t in rates]
        colour = COLOURS[phase % len(COLOURS)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": text(name),
                "x": [round(x, 2) for x, _ in marks],
                "y": [round(y, 3) for _, y in marks],
                "marker": {
                    "color": colour,
                    "symbol": SYMBOLS[phase % len(SYMBOLS)],
                    "size": 6,
                    "opacity": 0.7,
                },
            }
        )
        rows += [(name, f"{x:.1f}", f"{y:.3f}") for x, y in marks[::5]]
    links = paper.links.values()
    shapes: list[Json] = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": link.rtt_ms,
            "x1": link.rtt_ms,
            "y0": 0,
            "y1": 1,
            "line": {"color": "--text", "width": 1, "dash": "dot"},
        }
        for link in links
    ]
    top = max(link.rate_mbps for link in links)
    layout = {
        "xaxis": axis("RTT at the sender (ms)", rangemode="tozero"),
        "yaxis": axis("Delivery rate (Mbit/s)", range=[0, top * 1.1]),
        "shapes": shapes,
    }
    caption = (
        "Working area: one mark a second of the first run, the rate at the receiver. Dotted: the"
        " round trip of each link without a queue. Top left is the optimum, right of it a standing"
        " queue, below it an unused link."
    )
    key = f"area-{cell.id.replace('/', '-')}"
    table = DataTable(("link", "RTT (ms)", "rate (Mbit/s)"), tuple(rows))
    return Figure(
        key, f"{cell.id}: working area", caption, {"data": data, "layout": layout}, 340, table
    )


# --- bulk transfers of scenarios ------------------------------------------------------------------


def _received(plot: Plot, cells: Sequence[Cell], results: PaperResults) -> list[Figure]:
    """Draw a figure for each place, the parts of an id before the last one."""
    places: dict[str, dict[str, list[Curve]]] = {}
    for cell in cells:
        place, _, kind = cell.id.rpartition("/")
        curves = [
            curve
            for run in results.counted(cell.id)
            if isinstance(run.outcome, Records) and (curve := run.outcome.curve) is not None
        ]
        if curves:
            places.setdefault(place, {})[kind] = curves
    return [_of_place(plot, place, curves) for place, curves in places.items()]


def _of_place(plot: Plot, place: str, curves: dict[str, list[Curve]]) -> Figure:
    """Draw the ratio of bytes received of each pair, and the goodput of all, over time."""
    means = {kind: mean_curve(found) for kind, found in curves.items()}
    styles = {kind: style for style, kind in enumerate(means)}
    data: list[Json] = []
    rows: list[tuple[str, ...]] = []
    for first, second in plot.pairs:
        if first not in means or second not in means:
            continue
        both = enumerate(zip(means[first], means[second], strict=True), start=1)
        ratio = [(step * STEP_S, more / less) for step, (more, less) in both if less]
        name = f"{first} / {second}"
        data.append(line(ratio, name, styles[first]))
        rows += [("ratio", name, f"{t:.1f}", f"{value:.3f}") for t, value in ratio[9::10]]
    for kind, mean in means.items():
        rates = rates_mbps(mean)
        name = f"{kind}, n = {len(curves[kind])}"
        data.append(line(rates, name, styles[kind], xaxis="x2", yaxis="y2"))
        rows += [("goodput (Mbit/s)", kind, f"{t:.1f}", f"{value:.3f}") for t, value in rates[4::5]]
    one: Json = {"type": "line", "xref": "x domain", "x0": 0, "x1": 1, "yref": "y", "y0": 1}
    one |= {"y1": 1, "line": {"color": COLOURS[4], "dash": "dash", "width": 1}}
    layout: Json = {
        "xaxis": axis("Time (s)", domain=[0, 0.46], rangemode="tozero"),
        "yaxis": axis("Bytes received, ratio", rangemode="tozero"),
        "xaxis2": axis("Time (s)", domain=[0.56, 1], rangemode="tozero", anchor="y2"),
        "yaxis2": axis("Goodput (Mbit/s)", rangemode="tozero", anchor="x2"),
        "shapes": [one],
    }
    key = f"received-{place.replace('/', '-')}"
    table = DataTable(("plot", "type", "time (s)", "value"), tuple(rows))
    document = {"data": data, "layout": layout}
    return Figure(key, f"{plot.title}: {place}", plot.caption, document, 380, table)
