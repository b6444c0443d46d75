# SPDX-License-Identifier: GPL-3.0-or-later
"""satperf's lines (schemas/satperf.schema.json) to goodput, timing, window and acknowledgements of
QUIC transfers.

Figures come from the client's file, which includes the server's lines. Goodput is payload in order
at the receiver, from the client's first packet to the last byte. Times of a series count from its
side's own time 0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from collect.raw import Model
from collect.records import Record, failed

STAT = "satperf_json"
MAIN_METRICS = ("goodput_bps",)
Side = Literal["client", "server"]


class _Line(BaseModel):
    """The fields that we use; satperf writes more."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)
    side: Side


class Options(BaseModel):
    """Options that a side uses."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    congestion_control: str
    initial_window: int
    ack_threshold: int | None


class Request(BaseModel):
    """The client's request."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    direction: Literal["download", "upload"]
    streams: int


class Start(_Line):
    """Head of a side's lines; `t_unix_s` is its time 0."""

    type: Literal["start"]
    role: Literal["sender", "receiver"]
    stack: str
    t_unix_s: float
    request: Request
    options: Options


class Interval(_Line):
    """One interval of about 0.1 s; `t_s` is its end, since the side's time 0."""

    type: Literal["interval"]
    t_s: float
    goodput_bps: float
    cwnd_bytes: int
    rtt_ms: float
    lost_packets: int


class Summary(_Line):
    """A side's totals."""

    type: Literal["summary"]
    status: Literal["ok", "failed"]
    reason: str
    t_s: float
    handshake_ms: float | None
    time_to_first_byte_ms: float | None
    bytes: int
    goodput_bps: float | None
    data_equal: bool | None
    lost_packets: int
    acks_sent: int | None
    acks_received: int | None
    retransmitted_share: float
    cpu_s: float


class Satperf(Model):
    """The file of one satperf."""

    schema_: Literal["satlab/satperf-run/1"] = Field(alias="schema")
    lines: list[Annotated[Start | Interval | Summary, Field(discriminator="type")]]


def records(run: Satperf, labels: Mapping[str, str], run_start_unix_s: float) -> list[Record]:
    """Return summaries and series of one client's transfer; nothing for a server's file."""
    starts = {line.side: line for line in run.lines if isinstance(line, Start)}
    sums = {line.side: line for line in run.lines if isinstance(line, Summary)}
    if "client" not in starts:
        return []
    receiver: Side = "client" if starts["client"].role == "receiver" else "server"
    sender: Side = "server" if receiver == "client" else "client"
    own = {
        **labels,
        "transfer": f"quic {labels.get('instance', '')}".strip(),
        "direction": starts["client"].request.direction,
        "transport": "QUIC",
        "flows": str(starts["client"].request.streams),
        "stack": starts["client"].stack,
        "congestion_control": starts[sender].options.congestion_control if sender in starts else "",
    }
    found = _summaries(sums, receiver, own)
    for side, start in starts.items():
        lines = [line for line in run.lines if isinstance(line, Interval) and line.side == side]
        begin_s = start.t_unix_s - run_start_unix_s
        found += _leg(start, sums.get(side), own)
        if side == receiver:
            found += [
                Record("goodput_bps", line.goodput_bps, own, t_s=begin_s + line.t_s)
                for line in lines
            ]
        else:
            found += _sent(lines, own, begin_s)
    return found


def _summaries(
    sums: Mapping[Side, Summary], receiver: Side, labels: Mapping[str, str]
) -> list[Record]:
    client, received = sums.get("client"), sums.get(receiver)
    if client is None or received is None:
        return [
            failed(
                "goodput_bps",
                labels,
                "the lines have no end: satperf was killed, or the server's are missing",
            )
        ]
    if client.status == "failed":
        return [failed("goodput_bps", labels, client.reason), *_timing(client, received, labels)]
    if received.data_equal is False:
        return [failed("goodput_bps", labels, "the payload that came is not the one that was sent")]
    if not received.goodput_bps:
        return [failed("goodput_bps", labels, "no payload arrived")]
    return [
        Record("goodput_bps", received.goodput_bps, labels),
        Record("received_bytes", received.bytes, labels),
        # The line itself is written later: the client waits for the server's lines.
        Record("transfer_time_s", 8 * received.bytes / received.goodput_bps, labels),
        *_timing(client, received, labels),
    ]


def _timing(client: Summary, received: Summary, labels: Mapping[str, str]) -> Iterator[Record]:
    """Yield the times of connection establishment and first byte, at the client, as the paper
    measures them.
    """
    times = {"connect_ms": client.handshake_ms, "ttfb_ms": received.time_to_first_byte_ms}
    for metric, value in times.items():
        yield (
            Record(metric, value, labels)
            if value is not None
            else failed(metric, labels, "never came")
        )


def _leg(start: Start, total: Summary | None, labels: Mapping[str, str]) -> Iterator[Record]:
    """Yield acknowledgements, losses and CPU time of one side, with its options."""
    if total is None:
        return
    own = {
        **labels,
        "side": start.side,
        "initial_window": str(start.options.initial_window),
        "ack_threshold": str(start.options.ack_threshold or ""),
    }
    if total.acks_sent is not None:
        yield Record("acks_sent_count", total.acks_sent, own)
    if total.acks_received is not None:
        yield Record("acks_received_count", total.acks_received, own)
    yield Record("quic_lost_packets", total.lost_packets, own)
    yield Record("retransmitted_ratio", total.retransmitted_share, own)
    yield Record("cpu_s", total.cpu_s, own)


def _sent(lines: Sequence[Interval], labels: Mapping[str, str], begin_s: float) -> Iterator[Record]:
    own = {**labels, "flow": "1"}
    for line in lines:
        t_s = begin_s + line.t_s
        yield Record("cwnd_bytes", line.cwnd_bytes, own, t_s=t_s)
        yield Record("quic_rtt_ms", line.rtt_ms, own, t_s=t_s)
        yield Record("quic_lost_packets", line.lost_packets, own, t_s=t_s)
