# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer in the qlog file of one endpoint: packets, losses, retransmissions, the sender's
states, and its flows over time.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from pydantic import ConfigDict, with_config

from satlab.check.trace import careful_resume, time_sequence
from satlab.check.trace.causes import DATAGRAM_BYTES, Supply
from satlab.check.trace.qlog import Event, QlogError, QlogFile, as_number, number
from satlab.check.trace.qlog_names import CREDITS, FIELDS, FRAMES, METRICS, UNUSED_EVENTS, WINDOWS
from satlab.check.trace.request_streams import RequestStreams
from satlab.check.trace.time_sequence import Flow, StreamRange

_HEX = re.compile(r"(?:0x)?[0-9a-f]{1,16}", re.ASCII | re.IGNORECASE)
_CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False)
"""For what another process has read (`qlog_reader`)."""
MIN_INTERVAL_S = 0.05
"""Shortest time between two states, s."""
MAX_POINTS = 100_000
ARRIVAL_INTERVAL_S = 0.01
"""Shortest time between two entries of `arrivals`, s."""
PAUSE_S = 0.2
"""After so long without an event, s, its end is a state of its own: nothing changed until then."""
MAX_GAPS = 10_000
"""Largest number of gaps in the received ranges of a stream. A transfer has a few after a burst of
losses.
"""
MAX_NAMES = 1000
"""Largest number of unknown names of fields; a program has a few of its own."""
MAX_STREAMS = 10_000
"""Further streams are ignored; a transfer has a few."""


@with_config(_CHECKED)
@dataclass(frozen=True)
class SenderPoint:
    """A sender's state at `t_s` by its own clock; see causes.SenderState."""

    t_s: float
    cwnd_bytes: float
    in_flight_bytes: float
    is_slow_start: bool
    rtt_ms: float
    lost_packets: int
    supply: Supply
    pacing_bps: float | None = None
    is_app_limited: bool = False
    ack_ms: float | None = None


@with_config(_CHECKED)
@dataclass
class Counts:
    """What a file's figures do not rest on: `damaged` records, and events, names of fields, and
    frames that satlab does not know.
    """

    damaged: int = 0
    events: int = 0
    fields: int = 0
    frames: int = 0

    @property
    def text(self) -> str:
        """The counts in brackets; empty without any."""
        named = {
            "damaged record": self.damaged,
            "unknown event": self.events,
            "unknown field": self.fields,
            "unknown frame": self.frames,
        }
        known = ", ".join(
            f"{count} {name}{'s' if count > 1 else ''}" for name, count in named.items() if count
        )
        return f" (left out: {known})" if known else ""


@with_config(_CHECKED)
@dataclass
class QlogTransfer:
    """A connection in the qlog of one endpoint.

    Times in s by that endpoint's clock; None for what never happened.
    """

    first_sent_s: float | None = None
    first_received_s: float | None = None
    first_short_received_s: float | None = None
    """The first packet with a short header."""
    first_stream_received_s: float | None = None
    """The first bytes of a request stream."""
    last_new_received_s: float | None = None
    """The last bytes of a request stream that had not arrived before."""
    received_bytes: float = 0
    """Of request streams, each byte once."""
    arrivals: list[tuple[float, float]] = field(default_factory=list)
    """Times, and `received_bytes` then."""
    points: list[SenderPoint] = field(default_factory=list)
    resumption: list[Event] = field(default_factory=list)
    """Changes of the phase of Careful Resume."""
    sent_packets: int = 0
    lost_packets: int = 0
    stream_bytes: float = 0
    """Sent, including `retransmitted_bytes`."""
    retransmitted_bytes: float = 0
    has_frames: bool = False
    """Whether the writer logs the frames of packets; quinn does not."""
    packet_bytes: float = 0
    """Sent in packets with a short header."""
    flows: list[Flow] = field(default_factory=list)
    """What this side sent, over time; packets with a short header alone."""
    counts: Counts = field(default_factory=Counts)

    @property
    def new_bytes(self) -> float:
        """Stream bytes that were sent at least once."""
        return self.stream_bytes - self.retransmitted_bytes

    @property
    def payload_bytes(self) -> float:
        """Stream bytes; those of 1-RTT packets where no frames are logged."""
        return self.new_bytes if self.has_frames else self.packet_bytes

    @property
    def reported_lost_packets(self) -> int | None:
        """None if the file has retransmissions but no losses: older quiche does not log losses."""
        return None if self.retransmitted_bytes and not self.lost_packets else self.lost_packets

    @property
    def retransmitted_share(self) -> float | None:
        return self.retransmitted_bytes / self.stream_bytes if self.stream_bytes else None


def read(log: QlogFile, size: int) -> QlogTransfer:
    """Read all events of a file. A sender that has sent `size` bytes of streams has no more data.

    Raises:
        QlogError: the file is broken or too large.
    """
    reader = _Reader(log, size)
    for event in log.events:
        reader.take(event)
    reader.finish()
    reader.transfer.counts.damaged = log.records.damaged
    return reader.transfer


class _Reader:
    def __init__(self, log: QlogFile, size: int) -> None:
        self.transfer = QlogTransfer()
        self._own_bit, self._unit_ms, self._size = int(log.side != "client"), log.unit_ms, size
        self._metrics: dict[str, float] = {}
        self._now = self._next_point = 0.0
        self._sent: dict[float, float] = {}
        """Highest offset sent, by stream."""
        self._received: dict[float, list[tuple[float, float]]] = {}
        """Received ranges by stream, ascending, with gaps between them."""
        self._initial_credit: dict[str, float] = {}
        self._credit: dict[float | None, float] = {}
        """Of a stream; None: of the connection."""
        self._sent_bytes = 0.0
        self._last_stream: float | None = None
        self._requests = RequestStreams()
        self._unfinished: list[SenderPoint] = []
        """The points, each as if more payload was to come."""
        self._unknown_fields: set[str] = set()
        self._sequence = time_sequence.Recorder()

    def take(self, event: Event) -> None:
        if event.t_s - self._now > PAUSE_S and self._metrics:
            self._add_point()  # before the pause; the next one is at its end
            self._now = event.t_s
        if event.t_s >= self._next_point and self._metrics:
            self._add_point()
            self._next_point = event.t_s + MIN_INTERVAL_S
        self._now, data = event.t_s, event.data
        self._count_unknown(event)
        match event.name:
            case "metrics_updated" | "metric_update" | "congestion_metric_update":
                self._metrics_updated(data)
            case "packet_sent":
                self._packet_sent(data)
            case "packet_received":
                self._packet_received(data)
            case careful_resume.EVENT:
                if len(self.transfer.resumption) < careful_resume.MAX_PHASES:
                    self.transfer.resumption.append(event)
            case "packet_lost":
                self.transfer.lost_packets += 1
                packet = _packet_number(data)
                if packet is not None and _is_short(data, without=True):
                    self._sequence.lost(self._now, packet)
            case "packets_lost":  # mvfst
                self.transfer.lost_packets += int(number(data, "lost_packets") or 0)
            case "parameters_set":
                self._parameters(data)

    def _count_unknown(self, event: Event) -> None:
        fields = FIELDS.get(event.name)
        if fields is None:
            is_known = event.name in ("", careful_resume.EVENT) or event.name in UNUSED_EVENTS
            self.transfer.counts.events += not is_known
        elif not event.data.keys() <= fields:
            found = event.data.keys() - fields
            if event.name == "parameters_set":  # others have their number as name, as GREASE has
                found = {name for name in found if not _HEX.fullmatch(name)}
            self._unknown_fields |= found
            if len(self._unknown_fields) > MAX_NAMES:
                raise QlogError("broken", f"it has more than {MAX_NAMES} unknown fields")

    def finish(self) -> None:
        """Add the last state, and the counts. Until the last request there was more to come: with
        the headers of many small files, streams have the payload's number of bytes long before.
        """
        if self._metrics:
            self._add_point()
        points = self.transfer.points
        for index, unfinished in enumerate(self._unfinished):
            if unfinished.t_s < self._requests.last_s:
                points[index] = unfinished
        self.transfer.counts.fields = len(self._unknown_fields)
        self.transfer.flows = self._sequence.flows()

    def _add_point(self) -> None:
        values = self._metrics
        window = next((values[name] for name in WINDOWS if name in values), None)
        if window is None or len(self.transfer.points) >= MAX_POINTS:
            return
        threshold = values.get("ssthresh")
        rtt_ms = values.get("smoothed_rtt", 0.0) * self._unit_ms
        supply = self._supply(rtt_ms / 1e3)
        unfinished = SenderPoint(
            t_s=self._now,
            cwnd_bytes=window,
            in_flight_bytes=values.get("bytes_in_flight", 0.0),
            is_slow_start=threshold is None or window < threshold,
            rtt_ms=rtt_ms,
            lost_packets=self.transfer.lost_packets or int(self.transfer.retransmitted_bytes > 0),
            supply=supply,
            pacing_bps=values.get("pacing_rate"),
            is_app_limited=supply == "blocked" or self._requests.are_answered,
            ack_ms=self._sequence.ack_ms(),
        )
        self._unfinished.append(unfinished)
        is_done = self.transfer.payload_bytes >= self._size
        done = replace(unfinished, supply="done", is_app_limited=True)
        self.transfer.points.append(done if is_done else unfinished)

    def _supply(self, rtt_s: float) -> Supply:
        """Return the supply of a sender that has more to send."""
        if self._requests.are_answered:
            return "blocked" if self._requests.lack_streams(self._now, rtt_s) else "slow"
        if self._last_stream is None:
            return "slow"
        initial = self._initial_credit.get(self._initial_parameter(self._last_stream))
        stream_credit = self._credit.get(self._last_stream, initial)
        connection_credit = self._credit.get(None, self._initial_credit.get("data"))
        credit_and_sent = (
            (connection_credit, self._sent_bytes),
            (stream_credit, self._sent[self._last_stream]),
        )
        is_blocked = any(
            credit is not None and credit - sent < DATAGRAM_BYTES
            for credit, sent in credit_and_sent
        )
        return "blocked" if is_blocked else "slow"

    def _initial_parameter(self, stream: float) -> str:
        """Return the peer's transport parameter for data on a stream (RFC 9000, sections 2.1 and
        18.2).
        """
        if int(stream) & 2:
            return "stream_data_uni"
        return (
            "stream_data_bidi_remote"
            if int(stream) & 1 == self._own_bit
            else "stream_data_bidi_local"
        )

    def _metrics_updated(self, data: Mapping[str, Any]) -> None:
        """Update the metrics in the event; others keep their values."""
        for name in (*WINDOWS, *METRICS):
            value = number(data, name)
            if value is not None:
                self._metrics[name] = value
        lost = number(data.get("cf_lost_packets"), "total")  # quiche
        if lost is not None:
            self.transfer.lost_packets = max(self.transfer.lost_packets, int(lost))

    def _parameters(self, data: Mapping[str, Any]) -> None:
        owners = (data.get("owner"), data.get("initiator"))
        if "local" in owners:
            self._requests.grant(number(data, "initial_max_streams_bidi"))
        if "remote" in owners:
            self._peer_parameters(data)

    def _peer_parameters(self, data: Mapping[str, Any]) -> None:
        for name in CREDITS:
            value = number(data, f"initial_max_{name}")
            if value is not None:
                self._initial_credit[name] = value

    def _packet_sent(self, data: Mapping[str, Any]) -> None:
        self.transfer.sent_packets += 1
        if self.transfer.first_sent_s is None:
            self.transfer.first_sent_s = self._now
        is_short, size = _is_short(data), _packet_length(data)
        if is_short:
            self.transfer.packet_bytes += size
        streams = []
        for kind, frame in self._frames(data):
            match kind:
                case "stream":
                    stream, offset, length = _stream(frame)
                    streams.append(StreamRange(stream, offset, length))
                    self._stream_sent(stream, offset, length)
                    if frame.get("fin") is True:
                        self._requests.answered(stream)
                case "max_streams" if frame.get("stream_type") == "bidirectional":
                    self._requests.grant(number(frame, "maximum"), self._now)
        if is_short:
            self._sequence.sent(self._now, _packet_number(data), size, streams)

    def _stream_sent(self, stream: float, offset: float, length: float) -> None:
        if stream not in self._sent and len(self._sent) >= MAX_STREAMS:
            return
        highest = self._sent.setdefault(stream, 0.0)
        end = offset + length
        self.transfer.stream_bytes += length
        # Streams are sent in order: bytes below the highest offset were sent before.
        self.transfer.retransmitted_bytes += max(0.0, min(end, highest) - offset)
        if end > highest:
            self._sent_bytes += end - highest
            self._sent[stream] = end
            self._last_stream = stream

    def _packet_received(self, data: Mapping[str, Any]) -> None:
        transfer = self.transfer
        if transfer.first_received_s is None:
            transfer.first_received_s = self._now
        is_short = _is_short(data)
        if transfer.first_short_received_s is None and is_short:
            transfer.first_short_received_s = self._now
        may_be_short = _is_short(data, without=True)
        for kind, frame in self._frames(data):
            if may_be_short and kind in ("ack", "ack_ecn"):
                for first, last in _acked_ranges(frame):
                    self._sequence.acknowledged(self._now, first, last)
            self._frame_received(kind, frame)

    def _frames(self, data: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the frames of a packet with their types; unknown ones are counted."""
        frames = data.get("frames")
        if not isinstance(frames, list):
            return
        self.transfer.has_frames = self.transfer.has_frames or bool(frames)
        for frame in frames:
            kind = frame.get("frame_type") if isinstance(frame, dict) else None
            kind = kind.lower() if isinstance(kind, str) else ""
            if kind in FRAMES:
                yield kind, frame
            else:
                self.transfer.counts.frames += 1

    def _frame_received(self, kind: str, frame: Mapping[str, Any]) -> None:
        match kind:
            case "stream":
                stream, offset, length = _stream(frame)
                # HTTP/3 and QPACK use unidirectional streams of their own.
                if length and not int(stream) & 3:
                    self._requests.requested(self._now, stream)
                    self._stream_received(stream, offset, length)
            case "streams_blocked" if frame.get("stream_type") == "bidirectional":
                self._requests.blocked(number(frame, "limit"))
            case "max_data":
                self._credit_raised(None, _maximum(frame))
            case "max_stream_data":
                self._credit_raised(number(frame, "stream_id"), _maximum(frame))

    def _stream_received(self, stream: float, offset: float, length: float) -> None:
        if stream not in self._received and len(self._received) >= MAX_STREAMS:
            return
        if self.transfer.first_stream_received_s is None:
            self.transfer.first_stream_received_s = self._now
        new = _add_range(self._received.setdefault(stream, []), offset, offset + length)
        if new > 0:
            self.transfer.received_bytes += new
            self.transfer.last_new_received_s = self._now
            self._arrived()

    def _arrived(self) -> None:
        arrivals, entry = self.transfer.arrivals, (self._now, self.transfer.received_bytes)
        if len(arrivals) > 1 and self._now - arrivals[-2][0] < ARRIVAL_INTERVAL_S:
            arrivals[-1] = entry
        elif len(arrivals) < MAX_POINTS:
            arrivals.append(entry)

    def _credit_raised(self, stream: float | None, limit: float | None) -> None:
        if limit is not None and (stream in self._credit or len(self._credit) < MAX_STREAMS):
            self._credit[stream] = max(limit, self._credit.get(stream, 0.0))


def _add_range(ranges: list[tuple[float, float]], begin: float, end: float) -> float:
    """Add a range to ascending ranges and join those that touch; return how many of its bytes were
    new.

    Keeps at most MAX_GAPS ranges; beyond that the lowest is dropped.
    """
    first, last = (
        bisect_left(ranges, begin, key=itemgetter(1)),
        bisect_right(ranges, end, key=itemgetter(0)),
    )
    touched = ranges[first:last]
    joined = (min(begin, touched[0][0]), max(end, touched[-1][1])) if touched else (begin, end)
    ranges[first:last] = [joined]
    del ranges[:-MAX_GAPS]
    return joined[1] - joined[0] - sum(high - low for low, high in touched)


def _packet_number(data: Mapping[str, Any]) -> float | None:
    found = number(data.get("header"), "packet_number")
    return number(data, "packet_number") if found is None else found


def _acked_ranges(frame: Mapping[str, Any]) -> Iterator[tuple[float, float]]:
    """Yield the packet numbers that an ACK frame acknowledges: first and last of each range."""
    ranges = frame.get("acked_ranges")
    for ends in ranges if isinstance(ranges, list) else ():
        known = [as_number(end) for end in ends] if isinstance(ends, list) else []
        numbers = [end for end in known if end is not None]
        if numbers:
            yield min(numbers), max(numbers)


def _is_short(data: Mapping[str, Any], *, without: bool = False) -> bool:
    """Whether a packet has a short header, which is that of a 1-RTT packet; `without`: also one of
    unknown type.
    """
    header = data.get("header")
    kind = data.get("packet_type") or (
        header.get("packet_type") if isinstance(header, dict) else None
    )
    name = str(kind).lower().replace("-", "")
    return name in ("1rtt", "onertt", "short") or (without and name in ("none", "unknown"))


def _packet_length(data: Mapping[str, Any]) -> float:
    """Return the length of a packet, whichever field names the writer uses; 0 if it is unknown."""
    header, raw = data.get("header"), data.get("raw")
    found = (number(header, "length"), number(header, "packet_size"), number(raw, "length"))
    return next((one for one in found if one is not None), 0.0)


def _maximum(frame: Mapping[str, Any]) -> float | None:
    value = number(frame, "maximum")
    return number(frame, "maximum_data") if value is None else value  # mvfst


def _stream(frame: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return id, offset and length of a stream frame, whichever field names the writer uses; a
    missing field is 0.
    """
    stream = number(frame, "stream_id")
    length = number(frame, "length")
    if length is None:
        length = number(frame.get("raw"), "payload_length") or number(frame.get("raw"), "length")
    return (
        (stream if stream is not None else number(frame, "id") or 0.0),
        number(frame, "offset") or 0.0,
        length or 0.0,
    )
