# SPDX-License-Identifier: GPL-3.0-or-later
"""Flows in a tunnel that repairs losses, on the real clock."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from satlab.common import paths
from satlab.flows import real_clock
from tests.net.test_flows import _needs_programs, assert_all_ok, flows_file, ours, run

__all__ = ["_needs_programs"]

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
SIZE = 600_000
FLOWS: list[dict[str, Any]] = [
    {"id": stack, "stack": stack, "congestion_control": control}
    | {"bytes": SIZE, "datagram_bytes": 1372}
    for stack, control in (("tcp", "cubic"), ("ngtcp2", "bbr"))
]


@pytest.fixture(autouse=True)
def _needs_satfec(_needs_programs: None) -> None:
    if not paths.SATFEC.exists():
        pytest.skip(f"{paths.SATFEC} is not built")


def lines(folder: Path, side: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (folder / "logs" / f"tunnel-{side}.log").read_text().splitlines()
    ]


def test_p274_losses_below_a_tunnel_do_not_reach_the_flows(tmp_path: Path) -> None:
    file = flows_file(tmp_path, 15, FLOWS, fec={"code": "2,100", "hold_ms": 200})
    request = json.loads(file.read_text())
    request["wire"]["forward"]["loss"] = {
        "model": "bursts",
        "period_ms": 258,
        "duration_ms": 15.2,
        "unit": "packet",
    }
    file.write_text(json.dumps(request))
    outcome = run(file)
    assert_all_ok(outcome)
    summary = next(line for line in lines(tmp_path / "run", "client") if line["type"] == "summary")
    assert summary["recovered"] > 10
    assert summary["sources_received"] + summary["recovered"] > len(FLOWS) * SIZE / 1400
    for flow in outcome["flows"]:
        assert 0 <= flow["began_s"] < flow["ended_s"]
        assert flow["sent_packets"] > SIZE / 1400


def test_p274_a_killed_end_fails_the_flows_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = real_clock.FlowRunner._follow

    def follow(self: Any, *rest: Any) -> None:
        pid = ours(("satfec", "--device"))
        assert pid is not None
        threading.Timer(1, os.kill, (pid, signal.SIGKILL)).start()
        start(self, *rest)

    monkeypatch.setattr(real_clock.FlowRunner, "_follow", follow)
    flows = [flow | {"bytes": 100_000_000} for flow in FLOWS]
    file = flows_file(tmp_path, 15, flows, fec={"code": "none", "hold_ms": 0})
    outcome = run(file)
    reasons = [flow["reason"] for flow in outcome["flows"]]
    assert real_clock.exit_status(outcome) == 1
    assert all(
        "the tunnel's end at the" in reason and "signal 9" in reason for reason in reasons
    ), reasons
