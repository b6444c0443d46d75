# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a run on its page: the picture of its path, and curves of its hops."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from pydantic import ValidationError

from satlab.link.plan import LinkPlan
from satlab.report import measurements as read
from satlab.report.page import Axis, Plot, Series, Table, per_second
from satlab.report.reported_run import ReportedRun
from satlab.service.api.queue import Instance
from satlab.service.pages import path_picture
from satlab.service.pages.link_curves import SATELLITE, TERRESTRIAL, Curves, Points
from satlab.service.pages.live_activity import NOTHING, Activity
from satlab.service.pages.path_picture import FORWARD, PATH, Figures, Picture

CHART_PX = 190
"""Height of a chart."""
Shown = tuple[float | None, float | None]
"""First and last time that are shown, s since the start of the scenario. None: that of the curves.
A negative time counts from their end.
"""
WHOLE: Shown = (None, None)


@dataclass(frozen=True)
class LinkView:
    """The link of a run: its picture, and the curves of the chosen hop and of the calibration.

    `span`: first and last time of the curves, s. During the run also the queues and the activity of
    the nodes.
    """

    pictures: tuple[Picture, ...]
    charts: tuple[Plot, ...]
    calibration: tuple[Plot, ...]
    span: tuple[float, float]
    queues: Table | None
    activity: Activity


def plan_of(folder: Path) -> LinkPlan | None:
    """Return the link's plan of a run folder, None if it cannot be read."""
    try:
        return LinkPlan.model_validate(read.plan(folder).get("link"))
    except ValidationError:
        return None


def scenario_start_s(curves: Curves, instance: Instance) -> float | None:
    """Return when the scenario began, s since the first sample; None before."""
    top = instance.tree
    if top is None or top["start_unix_s"] is None or curves.start_unix_s is None:
        return None
    return max(0.0, float(top["start_unix_s"]) - curves.start_unix_s)


def link_view(
    curves: Curves,
    plan: LinkPlan | None,
    start_s: float | None,
    *,
    ended: bool,
    hop: str,
    shown: Shown = WHOLE,
    activity: Activity = NOTHING,
) -> LinkView:
    """Return the view of a link. Times of the curves count from the start of the scenario.

    Before it they count from the start of the lab, and are those of the calibration.
    """
    pictures = path_picture.pictures(Figures(curves, plan, start_s, ended, activity))
    began_s = start_s or 0.0
    times = [t - began_s for t, _ in curves.rate_mbps(FORWARD)]
    span = _span(shown, max(times, default=0.0))
    return LinkView(
        pictures,
        _charts(_Cut(curves, began_s, *span), plan, hop, ended=ended),
        _charts(_Cut(curves, 0.0, 0.0, start_s), plan, hop, ended=True) if start_s else (),
        span,
        None if ended else curves.queues.table(),
        activity,
    )


def _span(shown: Shown, last_s: float) -> tuple[float, float]:
    """Return the first and last time that are shown, s; those of the curves if the range is empty."""
    last_s = max(last_s, 1.0)
    start_s, end_s = (
        usual if asked is None else asked + last_s if asked < 0 else asked
        for asked, usual in zip(shown, (0.0, last_s), strict=True)
    )
    start_s, end_s = max(start_s, 0.0), min(end_s, last_s)
    return (start_s, end_s) if start_s < end_s else (0.0, last_s)


@dataclass(frozen=True)
class _Cut:
    """Curves of a link between two times, s since `began_s`."""

    curves: Curves
    began_s: float
    start_s: float
    end_s: float

    def of(self, points: Points) -> Points:
        """Return the points between these times."""
        since = ((t - self.began_s, value) for t, value in points)
        return [(t, value) for t, value in since if self.start_s <= t <= self.end_s]


def _charts(cut: _Cut, plan: LinkPlan | None, hop: str, *, ended: bool) -> tuple[Plot, ...]:
    curves = cut.curves
    directions = (
        TERRESTRIAL if hop == path_picture.TERRESTRIAL else SATELLITE if hop == PATH else (hop,)
    )
    names = {direction: direction.replace("_", " ") for direction in directions}
    bounded = directions[0]
    rates = [(f"{names[each]} link", cut.of(curves.rate_mbps(each))) for each in directions]
    of = "forward capacity" if hop == PATH else "capacity"
    limit = (of, cut.of(_capacity_mbps(curves, plan, bounded)))
    made = Charts(ended=ended, key=f"{'end' if ended else 'live'}-{cut.began_s:g}", span=cut)
    made.add("Link goodput", "Mbit/s", rates, limit)
    queued = (FORWARD,) if hop == PATH else directions
    names = {each: "queue" if len(queued) == 1 else names[each] for each in queued}
    queues = [(names[each], cut.of(curves.queue_kb(each))) for each in queued]
    made.add("Forward link queue" if hop == PATH else "Queue", "kB", queues, colours=(3, 4))
    if hop != PATH:
        missing = [(each.replace("_", " "), cut.of(curves.missing(each))) for each in directions]
        made.add("Dropped or lost", "packets/s", missing, colours=(2, 4))
    if hop in SATELLITE:
        level = cut.of(curves.points(hop, lambda counts: counts.es_n0_db))
        needed = cut.of(curves.points(hop, lambda counts: counts.threshold_db))
        if level:
            made.add("Es/N0", "dB", [("Es/N0", level)], ("needed by the MODCOD", needed))
    return tuple(made.plots)


class Charts:
    """Collects charts over time. Their legends are texts beside them."""

    def __init__(self, *, ended: bool, key: str, span: _Cut | None = None) -> None:
        self.plots: list[Plot] = []
        self._ended, self._key = ended, key
        self._range = None if span is None else (span.start_s, span.end_s)

    def add(
        self,
        title: str,
        unit: str,
        curves: Sequence[tuple[str, Points]],
        limit: tuple[str, Points] | None = None,
        colours: Sequence[int] = (1, 2, 3, 4, 5, 6),
    ) -> None:
        """Add a chart of curves of (time in s, value), each with the number of its colour. The name
        of each has its last value, after the end its largest one.

        `limit` is a bound of the first curve, such as the capacity. The y axis contains 0.
        """
        lines = [
            _series(name, points, f"--c{colour}", unit, ended=self._ended)
            for colour, (name, points) in zip(cycle(colours), curves, strict=False)
        ]
        if limit is not None and limit[1]:
            lines.append(_series(*limit, "--muted", unit, ended=self._ended))
        plot = Plot(
            key=f"{self._key}-{title}",
            title=f"{title} ({unit})",
            caption=", ".join(one.name for one in lines),
            x=Axis("Time (s)", range=self._range, from_zero=True),
            y=(Axis("", from_zero=True),),
            series=lines,
            height=CHART_PX,
            table=Table(()),
            has_legend=False,
        )
        self.plots.append(plot)


def _series(name: str, points: Points, colour: str, unit: str, *, ended: bool) -> Series:
    values = [value for _, value in points]
    said = "nothing" if ended else "no sample yet"
    if values:
        said = f"max. {_quantity(max(values), unit)}" if ended else _quantity(values[-1], unit)
    dash = "dash" if colour == "--muted" else "solid"
    times = [t for t, _ in points]
    return Series(f"{name}: {said}", times, values, colour=colour, dash=dash)


def _quantity(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


@dataclass(frozen=True)
class Overlaid:
    """A run that is drawn over others: its name, the number of its colour, curves of its link, and
    its records.
    """

    name: str
    colour: int
    curves: Curves
    run: ReportedRun

    def of_link(self, points: Points) -> Points:
        """Return points of the link's curves with times since the first job."""
        began = self.run.manifest.started_unix_s + self.run.jobs_start_s
        start_s = max(0.0, began - (self.curves.start_unix_s or began))
        return [(t - start_s, value) for t, value in points if t >= start_s]

    def of_senders(self, metric: str, scale: float) -> list[Points]:
        """Return a series of each sender, means over 1 s with times since the first job."""
        series = read.series_by(self.run.frame, metric, "transfer", flow="1")
        start_s = self.run.jobs_start_s
        return [
            per_second([(t - start_s, value * scale) for t, value in points])
            for points in series.values()
        ]


def overlaid(runs: Sequence[Overlaid]) -> tuple[Plot, ...]:
    """Return charts of several runs, a colour for each: link and queue, and what senders of bulk
    transfers saw.
    """
    colours = [run.colour for run in runs]
    rates = [(run.name, run.of_link(run.curves.rate_mbps(FORWARD))) for run in runs]
    queues = [(run.name, run.of_link(run.curves.queue_kb(FORWARD))) for run in runs]
    made = Charts(ended=True, key="compare")
    made.add("Forward link goodput", "Mbit/s", rates, colours=colours)
    made.add("Forward link queue", "kB", queues, colours=colours)
    for title, unit, metric, scale in (
        ("Congestion window", "MB", "cwnd_bytes", 1e-6),
        ("RTT at the sender", "ms", "tcp_rtt_ms", 1.0),
    ):
        found = [
            (run, points) for run in runs for points in run.of_senders(metric, scale) if points
        ]
        if found:
            drawn = [(run.name, points) for run, points in found]
            made.add(title, unit, drawn, colours=[run.colour for run, _ in found])
    return tuple(made.plots)


def _capacity_mbps(curves: Curves, plan: LinkPlan | None, direction: str) -> Points:
    """Return the capacity of a satellite direction over time as steps: it follows the MODCOD."""

    def capacity(modcod_id: int | None) -> float | None:
        found = path_picture.capacity_bps(plan, direction, modcod_id, curves.terminals)
        return None if found is None else found / 1e6

    values = curves.points(direction, lambda counts: capacity(counts.modcod_id))
    half = curves.width_s / 2
    return [(t + side, value) for t, value in values for side in (-half, half)]
