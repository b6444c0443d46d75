# SPDX-License-Identifier: GPL-3.0-or-later
"""The best figures that physics allow over a link; a better one is a defect of the measurement.

The round trip is the link's shortest (plan: `rtt_ms.min`). A fresh connection takes one round trip
for the handshake of TCP (RFC 9293) or QUIC (RFC 9000), one for TLS 1.3 over TCP (RFC 8446), and one
for request and answer. A proxy may answer the handshake, never the request.

Payload crosses the link no faster than the payload of full-size UDP packets (plan:
`udp_goodput_bps`), because headers of TCP, QUIC and HTTP are larger. If slots are granted on
demand, the bound is the capacity of frames without packets' headers (plan: `rate_bps`), because the
plan cannot foresee how packets fill the slots.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from collect import link_plan
from collect.link_plan import LinkPlan
from collect.observed_page_loads import PageObservation
from collect.page_loads import PageLoad
from collect.pep import NO_PEP
from collect.raw import LINE_BYTES, LINES_BYTES, RefusedError, open_plain
from collect.records import Record

SLACK = 0.001
"""Relative, for times."""
SLACK_MS = 1.0
"""For the clocks of browser and host, and timers of the path."""
GOODPUT_SLACK = 0.005
"""Relative, for rates: intervals of a receiver begin and end between packets."""
BEFORE = "better than physics, a defect of the measurement"
Rates = Sequence[tuple[float, float]]
"""Pairs of start time (ms) and rate from then on (bit/s), ascending; the first starts at 0."""
_HANDSHAKES = {"h1": 1, "h2": 2, "h3": 1}
"""Round trips before a request."""


@dataclass(frozen=True)
class Floors:
    """Shortest round trip in ms; rates of payload by direction of a transfer (download, upload).

    `goodput_bps` is by direction and transport.
    """

    rtt_ms: float
    rates: Mapping[str, Rates]
    goodput_bps: Mapping[tuple[str, str], float]

    def least_ms(
        self, round_trips: float, payload_bytes: float = 0, direction: str = "download"
    ) -> float:
        """Return the shortest time for so many round trips and the payload after them, ms."""
        t_ms, rest = round_trips * self.rtt_ms, payload_bytes * 8e3
        for (_, bps), (until_ms, _) in pairwise([*self.rates[direction], (math.inf, 0.0)]):
            room = max(0.0, until_ms - t_ms) * bps
            if rest <= room:
                return t_ms + rest / bps
            t_ms, rest = max(t_ms, until_ms), rest - room
        return t_ms

    def time_fault(self, name: str, value_ms: float | None, least_ms: float) -> str:
        """Return why a time is impossible; empty if it is not."""
        if value_ms is None or value_ms >= least_ms * (1 - SLACK) - SLACK_MS:
            return ""
        trips = f"{least_ms / self.rtt_ms:.3g} round trips"
        return f"{BEFORE}: {name} {value_ms:,.1f} ms, at least {least_ms:,.1f} ms ({trips})"

    def goodput_fault(self, direction: str, transport: str, value_bps: float) -> str:
        most_bps = self.goodput_bps.get((direction, transport))
        if most_bps is None or value_bps <= most_bps * (1 + GOODPUT_SLACK):
            return ""
        return (
            f"{BEFORE}: {value_bps / 1e6:.3f} Mbit/s, the frames of the link carry"
            f" {most_bps / 1e6:.3f} Mbit/s"
        )


def of_link(link: Mapping[str, Any]) -> Floors:
    """Return the floors of a link plan (schemas/link-plan.schema.json).

    Raises pydantic.ValidationError.
    """
    return _floors(LinkPlan.model_validate(link))


def of_run(run_dir: Path) -> Floors | None:
    """Return the floors of a run; None if its plan cannot be read, or its link changed while it
    ran.
    """
    link = link_plan.of_run(run_dir)
    return None if link is None or _has_changes(run_dir / "raw") else _floors(link)


def _floors(link: LinkPlan) -> Floors:
    sides = {"download": link.forward, "upload": link.return_}
    goodput = {
        (name, transport): side.rate_bps if side.demand else one
        for name, side in sides.items()
        for transport, one in (
            ("TCP", side.tcp_goodput_bps),
            ("UDP", side.udp_goodput_bps),
            ("QUIC", side.udp_goodput_bps),
        )
    }
    return Floors(
        link.rtt_ms.min, {name: ((0.0, goodput[name, "UDP"]),) for name in sides}, goodput
    )


def _has_changes(raw: Path) -> bool:
    """Whether the emulator's metrics have a line of type `change`."""
    try:
        with open_plain(raw, "link.jsonl", LINES_BYTES) as file:
            lines = iter(lambda: file.readline(LINE_BYTES), b"")
            return any(b'"type":"change"' in line[:200].replace(b" ", b"") for line in lines)
    except (OSError, RefusedError):
        return False


# --- figures of a run -----------------------------------------------------------------------------


def load_fault(load: PageLoad, pep: str, floors: Floors) -> str:
    """Return why a page load is impossible; empty if it is not.

    The navigation must have opened its own connection: a connection opened ahead saves round trips.
    """
    before = 0 if pep != NO_PEP else _HANDSHAKES[load.protocol]
    connected_ms = None
    if load.connect_start_ms is not None and load.connect_end_ms is not None:
        connected_ms = load.connect_end_ms - load.connect_start_ms
    all_bytes = load.body_bytes if load.status == "ok" else 0
    further = 1 if load.status == "ok" and load.objects > 1 else 0
    first_ms = floors.least_ms(before + 1)
    whole_ms = max(floors.least_ms(before + 1 + further), floors.least_ms(before + 1, all_bytes))
    faults = (
        floors.time_fault("Response Start", load.response_start_ms, first_ms),
        floors.time_fault("First Contentful Paint", load.first_contentful_paint_ms, first_ms),
        floors.time_fault("Largest Contentful Paint", load.largest_contentful_paint_ms, first_ms),
        floors.time_fault("Page Load Time", load.page_load_time_ms, whole_ms),
        floors.time_fault(
            "connection of the navigation, opened before it", connected_ms, floors.least_ms(before)
        ),
    )
    return next(filter(None, faults), "")


def observation_fault(load: PageObservation, pep: str, floors: Floors) -> str:
    """Return why the Speed Index of an observed load is impossible; empty if it is not. No part of
    a page is visible before its first byte.
    """
    before = 0 if pep != NO_PEP else _HANDSHAKES[load.protocol]
    return floors.time_fault("Speed Index", load.speed_index_ms, floors.least_ms(before + 1))


def judged(
    records: Iterable[Record], floors: Floors | None, peps: Mapping[str, str]
) -> Iterator[Record]:
    """Yield the records of transfers; impossible records become failed ones.

    `peps`: by job instance, as `pep.during`.
    """
    for record in records:
        pep = peps.get(record.labels.get("instance", ""), NO_PEP)
        fault = "" if floors is None else _fault(record, floors, pep)
        yield replace(record, value=None, status="failed", reason=fault) if fault else record


def _fault(record: Record, floors: Floors, pep: str) -> str:
    if record.t_s is not None or record.value is None or record.status == "failed":
        return ""
    labels, before = record.labels, 0 if pep != NO_PEP else 1
    match record.metric:
        case "connect_ms":
            return floors.time_fault("connection", record.value, floors.least_ms(before))
        case "ttfb_ms" if labels.get("direction", "download") == "download":
            return floors.time_fault("first byte", record.value, floors.least_ms(before + 1))
        case "goodput_bps" if "direction" in labels:
            return floors.goodput_fault(
                labels["direction"], labels.get("transport", ""), record.value
            )
    return ""
