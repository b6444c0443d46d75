# SPDX-License-Identifier: GPL-3.0-or-later
"""tcp_transfer.py over loopback, and its samples."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check.conftest import transfer_request
from satlab.check.endpoint import endpoint_options, tcp_pep
from satlab.check.endpoint.pair import CLIENT, TransferRequest
from satlab.check.endpoint.tcp_pep import TcpPepPair
from satlab.check.sandboxed_program import ExitReport
from satlab.common.processes import wait

DONE = ExitReport(0, "", 0.1, 1, "")


def request(folder: Path, **case: Any) -> TransferRequest:
    (folder / CLIENT).mkdir()
    return transfer_request(folder, 0.1, 1, host="127.0.0.1", **case)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = int(free.getsockname()[1])
    monkeypatch.setattr(tcp_pep, "PORT", number)
    server_request = json.dumps({"host": "127.0.0.1", "port": number})
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(tcp_pep._TRANSFER), "server", server_request]
    ) as server:
        assert wait(
            lambda: any(
                f":{number:04X}" in row for row in Path("/proc/net/tcp").read_text().split()
            ),
            10,
        )
        yield number
        server.terminate()


@pytest.mark.parametrize("direction", ["download", "upload"])
def test_a_transfer_is_timed_by_its_receiver(port: int, direction: str, tmp_path: Path) -> None:
    transfer = request(tmp_path, direction=direction)
    subprocess.run(TcpPepPair().client(transfer, 0).argv, check=True, timeout=120)
    found = TcpPepPair().sample(transfer, 0, DONE, None)
    assert found.status == "ok"
    assert found.handshake_ms is not None
    assert found.time_to_first_byte_ms is not None
    assert found.times_s[0] is not None
    assert found.times_s[1] is not None
    assert 0 < found.times_s[0] <= found.times_s[1]


def test_an_incomplete_transfer_is_not_a_success(tmp_path: Path) -> None:
    transfer = request(tmp_path)
    result = {
        "began": 1.0,
        "connected": 1.6,
        "first": 2.3,
        "bytes": 200_000,
        "reached": [2.5],
        "late": True,
    }
    (tmp_path / CLIENT / "client-0.json").write_text(json.dumps(result))
    found = TcpPepPair().sample(transfer, 0, DONE, None)
    assert (found.status, found.times_s) == ("censored", (1.5, None))
    (tmp_path / CLIENT / "client-0.json").write_text(json.dumps(result | {"late": False}))
    assert TcpPepPair().sample(transfer, 0, DONE, None).status == "failed"
    nothing = TcpPepPair().sample(transfer, 1, ExitReport(1, "", 0, 0, "Connection refused"), None)
    assert nothing.status == "failed"
    assert nothing.reason == "it ended with status 1: Connection refused"


def test_presets_have_names() -> None:
    assert [
        endpoint_options.built_in(f"tcp-pep{suffix}", {}, {}).name for suffix in ("", "-a", "-d")
    ] == [
        "TCP with PEP (HAProxy, CUBIC, initial window 100)",
        "TCP with PEP A (HAProxy, CUBIC, initial window 10)",
        "TCP with PEP D (HAProxy, CUBIC, initial window 100)",
    ]


@pytest.mark.parametrize(
    ("preset", "expected"), [(None, [("cubic", 100)]), ("c", [("cubic", 10), (33_000_000,) * 2])]
)
def test_both_proxies_have_window_and_buffers_before_they_start(
    preset: str | None,
    expected: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, ...]] = []
    up: Any = SimpleNamespace(
        set_congestion_control=lambda node, *what: calls.append((node, *what)),
        set_tcp_buffers=lambda node, *what: calls.append((node, *what)),
    )
    monkeypatch.setattr(tcp_pep, "_sender", lambda *_: ("proxy-gw", "lan0"))
    monkeypatch.setattr(
        tcp_pep, "Capture", lambda *_: SimpleNamespace(running=lambda _: contextlib.nullcontext())
    )

    def proxy(_: Any, node: str, *__: Any, **___: Any) -> contextlib.AbstractContextManager[None]:
        calls.append((node, "starts"))
        return contextlib.nullcontext()

    nodes = ["proxy-st", "proxy-gw"]
    proxies = SimpleNamespace(proxies=lambda _: nodes, connections=lambda _: 1, proxy=proxy)
    monkeypatch.setattr(tcp_pep, "pep_job", proxies)
    with TcpPepPair(preset).path(up, request(tmp_path), tmp_path) as faults:
        pass
    assert not faults
    assert calls == [
        (node, *one) for node in ("proxy-st", "proxy-gw") for one in (*expected, ("starts",))
    ]
