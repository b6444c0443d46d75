# SPDX-License-Identifier: GPL-3.0-or-later
"""Observed page loads: filmstrips side by side, and the phases of their requests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collect import PageObservation
from satlab.report.measurements import PageGroup
from satlab.report.page import (
    Axis,
    Filmstrip,
    Frame,
    Mark,
    Plot,
    Spans,
    Strip,
    Table,
    all_but,
)
from satlab.report.waterfall import (
    SINCE_NAVIGATION,
    Below,
    milliseconds,
    request_axes,
    request_height,
    short_name,
)

MOST_COLUMNS = 9


@dataclass(frozen=True)
class Phase:
    """A phase of a request: its field of a record, its name in words, colour and pattern."""

    field: str
    name: str
    colour: str
    pattern: str = ""


PHASES = (
    Phase("blocked_ms", "waits for a connection", "--c5", "."),
    Phase("dns_ms", "name", "--c4", "+"),
    Phase("connect_ms", "TCP", "--c2", "\\"),
    Phase("tls_ms", "TLS or QUIC", "--c6", "x"),
    Phase("send_ms", "sends", "--c4", "|"),
    Phase("wait_ms", "waits for the answer", "--c3", "/"),
    Phase("receive_ms", "receives", "--c1"),
)
"""The phases of a request in their order."""


@dataclass(frozen=True)
class NamedLoad:
    """An observed load, and the name of its page, protocol, proxy and run."""

    name: str
    load: PageObservation
    group: PageGroup


def typical(loads: Sequence[PageObservation]) -> PageObservation | None:
    """Return the load whose Speed Index is the median (of an even number the lower one); None if
    no load has one.
    """
    ended = [
        (load.speed_index_ms, load.load_index, load)
        for load in loads
        if load.speed_index_ms is not None
    ]
    ended.sort(key=lambda one: one[:2])
    return ended[(len(ended) - 1) // 2][2] if ended else None


def filmstrip(loads: Sequence[NamedLoad]) -> Filmstrip | None:
    """Return the filmstrips of loads up to the last change of the slowest; None without loads."""
    until_s = max((frame.t_ms / 1000 for one in loads for frame in one.load.frames), default=0.0)
    if until_s <= 0:
        return None
    steps = (factor * 10.0**power for power in range(-2, 5) for factor in (1, 2, 5))
    step_s = next(step for step in steps if math.ceil(until_s / step - 1e-9) < MOST_COLUMNS)
    times = [round(number * step_s, 3) for number in range(math.ceil(until_s / step_s - 1e-9) + 1)]
    strips = [
        Strip(
            one.name,
            f"{milliseconds(one.load.speed_index_ms)} ms",
            [_frame(one, t_s) for t_s in times],
        )
        for one in loads
    ]
    return Filmstrip([f"{t_s:g} s" for t_s in times], strips)


def _frame(one: NamedLoad, t_s: float) -> Frame:
    shown = [frame for frame in one.load.frames if frame.t_ms <= t_s * 1000 + 1e-6]
    share = shown[-1].visual_completeness if shown else 0.0
    jpeg = next((frame.jpeg for frame in reversed(shown) if frame.jpeg), None)
    label = f"{one.name} after {t_s:g} s: {share:.0%} of the final picture"
    return Frame(jpeg, f"{share:.0%}", label)


def phases(one: NamedLoad, number: int, until_s: float, below: Below) -> Plot:
    """Draw the phases of each request of a load as one bar, in the order in which the requests
    started, and what is below them.
    """
    load, requests = one.load, one.load.requests
    bars = []
    starts_ms = [request.start_ms for request in requests]
    for phase in PHASES:
        lengths_ms = [getattr(request, phase.field) or 0.0 for request in requests]
        bars.append(
            Spans(
                phase.name,
                list(range(1, len(requests) + 1)),
                [start / 1000 for start in starts_ms],
                [length / 1000 for length in lengths_ms],
                phase.colour,
                phase.pattern,
                texts=[short_name(request.url) for request in requests],
                hover=f"{phase.name}: %{{x:.3f}} s",
                in_legend=any(lengths_ms),
            )
        )
        starts_ms = [at + length for at, length in zip(starts_ms, lengths_ms, strict=True)]
    busy_ms = sum(length for _, length in load.long_tasks)
    names = [f"{phase.name} (ms)" for phase in PHASES]
    head = ("request", "type", "protocol", "priority", "connection", "start (ms)", *names)
    rows = [
        (
            short_name(request.url),
            request.type,
            request.protocol,
            request.priority,
            request.connection,
            milliseconds(request.start_ms),
            *(milliseconds(getattr(request, phase.field)) for phase in PHASES),
        )
        for request in requests
    ]
    return Plot(
        key=f"phases-{number}",
        title=f"Phases of requests over {one.name}",
        caption=f"Observed load {load.load_index} of {one.name}: phases of its {len(requests)}"
        f" requests over {len({request.connection for request in requests})} connections. Shaded:"
        f" tasks of the page above 50 ms ({len(load.long_tasks)}, {busy_ms:,.0f} ms). Pictures take"
        " CPU time: the times of observed loads are not among those of the others." + below.caption,
        x=Axis(SINCE_NAVIGATION, range=(0, until_s * 1.03)),
        y=request_axes([request.url for request in requests], below),
        series=[*bars, *below.series],
        height=request_height(len(requests), below),
        table=Table(head, rows, numbers=all_but(head, 1)),
        marks=[
            *(
                Mark("x", start / 1000, until=(start + length) / 1000)
                for start, length in load.long_tasks
            ),
            *below.marks,
        ],
        bars="overlay",
    )
