# SPDX-License-Identifier: GPL-3.0-or-later
"""iperf3's JSON (`-J`, iperf 3.7 and later) to goodput, window and RTT of bulk transfers.

Goodput is payload bits at the receiver per second, from the start of the first interval to the end
of the last, without connection set-up.

Each transfer leaves two documents. The client's document ends with the counts of both sides, so
summaries come from it. The intervals of each document hold that side's own counts: bytes at the
receiver; window, RTT and retransmits at the sender.

Lost datagrams are those that the receiver counted. A sender of 3.14 and later reads the count of
an older receiver as 0 (esnet/iperf, issue 2055), so its document alone can leave the losses
unknown. Before 3.11 a document of UDP has one total, and its bytes are those that were sent.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Tag,
    TypeAdapter,
    model_validator,
)

from collect.jobs import Job
from collect.raw import Unreadable
from collect.records import Record, failed

STAT = "iperf3_json"
MAIN_METRICS = ("goodput_bps",)
JOBS = ("satlab_iperf3", "satlab_rrul")
"""Jobs that store such documents."""

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
    blksize: int = 0
    """UDP: payload of a datagram."""


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
    """Totals. `sum` is present for UDP only, alone before 3.11: time and losses of the receiver,
    bytes and datagrams of the sender.
    """

    sum_sent: Span | None = None
    sum_received: Span | None = None
    sum: Span | None = None
    cpu_utilization_percent: Cpu | None = None
    sender_tcp_congestion: str = ""

    @model_validator(mode="after")
    def _has_totals(self) -> "End":
        if self.sum is None and (self.sum_sent is None or self.sum_received is None):
            raise ValueError("neither sum_sent and sum_received nor sum are there")
        return self

    @property
    def sent(self) -> Span:
        """Return what was sent."""
        return next(span for span in (self.sum_sent, self.sum) if span is not None)

    @property
    def received(self) -> Span:
        """Return what arrived; with `sum` alone its bytes are those that were sent."""
        return next(span for span in (self.sum_received, self.sum) if span is not None)


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

    @property
    def measured(self) -> "list[Interval]":
        """Return the intervals that count."""
        return [interval for interval in self.intervals if not interval.sum.omitted]


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
    transfers = [one.content for one in documents if isinstance(one.content, Transfer)]
    receivers = {one.start.cookie: one for one in transfers if not one.at_sender}
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
            found += _transfer(
                content, receivers.get(cookie), labels, origins[cookie], run_start_unix_s
            )
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
        latest = document.job.stop_unix_s - document.content.end.received.seconds
        if document.content.at_client and latest >= earliest:
            spare = latest - earliest
            origins[start.cookie] = _Origin(earliest + spare / 2, spare / 2)
        else:
            origins.setdefault(start.cookie, _Origin(start.timestamp.timesecs + 1.0, 1.0))
    return origins


def _transfer(
    transfer: Transfer,
    receiver: Transfer | None,
    labels: Mapping[str, str],
    origin: _Origin,
    run_start_unix_s: float,
) -> list[Record]:
    """Return the records of one side's document; `receiver` is the receiver's, if it is there."""
    begin_s = origin.unix_s - run_start_unix_s
    intervals = transfer.measured
    found = _summaries(transfer, receiver, labels, origin) if transfer.at_client else []
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
        found.append(Record("cpu_s", share * transfer.end.sent.seconds, labels))
    return found


def _summaries(
    transfer: Transfer, receiver: Transfer | None, labels: Mapping[str, str], origin: _Origin
) -> list[Record]:
    received, sent = transfer.end.received, transfer.end.sent
    arrived_bytes = _arrived_bytes(transfer, receiver)
    request = transfer.start.test_start
    if arrived_bytes is None:
        reason = (
            "iperf3 before 3.11 does not say at the sender what arrived: needs the receiver's file"
        )
        return [failed("goodput_bps", labels, reason), *_datagrams(transfer, receiver, labels)]
    if received.seconds <= 0 or arrived_bytes <= 0:
        return [failed("goodput_bps", labels, "no payload arrived")]
    complete = 1.0
    if request.bytes or request.duration:
        complete = (
            arrived_bytes / request.bytes if request.bytes else received.seconds / request.duration
        )
    goodput = arrived_bytes * 8 / received.seconds
    broken_off = f"broken off after {received.seconds:.1f} s and {arrived_bytes} bytes"
    return [
        Record("goodput_bps", goodput, labels)
        if complete >= COMPLETE
        else failed("goodput_bps", labels, broken_off),
        Record("received_bytes", arrived_bytes, labels),
        Record("transfer_time_s", received.seconds, labels),
        Record("completeness_ratio", min(complete, 1.0), labels),
        Record("series_clock_error_s", origin.error_s, labels),
        *(
            []
            if sent.retransmits is None
            else [Record("retransmits_count", sent.retransmits, labels)]
        ),
        *_datagrams(transfer, receiver, labels),
    ]


def _arrived_bytes(transfer: Transfer, receiver: Transfer | None) -> int | None:
    """Return the payload that arrived; None where no document says it."""
    if transfer.end.sum_received is not None:
        return transfer.end.sum_received.bytes
    if receiver is None:
        return None
    if receiver.end.sum_received is not None:
        return receiver.end.sum_received.bytes
    return sum(interval.sum.bytes for interval in receiver.measured)


def _datagrams(
    transfer: Transfer, receiver: Transfer | None, labels: Mapping[str, str]
) -> list[Record]:
    """Return what was sent and lost, by the client's document and the receiver's; none for TCP."""
    total = transfer.end.sum
    if total is None:
        return []
    found: list[Record] = []
    sent = _sent_datagrams(transfer)
    if sent is not None:
        found.append(Record("udp_sent_packets", sent, labels))
    lost = _lost(receiver.end) if receiver is not None else _lost_by_sender(transfer)
    if isinstance(lost, str):
        found.append(failed("udp_lost_packets", labels, lost))
    else:
        found.append(Record("udp_lost_packets", lost, labels))
    jitter_ms = (receiver or transfer).end.received.jitter_ms
    if jitter_ms is not None:
        found.append(Record("udp_jitter_ms", jitter_ms, labels))
    return found


def _sent_datagrams(transfer: Transfer) -> int | None:
    """Return the datagrams that were sent. A client of 3.14 that received has 0 there, beside the
    sender's bytes; `sum` has the number of the last that arrived.
    """
    sent, blksize = transfer.end.sum_sent, transfer.start.test_start.blksize
    if sent is not None and blksize:
        return sent.bytes // blksize
    return None if transfer.end.sum is None else transfer.end.sum.packets


def _lost(end: End) -> int | str:
    """Return the lost datagrams that a document names, or why that number cannot be right."""
    total = end.sum or end.received
    if total.lost_packets is None:
        return "iperf3 does not say how many datagrams were lost"
    if total.lost_packets < 0 or total.lost_packets > (total.packets or 0):
        return f"iperf3 says that {total.lost_packets} of {total.packets} datagrams were lost"
    return total.lost_packets


def _lost_by_sender(transfer: Transfer) -> int | str:
    """Return the lost datagrams by the document of a client that sent, or why they are unknown.

    The receiver's count of datagrams is the highest number that arrived (iperf_udp_recv). So what
    is missing of them was lost. Datagrams after that number were lost or under way at the end.
    """
    lost = _lost(transfer.end)
    received, blksize = transfer.end.sum_received, transfer.start.test_start.blksize
    if isinstance(lost, str) or lost or received is None or not received.packets or not blksize:
        return lost
    arrived = received.bytes // blksize
    if received.packets > arrived:
        return received.packets - arrived
    sent = transfer.end.sent.packets or 0
    if sent > arrived:
        return (
            f"{sent} datagrams sent, {arrived} arrived, and iperf3 says that 0 were lost: only the"
            " receiver's file would tell"
        )
    return lost


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
