# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws the emulated path: its nodes, and the present figures of its hops or, after the end, their
figures over the scenario.

Positions are in units of the SVG's view box. No I/O.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from satlab.link import modcods
from satlab.link.plan import ForwardPlan, LinkPlan, ReturnPlan
from satlab.service.pages.link_curves import SATELLITE, Counts, Curves
from satlab.service.pages.live_activity import NOTHING, Activity, size

Place = Literal["wide", "tall"]

NODES = ("client", "Proxy-ST", "ST", "SAT", "GW", "Proxy-GW", "server")
PATH, FORWARD, RETURN, TERRESTRIAL = "", "forward", "return", "terrestrial"
HOPS = (PATH, FORWARD, RETURN, TERRESTRIAL)
"""The hops whose curves can be chosen; the first entry is the whole path."""

MOST_WINDOWS = 2
"""Flows whose window is in the picture, as far as the box of the path has lines for them:
MOST_LINES.
"""
MOST_LINES = 4

_WIDE_NODES = ((56, 100), (186, 100), (316, 100), (490, 34), (664, 100), (794, 100), (1024, 100))
_WIDE_BOXES = {PATH: (12, 150), RETURN: (279, 150), FORWARD: (546, 150), TERRESTRIAL: (813, 150)}
_WIDE_LEADERS = {
    RETURN: (403, 67, 403, 150),
    FORWARD: (577, 67, 577, 150),
    TERRESTRIAL: (909, 100, 909, 150),
}
_TALL_NODES = ((50, 30), (50, 92), (50, 154), (50, 262), (50, 370), (50, 432), (50, 556))
_TALL_BOXES = {PATH: (116, 14), RETURN: (116, 146), FORWARD: (116, 270), TERRESTRIAL: (116, 440)}
_TALL_LEADERS = {
    RETURN: (50, 208, 116, 208),
    FORWARD: (50, 316, 116, 316),
    TERRESTRIAL: (50, 494, 116, 494),
}


@dataclass(frozen=True)
class Node:
    """A node: name and centre, and the CPU time of its programs in words, '' if it is not known."""

    name: str
    x: int
    y: int
    cpu: str = ""


@dataclass(frozen=True)
class Box:
    """A box with the figures of a hop: title, lines of text, and used share of the capacity (0 to
    1, None if unknown).

    `x`, `y` is the corner of the box, `leader` the line from the hop to the box (x1, y1, x2, y2).
    """

    hop: str
    title: str
    lines: tuple[str, ...]
    share: float | None
    x: int
    y: int
    leader: tuple[int, int, int, int] | None


@dataclass(frozen=True)
class Picture:
    """A picture of `width` by `height`."""

    place: Place
    width: int
    height: int
    nodes: tuple[Node, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Figures:
    """The figures in the picture.

    `plan`: None if it cannot be read. `start_s`: start of the scenario, s since the first sample, None before it.
    """

    curves: Curves
    plan: LinkPlan | None
    start_s: float | None
    ended: bool
    activity: Activity = NOTHING

    def since_start(self, direction: str) -> tuple[Counts, float]:
        """Return the sum over the scenario, before it over everything, and its duration in s."""
        return self.curves.total(direction, self.start_s or 0.0)

    def shown(self, direction: str) -> tuple[Counts, float]:
        """Return the last bin, after the end the sum over the scenario; and its duration in s."""
        return self.since_start(direction) if self.ended else self.curves.last(direction)

    def capacity_bps(self, direction: str) -> float | None:
        """Return the rate that the direction of the satellite link has now, None if it is not
        known.
        """
        number = self.shown(direction)[0].modcod_id
        return capacity_bps(self.plan, direction, number, self.curves.terminals)

    def queue_ms(self, direction: str) -> float:
        """Return how long the shown queue takes to be sent, ms; 0 where the capacity is not known."""
        capacity = self.capacity_bps(direction)
        return self.shown(direction)[0].queue * 8e3 / capacity if capacity else 0.0


def pictures(figures: Figures) -> tuple[Picture, Picture]:
    """Return the picture for wide and for narrow pages."""
    texts = {hop: _texts(figures, hop) for hop in (PATH, RETURN, FORWARD, TERRESTRIAL)}
    names = [
        (_node_name(name, figures.curves.terminals), figures.activity.cpu(name)) for name in NODES
    ]
    return (
        _picture("wide", (1080, 278), names, texts, (_WIDE_NODES, _WIDE_BOXES, _WIDE_LEADERS)),
        _picture("tall", (382, 588), names, texts, (_TALL_NODES, _TALL_BOXES, _TALL_LEADERS)),
    )


def segment_of(plan: LinkPlan | None, direction: str) -> ForwardPlan | ReturnPlan | None:
    """Return the plan of a direction of the satellite link; None of others, and without a plan."""
    if plan is None or direction not in SATELLITE:
        return None
    return plan.forward if direction == FORWARD else plan.return_


def capacity_bps(
    plan: LinkPlan | None, direction: str, modcod_id: int | None, terminals: int = 1
) -> float | None:
    """Return the rate of a direction of the satellite link with a MODCOD (None: the plan's), bit/s
    of frame payload of all terminals together.

    On the return link equal terminals have as many slots each, or share those on demand. Its
    capacity is not known with another waveform than the plan's, and for several terminals that
    differ.
    """
    segment = segment_of(plan, direction)
    if plan is None or segment is None:
        return None
    if direction != FORWARD and terminals > 1:
        return _shared_bps(plan, modcod_id, terminals)
    if modcod_id in (None, segment.modcod_id):
        return segment.rate_bps
    if modcod_id is None or direction != FORWARD:
        return None
    return modcods.forward_rate_bps(segment.model_dump(), modcod_id)


def _shared_bps(plan: LinkPlan, modcod_id: int | None, terminals: int) -> float | None:
    """Return the rate of the return link of several equal terminals; None of others."""
    back = plan.return_
    if plan.terminals or modcod_id not in (None, back.modcod_id):
        return None
    if isinstance(back, ReturnPlan) and back.demand is not None:
        return back.rate_bps * back.demand.carrier_slots / back.slots_per_superframe
    return back.rate_bps * terminals


def _picture(
    place: Place,
    size: tuple[int, int],
    names: list[tuple[str, str]],
    texts: Mapping[str, tuple[str, tuple[str, ...], float | None]],
    layout: tuple[
        tuple[tuple[int, int], ...],
        Mapping[str, tuple[int, int]],
        Mapping[str, tuple[int, int, int, int]],
    ],
) -> Picture:
    centres, corners, leaders = layout
    nodes = tuple(
        Node(name, *centre, cpu) for (name, cpu), centre in zip(names, centres, strict=True)
    )
    boxes = tuple(Box(hop, *texts[hop], *corners[hop], leaders.get(hop)) for hop in corners)
    return Picture(place, *size, nodes, boxes)


def _node_name(name: str, terminals: int) -> str:
    return f"{name} ×{terminals}" if terminals > 1 and name in ("client", "ST") else name  # noqa: RUF001


def _texts(figures: Figures, hop: str) -> tuple[str, tuple[str, ...], float | None]:
    """Return title, lines and share of capacity of a hop."""
    if hop == PATH:
        return "Path, client to server", tuple(_path_lines(figures))[:MOST_LINES], None
    if hop == TERRESTRIAL:
        delay = figures.plan.terrestrial_one_way_delay_ms if figures.plan else None
        return f"Terrestrial{_delay(delay)}", tuple(_terrestrial_lines(figures)), None
    segment = segment_of(figures.plan, hop)
    name = "Forward link" if hop == FORWARD else "Return link"
    title = name + _delay(segment.one_way_delay_ms if segment else None)
    counts, seconds = figures.shown(hop)
    capacity = figures.capacity_bps(hop)
    share = min(1.0, counts.bytes * 8 / seconds / capacity) if capacity and seconds else None
    return title, tuple(_satellite_lines(figures, hop)), share


def _satellite_lines(figures: Figures, hop: str) -> Iterator[str]:
    if hop not in figures.curves.measured:
        yield "not measured: satlink does not carry it"
        return
    counts, seconds = figures.shown(hop)
    capacity = figures.capacity_bps(hop)
    mean, longest = ("mean ", "longest queue") if figures.ended else ("", "queue")
    of = f" of {_mbits(capacity)}" if capacity else ""
    yield f"{mean}{_mbits(counts.bytes * 8 / seconds if seconds else 0.0)}{of} Mbit/s"
    wait = f", {figures.queue_ms(hop):.0f} ms" if capacity else ""
    yield f"{longest} {size(counts.queue)}{wait}"
    yield _missing(figures.since_start(hop)[0])
    yield _quality(segment_of(figures.plan, hop), hop, counts)


def _terrestrial_lines(figures: Figures) -> Iterator[str]:
    missing = Counts()
    for direction, to in (("terrestrial_down", "client"), ("terrestrial_up", "server")):
        counts, seconds = figures.shown(direction)
        yield f"to the {to} {_mbits(counts.bytes * 8 / seconds if seconds else 0.0)} Mbit/s"
        missing.add(figures.since_start(direction)[0])
    yield _missing(missing)


def _path_lines(figures: Figures) -> Iterator[str]:
    queues = sum(figures.queue_ms(direction) for direction in (FORWARD, RETURN))
    if figures.plan:
        idle = figures.plan.rtt_ms.mean
        yield f"round trip {'up to' if figures.ended else 'about'} {idle + queues:.0f} ms"
        yield f"{idle:.0f} ms without queues"
    else:
        yield f"queues add {queues:.0f} ms"
    if figures.curves.terminals > 1:
        yield f"{figures.curves.terminals} terminals share the link"
    yield from figures.activity.windows[:MOST_WINDOWS]


def _quality(segment: ForwardPlan | ReturnPlan | None, hop: str, counts: Counts) -> str:
    """Return MODCOD or waveform and Es/N0 in words."""
    number, level = counts.modcod_id, counts.es_n0_db
    if segment and level is None:
        level = segment.es_n0_db
    if segment and number in (None, segment.modcod_id):
        name = segment.modcod
    elif number is not None:
        name = modcods.name(number) if hop == FORWARD else f"waveform {number}"
    else:
        return "MODCOD not known"
    return name if level is None else f"{name}, Es/N0 {level:.1f} dB"


def _delay(delay_ms: float | None) -> str:
    return "" if delay_ms is None else f", {delay_ms:g} ms delay"


def _missing(counts: Counts) -> str:
    return f"{counts.lost:,} lost, {counts.dropped:,} dropped"


def _mbits(rate_bps: float) -> str:
    value = rate_bps / 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
