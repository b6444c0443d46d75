# SPDX-License-Identifier: GPL-3.0-or-later
"""Why was it slow? The time of a transfer, each moment put down to the one thing that held it up.

Linux tells likewise what a TCP sender is limited by (`tcp_info`: busy, receive window, send buffer). The rules, of
which the first that holds counts, for the time between two samples:

1. `handshake`: the sender does not know yet what to send, or its window has room while its own handshake is not
   complete: a server sends three times what it got until then (RFC 9000 section 8.1).
2. `link`: packets wait for the payload's link all the time, so it carries what it can; no sender makes that faster.
3. `delivery`: the stack has sent all there is; what is under way, and repairs of the last losses, take their time.
4. `application`: the window has room, and the application has nothing at the moment.
5. `flow control`: window has room and application has data, but the peer's credit or the send buffer is used up.
6. `ack link`: acknowledgements wait for the other link all the time: the window opens only as fast as they pass.
7. `host`: over the last round trip never as much as half of the window was in flight, though data and credit were
   there: the sender is short of CPU, or waits for a timer. One that follows acknowledgements fills at least half of a
   window that doubles with each round trip.
8. `slow start`: the window limits, and nothing was lost yet: it is still growing towards what the path carries.
9. `congestion avoidance`: the window limits, nothing was lost yet, and still it grows slowly: slow start was left
   because delay rose (HyStart++, RFC 9406), or by an ECN mark.
10. `loss recovery`: the window limits, and it is what losses have left of it.
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
    "handshake": "handshake and request, until the sender knew what to send",
    "slow start": "the congestion window limits and has not met a loss yet",
    "link": "the link carries all it can",
    "application": "the application has nothing to send",
    "flow control": "stream or connection window, or send buffer, is used up",
    "ack link": "acknowledgements queue in front of the other link",
    "congestion avoidance": "the congestion window limits and grows slowly, without having met a loss",
    "loss recovery": "the congestion window limits as losses left it",
    "host": "neither window nor data limit: CPU or timers",
    "delivery": "all is sent; the last packets are under way",
}
CAUSES = tuple(MEANING)
FULL_MS = 10.0
"""A link with more than this waiting at both ends of an interval was busy in between: two frames of 10 Mbit/s and more,
and less than a burst of a paced sender takes to drain between two samples 50 ms apart."""
DATAGRAM_BYTES = 1472
"""Most of a QUIC packet over a path for IP packets of 1500 bytes."""
Supply = Literal["done", "blocked", "slow"]


@dataclass(frozen=True)
class SenderState:
    """A sender and its path at `t_s`, s since the start of the connection. Queues as the time to carry them, ms."""

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
        """Return whether the window has room for another datagram, and for one that is being made."""
        return self.cwnd_bytes - self.in_flight_bytes >= 2 * DATAGRAM_BYTES


@dataclass(frozen=True)
class Span:
    """A stretch of the transfer and what held it up."""

    start_s: float
    end_s: float
    cause: Cause


@dataclass(frozen=True)
class TransferTrace:
    """A transfer from 0 to `end_s` with its states, by time. The sender knew what to send at `asked_s`; None: never."""

    asked_s: float | None
    end_s: float
    states: Sequence[SenderState]

    def spans(self) -> list[Span]:
        """Part 0 to `end_s` among the causes, without gap or overlap; neighbours of the same cause are one span."""
        joined: list[Span] = []
        for span in self._intervals():
            follows = joined and joined[-1].cause == span.cause
            joined.append(Span(joined.pop().start_s, span.end_s, span.cause) if follows else span)
        return joined

    def spent_s(self) -> dict[str, float]:
        """Return the seconds of each cause; their sum is `end_s`."""
        spent: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
        for span in self.spans():
            spent[span.cause] += span.end_s - span.start_s
        return spent

    def _intervals(self) -> Iterator[Span]:
        """Judge each interval by the state at its end: what an acknowledgement tells is about the time before it."""
        known = self.asked_s is not None and self.states
        asked = min(self.asked_s or 0.0, self.end_s) if known else self.end_s
        if asked > 0:
            yield Span(0.0, asked, "handshake")
        times = [state.t_s for state in self.states]
        first, after = bisect_right(times, asked), bisect_left(times, self.end_s)
        edges = [asked, *times[first:after], self.end_s]
        for index, (begin, end) in enumerate(pairwise(edges), first):
            if begin < end:
                yield Span(begin, end, self._cause(min(index, len(times) - 1), asked))

    def _cause(self, index: int, asked_s: float) -> Cause:
        now, before = self.states[index], self.states[max(0, index - 1)]
        if min(now.payload_queue_ms, before.payload_queue_ms) > FULL_MS:
            return "link"
        if now.is_handshaking and now.has_room:
            return "handshake"
        if now.is_app_limited and now.has_room:
            return _LIMITED[now.supply]
        if min(now.ack_queue_ms, before.ack_queue_ms) > FULL_MS:
            return "ack link"
        if self._is_idle(index, asked_s):
            return "host"
        return _limits(now)

    def _is_idle(self, index: int, asked_s: float) -> bool:
        """Return whether less than half of the window was in flight over a whole round trip."""
        since = self.states[index].t_s - self.states[index].rtt_ms / 1e3
        if since < asked_s:
            return False
        trip = takewhile(lambda state: state.t_s >= since, reversed(self.states[: index + 1]))
        return all(2 * state.in_flight_bytes < state.cwnd_bytes for state in trip)


def _limits(state: SenderState) -> Cause:
    """Name the phase of congestion control whose window limits."""
    if state.lost_packets:
        return "loss recovery"
    return "slow start" if state.is_slow_start else "congestion avoidance"


_LIMITED: Mapping[Supply, Cause] = {"done": "delivery", "slow": "application", "blocked": "flow control"}


def mean(spent: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean seconds of each cause over several transfers; their sum is the mean of the whole times."""
    return {cause: sum(one[cause] for one in spent) / len(spent) for cause in CAUSES}


def largest(spent: Mapping[str, float]) -> str:
    """Name the cause that took most of the time."""
    return max(spent, key=spent.__getitem__)
