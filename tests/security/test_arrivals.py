# SPDX-License-Identifier: GPL-3.0-or-later
"""T67 of the threat table: connections whose TLS handshake does not end."""

import contextlib
import gc
import socket
import ssl
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn

from satlab.lab import pki
from satlab.service.api import limits
from satlab.service.api.limits import Arrivals, LimitedProtocol, Listener
from tests.polling import until


async def _hello(_: object, __: object, send: object) -> None:
    assert callable(send)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.fixture
def arrivals(monkeypatch: pytest.MonkeyPatch) -> Arrivals:
    made = Arrivals()
    monkeypatch.setattr(LimitedProtocol, "arrivals", made)
    return made


@pytest.fixture
def port(tmp_path: Path, arrivals: Arrivals) -> Iterator[int]:
    """A service with TLS, as the API process has it."""
    assert len(arrivals) == 0
    keys = pki.create(tmp_path / "pki", ["localhost"], [], datetime.now(UTC))
    with socket.create_server(("127.0.0.1", 0), backlog=300) as opened:
        listener = Listener(fileno=opened.detach())
    config = uvicorn.Config(
        _hello,
        log_level="critical",
        lifespan="off",
        loop="asyncio",
        backlog=limits.MAX_ARRIVALS,
        http=LimitedProtocol,
        ssl_certfile=str(keys.server_cert),
        ssl_keyfile=str(keys.server_key),
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    until(lambda: running.started)
    yield int(listener.getsockname()[1])
    running.should_exit = True
    thread.join(20)


def get(port: int) -> bytes:
    context = ssl._create_unverified_context()  # noqa: S323 - its key is the test's
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain) as secure,
    ):
        secure.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        data = b""
        while chunk := secure.recv(4096):
            data += chunk
        return data


def test_t67_handshakes_that_do_not_end_are_few(port: int, arrivals: Arrivals) -> None:
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(3 * limits.MAX_ARRIVALS)
        ]
        until(lambda: len(arrivals) == limits.MAX_ARRIVALS)
        for each in silent[: limits.MAX_ARRIVALS]:
            assert each.recv(1) == b""  # the oldest were closed
        assert get(port).count(b"hello")
    assert get(port).count(b"hello")


def test_t67_failed_handshakes_leave_no_memory(port: int) -> None:
    gc.disable()  # else some are collected by chance
    try:
        for _ in range(3 * limits.COLLECTED):
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        left = [each for each in gc.get_objects() if isinstance(each, SSLProtocol)]
    finally:
        gc.enable()
    assert len(left) <= limits.COLLECTED + 2 * limits.MAX_ARRIVALS


def test_t67_the_peer_with_most_handshakes_loses_its_oldest() -> None:
    waiting = Arrivals(most=3)
    pairs = [socket.socketpair() for _ in range(5)]
    for (near, _), address in zip(pairs, ["10.0.0.1", *["10.0.0.2"] * 4], strict=True):
        waiting.add(near, address)
    ended = []
    for _, far in pairs:
        far.setblocking(False)
        try:
            ended.append(far.recv(1) == b"")
        except BlockingIOError:
            ended.append(False)
    assert ended == [False, True, True, False, False]
    assert len(waiting) == 3
    for pair in pairs:
        for each in pair:
            each.close()


def test_t67_an_ended_handshake_is_none(arrivals: Arrivals, port: int) -> None:
    assert get(port).count(b"hello")
    until(lambda: len(arrivals) == 0)
