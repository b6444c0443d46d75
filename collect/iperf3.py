# SPDX-License-Identifier: GPL-3.0-or-later
"""iperf3's JSON (`-J`, iperf 3.7 and later) to goodput, window and RTT of bulk transfers.

Goodput is payload bits at the receiver per second, from the start of the first interval to the end
of the last, without connection set-up.

Each transfer leaves two documents. The client's document ends with the counts of both sides, so
summaries come from it. The intervals of each document hold that side's own counts: bytes at the
receiver; window, RTT and retransmits at the sender.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Discriminator, Tag, TypeAdapter

from collect.jobs import Job
from collect.raw import Unreadable
from collect.records import Record, failed

STAT = "iperf3_json"
MAIN_METRICS = ("goodput_bps",)

COMPLETE = 0.95
"""Share of the requested duration or bytes below which a transfer counts as broken off."""
STEADY_MIN_S = 4
"""A shorter transfer has no steady half."""


class _Iperf(BaseModel):
    """The fields that we use; newer versions of iperf3 add others."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class Request(_Iperf):
    """The request: `bytes` or `duration` (s), the other is 0."""

    protocol: str
    num_streams: int
    reverse: int
    duration: float
    bytes: int


class Timestamp(_Iperf):
    """When parameters were exchanged, whole seconds."""

    timesecs: int


class Start(_Iperf):
    """Head of a document; `connecting_to` is there at the client only."""

    connecting_to: dict[str, str | int] | None = None
    cookie: str
    timestamp: Timestamp
    test_start: Request


class Stream(_Iperf):
    """One flow over one interval; rtt in us. The sender's figures are None in the receiver's
    document.
    """

    socket: int
    snd_cwnd: int | None = None
    rtt: int | None = None
    retransmits: int | None = None


class Span(_Iperf):
    """All flows over a time; start and end in s since the transfer began.

    Packets are counted for UDP, retransmits for TCP.
    """

    start: float
    end: float
    seconds: float
    bytes: int
    retransmits: int | None = None
    packets: int | None = None
    lost_packets: int | None = None
    jitter_ms: float | None = None
    omitted: bool = False


class Interval(_Iperf):
    """One interval."""

    streams: list[Stream]
    sum: Span


class Cpu(_Iperf):
    """CPU use of this side, percent of one core."""

    host_total: float


class End(_Iperf):
    """Totals. `sum` is present for UDP only and has the receiver's losses."""

    sum_sent: Span
    sum_received: Span
    sum: Span | None = None
    cpu_utilization_percent: Cpu | None = None
    sender_tcp_congestion: str = ""


class Transfer(_Iperf):
    """One side's document."""

    start: Start
    intervals: list[Interval]
    end: End

    @property
    def at_client(self) -> bool:
        """Return whether the client wrote it."""
        return self.start.connecting_to is not None

    @property
    def at_sender(self) -> bool:
        """Return whether the sender of the payload wrote it."""
        return self.at_client != bool(self.start.test_start.reverse)


class Broken(_Iperf):
    """The document that iperf3 writes when it fails."""

    error: str


def _kind(document: object) -> str:
    return "broken" if isinstance(document, dict) and "error" in document else "transfer"


_Either = Annotated[
    Annotated[Broken, Tag("broken")] | Annotated[Transfer, Tag("transfer")], Discriminator(_kind)
]
ADAPTER: TypeAdapter[Transfer | Broken] = TypeAdapter(_Either)


@dataclass(frozen=True)
class Document:
    """A raw document and the job that stored it."""

    job: Job
    content: Transfer | Broken | Unreadable


def records(documents: Sequence[Document], run_start_unix_s: float) -> list[Record]:
    """Return summaries and series of all transfers of a run; t_s is accurate to half the set-up
    time, see `_origins`.
    """
    origins = _origins(documents)
    numbers = {cookie: str(number) for number, cookie in enumerate(origins, start=1)}
    found: list[Record] = []
    for document in documents:
        content, labels = document.content, document.job.labels
        if isinstance(content, Unreadable):
            found.append(failed("goodput_bps", labels, content.reason))
        elif isinstance(content, Broken):
            found.append(failed("goodput_bps", labels, f"iperf3: {content.error}"))
        else:
            cookie = content.start.cookie
            labels |= _transfer_labels(content, numbers[cookie])
            found += _transfer(content, labels, origins[cookie], run_start_unix_s)
    return found


def _transfer_labels(content: Transfer, number: str) -> dict[str, str]:
    """Return the labels that identify a transfer; both its sides have the same number."""
    request = content.start.test_start
    return {
        "transfer": number,
        "direction": "download" if request.reverse else "upload",
        "transport": request.protocol,
        "flows": str(request.num_streams),
        "congestion_control": content.end.sender_tcp_congestion,
    }


@dataclass(frozen=True)
class _Origin:
    """Start of a transfer's first interval, s since the epoch, and its uncertainty, s."""

    unix_s: float
    error_s: float


def _origins(documents: Sequence[Document]) -> dict[str, _Origin]:
    """Date each transfer (by cookie).

    iperf3 stamps whole seconds, some round trips before the first interval. The transfer lies
    between the stamp and the end of the client's job. The rest of that time is set-up and the
    exchange of results; the transfer is placed in the middle.
    """
    origins: dict[str, _Origin] = {}
    for document in documents:
        if not isinstance(document.content, Transfer):
            continue
        start = document.content.start
        earliest = max(document.job.start_unix_s, start.timestamp.timesecs)
        latest = document.job.stop_unix_s - document.content.end.sum_received.seconds
        if document.content.at_client and latest >= earliest:
            spare = latest - earliest
            origins[start.cookie] = _Origin(earliest + spare / 2, spare / 2)
        else:
            origins.setdefault(start.cookie, _Origin(start.timestamp.timesecs + 1.0, 1.0))
    return origins


def _transfer(
    transfer: Transfer, labels: Mapping[str, str], origin: _Origin, run_start_unix_s: float
) -> list[Record]:
    begin_s = origin.unix_s - run_start_unix_s
    intervals = [interval for interval in transfer.intervals if not interval.sum.omitted]
    found = _summaries(transfer, labels, origin) if transfer.at_client else []
    if transfer.at_sender:
        found += _window_summaries(intervals, labels) + _sender_series(intervals, labels, begin_s)
    else:
        found += _steady(intervals, labels)
        found += [
            Record("goodput_bps", i.sum.bytes * 8 / i.sum.seconds, labels, t_s=begin_s + i.sum.end)
            for i in intervals
            if i.sum.seconds > 0
        ]
    if transfer.end.cpu_utilization_percent:
        share = transfer.end.cpu_utilization_percent.host_total / 100
        found.append(Record("cpu_s", share * transfer.end.sum_sent.seconds, labels))
    return found


def _summaries(transfer: Transfer, labels: Mapping[str, str], origin: _Origin) -> list[Record]:
    received, sent = transfer.end.sum_received, transfer.end.sum_sent
    request = transfer.start.test_start
    if received.seconds <= 0 or received.bytes <= 0:
        return [failed("goodput_bps", labels, "no payload arrived")]
    complete = 1.0
    if request.bytes or request.duration:
        complete = (
            received.bytes / request.bytes if request.bytes else received.seconds / request.duration
        )
    goodput = received.bytes * 8 / received.seconds
    broken_off = f"broken off after {received.seconds:.1f} s and {received.bytes} bytes"
    return [
        Record("goodput_bps", goodput, labels)
        if complete >= COMPLETE
        else failed("goodput_bps", labels, broken_off),
        Record("received_bytes", received.bytes, labels),
        Record("transfer_time_s", received.seconds, labels),
        Record("completeness_ratio", min(complete, 1.0), labels),
        Record("series_clock_error_s", origin.error_s, labels),
        *(
            []
            if sent.retransmits is None
            else [Record("retransmits_count", sent.retransmits, labels)]
        ),
        *_datagrams(transfer.end.sum, labels),
    ]


def _datagrams(missed: Span | None, labels: Mapping[str, str]) -> list[Record]:
    if missed is None:
        return []
    figures = {
        "udp_sent_packets": missed.packets,
        "udp_lost_packets": missed.lost_packets,
        "udp_jitter_ms": missed.jitter_ms,
    }
    return [Record(metric, value, labels) for metric, value in figures.items() if value is not None]


def _steady(intervals: Sequence[Interval], labels: Mapping[str, str]) -> list[Record]:
    """Return the median of the whole 1 s windows in the second half of the transfer."""
    windows: dict[int, int] = {}
    for interval in intervals:
        middle = (interval.sum.start + interval.sum.end) / 2
        windows[int(middle)] = windows.get(int(middle), 0) + interval.sum.bytes
    total_s = intervals[-1].sum.end if intervals else 0.0
    if total_s < STEADY_MIN_S - 0.5:
        return []
    late = [
        bytes_ * 8
        for second, bytes_ in windows.items()
        if second >= total_s / 2 and second + 1 <= total_s + 0.05
    ]
    return [Record("goodput_steady_bps", statistics.median(late), {**labels, "window_s": "1"})]


def _sender_series(
    intervals: Sequence[Interval], labels: Mapping[str, str], begin_s: float
) -> list[Record]:
    found: list[Record] = []
    for interval in intervals:
        t_s = begin_s + interval.sum.end
        for number, stream in enumerate(interval.streams, start=1):
            own = {**labels, "flow": str(number)}
            if stream.snd_cwnd is not None:
                found.append(Record("cwnd_bytes", stream.snd_cwnd, own, t_s=t_s))
            if stream.rtt is not None:
                found.append(Record("tcp_rtt_ms", stream.rtt / 1000, own, t_s=t_s))
            if stream.retransmits is not None:
                found.append(Record("retransmits_count", stream.retransmits, own, t_s=t_s))
    return found


def _window_summaries(intervals: Sequence[Interval], labels: Mapping[str, str]) -> list[Record]:
    streams = [stream for interval in intervals for stream in interval.streams]
    windows = [stream.snd_cwnd for stream in streams if stream.snd_cwnd is not None]
    rtts = [stream.rtt / 1000 for stream in streams if stream.rtt]
    found: list[Record] = []
    if windows:
        found.append(Record("cwnd_max_bytes", max(windows), labels))
    if rtts:
        figures = {"median": statistics.median(rtts), "min": min(rtts), "max": max(rtts)}
        found += [
            Record("tcp_rtt_ms", value, {**labels, "stat": stat}) for stat, value in figures.items()
        ]
    return found
