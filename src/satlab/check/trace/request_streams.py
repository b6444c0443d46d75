# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests of a client on bidirectional streams of its own, as its server sees them."""

import math
from bisect import bisect_right
from operator import itemgetter

MAX_STREAMS = 10_000
"""Further streams are ignored; 2,000 small files are the most that a suite has."""


class RequestStreams:
    """The requests that a server received, one stream each, and the streams that it allowed."""

    def __init__(self) -> None:
        self._open: set[float] = set()
        self._answered: set[float] = set()
        self._opened = 0
        """Streams that the client has opened: all below the highest one (RFC 9000, section 2.1)."""
        self._granted: list[tuple[float, float]] = []
        """When how many streams were allowed in all."""
        self._lacked = 0.0
        """Limit at which the client said that it lacks streams."""
        self.last_s = 0.0
        """When the last new request came."""

    @property
    def are_answered(self) -> bool:
        """Whether every request has its whole answer: the server has nothing more to send."""
        return self._opened > 0 and not self._open

    def requested(self, t_s: float, stream: float) -> None:
        if len(self._open) + len(self._answered) >= MAX_STREAMS:
            return
        if stream in self._open or stream in self._answered:
            return
        self.last_s = t_s
        self._open.add(stream)
        self._opened = max(self._opened, int(stream) // 4 + 1)

    def answered(self, stream: float) -> None:
        if stream in self._open:
            self._open.remove(stream)
            self._answered.add(stream)

    def grant(self, limit: float | None, t_s: float = -math.inf) -> None:
        """Allow `limit` streams in all; from the start, as in the transport parameters, or later."""
        is_more = limit is not None and (not self._granted or limit > self._granted[-1][1])
        if limit is not None and is_more and len(self._granted) < MAX_STREAMS:
            self._granted.append((t_s, limit))

    def blocked(self, limit: float | None) -> None:
        self._lacked = max(self._lacked, limit or 0.0)

    def lack_streams(self, now_s: float, rtt_s: float) -> bool:
        """Whether the client has opened all streams that it could know of: those that were allowed
        a round trip ago. False if it opened more than the file says were allowed.
        """
        if not self._granted or self._opened > self._granted[-1][1]:
            return False
        known = bisect_right(self._granted, now_s - rtt_s, key=itemgetter(0))
        limit = self._granted[known - 1][1] if known else math.inf
        return self._opened >= limit or self._opened <= self._lacked
