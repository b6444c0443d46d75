# SPDX-License-Identifier: GPL-3.0-or-later
"""T22 of the threat table: who makes room for a new connection, and how long a peer may take, by a
stepped clock.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.types import Message
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.server import ServerState

from satlab.service.api import limits
from satlab.service.api.limits import SESSION, LimitedBody, LimitedProtocol


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer when nothing is ready."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


@dataclass
class Transport:
    """A connection of an address. What is written is dropped."""

    address: str
    aborted: bool = False

    def get_extra_info(self, name: str) -> Any:
        return (self.address, 1) if name == "peername" else None

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.abort()

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: bytes) -> None:
        del data

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def _never(scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
    """An application that never answers."""
    del scope, receive, send
    await asyncio.Event().wait()


@dataclass
class Server:
    """Connections of one server. Its application never answers."""

    loop: SteppedLoop = field(default_factory=SteppedLoop)
    state: ServerState = field(default_factory=ServerState)
    config: uvicorn.Config = field(
        default_factory=lambda: uvicorn.Config(_never, log_level="critical")
    )

    def connect(self, address: str) -> LimitedProtocol:
        made = LimitedProtocol(self.config, self.state, {}, self.loop)
        made.connection_made(Transport(address))
        return made

    def post(self, address: str, *, body: bytes = b"", session: bool = False) -> LimitedProtocol:
        """Begin a request whose body has ten bytes."""
        made = self.connect(address)
        made.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n" + body)
        made.scope["state"][SESSION] = session
        return made

    def is_open(self, connection: LimitedProtocol) -> bool:
        return connection in self.state.connections

    def wait(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.wait_for(asyncio.sleep(seconds), None))


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    for task in asyncio.all_tasks(made.loop):
        task.cancel()
    made.loop.run_until_complete(asyncio.sleep(0))
    made.loop.close()


def test_t22_a_hundred_slow_bodies_keep_nobody_out(server: Server) -> None:
    slow = [server.post(f"198.51.100.{number % 2}") for number in range(2 * limits.MAX_PER_PEER)]
    new = server.post("192.0.2.1", body=b"0123456789")
    assert server.is_open(new) and new.app is server.config.loaded_app
    assert sum(map(server.is_open, slow)) <= limits.MAX_STRANGERS


def test_t22_the_slowest_stranger_of_the_largest_peer_makes_room(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_STRANGERS", 4)
    single = server.post("192.0.2.1")
    complete = server.post("198.51.100.1", body=b"0123456789")
    quick = server.post("198.51.100.1")
    slow = server.post("198.51.100.1")
    server.wait(2)
    quick.data_received(b"01234567")
    server.post("192.0.2.2")
    assert [server.is_open(each) for each in (single, complete, quick, slow)] == [
        True,
        True,
        True,
        False,
    ]


def test_t22_sessions_keep_their_connections_and_a_share_of_all(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 6)
    monkeypatch.setattr(limits, "MAX_STRANGERS", 3)
    streams = [server.post("192.0.2.1", session=True) for _ in range(2)]
    for number in range(20):
        server.post(f"198.51.100.{number}")
    assert all(map(server.is_open, streams))
    assert len(server.state.connections) == 2 + 3
    streams += [server.post("192.0.2.1", session=True) for _ in range(3)]
    assert all(map(server.is_open, streams))
    refused = server.post("198.51.100.1")
    assert refused.app is service_unavailable


def test_t22_loopback_is_one_peer(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PER_PEER", 2)
    local = [server.post(address) for address in ("127.0.0.1", "127.0.0.2", "::1", "127.9.9.9")]
    assert sum(map(server.is_open, local)) == 2


@pytest.mark.parametrize(
    ("session", "seconds"),
    [(False, limits.STRANGER_PAUSE_S), (True, limits.SESSION_PAUSE_S)],
)
def test_t22_an_answer_must_be_read(server: Server, session: bool, seconds: float) -> None:
    reader = server.post("192.0.2.1", body=b"0123456789", session=session)
    for _ in range(3):  # 48 KiB are read in time
        reader.pause_writing()
        server.wait(seconds - 1)
        reader.resume_writing()
    assert server.is_open(reader)
    reader.pause_writing()
    server.wait(seconds + 1)
    assert not server.is_open(reader)


def arrivals(*chunks: tuple[float, int]) -> Callable[[], Awaitable[Message]]:
    """Return an ASGI `receive`: after so many s so many bytes, each; more come never."""
    left = list(chunks)

    async def receive() -> Message:
        seconds, size = left.pop(0) if left else (1e9, 0)
        await asyncio.sleep(seconds)
        return {"type": "http.request", "body": b"x" * size, "more_body": True}

    return receive


@pytest.mark.parametrize(
    ("chunks", "rate", "lasts_s"),
    [
        ([], 1000, 5),
        ([(1, 1)] * 100, 1000, 5.005),
        ([(1, 1000)] * 3, 1000, 8),
        ([(1, 500)] * 30, 1000, 9),
        ([(1, 1)] * 100, None, 5),
    ],
    ids=["nothing", "a byte a second", "three seconds' worth", "half the rate", "a session"],
)
def test_t22_a_body_has_a_deadline_and_a_minimum_rate(
    chunks: list[tuple[float, int]], rate: float | None, lasts_s: float
) -> None:
    loop = SteppedLoop()

    async def read() -> None:
        limited = LimitedBody(arrivals(*chunks), 100_000, 5.0, rate)
        while True:
            await limited()

    with pytest.raises(Exception, match="takes too long"):
        loop.run_until_complete(read())
    loop.close()
    assert loop.now == pytest.approx(lasts_s)
