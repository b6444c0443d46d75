# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the service: tries of a peer, size and time of a request's body, connections.

No connection that waits for its peer keeps others out, and strangers leave room for users. At a
limit one connection makes room, of the peer that has most of them: the one that has been idle
longest, else the stranger's request that moves fewest bytes per s. A stranger is a peer whose
request in progress has shown no valid session. The new connection gets 503 only if all connections
belong to requests of sessions.
"""

import asyncio
import contextlib
import gc
import ipaddress
import socket
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.types import Message, Receive
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol

SESSION = "has_session"
"""Key of the ASGI state: whether the request has shown a valid session."""
MAX_CONNECTIONS = 200
MAX_PER_PEER = 100
"""Largest number of connections in all and of one peer. Programs on this host are one peer."""
MAX_STRANGERS = 150
"""Largest number of connections without a session; the others are left to sessions."""
MAX_ARRIVALS = 64
"""Largest number of TLS handshakes at a time."""
COLLECTED = 256
"""After so many arrivals the memory of failed handshakes is collected."""
REQUEST_S = 10.0
"""Time within which the headers of a request must have arrived, s, from the connection or the last
answer on.
"""
MAX_HEADERS = 16 << 10
"""Largest size of the headers, bytes."""
STRANGER_PAUSE_S, SESSION_PAUSE_S = 10.0, 60.0
"""Time within which a peer must read 48 KiB of an answer that waits for it, s (asyncio's marks of a
full buffer).
"""


def peer_network(address: str) -> str:
    """Return an IPv4 address, the /64 of an IPv6 address (one host can use all its addresses), or
    "loopback" for addresses of this host.

    Anything else, such as the empty name of a Unix socket's peer, stays as it is.
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return "loopback"
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


@dataclass
class Throttle:
    """At most `tries` per key within `window_s`.

    Holds at most `keys` keys; the oldest are dropped. Not thread-safe.
    """

    tries: int = 5
    window_s: float = 60.0
    keys: int = 10_000
    _tries: dict[str, list[float]] = field(default_factory=dict)

    def wait_s(self, now: float, key: str) -> float:
        """Return the time until the next try, s; 0 when it may be now."""
        recent = [when for when in self._tries.get(key, ()) if now - when < self.window_s]
        return recent[-self.tries] + self.window_s - now if len(recent) >= self.tries else 0.0

    def count(self, now: float, key: str) -> None:
        """Count a try."""
        self._tries[key] = [*self._tries.pop(key, ())[-self.tries :], now]
        for other in [k for k, times in self._tries.items() if now - times[-1] >= self.window_s]:
            del self._tries[other]
        while len(self._tries) > self.keys:
            del self._tries[next(iter(self._tries))]

    def withdraw(self, when: float, key: str) -> None:
        """Withdraw the try that was counted at `when`."""
        times = self._tries.get(key, [])
        if when in times:
            times.remove(when)
            if not times:
                del self._tries[key]

    def forget(self, key: str) -> None:
        self._tries.pop(key, None)


class RequestRefusedError(Exception):
    """A request is answered with this status and text."""

    def __init__(self, status: HTTPStatus, error: str) -> None:
        super().__init__(error)
        self.status = status


class LimitedBody:
    """Reads a body of at most `most` bytes within `seconds`, whatever the header content-length
    says.

    With a `rate`, bytes per s, each received byte extends the time; the whole body has at most
    `seconds + most / rate`.
    """

    def __init__(
        self, receive: Receive, most: int, seconds: float, rate: float | None = None
    ) -> None:
        self._receive, self._left, self._rate = receive, most, rate
        self._end: float | None = asyncio.get_running_loop().time() + seconds

    async def __call__(self) -> Message:
        try:
            async with asyncio.timeout_at(self._end):
                message = await self._receive()
        except TimeoutError:
            raise RequestRefusedError(
                HTTPStatus.REQUEST_TIMEOUT, "The body of the request takes too long"
            ) from None
        size = len(message.get("body", b""))
        if not message.get("more_body"):
            self._end = None  # later messages report that the client has gone
        elif self._end is not None and self._rate is not None:
            self._end += size / self._rate
        self._left -= size
        if self._left < 0:
            raise RequestRefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large"
            )
        return message


class Arrivals:
    """Connections that are accepted, and whose TLS handshake has not ended: they are no
    connections of the server yet. asyncio leaves 300 KiB of each that fails in a reference cycle.

    The one too many takes the place of the oldest of the peer that has most of them.
    """

    def __init__(self, most: int = MAX_ARRIVALS) -> None:
        self._most = most
        self._waiting: dict[int, tuple[str, socket.socket]] = {}
        self._since_collection = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: socket.socket, address: str) -> None:
        """Add a connection. If there are too many, shut another one down."""
        self._since_collection += 1
        if self._since_collection >= COLLECTED:
            self._since_collection = 0
            gc.collect()
        alive = {number: one for number, one in self._waiting.items() if one[1].fileno() == number}
        alive.pop(connection.fileno(), None)
        self._waiting = {**alive, connection.fileno(): (peer_network(address), connection)}
        if len(self._waiting) > self._most:
            held = Counter(peer for peer, _ in self._waiting.values())
            number = max(self._waiting, key=lambda each: held[self._waiting[each][0]])
            with contextlib.suppress(OSError):  # its peer has gone
                self._waiting.pop(number)[1].shutdown(socket.SHUT_RDWR)

    def remove(self, number: int) -> None:
        """Remove a connection by its descriptor: its handshake has ended."""
        self._waiting.pop(number, None)


class Listener(socket.socket):
    """A listening socket that notes who arrives."""

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self.family != socket.AF_UNIX:
            LimitedProtocol.arrivals.add(connection, address[0])
        return connection, address


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol. `connections` is shared by all instances of a server."""

    arrivals: ClassVar = Arrivals()
    peer = ""
    since = 0.0
    """Start of the wait for a request, or of the request, s of the event loop's clock."""
    received = 0
    """Bytes since then."""
    _timer: asyncio.TimerHandle | None = None
    _pause: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def has_session(self) -> bool:
        """Whether the request in progress is one of a valid session."""
        return not self.is_idle and bool(self.scope.get("state", {}).get(SESSION))

    @property
    def waits_for_peer(self) -> bool:
        """Whether the rest of a request has to come, or of an answer to be read."""
        return self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        if (own := transport.get_extra_info("socket")) is not None:
            self.arrivals.remove(own.fileno())
        super().connection_made(transport)
        self.peer = peer_network(self.client[0] if self.client else "")
        self._wait_for_request()
        others = [
            each
            for each in self.connections
            if isinstance(each, LimitedProtocol) and each is not self
        ]
        of_peer = [each for each in others if each.peer == self.peer]
        strangers = [each for each in others if not each.has_session]
        for group, most in (
            (of_peer, MAX_PER_PEER),
            (strangers, MAX_STRANGERS),
            (others, MAX_CONNECTIONS - 1),
        ):
            present = [each for each in group if each in self.connections]
            if len(present) >= most and not _make_room(present, self.loop.time()):
                self.app = service_unavailable

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_idle = self.is_idle
        self.received += len(data)
        super().data_received(data)
        if was_idle and not self.is_idle:
            self.since, self.received = self.loop.time(), len(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._pause is None:
            seconds = SESSION_PAUSE_S if self.has_session else STRANGER_PAUSE_S
            self._pause = self.loop.call_later(seconds, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def abort(self) -> None:
        self.connections.discard(self)
        self.transport.abort()

    def rate(self, now: float) -> float:
        """Return the rate at which the request has arrived so far, bytes per s, over at least one
        second.
        """
        return self.received / max(1.0, now - self.since)

    def _wait_for_request(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.since, self.received = self.loop.time(), 0
        self._timer = self.loop.call_later(REQUEST_S, self._abort_if_idle)

    def _abort_if_idle(self) -> None:
        if self.is_idle and self.flow.write_paused:  # `_pause` ends it if the answer is not read
            self._timer = self.loop.call_later(REQUEST_S, self._abort_if_idle)
        elif self.is_idle:
            self.abort()


def _make_room(connections: list[LimitedProtocol], now: float) -> bool:
    """Close one connection; return False if all are requests of sessions."""
    able = [each for each in connections if not each.has_session]
    if not able:
        return False
    held = Counter(each.peer for each in able)
    most = max(held.values())
    of_largest = [each for each in able if held[each.peer] == most]
    if idle := [each for each in of_largest if each.is_idle]:
        min(idle, key=lambda each: each.since).abort()
    else:
        min(of_largest, key=lambda each: (not each.waits_for_peer, each.rate(now))).abort()
    return True
