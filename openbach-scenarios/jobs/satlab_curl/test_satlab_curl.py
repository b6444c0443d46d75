# SPDX-License-Identifier: GPL-3.0-or-later
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from collect.curl import Curl

Trial = Callable[[str], Any]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def run(trial: Trial, *arguments: str, instance: int = 1) -> tuple[int, Any]:
    job = trial("satlab_curl")
    status, _ = job.run(*arguments, JOB_INSTANCE_ID=str(instance))
    if document := job.stored("curl_json", instance):
        Curl.model_validate(document)
    return status, document


def test_each_request_has_both_times(trial: Trial, port: int) -> None:
    code, document = run(trial, f"http://127.0.0.1:{port}/", "-n", "3")
    assert code == 0
    assert [r["status"] for r in document["requests"]] == ["ok"] * 3
    assert all(
        0 < r["connect_ms"] <= r["ttfb_ms"] <= r["total_ms"] and r["bytes"] == 5
        for r in document["requests"]
    )


def test_a_refused_page_and_a_refused_connection_are_failed_samples(
    trial: Trial, port: int
) -> None:
    code, document = run(trial, f"http://127.0.0.1:{port}/missing")
    assert (code, document["requests"][0]["reason"]) == (1, "status 404")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    code, document = run(trial, f"http://127.0.0.1:{free}/", instance=2)
    assert (code, document["requests"][0]["status"], document["requests"][0]["ttfb_ms"]) == (
        1,
        "failed",
        None,
    )


def test_a_server_that_says_nothing_is_censored(trial: Trial) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, document = run(trial, f"http://127.0.0.1:{silent.getsockname()[1]}/", "-t", "1")
    request = document["requests"][0]
    assert (code, request["status"], request["ttfb_ms"]) == (1, "censored", None)
    assert request["connect_ms"] > 0


def test_p304_addresses_of_ipv6_get_brackets(trial: Trial) -> None:
    code, document = run(trial, "http://::1/", "-t", "5")
    assert document["url"] == "http://[::1]/"
    assert (code, document["requests"][0]["status"]) in ((0, "ok"), (1, "failed")), (
        "whatever serves this host's port 80"
    )
    assert run(trial, "http://[::1]:9/", instance=2)[1]["url"] == "http://[::1]:9/"
