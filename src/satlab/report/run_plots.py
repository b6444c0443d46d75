# SPDX-License-Identifier: GPL-3.0-or-later
"""Plots of runs: bulk transfers, page loads, and the link. Time runs from the first job."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from collect import Table
from satlab.link import modcods
from satlab.report import measurements as read
from satlab.report import page
from satlab.report.measurements import PAGE_METRICS, PageFigure, PageGroup, SummaryRecord
from satlab.report.page import (
    Axis,
    Mark,
    Plot,
    Points,
    Series,
    all_but,
    line,
    per_second,
    side_by_side,
)
from satlab.report.waterfall import SINCE_NAVIGATION, milliseconds

SINCE = "Time since the first job began (s)"
"""The time zero of all plots over the time of a run."""
SHORT = {
    "response_start_ms": "RS",
    "first_contentful_paint_ms": "FCP",
    "largest_contentful_paint_ms": "LCP",
    "speed_index_ms": "SI",
    "page_load_time_ms": "PLT",
}
KIND_STYLE = {"HTTP/1.1": 1, "HTTP/2": 2, "HTTP/3": 0}


@dataclass(frozen=True)
class RunSeries:
    """The series of a run to draw: the run's name, its records, when its jobs began (s)."""

    name: str
    frame: Table
    jobs_start_s: float

    def since_jobs(
        self, metric: str, scale: float = 1.0, slack_s: float = 0.0, **labels: str
    ) -> Points:
        """Return a scaled series from the jobs' start on; `slack_s`: from this long before it."""
        return [
            (t - self.jobs_start_s, value * scale)
            for t, value in read.series(self.frame, metric, **labels)
            if t >= self.jobs_start_s - slack_s
        ]

    def handovers(self) -> list[tuple[float, str]]:
        """Return the time and words of each handover of the link from the jobs' start on."""
        since = ((t - self.jobs_start_s, what) for t, what in read.handovers(self.frame))
        return [(t, what) for t, what in since if t >= 0]


MOST_LABELS, MOST_LINES = 8, 300
"""Most handovers that a plot labels, and that it draws: more of them would hide the curves."""
LONGEST_LABEL = 40
"""Most letters of a label: longer labels would cover their neighbours."""
ALIKE_S = 0.5
"""Handovers of several runs within this time are one line: jobs begin a little earlier or later."""


def handover_marks(runs: Sequence[RunSeries], drawn: Iterable[Series]) -> list[Mark]:
    """Return a line for each handover of runs within the time that is drawn; it names its runs
    unless all have it.
    """
    times = [float(t) for one in drawn for t in one.x]
    first_s, last_s = min(times, default=0.0), max(times, default=0.0)
    named = {run.name: run for run in runs}
    found = [(t, what, name) for name, run in named.items() for t, what in run.handovers()]
    lines: list[_Line] = []
    for t, what, name in sorted(found):
        if alike := _alike(lines, t, what, name):
            alike.runs.append(name)
        elif first_s <= t <= last_s:
            lines.append(_Line(t, what, [name]))
    if len(lines) > MOST_LINES:
        return []
    has_labels = len(lines) <= MOST_LABELS
    return [Mark("x", one.t, label=one.label(len(named)) if has_labels else "") for one in lines]


@dataclass(frozen=True)
class _Line:
    """A handover at a time (s), in words, of some runs."""

    t: float
    what: str
    runs: list[str]

    def label(self, count: int) -> str:
        """Return its words; with its runs unless these are all `count` that are drawn, or their
        names are long.
        """
        whole = f"{self.what}, {', '.join(self.runs)}"
        return self.what if len(self.runs) == count or len(whole) > LONGEST_LABEL else whole


def _alike(lines: Sequence[_Line], t: float, what: str, name: str) -> _Line | None:
    """Return the same handover of other runs."""
    for one in reversed(lines):
        if t - one.t > ALIKE_S:
            break
        if one.what == what and name not in one.runs:
            return one
    return None


def _in_words(marks: Sequence[Mark]) -> str:
    return " Dotted lines: handovers of the link." if any(m.axis == "x" for m in marks) else ""


# --- bulk -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bulk:
    """One bulk transfer to draw, by its name in `run`. `clock_error_s` is the uncertainty of its
    clock.

    `capacity`: the rates that the link carries, each with its start (s since the jobs began,
    bit/s), if the rate changes. `queue_limit_bytes`: of each of the `terminals`.
    """

    run: RunSeries
    transfer: str
    clock_error_s: float
    capacity_bps: float | None
    queue_limit_bytes: float | None
    capacity: Points = ()
    direction: str = "download"
    run_id: str = ""
    terminals: int = 1

    def of_sender(self, metric: str, scale: float) -> Points:
        """Return a series of the first flow of the transfer."""
        return self.run.since_jobs(metric, scale, 0.5, transfer=self.transfer, flow="1")

    def of_link(self, metric: str, scale: float) -> Points:
        """Return a series of its direction of the link while it lasted, and a second around."""
        way = "return" if self.direction == "upload" else "forward"
        lasted = self.goodput() or self.of_sender("cwnd_bytes", 1.0)
        if not lasted:
            return []
        first, last = lasted[0][0] - 1, lasted[-1][0] + 1
        found = self.run.since_jobs(metric, scale, 0.5, direction=way)
        return [(t, value) for t, value in found if first <= t <= last]

    def goodput(self) -> Points:
        """Return the goodput of its intervals, Mbit/s."""
        return self.run.since_jobs("goodput_bps", 1e-6, 0.5, transfer=self.transfer)


def goodput(bulks: Sequence[Bulk]) -> Plot | None:
    """Draw goodput over time of all transfers."""
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    highest_mbps = 0.0
    for style, bulk in enumerate(bulks):
        name = bulk.run.name
        points = bulk.goodput()
        seconds = per_second(points)
        highest_mbps = max([highest_mbps, *(value for _, value in seconds)])
        faint = line(f"{name}, 0.1 s", points, style)
        series.append(
            replace(faint, dash="solid", width=1, opacity=0.35, in_legend=False, hover="skip")
        )
        edges = [(t - 0.5, value) for t, value in seconds]
        edges += [(t + 0.5, value) for t, value in seconds[-1:]]
        series.append(replace(line(name, edges, style), shape="steps"))
        rows += [(name, f"{t:.1f}", f"{value:.3f}") for t, value in seconds]
    if not rows:
        return None
    capacities = [bulk.capacity_bps for bulk in bulks if bulk.capacity_bps is not None]
    if len(capacities) == len(bulks):  # what waited comes at once, faster than the link
        highest_mbps = max(capacities) / 1e6
    levels = {
        (bulk.capacity_bps, tuple(bulk.capacity)) for bulk in bulks if bulk.capacity_bps is not None
    }
    capacity_bps, changing = levels.pop() if len(levels) == 1 else (None, ())
    caption = (
        "Payload at the receiver, in order: a gap with a peak behind it is data that waited for a"
        " retransmission. Bold: means over 1 s. Faint: over 0.1 s. Peaks far above the link's"
        " rate are cut off."
    )
    marks = []
    if capacity_bps is not None:
        caption += " Thin grey line: the TCP payload that framing and encapsulation leave room for"
        caption += " with the MODCOD in force." if changing else "."
    if changing:
        end_s = max(float(t) for one in series for t in one.x)
        steps = [(t, value / 1e6) for t, value in changing if t <= end_s]
        carried = line("link carries", [*steps, (end_s, steps[-1][1])])
        series.append(replace(carried, shape="steps", colour="--muted", width=1.5))
        highest_mbps = max([highest_mbps, *(value / 1e6 for _, value in changing)])
    elif capacity_bps is not None:
        label = f"link carries {capacity_bps / 1e6:.2f} Mbit/s"
        marks.append(Mark("y", capacity_bps / 1e6, label=label))
        highest_mbps = max(highest_mbps, capacity_bps / 1e6)
    marks += handover_marks([one.run for one in _one_of_each_run(bulks)], series)
    caption += _in_words(marks)
    head = ("transfer", "time (s)", "goodput (Mbit/s)")
    return Plot(
        key="goodput",
        title="Goodput over time",
        caption=caption,
        x=Axis(SINCE, from_zero=True),
        y=(Axis("Goodput (Mbit/s)", range=(0, 1.15 * highest_mbps)),),
        series=series,
        height=340,
        table=page.Table(head, rows, numbers=all_but(head, 1)),
        marks=marks,
    )


@dataclass(frozen=True)
class StackRow:
    """A series over the time of a run, drawn in its own row."""

    name: str
    unit: str
    points: Points
    shape: Literal["line", "steps"] = "line"
    from_zero: bool = True
    ticks: Mapping[float, str] | None = None

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit})"


MOST_WINDOWS = 12
"""Transfers whose windows are in one plot: more cannot be told apart."""


def window(bulks: Sequence[Bulk], number: int) -> Plot | None:
    """Draw window, RTT, and queue and drops of the link of transfers in one direction, over one time
    axis. Transfers of one run share the queue.
    """
    found = [bulk for bulk in bulks if bulk.of_sender("cwnd_bytes", 1e-6)]
    drawn = found[:MOST_WINDOWS]
    if not drawn:
        return None
    way = "Return" if drawn[0].direction == "upload" else "Forward"
    of_runs = _one_of_each_run(drawn)
    rows = (
        ("Congestion window", "MB", {b.run.name: b.of_sender("cwnd_bytes", 1e-6) for b in drawn}),
        ("RTT at the sender", "ms", {b.run.name: b.of_sender("tcp_rtt_ms", 1.0) for b in drawn}),
        (f"{way} queue", "MB", _of_runs(drawn, of_runs, "link_queue_bytes", 1e-6)),
        (f"Drops, {way.lower()}", "packets", _of_runs(drawn, of_runs, "link_dropped_packets", 1.0)),
    )
    styles = {bulk.run.name: style for style, bulk in enumerate(drawn)}
    is_one = len(drawn) == 1
    series, columns, shown = [], dict[str, Points](), set[str]()
    for place, (title, unit, lines) in enumerate(rows):
        for name, points in lines.items():
            label = f"{title} ({unit})" if is_one else name
            one = line(label, points, styles.get(name, 0))
            is_new = name in styles and name not in shown
            colour = "" if name in styles else "--muted"
            series.append(
                replace(one, row=place, group=name, in_legend=not is_one and is_new, colour=colour)
            )
            shown.add(name)
            columns[f"{title} ({unit})" if is_one else f"{title} ({unit}), {name}"] = points
    terminals = max(bulk.terminals for bulk in drawn)
    limits = {
        bulk.queue_limit_bytes * bulk.terminals
        for bulk in drawn
        if bulk.queue_limit_bytes is not None
    }
    label = "limit" if terminals == 1 else f"limit of {terminals} terminals"
    errors = max(bulk.clock_error_s for bulk in drawn)
    marks = handover_marks([one.run for one in of_runs], series)
    title = (
        f": {drawn[0].run.name}" if is_one else f" of {len(drawn)} transfers, {way.lower()} link"
    )
    return Plot(
        key=f"window-{number}",
        title=f"Window, RTT and queue{title}",
        caption="The sender reports window and RTT without the time of day: against queue and drops"
        f" they may be shifted by up to {errors:.1f} s."
        + (" The queue is that of all terminals together." if terminals > 1 else "")
        + (f" The first {len(drawn)} of {len(found)}." if len(found) > len(drawn) else "")
        + _in_words(marks),
        x=Axis(SINCE),
        y=tuple(Axis(unit, from_zero=True, heading=title) for title, unit, _ in rows),
        series=series,
        height=560 if is_one else 560 + 20 * len(drawn),
        table=side_by_side(columns),
        marks=[
            *marks,
            *(Mark("y", limit / 1e6, label=label, row=2) for limit in limits if len(limits) == 1),
        ],
        has_legend=not is_one,
        room=0 if is_one else 50 + 20 * len(drawn),
    )


def _one_of_each_run(bulks: Sequence[Bulk]) -> list[Bulk]:
    """Return the first transfer of each run."""
    return list({bulk.run_id: bulk for bulk in reversed(bulks)}.values())[::-1]


def _of_runs(
    drawn: Sequence[Bulk], of_runs: Sequence[Bulk], metric: str, scale: float
) -> dict[str, Points]:
    """Return a series of the link of each run, over the time of all its transfers that are drawn."""
    found: dict[str, Points] = {}
    for first in of_runs:
        own = [bulk for bulk in drawn if bulk.run_id == first.run_id]
        points = sorted({point for bulk in own for point in bulk.of_link(metric, scale)})
        shared = "link" if len(of_runs) == 1 else f"link, {first.run.name}"
        found[first.run.name if len(own) == 1 else shared] = points
    return found


def stack(
    key: str,
    title: str,
    caption: str,
    rows: Sequence[StackRow],
    more: Sequence[Series] = (),
    marks: Sequence[Mark] = (),
) -> Plot:
    """Draw several series, one below the other over one time axis, and `more` in their rows."""
    series = [
        replace(line(row.title, row.points, place), dash="solid", row=place, shape=row.shape)
        for place, row in enumerate(rows)
    ]
    return Plot(
        key=key,
        title=title,
        caption=caption,
        x=Axis(SINCE),
        y=tuple(
            Axis(
                "" if row.ticks else row.unit,
                from_zero=row.from_zero,
                heading=row.name,
                ticks=row.ticks,
            )
            for row in rows
        ),
        series=[*series, *more],
        height=560,
        table=side_by_side({row.title: row.points for row in rows}),
        marks=marks,
        has_legend=False,
    )


# --- pages ----------------------------------------------------------------------------------------


def page_spread(
    rows: Sequence[SummaryRecord],
    figures: Sequence[PageFigure],
    published: Mapping[tuple[PageGroup, str], float | None],
    groups: Mapping[PageGroup, str],
) -> Plot | None:
    """Draw every load of every metric as a point, medians as bars, published medians as open
    diamonds.

    `groups`: their names in drawing order; `published` is by group and metric.
    """
    metrics = [metric for metric in SHORT if any(f.metric == metric for f in figures)]
    if not metrics:
        return None
    width = 0.8 / max(len(groups), 1)
    has_own_style = len({group.kind for group in groups} & KIND_STYLE.keys()) == len(groups)
    series: list[Series] = []
    for number, (group, name) in enumerate(groups.items()):
        style = KIND_STYLE[group.kind] if has_own_style else number
        points, medians, papers = [], [], []
        for place, metric in enumerate(metrics):
            x = place + (number - (len(groups) - 1) / 2) * width
            loads = [r for r in read.loads(rows, metric) if read.group_of(r) == group]
            values = [r.value / 1000 for r in loads if r.value is not None]
            step = width * 0.5 / max(len(values), 1)
            first = x - (len(values) - 1) / 2 * step
            points += [(first + i * step, value) for i, value in enumerate(values)]
            medians += [
                (x, f.median / 1000)
                for f in figures
                if (f.group, f.metric) == (group, metric) and f.median is not None
            ]
            paper = published.get((group, metric))
            papers += [] if paper is None else [(x + width * 0.42, paper / 1000)]
        shared = Series(
            name, (), (), "marks", style, group="".join(group), hover="%{y:.3f} s", in_legend=False
        )
        median = replace(shared, symbol="line-ew", size=22, name=f"{name}, median")
        of_paper = replace(
            shared, symbol="diamond-open", size=11, colour="--text", name=f"{name}, published"
        )
        series += [
            _through(median, medians),
            _through(replace(shared, opacity=0.7, in_legend=True), points),
            _through(of_paper, papers),
        ]
    caption = (
        f"{'; '.join(f'{SHORT[m]}: {PAGE_METRICS[m]}' for m in metrics)}. One point per load, bar:"
        " median."
    )
    if any(published.values()):
        caption += " Open diamond: published median."
    table = [
        (
            groups[read.group_of(r)],
            PAGE_METRICS[metric],
            r.labels["load"],
            milliseconds(r.value) or r.status,
        )
        for metric in metrics
        for r in read.loads(rows, metric)
    ]
    head = ("protocol", "metric", "load", "ms")
    return Plot(
        key="pages",
        title="Page metrics, every load",
        caption=caption,
        x=Axis(
            "",
            range=(-0.6, len(metrics) - 0.4),
            ticks={place: SHORT[metric] for place, metric in enumerate(metrics)},
            is_bare=True,
        ),
        y=(Axis(SINCE_NAVIGATION, from_zero=True),),
        series=series,
        height=380,
        table=page.Table(head, table, numbers=all_but(head, 1)),
    )


MIN_LOADS = 5
"""Loads of a group from which its distribution is drawn."""


def page_distribution(
    rows: Sequence[SummaryRecord], groups: Mapping[PageGroup, str]
) -> Plot | None:
    """Draw the distribution of the Page Load Time of each group with MIN_LOADS; None without one.

    A load that was cut off counts as longer than all others: its steps end below 100 %.
    """
    series: list[Series] = []
    table: list[tuple[str, ...]] = []
    for style, (group, name) in enumerate(groups.items()):
        loads = [r for r in read.loads(rows, "page_load_time_ms") if read.group_of(r) == group]
        ended = sorted(r.value / 1000 for r in loads if r.status == "ok" and r.value is not None)
        started = len(ended) + sum(r.status == "censored" for r in loads)
        if len(ended) < MIN_LOADS:
            continue
        whole = page.cumulative(name, ended, style)
        series.append(replace(whole, y=[share * len(ended) / started for share in whole.y]))
        table += [
            (name, f"{value:.3f}", f"{100 * rank / started:.1f}")
            for rank, value in enumerate(ended, start=1)
        ]
    if not series:
        return None
    head = ("protocol", "Page Load Time (s)", "share (%)")
    return Plot(
        key="page-load-times",
        title="Page Load Time: distribution",
        caption="Share of the loads that ended within a time.",
        x=Axis(
            SINCE_NAVIGATION,
            from_zero=True,
            scale=page.scale_of(float(x) for one in series for x in one.x),
        ),
        y=(Axis("Share of the loads (%)", range=(0, 102)),),
        series=series,
        height=300,
        table=page.Table(head, table, numbers=all_but(head, 1)),
    )


def _through(series: Series, points: Points) -> Series:
    return replace(series, x=[x for x, _ in points], y=[y for _, y in points])


# --- link -----------------------------------------------------------------------------------------


def slots(run: RunSeries, number: int) -> Plot | None:
    """Draw the bursts of a return link on demand; None without demand."""
    columns = {
        kind: per_second(run.since_jobs(f"link_slots_{kind}", direction="return"))
        for kind in ("assigned", "used", "free")
    }
    if not columns["assigned"]:
        return None
    series = [line(kind, points, style) for style, (kind, points) in enumerate(columns.items())]
    marks = handover_marks([run], series)
    return Plot(
        key=f"slots-{number}",
        title=f"Return slots: assigned, used, free: {run.name}",
        caption="Bursts granted to the terminal, those of them that it sent, and those that no"
        " terminal was granted; means over 1 s of the counts of a metrics interval."
        + _in_words(marks),
        x=Axis(SINCE, from_zero=True),
        y=(Axis("Bursts per metrics interval", from_zero=True),),
        series=series,
        height=300,
        table=side_by_side({f"{kind} (bursts)": points for kind, points in columns.items()}),
        marks=marks,
    )


def adaptation(
    run: RunSeries, frames_by_modcod: Mapping[str, float], forward: Mapping[str, Any], number: int
) -> Plot | None:
    """Draw MODCOD and rate of a forward link against Es/N0; None where Es/N0 and MODCOD stay as
    they are.

    `forward`: the link's plan, empty without one.
    """

    def points(metric: str, scale: float = 1.0) -> Points:
        return run.since_jobs(metric, scale, direction="forward")

    quality, needed = points("link_es_n0_db"), points("link_threshold_db")
    modcod = points("link_modcod_id")
    if len({value for _, value in quality}) < 2 and len({value for _, value in modcod}) < 2:
        return None
    rates = [(t, modcods.forward_rate_bps(forward, int(modcod_id))) for t, modcod_id in modcod]
    capacity = [(t, rate / 1e6) for t, rate in rates if rate is not None]
    used = sorted(frames_by_modcod.items(), key=lambda pair: -pair[1])
    sent = ", ".join(f"{name} {count:,.0f}" for name, count in used)
    rate = points("link_rate_bps", 1e-6)
    dashed = "Rate, and what the MODCOD carries (dashed)"
    rows = [
        StackRow("Es/N0, and what the MODCOD needs (dashed)", "dB", quality, from_zero=False),
        StackRow("MODCOD", "id", modcod, "steps", from_zero=False, ticks=_names(modcod)),
        StackRow(dashed, "Mbit/s", rate),
        StackRow("Frames lost", "frames", points("link_lost_frames")),
    ]
    marks = handover_marks([run], [line(dashed, rate)])
    drawn = stack(
        key=f"adaptation-{number}",
        title=f"MODCOD and rate against attenuation: {run.name}",
        caption="A frame is lost where Es/N0 is below what its MODCOD needs. The gateway learns of"
        " Es/N0 a round trip and up to a report period later, and keeps the profile's margin."
        f" Frames sent: {sent or 'none'}." + _in_words(marks),
        rows=rows,
        more=[
            replace(line("needed (dB)", needed, 1), shape="steps"),
            replace(line("capacity (Mbit/s)", capacity, 1), shape="steps", row=2),
        ],
        marks=marks,
    )
    columns = {"needed (dB)": needed, **{row.title: row.points for row in rows}}
    return replace(drawn, table=side_by_side(columns))


MOST_NAMES = 7
"""MODCODs that are named on an axis."""


def _names(modcod: Points) -> dict[float, str]:
    """Return the names of the MODCODs that were used, of many some with the first and the last."""
    used = sorted({int(number) for _, number in modcod})
    every = max(1, math.ceil((len(used) - 1) / (MOST_NAMES - 1)))
    return {float(number): modcods.name(number) for number in {*used[::every], *used[-1:]}}


def waiting(runs: Sequence[RunSeries]) -> Plot | None:
    """Draw how long packets waited in the queues of the satellite link, as distributions."""
    series: list[Series] = []
    waits_ms = dict[str, list[float]]()
    for style, run in enumerate(runs):
        for direction, dash in (("forward", "solid"), ("return", "dot")):
            found = run.since_jobs("link_queue_p50_ms", direction=direction)
            waits = [value for _, value in found]
            if any(waits):
                label = f"{run.name}, {direction}" if len(runs) > 1 else direction
                series.append(replace(page.cumulative(label, waits, style), dash=dash))
                waits_ms[label] = waits
    if not series:
        return None
    scale = page.scale_of(map(max, waits_ms.values()))
    return Plot(
        key="waiting",
        title="Time in the queue: distribution",
        caption="Share of the intervals of the link's metrics in which packets waited at most this"
        " long in the queue, by the median of each interval. Solid: forward, dotted: return.",
        x=Axis("Time in the queue (ms)", from_zero=True, scale=scale),
        y=(Axis("Share of the intervals (%)", range=(0, 102)),),
        series=series,
        height=280 + 20 * len(series),
        table=page.percentiles("queue", "intervals", waits_ms),
    )


def lateness(runs: Sequence[RunSeries], limit_us: float | None) -> Plot | None:
    """Draw how late the emulator released packets."""
    series: list[Series] = []
    rows: list[tuple[str, ...]] = []
    for number, run in enumerate(runs):
        for direction, dash in (("forward", "solid"), ("return", "dot")):
            points = run.since_jobs("link_release_late_p99_us", direction=direction)
            if points:
                label = f"{run.name}, {direction}"
                drawn = line(label, points, number)
                series.append(replace(drawn, dash=dash, width=1.5, opacity=0.9))
                rows += [(label, f"{t:.1f}", f"{value:.1f}") for t, value in per_second(points)]
    if not series:
        return None
    caption = (
        "How late packets left the emulated link, 99th percentile per interval. Solid: forward,"
        " dotted: return."
    )
    if limit_us is not None:
        caption += f" Tolerance: {limit_us:g} µs for 99 of 100 packets of the scenario."
    marks = handover_marks(runs, series)
    head = ("run and direction", "time (s)", "p99, mean over 1 s (µs)")
    return Plot(
        key="lateness",
        title="Release error of the emulator",
        caption=caption + _in_words(marks),
        x=Axis(SINCE, from_zero=True),
        y=(Axis("Release error, p99 (µs)", scale="log"),),
        series=series,
        height=280 + 20 * len(series),
        table=page.Table(head, rows, numbers=all_but(head, 1)),
        marks=marks,
    )
