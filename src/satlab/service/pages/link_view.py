# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a run on its page: the picture of its path, and curves of its hops."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from satlab.link.plan import LinkPlan
from satlab.report import measurements as read
from satlab.report.page import Table, per_second
from satlab.report.reported_run import ReportedRun
from satlab.service.api.queue import Instance
from satlab.service.pages import path_picture
from satlab.service.pages.link_curves import SATELLITE, TERRESTRIAL, Curves, Points
from satlab.service.pages.live_activity import NOTHING, Activity
from satlab.service.pages.path_picture import FORWARD, PATH, Figures, Picture
from satlab.service.pages.svg_charts import Chart, chart


@dataclass(frozen=True)
class LinkView:
    """The link of a run: its picture, and the curves of the chosen hop and of the calibration.

    During the run also the queues and the activity of the nodes.
    """

    pictures: tuple[Picture, ...]
    charts: tuple[Chart, ...]
    calibration: tuple[Chart, ...]
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
    activity: Activity = NOTHING,
) -> LinkView:
    """Return the view of a link. Times of the curves count from the start of the scenario.

    Before it they count from the start of the lab, and are those of the calibration.
    """
    pictures = path_picture.pictures(Figures(curves, plan, start_s, ended, activity))
    return LinkView(
        pictures,
        _charts(curves, plan, hop, (start_s or 0.0, None)),
        _charts(curves, plan, hop, (0.0, start_s)) if start_s else (),
        None if ended else curves.queues.table(),
        activity,
    )


def _charts(
    curves: Curves, plan: LinkPlan | None, hop: str, span: tuple[float, float | None]
) -> tuple[Chart, ...]:
    def cut(points: Points) -> Points:
        start, end = span
        return [
            (t - start, value) for t, value in points if t >= start and (end is None or t < end)
        ]

    directions = (
        TERRESTRIAL if hop == path_picture.TERRESTRIAL else SATELLITE if hop == PATH else (hop,)
    )
    names = {direction: direction.replace("_", " ") for direction in directions}
    bounded = directions[0]
    rates = [(f"{names[each]} link", cut(curves.rate_mbps(each))) for each in directions]
    capacity = cut(_capacity_mbps(curves, plan, bounded))
    of = "forward capacity" if hop == PATH else "capacity"
    charts = [chart("Link goodput", "Mbit/s", rates, (of, capacity))]
    queued = (FORWARD,) if hop == PATH else directions
    queue_title = "Forward link queue" if hop == PATH else "Queue"
    names = {each: "queue" if len(queued) == 1 else names[each] for each in queued}
    charts.append(
        chart(
            queue_title,
            "kB",
            [(names[each], cut(curves.queue_kb(each))) for each in queued],
            colours=(3, 4),
        )
    )
    if hop != PATH:
        missing = [(each.replace("_", " "), cut(curves.missing(each))) for each in directions]
        charts.append(chart("Dropped or lost", "packets/s", missing, colours=(2, 4)))
    if hop in SATELLITE:
        level = cut(curves.points(hop, lambda counts: counts.es_n0_db))
        needed = cut(curves.points(hop, lambda counts: counts.threshold_db))
        if level:
            charts.append(
                chart("Es/N0", "dB", [("Es/N0", level)], ("needed by the MODCOD", needed))
            )
    return tuple(charts)


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


def overlaid(runs: Sequence[Overlaid]) -> tuple[Chart, ...]:
    """Return charts of several runs, a colour for each: link and queue, and what senders of bulk
    transfers saw.
    """
    colours = [run.colour for run in runs]
    rates = [(run.name, run.of_link(run.curves.rate_mbps(FORWARD))) for run in runs]
    queues = [(run.name, run.of_link(run.curves.queue_kb(FORWARD))) for run in runs]
    charts = [
        chart("Forward link goodput", "Mbit/s", rates, colours=colours),
        chart("Forward link queue", "kB", queues, colours=colours),
    ]
    for title, unit, metric, scale in (
        ("Congestion window", "MB", "cwnd_bytes", 1e-6),
        ("RTT at the sender", "ms", "tcp_rtt_ms", 1.0),
    ):
        found = [
            (run, points) for run in runs for points in run.of_senders(metric, scale) if points
        ]
        if found:
            drawn = [(run.name, points) for run, points in found]
            charts.append(chart(title, unit, drawn, colours=[run.colour for run, _ in found]))
    return tuple(charts)


def _capacity_mbps(curves: Curves, plan: LinkPlan | None, direction: str) -> Points:
    """Return the capacity of a satellite direction over time as steps: it follows the MODCOD."""

    def capacity(modcod_id: int | None) -> float | None:
        found = path_picture.capacity_bps(plan, direction, modcod_id, curves.terminals)
        return None if found is None else found / 1e6

    values = curves.points(direction, lambda counts: capacity(counts.modcod_id))
    half = curves.width_s / 2
    return [(t + side, value) for t, value in values for side in (-half, half)]
