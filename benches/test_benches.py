# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts and promises of benchmarks, without measurements."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benches import (
    bench_promises,
    flow_bench,
    peers_bench,
    quic_bench,
    sandbox_cost,
    terminal_bench,
    tunnel_bench,
)
from benches.__main__ import show
from benches.quic_bench import Transfer
from benches.terminal_bench import Shared
from benches.tunnel_bench import CASES, Carried
from satlab.campaign.host_bench import ReleaseErrors
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError


def test_a_json_result_names_the_commit_and_the_host(capsys: pytest.CaptureFixture[str]) -> None:
    show({"schema": "s", "value": 1}, [], as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["commit", "host", "schema", "value"]
    assert found["commit"] and found["host"]["cores"]


def test_packets_are_counted_per_second_of_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = [{"name": "forward", "in_packets": 1000}, {"name": "return", "in_packets": 500}]
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    program = tmp_path / "satvirtual"
    program.write_text(f"#!/bin/sh\n{burn}; echo '{json.dumps({'link': link})}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", program)
    result = flow_bench.measure((1, 2), ProgressLog(quiet=True))
    assert [case["flows"] for case in result["cases"]][:4] == [1, 1, 2, 2]
    for case in result["cases"]:
        assert case["packets"] == 1500
        assert case["packets_per_cpu_s"] == pytest.approx(1500 / case["cpu_s"], rel=0.1)
    program.write_text("#!/bin/sh\necho broken >&2; exit 2\n")
    with pytest.raises(HostError, match="broken"):
        flow_bench.measure((1,), ProgressLog(quiet=True))


def shared(count: int, p99_us: float | None = 90.0, host_p99_us: float = 50.0) -> dict[str, Any]:
    """Return the figures of a lab with so many terminals."""
    late = {"forward": ReleaseErrors(10.0, p99_us, 300.0)}
    part = 206e6 / count
    rates = (207e6, 206e6, part, part, 1.0)
    return asdict(Shared(count, 3.0, 1.0, *rates, 5, 0, 0.4, 60.0, late, host_p99_us))


def test_p195_a_result_has_one_terminal_and_many() -> None:
    result = {"rate_mbps": terminal_bench.RATE_MBPS, "one": shared(1), "shared": shared(16)}
    text = "\n".join(terminal_bench.lines(result))
    assert "1 terminal: 206.0 of 207.0 Mbit/s" in text
    assert "16 terminals: 206.0 of 207.0 Mbit/s" in text
    assert "p50 10, p99 90 us; a bare thread: p99 50 us" in text
    assert "up in 3.0 s, removed in 1.0 s" in text
    assert all(promise.met for promise in terminal_bench.promises(result))
    slow = {"received_bps": 199e6, "counted_loss_packets": 1, "up_s": 6.1, "down_s": 3.1}
    missed = terminal_bench.promises({"shared": shared(16, p99_us=None) | slow})
    assert [promise.met for promise in missed] == [False] * 5
    assert terminal_bench.promises({"shared": shared(15)}) == []


@pytest.mark.parametrize(
    ("p99_us", "host_p99_us", "word"),
    [
        (3000.0, 1600.0, "HOST"),
        (3000.0, 150.0, "MISSED"),
        (150.0, 1600.0, "kept"),
        (None, 1600.0, "MISSED"),
    ],
)
def test_a_release_error_on_a_host_that_is_as_late_is_marked_not_missed(
    p99_us: float | None, host_p99_us: float, word: str
) -> None:
    made = terminal_bench.promises({"shared": shared(16, p99_us, host_p99_us)})
    (one,) = (promise for promise in made if "p99" in promise.name)
    (line,) = bench_promises.lines({"promises": [asdict(one)]})
    assert line.split()[0] == word


def test_what_is_promised_of_tunnels_is_compared() -> None:
    plain, without, *coded = (
        Carried(case.name, case.code, case.rate_mbps, 10000, 0, 0.05, 0.06, 0.03) for case in CASES
    )
    cases = [
        replace(plain, sender_cores=None, receiver_cores=None),
        replace(without, rtt_ms=0.25),
        *coded,
    ]
    promises = tunnel_bench.promises(cases)
    assert [promise.met for promise in promises] == [True, True, True]
    shown = {"cases": list(map(asdict, cases)), "promises": list(map(asdict, promises))}
    lines = list(tunnel_bench.lines(shown))
    assert lines[0] == "no tunnel, 12 Mbit/s: 0 of 10000 packets lost, RTT 0.050 ms"
    assert lines[2].endswith("RTT 0.050 ms, CPU 6.0% and 3.0% of a core")
    assert lines[-1] == "kept       S(10,100) at 250 Mbit/s: lost: 0 (<= 0 packets)"
    cases[1:] = [
        replace(without, rtt_ms=0.36),
        replace(coded[0], sender_cores=0.13),
        replace(coded[1], lost_packets=1),
    ]
    assert [promise.met for promise in tunnel_bench.promises(cases)] == [False, False, False]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "56.1 Mbit/s, 14.9 s, data equal, 1.0% retransmitted, 3432 ACKs"),
        ({"data_equal": False}, "DATA DIFFERS"),
        ({"status": "failed", "reason": "timed out"}, "failed: timed out"),
        (None, "failed: error: UDP socket"),
    ],
)
def test_a_transfer_is_reported_with_its_check(changes: dict[str, Any] | None, said: str) -> None:
    summary = {"status": "ok", "reason": "done", "goodput_bps": 56.1e6, "t_s": 14.9}
    summary |= {"data_equal": True, "acks_sent": 3432, "cpu_s": 0.4, "retransmitted_share": 0.01}
    client = None if changes is None else summary | changes
    case = {"name": "quinn cubic", "client": client, "said": "error: UDP socket"}
    case["server"] = None if changes is None else summary
    host = {"cores": 2, "cpu": "a CPU", "system": "a system", "load_1min": 0.5}
    result = {"host": host, "load_1min_end": 1.0, "cases": [case]}
    assert said in "\n".join(quic_bench.lines(result))


def test_a_proxy_without_the_control_between_leaves_its_reason_in_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> Transfer:
        raise HostError("satlab_pep: satpep ended with status 2: built without noq")

    monkeypatch.setattr(quic_bench, "transfer", refuse)
    case = next(case for case in quic_bench.CASES if case.between)
    result = quic_bench.measure(case)
    assert result["client"] is None and "built without noq" in result["said"]
    with pytest.raises(HostError):
        quic_bench.measure(quic_bench.CASES[0])


def test_what_sandboxes_cost_is_compared_by_medians() -> None:
    result = {
        "start_ms": {"sandbox": [42.0, 40.0, 41.0], "without": [2.0, 3.0, 1.0]},
        "page_load_time_ms": {"sandbox": [1010.0, 1000.0], "without": [1000.0, 1010.0]},
        "goodput_bps": {"sandbox": [9e6], "without": [10e6]},
    }
    start, load, goodput = sandbox_cost.lines(result)
    assert start.endswith("2.00 without, 39.0 ms more; promised: at most 50 ms")
    assert load.endswith("+0.0%; n 2, spread without 1.0%")
    assert goodput.endswith("10.00 without, -10.0%; n 1, spread without 0.0%")


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put shell scripts in place of satvirtual, ns-3 and the plan."""
    link = [{"name": "forward", "in_packets": 1000}, {"name": "return", "in_packets": 500}]
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    for name, said in (("satvirtual", json.dumps({"link": link})), ("dumbbell", "700")):
        (folder / name).write_text(f"#!/bin/sh\n{burn}; echo '{said}'\n")
        (folder / name).chmod(0o755)
    monkeypatch.setattr(paths, "SATVIRTUAL", folder / "satvirtual")
    monkeypatch.setattr(peers_bench, "compiled", lambda _: folder / "dumbbell")
    way = SimpleNamespace(udp_goodput_bps=1e6, queue_bytes=1000)
    plan = SimpleNamespace(forward=way, return_=way, rtt_ms=SimpleNamespace(configured=500.0))
    monkeypatch.setattr(peers_bench, "_plan", lambda *_: plan)


def test_peers_are_compared_round_by_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch)
    result = peers_bench.simulated((1, 64), ("wire", "geo"), 2, ProgressLog(quiet=True))
    wire, geo = result["cases"][0], result["cases"][2]
    assert (wire["satvirtual"]["packets"], wire["ns-3"]["packets"]) == (1500, 700)
    assert wire["over_ns3"] == pytest.approx(1500 / 700, rel=0.5)
    assert 0.0 < wire["satvirtual"]["memory_mb"] < 20
    assert (geo["ns-3"], geo["over_wire"]) == (None, pytest.approx(1, rel=0.5))
    (tmp_path / "satvirtual").write_text("#!/bin/sh\necho broken >&2; exit 2\n")
    with pytest.raises(HostError, match="broken"):
        peers_bench.simulated((1,), ("wire",), 1, ProgressLog(quiet=True))


def test_outcomes_that_differ_and_slow_cases_miss_their_promise() -> None:
    case = {"flows": 64, "link": "wire", "loss": 0.01, "over_ns3": 1.9, "outcomes": 2}
    case["satvirtual"] = {"memory_mb": 351.0}
    assert [promise.met for promise in peers_bench.promises([case])] == [False] * 3
    case |= {"over_ns3": 2.0, "outcomes": 1, "satvirtual": {"memory_mb": 350.0}}
    assert all(promise.met for promise in peers_bench.promises([case]))


def test_a_result_replaces_the_earlier_one_in_its_file(tmp_path: Path) -> None:
    rate = dict.fromkeys(("us_per_packet", "copy_us_per_packet", "over_copy", "memory_mb"), 1.5)
    rate |= {"rate_mbps": 250.0, "late_p99_us": 60}
    ours = {"speed": 9, "memory_mb": 2.0}
    case = {"flows": 1, "link": "geo", "loss": 0.0, "satvirtual": ours, "ns-3": None}
    file = tmp_path / "peers.json"
    for result in ({"cases": [case]}, {"rates": [rate]}, {"rates": [rate | {"over_copy": 2.5}]}):
        peers_bench.write(result | {"rounds": 5}, file)
    by_command = {one["command"]: one for one in json.loads(file.read_text())["results"]}
    flows, link = (by_command[f"python -m benches peers {part}"] for part in ("flows", "link"))
    values = {figure["of"]: figure["value"] for figure in link["figures"]}
    assert values["over the copy"] == 2.5
    assert [figure["of"] for figure in flows["figures"]] == ["speed", "memory"]
