# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a transfer was slow: each moment of it is assigned to one cause.

Linux reports the limits of a TCP sender in the same way (`tcp_info`: busy, receive window, send
buffer). The rules for the time between two states; the first one that holds applies:

1. `unknown`: nothing tells when the sender had its request, or what it did.
2. `handshake`: the sender has no request yet. Or its window has room and its handshake is not
   complete: until then a server may send three times what it received (RFC 9000, section 8.1).
3. `link`: packets wait for the payload's link all the time. Or the link carried its capacity in
   the last round trip without a queue, as with a sender that paces by a model of the path. No
   sender could be faster.
4. `delivery`: all data was sent. The last packets, and retransmissions of the last losses, are in
   flight.
5. `application`: the window has room, and the application has no data at the moment.
6. `flow control`: window and application have more, but the peer's credit (for data or for
   streams) or the send buffer is used up. A sender that paces waits for its pacer between two
   packets, not for data: for it, 5 and 6 must hold for a whole round trip.
7. `ack link`: acknowledgements wait for their link all the time. The window opens only as fast as
   they pass.
8. `constant window`: the window limits, is the largest so far, and kept one value: for three round
   trips in slow start, which doubles it in each; later for five round trips and 2.5 s, which is
   longer than a plateau of CUBIC.
9. `host`: the sender lacks CPU, or waits for a timer. In the last round trip never more than half
   of the window was in flight, although there was data and credit. A sender that follows
   acknowledgements fills at least half of a window that doubles with each round trip. The rule
   does not apply to a sender that sends at its pacing rate.
10. `idle`: the same under a virtual clock, where no CPU and no timer is late: the sender itself
   does not use its window, and does not say why.
11. `pacing`: the sender chose a rate below the link's. In the last round trip the window always had
   room, and did not grow by a quarter or the sender sent at its pacing rate. Or its controller,
   which sets a rate, had reduced the window without a loss, as BBR does to measure the round trip.
12. `slow start`: the window limits, without a loss so far: it still grows towards the capacity of
   the path. With a controller that sets a rate: the window is the largest so far, also after
   losses.
13. `congestion avoidance`: the window limits and grows slowly, without a loss so far: slow start
    ended because the delay rose (HyStart++, RFC 9406), or by an ECN mark.
14. `loss recovery`: the window limits, after losses have reduced it. If the host, and not link and
    queues, lost most of the packets, the cause is `host`.
15. `spurious loss`: the same, if most of the packets that the sender declared lost had arrived.
16. `late acks`: a window passes once in the time until acknowledgements come. Where the window
    limits (8, 12 to 15), this is the part of that time that neither path nor queues explain, if it
    is more than LATE_MS: the receiver waits before it acknowledges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Literal, NamedTuple

from satlab.check.trace.time_sequence import Flow

Cause = Literal[
    "handshake",
    "slow start",
    "link",
    "application",
    "flow control",
    "ack link",
    "late acks",
    "constant window",
    "congestion avoidance",
    "loss recovery",
    "spurious loss",
    "pacing",
    "idle",
    "host",
    "delivery",
    "unknown",
]
MEANING: Mapping[Cause, str] = {
    "handshake": "handshake and request, until the sender has the request",
    "slow start": "the congestion window limits, without a loss so far",
    "link": "the link carries its full capacity",
    "application": "the application has no data to send",
    "flow control": "the peer's credit for data or streams, or the send buffer, is used up",
    "ack link": "acknowledgements wait in the queue of their link",
    "late acks": (
        "the congestion window limits, and acknowledgements come later than path and queues explain"
    ),
    "constant window": "the congestion window limits and stays at its largest value",
    "congestion avoidance": "the congestion window limits and grows slowly, without a loss so far",
    "loss recovery": "the congestion window limits, after losses have reduced it",
    "spurious loss": (
        "the congestion window limits, after packets reduced it that the sender declared lost and"
        " that arrived"
    ),
    "pacing": "the sender keeps to a rate of its own, or a window that it reduced without a loss",
    "idle": (
        "the sender uses less than half of its window for a round trip and does not say why; no"
        " clock was late"
    ),
    "host": (
        "neither window nor data limits: CPU or timers; or it lost the packets that reduced the"
        " window"
    ),
    "delivery": "all data was sent; the last packets are in flight",
    "unknown": "the request or the states of the sender are not known",
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
SLOW_START_ROUND_TRIPS = 3
"""Round trips of slow start after which a full window of one value is a constant one."""
CONSTANT_ROUND_TRIPS, CONSTANT_S = 5, 2.5
"""The same after slow start, and with a controller that sets a rate. CUBIC's window grows by at
least a packet in the 2.2 s around its plateau (RFC 9438, section 4.2, with C = 0.4).
"""
PAUSE_ROUND_TRIPS = 1.5
"""A window that was not full for longer did not limit. A sender of bursts fills it once in a round
trip.
"""
LATE_MS, LATE_RTT_MS = 50.0, 100.0
"""Acknowledgements that are later than path and queues explain are late from this time on, ms:
twice the usual `max_ack_delay` (RFC 9000, section 18.2). The second one is for a sender that
reports its round-trip time alone, which may be that of one packet in a queue between two of its
samples.
"""
MIN_COVERED_S = 1.0
"""Shortest time that the last state covers, s. satperf reports every 0.1 s."""
FULL_SHARE = 0.9
"""Share of the window from which it is full. Some stacks report after an acknowledgement, before
they send again.
"""
DATAGRAM_BYTES = 1472
"""Largest QUIC packet on a path for IP packets of 1500 bytes."""
Supply = Literal["done", "blocked", "slow"]
LostBy = Literal["path", "host", "nobody"]
"""Who lost most of the packets that the sender declared lost: link and queues, the host, or nobody,
as they arrived.
"""


@dataclass(frozen=True)
class SenderState:
    """A sender and its path at `t_s`, s since the start of the connection.

    - `supply`: all data was sent (done), credit or send buffer is used up (blocked), or neither
      (slow).
    - `payload_queue_ms`, `ack_queue_ms`: the time that the link needs to send its queue.
    - `link_share`: share of its capacity that the payload's link carried in the last round trip; 0
      if unknown.
    - `pacing_bps`: None if unknown.
    - `ack_ms`: mean time from sending to acknowledgement of the packets that were acknowledged
      since the state before, ms; None: none was, or unknown.
    - `late_ms`: the part of this time, or else of the round-trip time, that neither path nor queues
      explain; 0 up to LATE_MS or LATE_RTT_MS, or if it is unknown.
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
    ack_ms: float | None = None
    late_ms: float = 0.0

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
    def is_full(self) -> bool:
        """Whether the window limits, also if the state was taken before the next packets."""
        return not self.has_room or self.in_flight_bytes >= FULL_SHARE * self.cwnd_bytes

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


class LinkLoss(NamedTuple):
    """Packets of the payload's direction that the queue dropped and the link lost, since the time
    before.
    """

    t_s: float
    dropped: int
    lost: int


@dataclass(frozen=True)
class TransferTrace:
    """A transfer from 0 to `end_s`, with the states of its sender by time.

    - The sender had the request at `requested_s`; None: unknown.
    - `has_virtual_clock`: no CPU and no timer was late.
    - `began_s`: when the first transfer of the sample began, from which changes of the link count;
      below 0 for a second transfer, None: unknown.
    - `flows`: what the sender sent, over time. `link_losses`: by time.
    """

    requested_s: float | None
    end_s: float
    states: Sequence[SenderState]
    lost_by: LostBy = "path"
    has_virtual_clock: bool = False
    began_s: float | None = None
    flows: Sequence[Flow] = ()
    link_losses: Sequence[LinkLoss] = ()

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
        before it. Late acknowledgements take their part of what the window limits.
        """
        if self.requested_s is None:
            yield from _span(0.0, self.end_s, "unknown")
            return
        requested_s = min(self.requested_s, self.end_s)
        known_s = max(requested_s, self._known_until_s())
        yield from _span(0.0, requested_s, "handshake")
        times = [state.t_s for state in self.states]
        first, after = bisect_right(times, requested_s), bisect_left(times, known_s)
        edges = [requested_s, *times[first:after], known_s]
        # What late acknowledgements have cost so far, less what was assigned to them.
        late_s, is_late = 0.0, False
        for index, (begin, end) in enumerate(pairwise(edges), first):
            if begin == end:
                continue
            place = min(index, len(times) - 1)
            now, cause = self.states[place], self._cause(place, requested_s)
            if cause in _LIMITED_BY_WINDOW and now.late_ms:
                share = now.late_ms / (now.ack_ms or now.rtt_ms)
                late_s += (end - begin) * share
                # All of a round trip at once, not a part of each interval.
                is_late = late_s >= (end - begin if is_late else now.late_ms / 1e3 * (1 - share))
                if is_late:
                    cause = "late acks"
                    late_s -= end - begin
            yield Span(begin, end, cause)
        yield from _span(known_s, self.end_s, "unknown")

    def _known_until_s(self) -> float:
        """Return until when the states tell what the sender did.

        The last one holds until the end if all data was sent, and else for a round trip: the file
        of a program that was killed lacks its last states.
        """
        if not self.states:
            return 0.0
        last = self.states[-1]
        holds_s = max(last.rtt_ms / 1e3, MIN_COVERED_S)
        return self.end_s if last.supply == "done" else min(last.t_s + holds_s, self.end_s)

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
        if index in self._constant:
            return "constant window"
        if is_idle and now.is_paced:
            return "pacing"
        if is_idle:
            return "idle" if self.has_virtual_clock else "host"
        return "pacing" if keeps_rate else self._window_cause(index)

    def _window_cause(self, index: int) -> Cause:
        """Return the phase of congestion control."""
        now, widest = self.states[index], self._widest[index]
        if now.pacing_bps is not None:
            if now.cwnd_bytes >= widest.cwnd_bytes:
                return "slow start"
            is_reduced_by_loss = now.lost_packets > widest.lost_packets
            return _CAUSE_OF_LOSS[self.lost_by] if is_reduced_by_loss else "pacing"
        if now.lost_packets:
            return _CAUSE_OF_LOSS[self.lost_by]
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

    @cached_property
    def _constant(self) -> frozenset[int]:
        """Return the indices of the states with a full window that kept its value and is the widest
        so far.
        """
        found: set[int] = set()
        run: list[int] = []
        full_s = 0.0
        for index, state in enumerate(self.states):
            is_pause = state.t_s - full_s > PAUSE_ROUND_TRIPS * state.rtt_ms / 1e3
            if run and (is_pause or not self._continues(run[-1], index)):
                found |= self._constant_of(run)
                run = []
            if state.is_full:
                full_s = state.t_s
            if run or (state.is_full and not state.lacks_supply):
                run.append(index)
        return frozenset(found | self._constant_of(run))

    def _continues(self, last: int, index: int) -> bool:
        """Whether a state has the window of the one before it, with data and credit."""
        before, now = self.states[last], self.states[index]
        is_requested = self.requested_s is not None and before.t_s >= self.requested_s
        return is_requested and now.cwnd_bytes == before.cwnd_bytes and not now.lacks_supply

    def _constant_of(self, run: Sequence[int]) -> set[int]:
        """Return the states of a run with one window, if the run is long enough."""
        if len(run) < MIN_STATES:
            return set()
        first, last = self.states[run[0]], self.states[run[-1]]
        # The acknowledgement of a first flight brings the first round-trip time.
        after = self.states[min(run[-1] + 1, len(self.states) - 1)]
        round_trip_s = max(last.rtt_ms, after.rtt_ms) / 1e3
        is_widest = first.cwnd_bytes >= self._widest[run[0]].cwnd_bytes
        least_s = max(CONSTANT_ROUND_TRIPS * round_trip_s, CONSTANT_S)
        if last.is_slow_start and last.pacing_bps is None:
            least_s = SLOW_START_ROUND_TRIPS * round_trip_s
        is_long = last.t_s - first.t_s >= least_s
        return set(run) if is_widest and is_long and round_trip_s else set()

    def _round_trip(self, index: int, requested_s: float) -> list[SenderState]:
        """Return the states of the round trip before a state, the last one first; empty if the
        request came later or the round-trip time is not known yet.
        """
        since = self.states[index].t_s - self.states[index].rtt_ms / 1e3
        if since < requested_s or not self.states[index].rtt_ms:
            return []
        return list(takewhile(lambda state: state.t_s >= since, reversed(self.states[: index + 1])))


def _span(start_s: float, end_s: float, cause: Cause) -> Iterator[Span]:
    """Yield the span unless it is empty."""
    if start_s < end_s:
        yield Span(start_s, end_s, cause)


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


_LIMITED_BY_WINDOW: Collection[Cause] = (
    "constant window",
    "slow start",
    "congestion avoidance",
    "loss recovery",
    "spurious loss",
)
_CAUSE_OF_LOSS: Mapping[LostBy, Cause] = {
    "path": "loss recovery",
    "host": "host",
    "nobody": "spurious loss",
}
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
