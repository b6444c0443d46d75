# SPDX-License-Identifier: GPL-3.0-or-later
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths

PROGRAM = Path(__file__).parent / "files" / "satlab_curl.py"


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


def run(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    environment = {
        **{"PATH": os.environ["PATH"], "PYTHONPATH": str(paths.SHIM), "SATLAB_RAW": str(folder)},
        **{"SATLAB_AGENT": "client", "JOB_NAME": "satlab_curl", "JOB_INSTANCE_ID": "1"},
        **{"SCENARIO_INSTANCE_ID": "1", "OWNER_SCENARIO_INSTANCE_ID": "1"},
    }
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], env=environment, check=False, timeout=60
    )
    stored = folder / "files" / "satlab_curl-1" / "curl_json.json"
    document: dict[str, Any] = json.loads(stored.read_text()) if stored.exists() else {}
    if document:
        jsonschema.validate(document, json.loads((paths.SCHEMAS / "curl.schema.json").read_text()))
    return done.returncode, document


def test_each_request_has_both_times(tmp_path: Path, port: int) -> None:
    code, document = run(tmp_path, f"http://127.0.0.1:{port}/", "-n", "3")
    assert code == 0
    assert [r["status"] for r in document["requests"]] == ["ok"] * 3
    assert all(
        0 < r["connect_ms"] <= r["ttfb_ms"] <= r["total_ms"] and r["bytes"] == 5
        for r in document["requests"]
    )


def test_a_refused_page_and_a_refused_connection_are_failed_samples(
    tmp_path: Path, port: int
) -> None:
    code, document = run(tmp_path / "a", f"http://127.0.0.1:{port}/missing")
    assert (code, document["requests"][0]["reason"]) == (1, "status 404")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        free = closed.getsockname()[1]
    code, document = run(tmp_path / "b", f"http://127.0.0.1:{free}/")
    assert (code, document["requests"][0]["status"], document["requests"][0]["ttfb_ms"]) == (
        1,
        "failed",
        None,
    )


def test_a_server_that_says_nothing_is_censored(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code, document = run(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}/", "-t", "1")
    request = document["requests"][0]
    assert (code, request["status"], request["ttfb_ms"]) == (1, "censored", None)
    assert request["connect_ms"] > 0


@pytest.mark.parametrize(
    "url",
    [
        "https://198.18.4.2/",
        "http://a.host/",
        "file:///etc/passwd",
        "http://1.2.3.4/?x",
        "http://[::1/",
    ],
)
def test_other_urls_are_refused(tmp_path: Path, url: str) -> None:
    assert run(tmp_path, url)[0] == 2


def test_p304_addresses_of_ipv6_get_brackets(tmp_path: Path) -> None:
    code, document = run(tmp_path, "http://::1/", "-t", "5")
    assert document["url"] == "http://[::1]/"
    assert (code, document["requests"][0]["status"]) in ((0, "ok"), (1, "failed")), (
        "whatever serves this host's port 80"
    )
    assert run(tmp_path / "b", "http://[::1]:9/")[1]["url"] == "http://[::1]:9/"
