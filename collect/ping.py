# SPDX-License-Identifier: GPL-3.0-or-later
"""Echo requests to round-trip times (schemas/ping.schema.json)."""

import statistics
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "ping_json"
MAIN_METRICS = ("rtt_ms",)


class Ping(Model):
    """Echo requests of one job satlab_ping."""

    schema_: Literal["satlab/ping/1"] = Field(alias="schema")
    destination: str
    sent: int
    received: int
    rtt_ms: list[float] = Field(description="round-trip times in the order of the replies")
    start_unix_s: float


def records(ping: Ping, labels: Mapping[str, str]) -> list[Record]:
    """Return `rtt_ms` (label stat: median, min, max), `ping_sent_packets` and `ping_lost_packets`."""
    labels = {**labels, "destination": ping.destination, "source": "ping"}
    counts = [
        Record("ping_sent_packets", ping.sent, labels),
        Record("ping_lost_packets", ping.sent - ping.received, labels),
    ]
    if not ping.rtt_ms:
        return [
            failed("rtt_ms", {**labels, "stat": "median"}, f"none of {ping.sent} echoes came back"),
            *counts,
        ]
    figures = {
        "median": statistics.median(ping.rtt_ms),
        "min": min(ping.rtt_ms),
        "max": max(ping.rtt_ms),
    }
    n = str(len(ping.rtt_ms))
    return [
        *(
            Record("rtt_ms", value, {**labels, "stat": stat, "n": n})
            for stat, value in figures.items()
        ),
        *counts,
    ]
