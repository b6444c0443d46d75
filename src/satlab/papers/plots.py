# SPDX-License-Identifier: GPL-3.0-or-later
"""The plots of a paper that is data: figures over a factor, and flows over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from satlab.flows.flows_report import marks
from satlab.papers import paper
from satlab.papers.cell_run import Run
from satlab.papers.figures import FIGURES, Outcome
from satlab.papers.flow_request import BIN_MS
from satlab.papers.paper import Cell, Paper
from satlab.papers.results import PaperResults
from satlab.papers.scenario_figures import STEP_S, Curve, Records, mean_curve, rates_mbps
from satlab.report.page import Axis, Mark, Plot, Points, Series, Table, all_but, line, per_second

BIN_S = BIN_MS / 1000
TIME = "Time (s)"


def draw(plot: paper.Plot, results: PaperResults) -> list[Plot]:
    """Draw a plot of the cells that have runs in calibration; None if there is none."""
    cells = [
        cell
        for cell in results.cells
        if fnmatchcase(cell.id, plot.cells) and results.counted(cell.id)
    ]
    shown = [(cell, results.counted(cell.id)[0]) for cell in cells]
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


def _by_factor(plot: paper.Plot, cells: Sequence[Cell], results: PaperResults) -> Plot:
    """Draw a figure over a factor: the values of x in order, one series for each combination of the
    other factors.
    """
    about, factor = FIGURES[plot.figure], results.paper.factor_titles.get(plot.x, plot.x)
    title = f"{about.title} ({about.unit})" if about.unit else about.title
    categories = list(dict.fromkeys(_short(cell.factors[plot.x]) for cell in cells))
    phase = plot.phase if about.is_phased else 0
    curves: dict[str, dict[str, _Point]] = {}
    for cell in cells:
        named = ", ".join(_short(cell.factors[name]) for name in plot.series) or cell.algorithm
        for figure, name in ((plot.figure, named), (plot.formula, FORMULA)):
            if figure is None:
                continue
            found = results.figure(cell, figure, phase if FIGURES[figure].is_phased else 0)
            if found is not None and not found.censored:
                point = _Point(found.mean, found.between)
                curves.setdefault(name, {})[_short(cell.factors[plot.x])] = point
    drawn = []
    for style, (name, curve) in enumerate(curves.items()):
        xs = [x for x in categories if x in curve]
        between = [curve[x].between or 0.0 for x in xs]
        series = Series(name, xs, [curve[x].mean for x in xs], style=style, interval=between)
        if name == FORMULA:
            series = replace(series, interval=(), colour="--text", dash="dot")
        else:
            series = replace(series, shape="bars" if plot.kind == "bars" else "marked line")
        drawn.append(series)
    head = ("series", factor, title, "between runs")
    rows = [
        (
            name,
            x,
            f"{point.mean:.{about.digits}f}",
            "" if point.between is None else f"{point.between:.{about.digits + 1}f}",
        )
        for name, curve in curves.items()
        for x, point in curve.items()
    ]
    return Plot(
        key=f"plot-{plot.figure}-{plot.cells}".translate(str.maketrans("/*[].", "-----")),
        title=plot.title,
        caption=plot.caption,
        x=Axis(factor, categories=categories),
        y=(Axis(title, from_zero=True),),
        series=drawn,
        height=340,
        table=Table(head, rows, numbers=all_but(head, 1)),
    )


FORMULA = "formula"


@dataclass(frozen=True)
class _Point:
    """A mean over runs, and the standard deviation between them; None for a single run."""

    mean: float
    between: float | None


def _short(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _points(outcome: Outcome, flow: int, name: str, scale: float) -> Points:
    values = enumerate(outcome["flows"][flow]["bins"][name])
    return per_second(
        [((n + 1) * BIN_S, value * scale) for n, value in values if value is not None]
    )


def goodput_mbps(run: Run) -> Points:
    """Return the goodput of the first flow over time, means over 1 s."""
    return _points(run.outcome, 0, "received_bytes", 8e-6 / BIN_S)


def window_kb(run: Run) -> Points:
    """Return the window of the first flow over time, means over 1 s."""
    return _points(run.outcome, 0, "cwnd_bytes", 1e-3)


def rtt_ms(run: Run) -> Points:
    """Return the RTT of the first flow over time, means over 1 s."""
    return _points(run.outcome, 0, "rtt_ms", 1.0)


def _flows(cell: Cell, run: Run) -> Plot:
    """Draw the goodput of each flow."""
    lines = {
        flow["id"]: _points(run.outcome, number, "payload_bytes", 8e-6 / BIN_S)
        for number, flow in enumerate(run.outcome["flows"])
    }
    rows = [
        (name, f"{t:.1f}", f"{value:.3f}")
        for name, points in lines.items()
        for t, value in points[::5]
    ]
    head = ("flow", "time (s)", "Mbit/s")
    return Plot(
        key=f"flows-{cell.id.replace('/', '-')}",
        title=f"{cell.id}: goodput of each flow",
        caption="The first run, means over 1 s.",
        x=Axis(TIME),
        y=(Axis("Goodput (Mbit/s)", from_zero=True),),
        series=[line(name, points, style) for style, (name, points) in enumerate(lines.items())],
        height=340,
        table=Table(head, rows, numbers=all_but(head, 1)),
        marks=_changes(run),
    )


def _changes(run: Run) -> list[Mark]:
    """Return the moments of a run at which its link changes, such as handovers."""
    return marks(run.outcome.get("request", {})) if isinstance(run.outcome, Mapping) else []


def _over_time(name: str, group: Sequence[tuple[Cell, Run]]) -> Plot:
    """Draw goodput, window and RTT of the first run of each cell, one below the other."""
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for style, (cell, run) in enumerate(group):
        label = f"{cell.id.rsplit('/', 1)[1]} ({cell.algorithm})"
        values = {"Goodput": goodput_mbps(run), "Window": window_kb(run), "RTT": rtt_ms(run)}
        for row, (title, points) in enumerate(values.items()):
            drawn = line(label, points, style)
            series.append(replace(drawn, row=row, group=label, in_legend=row == 0))
            rows += [(title, label, f"{t:.1f}", f"{value:.3f}") for t, value in points[::5]]
    titles = ("Goodput\n(Mbit/s)", "Window\n(kB)", "RTT\n(ms)")
    head = ("series", "cell", "time (s)", "value")
    return Plot(
        key=f"time-{name.replace('/', '-')}",
        title=f"{name}: goodput, window and RTT",
        caption="The first run of each cell, means over 1 s: goodput at the receiver, window and"
        " RTT at the sender.",
        x=Axis(TIME),
        y=tuple(Axis(title, from_zero=True) for title in titles),
        series=series,
        height=560,
        table=Table(head, rows, numbers=all_but(head, 1)),
        marks=_changes(group[0][1]),
    )


def _working_area(cell: Cell, run: Run, about: Paper) -> Plot:
    """Draw delivery rate over RTT, one mark a second, coloured by link."""
    rates, rtt = dict(goodput_mbps(run)), rtt_ms(run)
    edges = [0.0, *about.phases_s, about.duration_s]
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for phase, name in enumerate(about.phases):
        marks = [
            (value, rates[t])
            for t, value in rtt
            if edges[phase] <= t < edges[phase + 1] and t in rates
        ]
        drawn = line(name, marks, phase)
        series.append(replace(drawn, shape="marks", size=6, opacity=0.7))
        rows += [(name, f"{x:.1f}", f"{y:.3f}") for x, y in marks[::5]]
    top = max(link.rate_mbps for link in about.links.values())
    head = ("link", "RTT (ms)", "rate (Mbit/s)")
    return Plot(
        key=f"area-{cell.id.replace('/', '-')}",
        title=f"{cell.id}: working area",
        caption="Working area: one mark a second of the first run, the rate at the receiver."
        " Dotted: the round trip of each link without a queue. Top left is the optimum, right of it"
        " a standing queue, below it an unused link.",
        x=Axis("RTT at the sender (ms)", from_zero=True),
        y=(Axis("Delivery rate (Mbit/s)", range=(0, top * 1.1)),),
        series=series,
        height=340,
        table=Table(head, rows, numbers=all_but(head, 1)),
        marks=[Mark("x", link.rtt_ms) for link in about.links.values()],
    )


# --- bulk transfers of scenarios ------------------------------------------------------------------


def _received(plot: paper.Plot, cells: Sequence[Cell], results: PaperResults) -> list[Plot]:
    """Draw a plot for each place, the parts of an id before the last one."""
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


def _of_place(plot: paper.Plot, place: str, curves: dict[str, list[Curve]]) -> Plot:
    """Draw the ratio of bytes received of each pair over time, and below it the goodput of all."""
    means = {kind: mean_curve(found) for kind, found in curves.items()}
    styles = {kind: style for style, kind in enumerate(means)}
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for first, second in plot.pairs:
        if first not in means or second not in means:
            continue
        both = enumerate(zip(means[first], means[second], strict=True), start=1)
        ratio = [(step * STEP_S, more / less) for step, (more, less) in both if less]
        name = f"{first} / {second}"
        series.append(line(name, ratio, styles[first]))
        rows += [("ratio", name, f"{t:.1f}", f"{value:.3f}") for t, value in ratio[9::10]]
    for kind, mean in means.items():
        rates = rates_mbps(mean)
        drawn = line(f"{kind}, n = {len(curves[kind])}", rates, styles[kind])
        series.append(replace(drawn, row=1))
        rows += [("goodput (Mbit/s)", kind, f"{t:.1f}", f"{value:.3f}") for t, value in rates[4::5]]
    head = ("plot", "type", "time (s)", "value")
    return Plot(
        key=f"received-{place.replace('/', '-')}",
        title=f"{plot.title}: {place}",
        caption=plot.caption,
        x=Axis(TIME, from_zero=True),
        y=(
            Axis("Bytes received,\nratio", from_zero=True),
            Axis("Goodput\n(Mbit/s)", from_zero=True),
        ),
        series=series,
        height=480,
        table=Table(head, rows, numbers=all_but(head, 2)),
        marks=[Mark("y", 1.0)],
    )
