# SPDX-License-Identifier: GPL-3.0-or-later
"""What the backend on the real clock does around the programs, as far as it needs no lab."""

import contextlib
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check.backend import real_clock
from satlab.check.backend.real_clock import RealClock
from satlab.check.conftest import small
from satlab.check.endpoint.command_pair import CommandLinePair
from satlab.check.endpoint.pair import CLIENT, SERVER, EndpointPair, TransferRequest
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.trace.packet_ledger import Ledger
from satlab.lab.pki import Pki

EXTERNAL = CommandLinePair("x", ("c",), ("s",))
SUITE = small({"targets_s": [1]}, marks_mb=[1])
REQUEST = TransferRequest(
    SUITE, SUITE.cases[0], 1, "198.18.4.2", Pki(Path("pki"), ""), Path("endpoints")
)


@pytest.mark.parametrize(
    ("ends", "fields", "reason"),
    [
        (EXTERNAL, {"direction": "upload"}, "uploads"),
        (EXTERNAL, {"server": {"careful_resume": "on"}}, "the case sets options of satperf"),
        (EXTERNAL, {"source_mbps": 20}, "the case sets options of satperf"),
        (SatperfPair("quinn"), {"neighbour": True}, "virtual clock"),
    ],
)
def test_what_a_pair_lacks_needs_no_lab(
    ends: EndpointPair, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    case = SUITE.cases[0].model_copy(update=fields)
    no_link: Any = None
    found = RealClock(ends).sample(SUITE, case, no_link, 1, tmp_path)
    assert (found.status, found.times_s) == ("unsupported", (None,)) and reason in found.reason
    assert not list(tmp_path.iterdir())


def test_the_timeline_starts_with_the_first_of_two_transfers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes count from there, as under the virtual clock."""
    calls: list[str] = []
    up: Any = SimpleNamespace(start_timeline=lambda: calls.append("timeline"))
    ends: Any = SimpleNamespace(
        client=lambda _, number: calls.append(f"client {number}"),
        transfer_of=lambda *_: None,
        sample=lambda *_: 0,
    )
    capture = SimpleNamespace(running=lambda _: contextlib.nullcontext())
    for name, value in {
        "Capture": lambda *_, **_kw: capture,
        "_interface": lambda *_: ("client", "lan0"),
        "_running": contextlib.nullcontext,
        "pcap": SimpleNamespace(read=lambda _: []),
    }.items():
        monkeypatch.setattr(real_clock, name, value)
    connections = real_clock._Connections(
        ends, threading.Event(), threading.Event(), up, REQUEST, {}, tmp_path
    )
    monkeypatch.setattr(real_clock._Connections, "_start", lambda *_: None)
    monkeypatch.setattr(real_clock._Connections, "_await", lambda *_: (None, ""))
    for number in (0, 1):
        connections._connection(connections.up, number)  # type: ignore[arg-type]
    assert calls == ["timeline", "client 0", "client 1"]


@pytest.mark.parametrize("fields", [{}, {"second_after_s": 30}, {"timeout_s": 3600}])
def test_the_server_s_sandbox_outlives_those_of_its_clients(fields: dict[str, Any]) -> None:
    """Otherwise a client that needs longer is said to be the server's fault."""
    case = SUITE.cases[0].model_copy(update=fields)
    request = replace(REQUEST, case=case)
    client_s = real_clock.sandbox_limit_s(request, CLIENT)
    assert client_s == case.timeout_s + real_clock.GRACE_S
    clients_s = request.connections * client_s + (case.second_after_s or 0)
    assert real_clock.sandbox_limit_s(request, SERVER) > clients_s + real_clock.START_S


def test_packets_of_test_cases_are_captured_whole() -> None:
    fields = {"id": "a", "forward_mbps": 10, "return_mbps": 2, "test": "transfer"}
    for size, is_whole in ((10 << 20, True), (1 << 30, False)):
        plan = small(cases=[fields | {"files_bytes": [size]}], marks_mb=())
        request = replace(REQUEST, suite=plan, case=plan.cases[0])
        assert real_clock.is_captured_whole(request) is is_whole
    assert not real_clock.is_captured_whole(REQUEST)


def test_a_sample_that_was_stopped_leaves_nothing_to_the_next_try(tmp_path: Path) -> None:
    folder = real_clock._emptied(tmp_path / "a-1")
    (folder / "link.jsonl").write_text("half")
    assert real_clock._emptied(folder) == folder and not list(folder.iterdir())


@pytest.mark.parametrize(
    ("losses", "is_ok"),
    [({"dropped": 50}, True), ({"lost": 50}, True), ({"buffer_errors": 50}, False)],
)
def test_packets_that_the_host_lost_mark_the_sample(losses: dict[str, int], is_ok: bool) -> None:
    gone = losses.get("dropped", 0) + losses.get("lost", 0)
    counts = {
        "dropped": 0,
        "lost": 0,
        "buffer_errors": 0,
        "left": 1000 - gone,
        "arrived": 1000 - gone,
    }
    found = real_clock._host_losses(
        "forward", Ledger(sent=1000, entered=1000, **{**counts, **losses})
    )
    assert (found.name, found.ok) == ("host_loss_ratio.forward", is_ok)


@pytest.mark.parametrize(
    ("written_until_s", "left_after_s"),
    [(0, real_clock.SETTLE_S), (5, 5 + real_clock.SETTLE_S), (1e9, real_clock.SERVER_END_S)],
)
def test_a_server_has_time_to_write_its_qlog(written_until_s: float, left_after_s: float) -> None:
    """It is left as long as its file grows, and not for ever."""
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    real_clock.wait_until_settled(
        lambda: int(100 * min(now_s[0], written_until_s)), lambda: False, lambda: now_s[0], sleep
    )
    assert now_s[0] == pytest.approx(left_after_s, abs=0.05)


def test_a_server_that_has_ended_is_not_waited_for() -> None:
    real_clock.wait_until_settled(
        lambda: 0, lambda: True, lambda: 0.0, lambda _: pytest.fail("slept")
    )
