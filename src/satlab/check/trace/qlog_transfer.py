# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer from its endpoints' qlog files: losses, retransmissions, first byte, and the sender's
states.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from satlab.check.samples import Sample, UnusedSource
from satlab.check.trace import careful_resume, qlog
from satlab.check.trace.captured_transfer import CapturedTransfer
from satlab.check.trace.causes import DATAGRAM_BYTES, Supply
from satlab.check.trace.qlog import Event, QlogError, QlogFile, number
from satlab.check.trace.request_streams import RequestStreams

FILE = "qlog.json"
"""File in a sample's folder: the states of the server, by the client's clock."""
MIN_COMPLETE_SHARE = 0.9
"""Share of the payload that the qlog of a complete transfer must contain. A program that is killed
loses its last lines.
"""
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
MAX_STREAMS = 10_000
"""Further streams are ignored; a transfer has a few."""
CLIENT_QLOG = "qlog of the client"
Figures = dict[str, tuple[Any, str]]
"""Fields of a sample: value and source."""


def add(
    sample: Sample,
    folders: Mapping[str, Path],
    size: int,
    folder: Path,
    wire: CapturedTransfer,
    one_way_s: float,
) -> Sample:
    """Add the figures of qlog files to the sample of a download of `size` bytes; the sample's own
    figures stay.

    `folders` hold the qlog files, by side; without any, the sample is returned unchanged. After
    several connections the newest file, of the last one, is read. The server's states are written
    to FILE in `folder`. `one_way_s` is the delay of the idle link from the client to the server.
    """
    if not folders:
        return sample
    figures: Figures = {}
    warnings = []
    # The client first: its completion ends the server's states.
    for side, qlog_folder in sorted(folders.items()):
        try:
            transfer = _open(qlog_folder, side, size, wire, is_complete=sample.status == "ok")
        except QlogError as error:
            warnings.append(UnusedSource(error.kind, cast("qlog.Side", side), str(error)))
            continue
        if side == "server":
            values = {
                "lost_packets": transfer.reported_lost_packets,
                "retransmitted_share": transfer.retransmitted_share,
            }
            known = {name: value for name, value in values.items() if value is not None}
            figures |= {name: (value, "qlog of the server") for name, value in known.items()}
            later_s = _later_s(transfer, wire, one_way_s)
            figures |= _write_states(transfer, folder, wire, later_s, sample.times_s[-1])
            sample = _resumed(sample, transfer, later_s)
        else:
            sent_s, received_s = transfer.first_sent_s, transfer.first_stream_received_s
            if sent_s is not None and received_s is not None:
                first_s = wire.last_start_s + received_s - sent_s
                figures["time_to_first_byte_ms"] = (first_s * 1000, CLIENT_QLOG)
            sample = _completed(sample, transfer, size, wire.last_start_s)
    if "time_to_first_byte_ms" not in figures and wire.first_byte_s is not None:
        figures["time_to_first_byte_ms"] = (wire.first_byte_s * 1000, "packets")
    figures = {name: figure for name, figure in figures.items() if getattr(sample, name) is None}
    sources = {**sample.sources, **{name: source for name, (_, source) in figures.items()}}
    return replace(
        sample,
        **{name: value for name, (value, _) in figures.items()},
        sources=sources,
        warnings=tuple(reversed(warnings)),
    )


def _open(
    folder: Path, side: str, size: int, wire: CapturedTransfer, *, is_complete: bool
) -> "QlogTransfer":
    """Read the newest qlog file of a folder.

    Raises:
        QlogError: there is no file, it cannot be used, or it does not belong to the captured
        transfer.
    """
    file = qlog.newest(folder)
    if file is None:
        raise QlogError("missing", "no file")
    log = qlog.opened(file)
    if log.side != side:
        raise QlogError("does not fit", f"its vantage point is the {log.side}")
    transfer = read(log, size)
    if side == "server" and is_complete and transfer.new_bytes < MIN_COMPLETE_SHARE * size:
        raise QlogError(
            "does not fit", f"it has {transfer.new_bytes:.0f} bytes of streams, {size} arrived"
        )
    return transfer


def _completed(sample: Sample, transfer: "QlogTransfer", size: int, start_s: float) -> Sample:
    """Return the sample with the completion time of the client's qlog, if the qlog has every byte
    of the payload.
    """
    sent_s, complete_s = transfer.first_sent_s, transfer.last_new_received_s
    if (
        sample.status != "ok"
        or sent_s is None
        or complete_s is None
        or transfer.received_bytes < size
    ):
        return sample
    times = (*sample.times_s[:-1], start_s + complete_s - sent_s)
    return replace(
        sample, times_s=times, sources={"times_s": f"packets, the last one: {CLIENT_QLOG}"}
    )


def _later_s(transfer: "QlogTransfer", wire: CapturedTransfer, one_way_s: float) -> float | None:
    """Return by how much the client's clock is ahead of the server's, s; None if the server
    received no packet.

    The offset is chosen so that neither the client's first packet nor its first packet with a short
    header arrives before it was sent and had crossed the link.
    """
    handshake_s = wire.handshake_s if len(wire.server_ids) < 2 else None  # of the first connection
    pairs = [
        (wire.last_start_s, transfer.first_received_s),
        (handshake_s, transfer.first_short_received_s),
    ]
    known = [
        sent - received for sent, received in pairs if sent is not None and received is not None
    ]
    return one_way_s + max(known) if known and transfer.first_received_s is not None else None


def _resumed(sample: Sample, transfer: "QlogTransfer", later_s: float | None) -> Sample:
    """Return the sample with the phases of Careful Resume, unless the programs report them."""
    found = careful_resume.of_events(transfer.resumption, later_s or 0.0)
    if found is None or sample.careful_resume is not None:
        return sample
    sources = {**sample.sources, "careful_resume": "qlog of the server"}
    words = (*sample.symptoms, *careful_resume.symptoms(found))
    return replace(sample, careful_resume=found, symptoms=words, sources=sources)


def _write_states(
    transfer: "QlogTransfer",
    folder: Path,
    wire: CapturedTransfer,
    later_s: float | None,
    end_s: float | None,
) -> Figures:
    """Write the states to FILE, by the client's clock, which starts with its first packet. Writes
    nothing if the states are unknown.

    The states end with the last payload byte (`end_s`), or with the last packet if that byte never
    arrived: satperf's endpoints exchange results after the payload.
    """
    requested_s = transfer.first_stream_received_s or transfer.first_short_received_s
    last_s = max((one.t_s for one in wire.arrivals), default=0.0) if end_s is None else end_s
    if later_s is None or requested_s is None or not transfer.points:
        return {}
    points = [asdict(point) | {"t_s": point.t_s + later_s} for point in transfer.points]
    document = {
        "start_unix_s": wire.start_unix_s,
        "asked_s": requested_s + later_s,
        "end_s": last_s,
        "points": points,
    }
    (folder / FILE).write_text(json.dumps(document))
    return {"spent_s": (None, "qlog of the server, link")}


# --- one file -------------------------------------------------------------------------------------


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

    @property
    def new_bytes(self) -> float:
        """Stream bytes that were sent at least once."""
        return self.stream_bytes - self.retransmitted_bytes

    @property
    def reported_lost_packets(self) -> int | None:
        """None if the file has retransmissions but no losses: quiche does not log losses."""
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
    return reader.transfer


class _Reader:
    def __init__(self, log: QlogFile, size: int) -> None:
        self.transfer = QlogTransfer()
        self._own_bit, self._unit_ms, self._size = int(log.side == "server"), log.unit_ms, size
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

    def take(self, event: Event) -> None:
        if event.t_s - self._now > PAUSE_S and self._metrics:
            self._add_point()  # before the pause; the next one is at its end
            self._now = event.t_s
        if event.t_s >= self._next_point and self._metrics:
            self._add_point()
            self._next_point = event.t_s + MIN_INTERVAL_S
        self._now = event.t_s
        match event.name:
            case "metrics_updated":
                self._metrics_updated(event.data)
            case "packet_sent":
                self._packet_sent(event.data)
            case "packet_received":
                self._packet_received(event.data)
            case careful_resume.EVENT if len(self.transfer.resumption) < careful_resume.MAX_PHASES:
                self.transfer.resumption.append(event)
            case "packet_lost":
                self.transfer.lost_packets += 1
            case "parameters_set":
                self._parameters(event.data)

    def finish(self) -> None:
        """Add the last state. Until the last request there was more to come: with the headers of
        many small files, streams have the payload's number of bytes long before.
        """
        if self._metrics:
            self._add_point()
        points = self.transfer.points
        for index, unfinished in enumerate(self._unfinished):
            if unfinished.t_s < self._requests.last_s:
                points[index] = unfinished

    def _add_point(self) -> None:
        values = self._metrics
        window = values.get("congestion_window", values.get("cwnd"))
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
        )
        self._unfinished.append(unfinished)
        is_done = self.transfer.new_bytes >= self._size
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
        for name in (
            "congestion_window",
            "cwnd",
            "bytes_in_flight",
            "smoothed_rtt",
            "ssthresh",
            "pacing_rate",
        ):
            value = number(data, name)
            if value is not None:
                self._metrics[name] = value

    def _parameters(self, data: Mapping[str, Any]) -> None:
        owners = (data.get("owner"), data.get("initiator"))
        if "local" in owners:
            self._requests.grant(number(data, "initial_max_streams_bidi"))
        if "remote" in owners:
            self._peer_parameters(data)

    def _peer_parameters(self, data: Mapping[str, Any]) -> None:
        for name in (
            "data",
            "stream_data_uni",
            "stream_data_bidi_local",
            "stream_data_bidi_remote",
        ):
            value = number(data, f"initial_max_{name}")
            if value is not None:
                self._initial_credit[name] = value

    def _packet_sent(self, data: Mapping[str, Any]) -> None:
        self.transfer.sent_packets += 1
        if self.transfer.first_sent_s is None:
            self.transfer.first_sent_s = self._now
        for frame in _frames(data):
            match frame.get("frame_type"):
                case "stream":
                    stream, offset, length = _stream(frame)
                    self._stream_sent(stream, offset, length)
                    if frame.get("fin") is True:
                        self._requests.answered(stream)
                case "max_streams" if frame.get("stream_type") == "bidirectional":
                    self._requests.grant(number(frame, "maximum"), self._now)

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
        header = data.get("header")
        kind = data.get("packet_type") or (
            header.get("packet_type") if isinstance(header, dict) else None
        )
        if transfer.first_short_received_s is None and str(kind).upper() == "1RTT":
            transfer.first_short_received_s = self._now
        for frame in _frames(data):
            self._frame_received(frame)

    def _frame_received(self, frame: Mapping[str, Any]) -> None:
        match frame.get("frame_type"):
            case "stream":
                stream, offset, length = _stream(frame)
                # HTTP/3 and QPACK use unidirectional streams of their own.
                if length and not int(stream) & 3:
                    self._requests.requested(self._now, stream)
                    self._stream_received(stream, offset, length)
            case "streams_blocked" if frame.get("stream_type") == "bidirectional":
                self._requests.blocked(number(frame, "limit"))
            case "max_data":
                self._credit_raised(None, number(frame, "maximum"))
            case "max_stream_data":
                self._credit_raised(number(frame, "stream_id"), number(frame, "maximum"))

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


def _frames(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    frames = data.get("frames")
    return (
        [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    )


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
