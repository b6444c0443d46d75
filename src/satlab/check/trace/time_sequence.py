# SPDX-License-Identifier: GPL-3.0-or-later
"""What a sender sent, what was acknowledged, lost and sent again, over time: the points of a
time-sequence plot.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import ConfigDict, with_config

Point = tuple[float, float]
"""Time in s, and bytes from the start of the flow."""
STEP_S = 0.01
"""Shortest time between two points of a line, s."""
MAX_POINTS = 10_000
"""Of each list. A full one loses every second point."""
MAX_FLOWS = 6
"""Number of streams that a plot can tell apart; the largest ones."""
LEAST_SHARE = 0.01
"""A stream with a smaller share of the largest one is left out: HTTP/3 has some for control."""


@with_config(ConfigDict(extra="forbid", allow_inf_nan=False))
@dataclass
class Flow:
    """A stream, or all packets of a connection: highest offset sent, acknowledged and arrived at
    the receiver over time; the offsets at which something was sent again or declared lost.
    """

    name: str
    sent: list[Point] = field(default_factory=list)
    acknowledged: list[Point] = field(default_factory=list)
    arrived: list[Point] = field(default_factory=list)
    retransmitted: list[Point] = field(default_factory=list)
    lost: list[Point] = field(default_factory=list)

    @property
    def size(self) -> float:
        """Highest offset sent, bytes."""
        return self.sent[-1][1] if self.sent else 0.0

    def shifted(self, later_s: float) -> "Flow":
        """Return the flow by a clock that is so much ahead."""
        lists = (self.sent, self.acknowledged, self.arrived, self.retransmitted, self.lost)
        return Flow(self.name, *([(t_s + later_s, at) for t_s, at in each] for each in lists))


def rise(line: list[Point], t_s: float, offset: float) -> None:
    """Add a point to a line that only rises; several within STEP_S become one."""
    if line and offset <= line[-1][1]:
        return
    if line and (t_s == line[-1][0] or (len(line) > 1 and t_s - line[-2][0] < STEP_S)):
        line[-1] = (t_s, offset)
    else:
        mark(line, t_s, offset)


def mark(marks: list[Point], t_s: float, offset: float) -> None:
    """Add a single point."""
    if len(marks) >= MAX_POINTS:
        del marks[1::2]
    marks.append((t_s, offset))


def largest(flows: Iterable[Flow]) -> list[Flow]:
    """Return the MAX_FLOWS largest flows, in their order; those that a plot can show."""
    every = list(flows)
    kept = sorted(every, key=lambda flow: flow.size, reverse=True)[:MAX_FLOWS]
    kept = [flow for flow in kept if flow.size >= LEAST_SHARE * kept[0].size]
    return [flow for flow in every if any(flow is one for one in kept)]


class StreamRange(NamedTuple):
    """Bytes of a stream; without a stream those of all packets."""

    stream: float | None
    offset: float
    length: float


@dataclass
class Packet:
    """A packet in flight: when it was sent, its size in bytes, and the bytes of flows in it."""

    sent_s: float
    size: float
    parts: tuple[StreamRange, ...]


MAX_IN_FLIGHT = 50_000
"""Number of packets that are followed until their acknowledgement; the oldest ones are given up."""
MAX_STREAMS = 2000
"""Number of streams that are followed."""


class Recorder:
    """Follows the packets of a sender, by their numbers, from sending to acknowledgement."""

    def __init__(self) -> None:
        self._flight: dict[float, Packet] = {}
        """By number, ascending."""
        self._flows: dict[float | None, Flow] = {None: Flow("all packets")}
        self._sent = 0.0
        self.acked_bytes = 0.0
        self._acked = self._waited_s = 0.0

    def sent(
        self,
        t_s: float,
        number: float | None,
        size: float,
        streams: Iterable[StreamRange],
    ) -> None:
        """Note a packet with its stream frames."""
        parts = [StreamRange(None, self._sent, size)]
        self._sent += size
        parts += [one for one in streams if one.length and self._is_followed(one.stream)]
        for stream, offset, length in parts:
            flow = self._flows[stream]
            if offset < flow.size:
                mark(flow.retransmitted, t_s, offset)
            rise(flow.sent, t_s, offset + length)
        if number is not None:
            self._flight[number] = Packet(t_s, size, tuple(parts))
            if len(self._flight) > MAX_IN_FLIGHT:
                del self._flight[next(iter(self._flight))]

    def _is_followed(self, stream: float | None) -> bool:
        if stream not in self._flows and len(self._flows) < MAX_STREAMS:
            self._flows[stream] = Flow(f"stream {stream:.0f}")
        return stream in self._flows

    def acknowledged(self, t_s: float, first: float, last: float) -> None:
        """Note an acknowledgement of packets by their numbers, including both."""
        found = []
        for number in self._flight:
            if number > last:
                break
            if number >= first:
                found.append(number)
        for number in found:
            packet = self._flight.pop(number)
            self.acked_bytes += packet.size
            self._acked, self._waited_s = self._acked + 1, self._waited_s + t_s - packet.sent_s
            for stream, offset, length in packet.parts:
                rise(self._flows[stream].acknowledged, t_s, offset + length)

    def lost(self, t_s: float, number: float) -> None:
        """Note a packet that is declared lost; a late acknowledgement of it still counts."""
        if (packet := self._flight.get(number)) is not None:
            for stream, offset, _ in packet.parts:
                mark(self._flows[stream].lost, t_s, offset)

    def ack_ms(self) -> float | None:
        """Return the mean time from sending to acknowledgement, ms, of the packets acknowledged
        since the last call; None without any.
        """
        mean = self._waited_s * 1e3 / self._acked if self._acked else None
        self._acked = self._waited_s = 0.0
        return mean

    def flows(self) -> list[Flow]:
        """Return the largest streams or, if no stream was seen, all packets."""
        streams = [flow for stream, flow in self._flows.items() if stream is not None]
        return largest(streams or [self._flows[None]])
