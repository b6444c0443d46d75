# SPDX-License-Identifier: GPL-3.0-or-later
"""Delay, jitter, losses, rate and voice quality of streams (schemas/stream.schema.json)."""

import statistics
from collections.abc import Mapping
from typing import Annotated, Literal

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
    discarded: int = Field(description="packets that came too late for the playout buffer")
    r: float = Field(description="rating of the E-model")
    mos: float = Field(ge=1, le=4.5)


class Quantity(Model):
    """The distribution from which a load's sender drew gaps or sizes."""

    distribution: Literal[
        "constant", "uniform", "exponential", "normal", "gamma", "pareto", "weibull"
    ]
    mean: float
    shape: float = Field(
        description="second parameter of the distribution; 0 for one with a single parameter"
    )


class Load(Model):
    """One side of a load."""

    flows: int = Field(ge=1)
    bytes: int = Field(ge=0, description="UDP payload that this side sent or received, bytes")
    active_s: float = Field(ge=0, description="time from the first to the last packet")
    seed: int | None = None
    late_ms: float | None = Field(
        default=None, description="largest delay of a packet behind its due time at the sender"
    )
    gap_ms: Quantity | None = None
    size_bytes: Quantity | None = None


class _Side(Model):
    schema_: Literal["satlab/stream/1"] = Field(alias="schema")
    start_unix_s: float
    sent: int = Field(ge=0)
    load: Load | None = None


class Sender(_Side):
    """The side that sends."""

    role: Literal["sender"]


class Receiver(_Side):
    """The side that receives and measures."""

    role: Literal["receiver"]
    received: int = Field(ge=0)
    duplicates: int = Field(ge=0)
    burst_ratio: float = Field(ge=1, description="BurstR of ITU-T G.107")
    jitter_ms: float = Field(ge=0, description="RFC 3550, section 6.4.1")
    owd_ms: list[float] = Field(description="one-way delays in the order of arrival")
    voice: Voice | None = None


Stream = Annotated[
    Sender | Receiver,
    Field(
        discriminator="role",
        description="One side of a stream of packets: at a constant rate (job satlab_stream), or a"
        " load (job satlab_load)",
    ),
]
ADAPTER: TypeAdapter[Sender | Receiver] = TypeAdapter(Stream)


def records(stream: Sender | Receiver, labels: Mapping[str, str]) -> list[Record]:
    """Return the receiver's figures. The sender adds only `stream_sent_packets`, or `load_sent_bps`
    for a load.

    `one_way_delay_ms` (label stat: median, min, p95, max), `stream_jitter_ms`, `stream_loss_ratio`;
    with a codec `mos` and `mouth_to_ear_ms`; of a load `load_received_bps`.
    """
    if isinstance(stream, Sender):
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
    """Return the rate of a load, bit/s; a single packet has no rate."""
    if load is None or load.active_s == 0:
        return []
    return [Record(metric, 8 * load.bytes / load.active_s, {**labels, "flows": str(load.flows)})]
