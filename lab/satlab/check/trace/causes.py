# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a transfer was slow: each moment of it is assigned to one cause.

Linux reports the limits of a TCP sender in the same way (`tcp_info`: busy, receive window, send buffer). The rules for
the time between two states; the first one that holds applies:

1. `handshake`: the sender has no request yet, or its window has room and its handshake is not complete: until then a
   server may send three times what it received (RFC 9000, section 8.1).
2. `link`: packets wait for the payload's link all the time. It carries its capacity; no sender is faster.
3. `delivery`: all data was sent. The last packets, and retransmissions of the last losses, are in flight.
4. `application`: the window has room, and the application has no data at the moment.
5. `flow control`: window and application have more, but the peer's credit or the send buffer is used up.
6. `ack link`: acknowledgements wait for their link all the time. The window opens only as fast as they pass.
7. `host`: in the last round trip never more than half of the window was in flight, although there was data and credit:
   the sender lacks CPU, or waits for a timer. A sender that follows acknowledgements fills at least half of a window
   that doubles with each round trip.
8. `slow start`: the window limits, without a loss so far: it still grows towards the capacity of the path.
9. `congestion avoidance`: the window limits and grows slowly, without a loss so far: slow start ended because the delay
   rose (HyStart++, RFC 9406), or by an ECN mark.
10. `loss recovery`: the window limits, after losses have reduced it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Literal

Cause = Literal[
    "handshake", "slow start", "link", "application", "flow control", "ack link", "congestion avoidance",
    "loss recovery", "host", "delivery",
]  # fmt: skip
MEANING: Mapping[Cause, str] = {
    "handshake": "handshake and request, until the sender has the request",
    "slow start": "the congestion window limits, without a loss so far",
    "link": "the link carries its full capacity",
    "application": "the application has no data to send",
    "flow control": "the stream or connection window, or the send buffer, is used up",
    "ack link": "acknowledgements wait in the queue of their link",
    "congestion avoidance": "the congestion window limits and grows slowly, without a loss so far",
    "loss recovery": "the congestion window limits, after losses have reduced it",
    "host": "neither window nor data limits: CPU or timers",
    "delivery": "all data was sent; the last packets are in flight",
}
CAUSES = tuple(MEANING)
BUSY_QUEUE_MS = 10.0
"""A link whose queue is longer than this at both ends of an interval was busy in between. Longer than two frames at
10 Mbit/s; shorter than what a burst of a paced sender takes to drain between two states 50 ms apart."""
DATAGRAM_BYTES = 1472
"""Largest QUIC packet on a path for IP packets of 1500 bytes."""
Supply = Literal["done", "blocked", "slow"]


@dataclass(frozen=True)
class SenderState:
    """A sender and its path at `t_s`, s since the start of the connection. Queues in ms that their link needs for them.

    `supply` of data: all was sent (done), credit or send buffer is used up (blocked), or neither (slow).
    """

    t_s: float
    cwnd_bytes: float
    in_flight_bytes: float
    is_handshaking: bool
    is_slow_start: bool
    is_app_limited: bool
    supply: Supply
    rtt_ms: float
    lost_packets: int
    payload_queue_ms: float
    ack_queue_ms: float

    @property
    def has_room(self) -> bool:
        """Whether the window has room for another datagram besides one that is being assembled."""
        return self.cwnd_bytes - self.in_flight_bytes >= 2 * DATAGRAM_BYTES


@dataclass(frozen=True)
class Span:
    start_s: float
    end_s: float
    cause: Cause


@dataclass(frozen=True)
class TransferTrace:
    """A transfer from 0 to `end_s`, its states by time. The sender had the request at `requested_s`; None: never."""

    requested_s: float | None
    end_s: float
    states: Sequence[SenderState]

    def spans(self) -> list[Span]:
        """Divide 0 to `end_s` among the causes, without gap or overlap; adjacent spans have different causes."""
        joined: list[Span] = []
        for span in self._intervals():
            continues = joined and joined[-1].cause == span.cause
            joined.append(Span(joined.pop().start_s, span.end_s, span.cause) if continues else span)
        return joined

    def spent_s(self) -> dict[str, float]:
        """Return the seconds per cause; their sum is `end_s`."""
        spent: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        for span in self.spans():
            spent[span.cause] += span.end_s - span.start_s
        return spent

    def _intervals(self) -> Iterator[Span]:
        """Judge each interval by the state at its end: an acknowledgement reports on the time before it."""
        is_known = self.requested_s is not None and self.states
        requested_s = min(self.requested_s or 0.0, self.end_s) if is_known else self.end_s
        if requested_s > 0:
            yield Span(0.0, requested_s, "handshake")
        times = [state.t_s for state in self.states]
        first, after = bisect_right(times, requested_s), bisect_left(times, self.end_s)
        edges = [requested_s, *times[first:after], self.end_s]
        for index, (begin, end) in enumerate(pairwise(edges), first):
            if begin < end:
                yield Span(begin, end, self._cause(min(index, len(times) - 1), requested_s))

    def _cause(self, index: int, requested_s: float) -> Cause:
        now, before = self.states[index], self.states[max(0, index - 1)]
        if min(now.payload_queue_ms, before.payload_queue_ms) > BUSY_QUEUE_MS:
            return "link"
        if now.is_handshaking and now.has_room:
            return "handshake"
        if now.is_app_limited and now.has_room:
            return _CAUSE_OF_SUPPLY[now.supply]
        if min(now.ack_queue_ms, before.ack_queue_ms) > BUSY_QUEUE_MS:
            return "ack link"
        if self._is_idle(index, requested_s):
            return "host"
        return _window_cause(now)

    def _is_idle(self, index: int, requested_s: float) -> bool:
        """Whether less than half of the window was in flight for a whole round trip."""
        since = self.states[index].t_s - self.states[index].rtt_ms / 1e3
        if since < requested_s:
            return False
        round_trip = takewhile(lambda state: state.t_s >= since, reversed(self.states[: index + 1]))
        return all(2 * state.in_flight_bytes < state.cwnd_bytes for state in round_trip)


def _window_cause(state: SenderState) -> Cause:
    """Return the phase of congestion control."""
    if state.lost_packets:
        return "loss recovery"
    return "slow start" if state.is_slow_start else "congestion avoidance"


_CAUSE_OF_SUPPLY: Mapping[Supply, Cause] = {"done": "delivery", "slow": "application", "blocked": "flow control"}


def mean(spent: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean seconds per cause of several transfers; their sum is the mean duration."""
    return {cause: sum(one[cause] for one in spent) / len(spent) for cause in CAUSES}


def largest(spent: Mapping[str, float]) -> str:
    """Return the cause of most of the time."""
    return max(spent, key=spent.__getitem__)
