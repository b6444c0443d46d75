# SPDX-License-Identifier: GPL-3.0-or-later
"""HTTP connections with limits: idle ones, which wait for a request, never keep others out.

At a limit the oldest idle connection is closed. Where every connection has a request in progress,
the new one gets 503.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

from satlab.service.api.peers import peer_network

MAX_CONNECTIONS = 200
MAX_PER_PEER = 100
"""Largest number of connections in all and of one peer. Programs on this host are one peer."""
REQUEST_S = 10.0
"""Time within which the headers of a request must have arrived, s, from the connection or the last
answer on.
"""
MAX_HEADERS = 16 << 10
"""Largest size of the headers, bytes."""


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol. `connections` is shared by all instances of a server."""

    peer = ""
    since = 0.0
    """Start of the wait for a request, s of the event loop's clock."""
    _timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.peer = peer_network(self.client[0] if self.client else "")
        self._wait_for_request()
        others = [
            each
            for each in self.connections
            if isinstance(each, LimitedProtocol) and each is not self
        ]
        of_peer = [each for each in others if each.peer == self.peer]
        if (len(of_peer) >= MAX_PER_PEER and not _close_oldest(of_peer)) or (
            len(self.connections) >= MAX_CONNECTIONS and not _close_oldest(others)
        ):
            self.app = service_unavailable

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def _wait_for_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.since = self.loop.time()
        self._timer = self.loop.call_later(REQUEST_S, self._abort_if_idle)

    def _abort_if_idle(self) -> None:
        if self.is_idle:
            self.abort()


def _close_oldest(connections: list[LimitedProtocol]) -> bool:
    """Close the connection that has been idle longest; return False if none is idle."""
    idle = [each for each in connections if each.is_idle]
    if not idle:
        return False
    min(idle, key=lambda each: each.since).abort()
    return True
