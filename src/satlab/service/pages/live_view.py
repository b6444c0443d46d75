# SPDX-License-Identifier: GPL-3.0-or-later
"""The link on the page of an active run: the picture of the path, curves, time, host pressure."""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from satlab.openbach.engine import ScenarioStatus
from satlab.service.api.queue import Instance, Queue
from satlab.service.pages import live_queues, path_picture
from satlab.service.pages.charts import Chart, chart
from satlab.service.pages.live_activity import NOTHING, Activity
from satlab.service.pages.live_link import SATELLITE, TERRESTRIAL, Curves, Points
from satlab.service.pages.path_picture import FORWARD, PATH, Figures, Picture, Plan

MAX_PLAN_BYTES = 1 << 20
MOST_EARLIER = 100
MOST_KNOWN = 64
"""Earlier runs of the scenario in which equal ones are looked for; instances whose equal runs are
kept.
"""
PRESSURE = Path("/proc/pressure/cpu")
"""Pressure stall information of the kernel (Documentation/accounting/psi.rst)."""


@dataclass(frozen=True)
class LinkView:
    """The link of a run: its picture, the curves of the chosen hop and of the calibration.

    While it runs also queues, and what its nodes do.
    """

    pictures: tuple[Picture, ...]
    charts: tuple[Chart, ...]
    calibration: tuple[Chart, ...]
    queues: tuple[tuple[str, ...], ...] = ()
    queue_columns: tuple[str, ...] = live_queues.COLUMNS
    queue_text_columns: int = live_queues.TEXT_COLUMNS
    activity: Activity = NOTHING


def plan_of(folder: Path) -> Plan:
    """Return the link's plan of a run folder, {} if there is none."""
    try:
        with (folder / "plan.json").open("rb") as file:
            link = json.loads(file.read(MAX_PLAN_BYTES))["link"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return link if isinstance(link, dict) else {}


def scenario_start_s(curves: Curves, instance: Instance) -> float | None:
    """Return when the scenario began, s since the first sample; None before."""
    top = _top(instance)
    if top is None or top["start_unix_s"] is None or curves.start_unix_s is None:
        return None
    return max(0.0, float(top["start_unix_s"]) - curves.start_unix_s)


def link_view(
    curves: Curves,
    plan: Plan,
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
    queues = () if ended else tuple(curves.queues.rows())
    if start_s is None:
        return LinkView(
            pictures, _charts(curves, plan, hop, (0.0, None)), (), queues, activity=activity
        )
    calibration = _charts(curves, plan, hop, (0.0, start_s)) if start_s > 0 else ()
    return LinkView(
        pictures,
        _charts(curves, plan, hop, (start_s, None)),
        calibration,
        queues,
        activity=activity,
    )


def _charts(
    curves: Curves, plan: Plan, hop: str, span: tuple[float, float | None]
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


def overlaid(runs: Sequence[tuple[str, int, Curves, float | None]]) -> tuple[Chart, ...]:
    """Return charts of several runs: (name, number of its colour, curves, start of its scenario in
    s).
    """

    def of(value: Callable[[Curves], Points]) -> list[tuple[str, Points]]:
        return [
            (
                name,
                [
                    (t - (start_s or 0.0), amount)
                    for t, amount in value(curves)
                    if t >= (start_s or 0.0)
                ],
            )
            for name, _, curves, start_s in runs
        ]

    colours = [colour for _, colour, _, _ in runs]
    return (
        chart(
            "Forward link goodput",
            "Mbit/s",
            of(lambda curves: curves.rate_mbps(FORWARD)),
            colours=colours,
        ),
        chart(
            "Forward link queue", "kB", of(lambda curves: curves.queue_kb(FORWARD)), colours=colours
        ),
    )


def _capacity_mbps(curves: Curves, plan: Plan, direction: str) -> Points:
    """Return the capacity of a satellite direction over time as steps: it follows the MODCOD."""

    def capacity(modcod_id: int | None) -> float | None:
        found = path_picture.capacity_bps(plan, direction, modcod_id)
        return None if found is None else found / 1e6

    values = curves.points(direction, lambda counts: capacity(counts.modcod_id))
    half = curves.width_s / 2
    return [(t + side, value) for t, value in values for side in (-half, half)]


# --- time and host --------------------------------------------------------------------------------


class EarlierRuns:
    """How long equal runs took.

    Each instance is looked up once: no other one ends while it runs.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: OrderedDict[int, tuple[float, ...]] = OrderedDict()

    def durations(self, instance: Instance) -> tuple[float, ...]:
        """Return the durations of the scenario in equal runs (scenario, arguments, constants,
        link), s.
        """
        if instance.id not in self._known:
            took = (_duration(other) for other in _equal(self._queue, instance))
            self._known[instance.id] = tuple(seconds for seconds in took if seconds is not None)
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return self._known[instance.id]


def time_left(earlier: EarlierRuns, instance: Instance, now: float) -> str:
    """Return how long the scenario will still take, in words; '' if nothing is known of that.

    Equal runs took as long; without one, the argument `duration` counts.
    """
    top = _top(instance)
    if top is None or top["start_unix_s"] is None or instance.ended:
        return ""
    elapsed = now - float(top["start_unix_s"])
    durations = earlier.durations(instance)
    if durations:
        runs = "an equal run" if len(durations) == 1 else f"{len(durations)} equal runs"
        left = median(durations) - elapsed
        return f"about {_span(left)} left, as in {runs}" if left > 0 else f"longer than {runs} took"
    try:
        requested = float(instance.request.arguments["duration"])
    except (KeyError, ValueError):
        return ""
    return (
        f"at least {_span(requested - elapsed)} left of the requested {requested:g} s"
        if requested > elapsed
        else ""
    )


def _equal(queue: Queue, instance: Instance) -> Sequence[Instance]:
    found = queue.instances(instance.project, instance.scenario, limit=MOST_EARLIER)
    own = instance.request
    return [
        other
        for other in found
        if other.status is ScenarioStatus.FINISHED_OK
        and (other.request.arguments, other.request.documents) == (own.arguments, own.documents)
        and other.request.link.model_copy(update={"seed": own.link.seed}) == own.link
    ]


def _duration(instance: Instance) -> float | None:
    top = _top(instance)
    if top is None or top["start_unix_s"] is None or top.get("stop_unix_s") is None:
        return None
    return float(top["stop_unix_s"]) - float(top["start_unix_s"])


def _top(instance: Instance) -> dict[str, Any] | None:
    top = (instance.progress or {}).get("instance")
    return top if isinstance(top, dict) else None


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


def host_pressure(path: Path = PRESSURE) -> float | None:
    """Return the share of the last 10 s in which some task waited for a core, %; None where the
    kernel says nothing.
    """
    try:
        first = path.read_text().splitlines()[0]
        return float(first.partition("avg10=")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return None
