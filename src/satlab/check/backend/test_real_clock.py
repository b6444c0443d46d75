# SPDX-License-Identifier: GPL-3.0-or-later
"""What the backend on the real clock does around the programs, as far as it needs no lab."""

import contextlib
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from satlab.check.backend import real_clock
from satlab.check.backend.real_clock import RealClock
from satlab.check.endpoint.command_line import CommandLinePair
from satlab.check.endpoint.pair import TransferRequest
from satlab.check.endpoint.satperf import SatperfPair
from satlab.check.suite import Suite
from satlab.check.trace import qlog
from satlab.check.trace.ledger import Ledger
from satlab.lab.pki import Pki

SUITE = Suite.model_validate(
    {
        "schema": "satlab/suite/1",
        "name": "test",
        "source": "here",
        "link": {"rtt_ms": 650, "queue_bdp": 1},
        "marks_mb": [1],
        "cases": [
            {
                "id": "a",
                "forward_mbps": 10,
                "return_mbps": 2,
                "targets_s": [1],
                "direction": "upload",
            }
        ],
    }
)


REQUEST = TransferRequest(
    SUITE, SUITE.cases[0], 1, "198.18.4.2", Pki(Path("pki"), ""), Path("endpoints")
)


def test_what_a_pair_lacks_needs_no_lab(tmp_path: Path) -> None:
    nothing: Any = None
    found = RealClock(CommandLinePair("x", ("c",), ("s",))).sample(
        SUITE, SUITE.cases[0], nothing, 1, tmp_path
    )
    assert (found.status, found.times_s) == ("unsupported", (None,)) and "uploads" in found.reason
    assert not list(tmp_path.iterdir())


def test_a_second_client_at_once_needs_the_virtual_clock(tmp_path: Path) -> None:
    case = SUITE.cases[0].model_copy(update={"neighbour": True})
    nothing: Any = None
    found = RealClock(SatperfPair("quinn")).sample(SUITE, case, nothing, 1, tmp_path)
    assert found.status == "unsupported" and "virtual clock" in found.reason


@pytest.mark.parametrize("fields", [{"server": {"careful_resume": "on"}}, {"source_mbps": 20}])
def test_a_case_with_options_of_satperf_is_not_taken_without_them(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    case = SUITE.cases[0].model_copy(update={"direction": "download", **fields})
    nothing: Any = None
    found = RealClock(CommandLinePair("x", ("c",), ("s",))).sample(
        SUITE, case, nothing, 1, tmp_path
    )
    assert (found.status, found.reason) == ("unsupported", "the case sets options of satperf")


def test_the_timeline_starts_with_the_first_of_two_transfers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes count from there, as under the virtual clock."""
    calls: list[str] = []
    up: Any = SimpleNamespace(start_timeline=lambda: calls.append("timeline"))
    ends: Any = SimpleNamespace(
        port=1, client=lambda _, number: calls.append(f"client {number}"), sample=lambda *_: 0
    )
    capture = SimpleNamespace(running=lambda _: contextlib.nullcontext())
    for name, value in {
        "Capture": lambda *_: capture,
        "_interface": lambda *_: ("client", "lan0"),
        "_running": contextlib.nullcontext,
        "pcap": SimpleNamespace(read=lambda _: [], transfer_of=lambda *_: None),
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


@pytest.mark.parametrize(("writes", "most_s"), [(0, 2.0), (8, 3.0), (1000, 2.0)])
def test_a_server_has_time_to_write_its_qlog(
    writes: int, most_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left as long as its file grows, and not for ever."""
    monkeypatch.setattr(real_clock, "SETTLE_S", 0.3)
    monkeypatch.setattr(real_clock, "SERVER_END_S", 1.5)
    file, ended = tmp_path / "x.sqlog", threading.Event()

    def write() -> None:
        for _ in range(writes):
            with file.open("a") as lines:
                lines.write("line\n")
            if ended.wait(0.1):
                return

    ends: Any = SimpleNamespace(qlog_folders=lambda _: {"server": tmp_path})
    server: Any = SimpleNamespace(poll=lambda: None)
    nothing: Any = None
    connections = real_clock._Connections(ends, ended, ended, nothing, nothing, {}, tmp_path)
    writer, began = threading.Thread(target=write), time.monotonic()
    writer.start()
    connections._settle(server)
    took_s = time.monotonic() - began
    ended.set()
    writer.join()
    assert 0.3 < took_s < most_s
    if writes < 1000:
        assert qlog.total_bytes(tmp_path) == 5 * writes
    else:
        assert took_s >= 1.5
