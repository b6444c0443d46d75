# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams over real connections: a listener that leaves makes room, and none holds the end of the
server up.
"""

import http.client
import signal
import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from satlab.service.api.conftest import HOST
from satlab.service.api_process import _Server
from satlab.service.pages.server_sent_events import Listeners
from tests.polling import until

GRACE_S = 60


@pytest.fixture
def listeners(app: FastAPI) -> Listeners:
    found: Listeners = app.state.listeners
    found.period_s = 0.05
    return found


@pytest.fixture
def server(app: FastAPI, listeners: Listeners) -> Iterator[tuple[_Server, int, threading.Thread]]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=GRACE_S)
    made = _Server(config, listeners)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]})
    thread.start()
    yield made, listener.getsockname()[1], thread
    made.handle_exit(signal.SIGTERM, None)
    thread.join()


def listen(port: int, path: str, cookie: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path, headers={"host": HOST, "cookie": cookie})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"data: ")
    return answer


def test_listeners_leave_and_the_server_ends_at_once(
    runner: TestClient, server: tuple[_Server, int, threading.Thread], listeners: Listeners
) -> None:
    made, port, thread = server
    where = "/project/satlab/scenario/ping/scenario_instance/"
    launched = runner.post(
        where, json={"arguments": {"count": "3"}, "link": {"profile": "leo"}}
    ).json()
    path = f"/ui/runs/{launched['scenario_instance_id']}/events"
    cookie = f"sessionid={runner.cookies['sessionid']}"
    first, second = (listen(port, path, cookie) for _ in range(2))
    assert listeners.count == 2
    first.close()
    until(lambda: listeners.count == 1)
    made.handle_exit(signal.SIGTERM, None)
    thread.join(GRACE_S / 2)
    assert not thread.is_alive()
    assert second.read().endswith(b"\n\n"), "the last message is whole"
