# SPDX-License-Identifier: GPL-3.0-or-later
"""What a qlog file tells of a transfer: the sender's states, what it sent again, when the receiver got something."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from satlab.check.trace.causes import DATAGRAM_BYTES, Supply
from satlab.check.trace.qlog import Event, QlogFile, number

STEP_S = 0.05
"""Between two states, at the least."""
POINTS = 100_000
STREAMS = 10_000
"""Streams that are told apart; a transfer has a few."""


@dataclass(frozen=True)
class SenderPoint:
    """A sender's state at `t_s` by its own clock."""

    t_s: float
    cwnd_bytes: float
    in_flight_bytes: float
    is_slow_start: bool
    rtt_ms: float
    lost_packets: int
    supply: Supply


@dataclass
class QlogTransfer:
    """One connection as one end tells it. Times are of that end's clock in s, None for what never was.

    `asked_s` is when the first bytes of a stream came; `again_bytes` are those of `stream_bytes` that had been sent
    before; `points` are the sender's states.
    """

    sent_s: float | None = None
    received_s: float | None = None
    short_received_s: float | None = None
    stream_received_s: float | None = None
    points: list[SenderPoint] = field(default_factory=list)
    sent_packets: int = 0
    lost_packets: int = 0
    stream_bytes: float = 0
    again_bytes: float = 0

    @property
    def new_bytes(self) -> float:
        """Return what of the streams was sent at least once."""
        return self.stream_bytes - self.again_bytes

    @property
    def told_lost_packets(self) -> int | None:
        """Return what the file tells of losses; quiche's tells of none, though it sends again."""
        return None if self.again_bytes and not self.lost_packets else self.lost_packets

    @property
    def retransmitted_share(self) -> float | None:
        """Return the share of the stream bytes that had been sent before."""
        return self.again_bytes / self.stream_bytes if self.stream_bytes else None


def read(log: QlogFile, size: int) -> QlogTransfer:
    """Take a file's events; a sender that has sent `size` bytes of streams has nothing left to send.

    Raises:
        QlogError: the file is broken or too large.
    """
    reader = _Reader(log, size)
    for event in log.events:
        reader.take(event)
    reader.finish()
    return reader.account


class _Reader:
    """Steps through the events of one end."""

    def __init__(self, log: QlogFile, size: int) -> None:
        self.account = QlogTransfer()
        self._own, self._unit_ms, self._size = int(log.side == "server"), log.unit_ms, size
        self._metrics: dict[str, float] = {}
        self._now = self._next = 0.0
        self._sent: dict[float, float] = {}
        self._initial: dict[str, float] = {}
        self._credit: dict[float | None, float] = {}
        self._whole = 0.0
        self._last: float | None = None

    def take(self, event: Event) -> None:
        """Count one event."""
        if event.t_s >= self._next and self._metrics:
            self._note()
            self._next = event.t_s + STEP_S
        self._now = event.t_s
        match event.name:
            case "metrics_updated":
                self._measured(event.data)
            case "packet_sent":
                self._packet_sent(event.data)
            case "packet_received":
                self._packet_received(event.data)
            case "packet_lost":
                self.account.lost_packets += 1
            case "parameters_set" if "remote" in (event.data.get("owner"), event.data.get("initiator")):
                self._promised(event.data)

    def finish(self) -> None:
        """Keep the last state."""
        if self._metrics:
            self._note()

    def _note(self) -> None:
        values = self._metrics
        window = values.get("congestion_window", values.get("cwnd"))
        if window is None or len(self.account.points) >= POINTS:
            return
        threshold = values.get("ssthresh")
        self.account.points.append(
            SenderPoint(
                t_s=self._now,
                cwnd_bytes=window,
                in_flight_bytes=values.get("bytes_in_flight", 0.0),
                is_slow_start=threshold is None or window < threshold,
                rtt_ms=values.get("smoothed_rtt", 0.0) * self._unit_ms,
                lost_packets=self.account.lost_packets or int(self.account.again_bytes > 0),
                supply=self._supply(),
            )
        )

    def _supply(self) -> Supply:
        if self.account.new_bytes >= self._size:
            return "done"
        if self._last is None:
            return "slow"
        stream = self._credit.get(self._last, self._initial.get(self._direction(self._last)))
        rooms = [self._credit.get(None, self._initial.get("data")), stream]
        used = [self._whole, self._sent[self._last]]
        is_blocked = any(
            room is not None and room - out < DATAGRAM_BYTES for room, out in zip(rooms, used, strict=True)
        )
        return "blocked" if is_blocked else "slow"

    def _direction(self, stream: float) -> str:
        """Name the peer's parameter for what we may send on a stream (RFC 9000, sections 2.1 and 18.2)."""
        if int(stream) & 2:
            return "stream_data_uni"
        return "stream_data_bidi_remote" if int(stream) & 1 == self._own else "stream_data_bidi_local"

    def _measured(self, data: Mapping[str, Any]) -> None:
        """Take over what is told; what is not has not changed."""
        for name in ("congestion_window", "cwnd", "bytes_in_flight", "smoothed_rtt"):
            value = number(data, name)
            if value is not None:
                self._metrics[name] = value
        threshold = number(data, "ssthresh")
        if threshold is not None:
            self._metrics["ssthresh"] = threshold

    def _promised(self, data: Mapping[str, Any]) -> None:
        for name in ("data", "stream_data_uni", "stream_data_bidi_local", "stream_data_bidi_remote"):
            value = number(data, f"initial_max_{name}")
            if value is not None:
                self._initial[name] = value

    def _packet_sent(self, data: Mapping[str, Any]) -> None:
        self.account.sent_packets += 1
        if self.account.sent_s is None:
            self.account.sent_s = self._now
        for frame in _frames(data):
            if frame.get("frame_type") == "stream":
                self._sent_on_stream(*_stream(frame))

    def _sent_on_stream(self, stream: float, offset: float, length: float) -> None:
        if stream not in self._sent and len(self._sent) >= STREAMS:
            return
        before = self._sent.setdefault(stream, 0.0)
        end = offset + length
        self.account.stream_bytes += length
        # Streams are sent in order: what lies below the furthest byte has been sent before.
        self.account.again_bytes += max(0.0, min(end, before) - offset)
        if end > before:
            self._whole += end - before
            self._sent[stream] = end
            self._last = stream

    def _packet_received(self, data: Mapping[str, Any]) -> None:
        account = self.account
        if account.received_s is None:
            account.received_s = self._now
        header = data.get("header")
        kind = data.get("packet_type") or (header.get("packet_type") if isinstance(header, dict) else None)
        if account.short_received_s is None and str(kind).upper() == "1RTT":
            account.short_received_s = self._now
        for frame in _frames(data):
            self._received_frame(frame)

    def _received_frame(self, frame: Mapping[str, Any]) -> None:
        match frame.get("frame_type"):
            case "stream":
                stream, _, length = _stream(frame)
                # HTTP/3 and QPACK have streams of their own, of one direction.
                if self.account.stream_received_s is None and length and not int(stream) & 3:
                    self.account.stream_received_s = self._now
            case "max_data":
                self._raised(None, number(frame, "maximum"))
            case "max_stream_data":
                self._raised(number(frame, "stream_id"), number(frame, "maximum"))

    def _raised(self, stream: float | None, limit: float | None) -> None:
        if limit is not None and (stream in self._credit or len(self._credit) < STREAMS):
            self._credit[stream] = max(limit, self._credit.get(stream, 0.0))


def _frames(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    frames = data.get("frames")
    return [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []


def _stream(frame: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return id, offset and length of a stream frame, as the three programs name them; 0 where nothing is told."""
    stream = number(frame, "stream_id")
    length = number(frame, "length")
    if length is None:
        length = number(frame.get("raw"), "payload_length") or number(frame.get("raw"), "length")
    return (stream if stream is not None else number(frame, "id") or 0.0), number(frame, "offset") or 0.0, length or 0.0
