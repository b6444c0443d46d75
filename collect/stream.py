# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of packets and loads (schemas/stream.schema.json): one-way delay, jitter, losses, rate,
voice quality.
"""

import statistics
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, TypeAdapter

from collect.raw import Model
from collect.records import Record, failed

STAT = "stream_json"
MAIN_METRICS = ("one_way_delay_ms",)


class Voice(Model):
    """The E-model's verdict (ITU-T G.107)."""

    codec: str
    playout_ms: float
    mouth_to_ear_ms: float
    discarded: int
    r: float
    mos: float


class Quantity(Model):
    """What a load's sender drew gaps or sizes from."""

    distribution: str
    mean: float
    shape: float


class Load(Model):
    """One side of a load: UDP payload, and how long it took from the first to the last packet."""

    flows: int = Field(ge=1)
    bytes: int = Field(ge=0)
    active_s: float = Field(ge=0)
    seed: int | None = None
    late_ms: float | None = None
    gap_ms: Quantity | None = None
    size_bytes: Quantity | None = None


class Stream(Model):
    """One side of a stream. One-way delays in ms, in the order of arrival; the sender has none."""

    schema_: Literal["satlab/stream/1"] = Field(alias="schema")
    role: Literal["sender", "receiver"]
    start_unix_s: float
    sent: int = Field(ge=0)
    received: int = 0
    duplicates: int = 0
    burst_ratio: float = 1.0
    jitter_ms: float = 0.0
    owd_ms: list[float] = Field(default_factory=list)
    voice: Voice | None = None
    load: Load | None = None


ADAPTER: TypeAdapter[Stream] = TypeAdapter(Stream)


def records(stream: Stream, labels: Mapping[str, str]) -> list[Record]:
    """Return what the receiver measured; of the sender only `stream_sent_packets`, and of a load
    `load_sent_bps`.

    `one_way_delay_ms` (label stat: median, min, p95, max), `stream_jitter_ms`, `stream_loss_ratio`;
    with a codec `mos` and `mouth_to_ear_ms`; of a load `load_received_bps`.
    """
    if stream.role == "sender":
        return [
            Record("stream_sent_packets", stream.sent, labels),
            *_rate("load_sent_bps", stream.load, labels),
        ]
    if not stream.owd_ms or stream.received > stream.sent:
        return [
            failed(
                "one_way_delay_ms",
                {**labels, "stat": "median"},
                f"{stream.received} of {stream.sent} packets",
            )
        ]
    ordered = sorted(stream.owd_ms)
    figures = {"median": statistics.median(ordered), "min": ordered[0], "max": ordered[-1]}
    figures["p95"] = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    found = [
        Record("one_way_delay_ms", value, {**labels, "stat": stat, "n": str(len(ordered))})
        for stat, value in figures.items()
    ]
    found.append(Record("stream_jitter_ms", stream.jitter_ms, labels))
    found.append(Record("stream_loss_ratio", 1 - stream.received / stream.sent, labels))
    found += _rate("load_received_bps", stream.load, labels)
    if stream.voice is not None:
        about = {**labels, "codec": stream.voice.codec}
        found.append(Record("mos", stream.voice.mos, about))
        found.append(Record("mouth_to_ear_ms", stream.voice.mouth_to_ear_ms, about))
    return found


def _rate(metric: str, load: Load | None, labels: Mapping[str, str]) -> list[Record]:
    """Return the rate of a load; a single packet has none."""
    if load is None or load.active_s == 0:
        return []
    return [Record(metric, 8 * load.bytes / load.active_s, {**labels, "flows": str(load.flows)})]
