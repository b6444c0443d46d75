# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a transfer was slow: each moment of it is assigned to one cause.

Linux reports the limits of a TCP sender in the same way (`tcp_info`: busy, receive window, send
buffer). The rules for the time between two states; the first one that holds applies:

1. `handshake`: the sender has no request yet. Or its window has room and its handshake is not
   complete: until then a server may send three times what it received (RFC 9000, section 8.1).
2. `link`: packets wait for the payload's link all the time. Or the link carried its capacity in
   the last round trip without a queue, as with a sender that paces by a model of the path. No
   sender could be faster.
3. `delivery`: all data was sent. The last packets, and retransmissions of the last losses, are in
   flight.
4. `application`: the window has room, and the application has no data at the moment.
5. `flow control`: window and application have more, but the peer's credit or the send buffer is
   used up. A sender that paces waits for its pacer between two packets, not for data: for it, 4
   and 5 must hold for a whole round trip.
6. `ack link`: acknowledgements wait for their link all the time. The window opens only as fast as
   they pass.
7. `host`: the sender lacks CPU, or waits for a timer. In the last round trip never more than half
   of the window was in flight, although there was data and credit. A sender that follows
   acknowledgements fills at least half of a window that doubles with each round trip. The rule
   does not apply to a sender that sends at its pacing rate.
8. `pacing`: the sender chose a rate below the link's. In the last round trip the window always had
   room, and did not grow by a quarter or the sender sent at its pacing rate. Or its controller,
   which sets a rate, had reduced the window without a loss, as BBR does to measure the round trip.
9. `slow start`: the window limits, without a loss so far: it still grows towards the capacity of
   the path. With a controller that sets a rate: the window is the largest so far, also after
   losses.
10. `congestion avoidance`: the window limits and grows slowly, without a loss so far: slow start
    ended because the delay rose (HyStart++, RFC 9406), or by an ECN mark.
11. `loss recovery`: the window limits, after losses have reduced it. If the host, and not link and
    queues, lost most of the packets, the cause is `host`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Literal

Cause = Literal[
    "handshake",
    "slow start",
    "link",
    "application",
    "flow control",
    "ack link",
    "congestion avoidance",
    "loss recovery",
    "pacing",
    "host",
    "delivery",
]
MEANING: Mapping[Cause, str] = {
    "handshake": "handshake and request, until the sender has the request",
    "slow start": "the congestion window limits, without a loss so far",
    "link": "the link carries its full capacity",
    "application": "the application has no data to send",
    "flow control": "the stream or connection window, or the send buffer, is used up",
    "ack link": "acknowledgements wait in the queue of their link",
    "congestion avoidance": "the congestion window limits and grows slowly, without a loss so far",
    "loss recovery": "the congestion window limits, after losses have reduced it",
    "pacing": "the sender keeps to a rate of its own, or a window that it reduced without a loss",
    "host": (
        "neither window nor data limits: CPU or timers; or it lost the packets that reduced the"
        " window"
    ),
    "delivery": "all data was sent; the last packets are in flight",
}
CAUSES = tuple(MEANING)
BUSY_QUEUE_MS = 10.0
"""A link whose queue is longer than this at both ends of an interval was busy in between, ms. The
value is longer than two frames at 10 Mbit/s, and shorter than the time in which a burst of a paced
sender drains between two states 50 ms apart.
"""
BUSY_SHARE = 0.95
"""Share of its capacity that a link without a queue must have carried in a round trip to count as
busy.
"""
MIN_STATES = 3
"""Fewest states in a round trip for a judgement that something holds all the time."""
PACED_SHARE = 0.75
"""Share of the pacing rate from which a sender counts as paced."""
SLOW_GROWTH = 1.25
"""A window that grows less in a round trip does not probe for capacity: slow start doubles it."""
DATAGRAM_BYTES = 1472
"""Largest QUIC packet on a path for IP packets of 1500 bytes."""
Supply = Literal["done", "blocked", "slow"]


@dataclass(frozen=True)
class SenderState:
    """A sender and its path at `t_s`, s since the start of the connection.

    - `supply`: all data was sent (done), credit or send buffer is used up (blocked), or neither
      (slow).
    - `payload_queue_ms`, `ack_queue_ms`: the time that the link needs to send its queue.
    - `link_share`: share of its capacity that the payload's link carried in the last round trip; 0
      if unknown.
    - `pacing_bps`: None if unknown.
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
    link_share: float = 0.0
    pacing_bps: float | None = None

    @property
    def is_paced(self) -> bool:
        """Whether the data in flight is the amount that the pacing rate sends in a round trip."""
        if self.pacing_bps is None or not self.rtt_ms:
            return False
        return self.in_flight_bytes * 8e3 / self.rtt_ms >= PACED_SHARE * self.pacing_bps

    @property
    def lacks_supply(self) -> bool:
        """Whether the window had room but there was no data or no credit."""
        return self.is_app_limited and self.has_room

    @property
    def has_room(self) -> bool:
        """Whether the window has room for one more datagram after the one that is being
        assembled.
        """
        return self.cwnd_bytes - self.in_flight_bytes >= 2 * DATAGRAM_BYTES


@dataclass(frozen=True)
class Span:
    start_s: float
    end_s: float
    cause: Cause


@dataclass(frozen=True)
class TransferTrace:
    """A transfer from 0 to `end_s`, with the states of its sender by time.

    The sender had the request at `requested_s`; None: never. `is_lost_by_host`: the host lost most
    of the lost packets.
    """

    requested_s: float | None
    end_s: float
    states: Sequence[SenderState]
    is_lost_by_host: bool = False

    def spans(self) -> list[Span]:
        """Divide 0 to `end_s` among the causes, without gap or overlap; adjacent spans have
        different causes.
        """
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
        """Judge each interval by the state at its end: an acknowledgement reports on the time
        before it.
        """
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
        """Judge the interval that ends with a state."""
        now, before = self.states[index], self.states[max(0, index - 1)]
        if min(now.payload_queue_ms, before.payload_queue_ms) > BUSY_QUEUE_MS:
            return "link"
        is_done = now.lacks_supply and now.supply == "done"
        is_after_request = now.t_s - now.rtt_ms / 1e3 >= requested_s
        if now.link_share >= BUSY_SHARE and is_after_request and not is_done:
            return "link"
        if now.is_handshaking and now.has_room:
            return "handshake"
        if now.lacks_supply:
            return _CAUSE_OF_SUPPLY[now.supply]
        if min(now.ack_queue_ms, before.ack_queue_ms) > BUSY_QUEUE_MS:
            return "ack link"
        return self._cause_of_the_sender(index, requested_s)

    def _cause_of_the_sender(self, index: int, requested_s: float) -> Cause:
        """Judge a sender with data and credit, over a link that is not busy."""
        now, round_trip = self.states[index], self._round_trip(index, requested_s)
        is_idle, keeps_rate = _is_idle(round_trip), _keeps_a_rate(round_trip)
        lacking = next((state for state in round_trip if state.lacks_supply), None)
        if lacking is not None and (is_idle or keeps_rate):
            return _CAUSE_OF_SUPPLY[lacking.supply]
        if is_idle:
            return "pacing" if now.is_paced else "host"
        cause = "pacing" if keeps_rate else self._window_cause(index)
        return "host" if cause == "loss recovery" and self.is_lost_by_host else cause

    def _window_cause(self, index: int) -> Cause:
        """Return the phase of congestion control."""
        now, widest = self.states[index], self._widest[index]
        if now.pacing_bps is not None:
            if now.cwnd_bytes >= widest.cwnd_bytes:
                return "slow start"
            return "loss recovery" if now.lost_packets > widest.lost_packets else "pacing"
        if now.lost_packets:
            return "loss recovery"
        return "slow start" if now.is_slow_start else "congestion avoidance"

    @cached_property
    def _widest(self) -> list[SenderState]:
        """Return for each state the state with the widest window so far; the last of several equal
        ones.
        """
        widest: list[SenderState] = []
        for state in self.states:
            is_wider = not widest or state.cwnd_bytes >= widest[-1].cwnd_bytes
            widest.append(state if is_wider else widest[-1])
        return widest

    def _round_trip(self, index: int, requested_s: float) -> list[SenderState]:
        """Return the states of the round trip before a state, the last one first; empty if the
        request came later.
        """
        since = self.states[index].t_s - self.states[index].rtt_ms / 1e3
        if since < requested_s:
            return []
        return list(takewhile(lambda state: state.t_s >= since, reversed(self.states[: index + 1])))


def _is_idle(round_trip: Sequence[SenderState]) -> bool:
    """Whether less than half of the window was in flight for a whole round trip."""
    return bool(round_trip) and all(
        2 * state.in_flight_bytes < state.cwnd_bytes for state in round_trip
    )


def _keeps_a_rate(round_trip: Sequence[SenderState]) -> bool:
    """Whether the window had room in several states of a whole round trip and so did not set the
    rate.
    """
    if len(round_trip) < MIN_STATES or not all(state.has_room for state in round_trip):
        return False
    last, first = round_trip[0], round_trip[-1]
    return last.is_paced or last.cwnd_bytes < SLOW_GROWTH * first.cwnd_bytes


_CAUSE_OF_SUPPLY: Mapping[Supply, Cause] = {
    "done": "delivery",
    "slow": "application",
    "blocked": "flow control",
}


def mean(spent: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean seconds per cause of several transfers; their sum is the mean duration."""
    return {cause: sum(one.get(cause, 0.0) for one in spent) / len(spent) for cause in CAUSES}


def largest(spent: Mapping[str, float]) -> str:
    """Return the cause with the most seconds."""
    return max(spent, key=spent.__getitem__)
