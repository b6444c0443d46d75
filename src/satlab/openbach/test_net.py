# SPDX-License-Identifier: GPL-3.0-or-later
"""The product's scenarios over a plain wire between two network namespaces."""

import json
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.processes import Entrance
from satlab.openbach import ScenarioResult, bind, load, load_job, run

pytestmark = pytest.mark.net

PREFIX = "satlab-test-ob"


class Wire:
    """Enters the namespaces of `wire`."""

    def usage(self, _: Sequence[str]) -> None:
        """Return nothing: what jobs use is unknown here."""

    def enter(self, node: str, job: str, variables: Mapping[str, str]) -> Entrance:
        return Entrance(("nsenter", f"--net=/run/netns/{PREFIX}-{node}", "--"), variables)

    def environment(self, node: str) -> dict[str, str]:
        return {"HOME": "/tmp"}

    def grant(self, path: Path) -> None:
        del path

    def keep(self) -> None:
        pass


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def wire() -> Iterator[Wire]:
    nodes = {"client": "198.18.4.1/24", "server": "198.18.4.2/24"}
    names = {node: f"{PREFIX}-{node}" for node in nodes}
    try:
        for name in names.values():
            ip("netns", "add", name)
        ends = ("peer", "name", "wire0", "netns", names["server"])
        ip("link", "add", "wire0", "netns", names["client"], "type", "veth", *ends)
        for node, name in names.items():
            ip("-n", name, "address", "add", nodes[node], "dev", "wire0")
            ip("-n", name, "link", "set", "wire0", "up")
        yield Wire()
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False)


def go(
    wire: Wire, raw: Path, name: str, stop: threading.Event | None = None, **values: str
) -> ScenarioResult:
    jobs = {job: load_job(paths.JOBS / job) for job in ("satlab_ping", "satlab_iperf3")}
    scenario = bind(load(paths.SCENARIOS / f"{name}.json", jobs, ["client", "server"]), values)
    return run(scenario, wire, raw, lambda _: None, stop or threading.Event(), 60.0)


def test_bulk_tcp(wire: Wire, tmp_path: Path) -> None:
    result = go(wire, tmp_path, "bulk_tcp", duration="2")
    assert result.ok, result.reason
    assert [job.status for job in result.jobs] == ["Not Running", "Not Running"]
    reports = [
        json.loads(path.read_text()) for path in sorted(tmp_path.glob("files/*/iperf3_json.json"))
    ]
    assert [report["end"]["sender_tcp_congestion"] for report in reports] == ["cubic", "cubic"]
    sent, received = reports[0]["end"]["sum_sent"], reports[1]["end"]["sum_received"]
    assert 0.9 * sent["bytes"] <= received["bytes"] <= sent["bytes"]


def test_bulk_tcp_with_a_congestion_control_that_is_not_there(wire: Wire, tmp_path: Path) -> None:
    result = go(wire, tmp_path, "bulk_tcp", duration="2", cong_control="nothing")
    assert result.outcome == "failed"
    # Both ends fail, the server for the client has gone; who is the second to be seen is stopped,
    # or has ended.
    assert "Error" in {job.status for job in result.jobs} <= {"Error", "Stopped", "Not Running"}
    said = (tmp_path / "logs" / "satlab_iperf3-2.log").read_text()
    assert "congestion control algorithm not supported" in said


def test_bulk_udp(wire: Wire, tmp_path: Path) -> None:
    result = go(wire, tmp_path, "bulk_udp", duration="1", bandwidth="2M")
    assert result.ok, result.reason


def test_ping(wire: Wire, tmp_path: Path) -> None:
    result = go(wire, tmp_path, "ping", count="3", interval="0.2")
    assert result.ok, result.reason
    (path,) = tmp_path.glob("files/satlab_ping-1/ping_json.json")
    assert json.loads(path.read_text())["received"] == 3


def test_a_ping_without_answers_fails_the_run(wire: Wire, tmp_path: Path) -> None:
    result = go(wire, tmp_path, "ping", count="1", server_ip="198.18.4.77")
    assert result.outcome == "failed"
    (path,) = tmp_path.glob("files/satlab_ping-1/ping_json.json")
    assert json.loads(path.read_text())["received"] == 0


def test_an_interrupted_transfer_keeps_what_it_has(wire: Wire, tmp_path: Path) -> None:
    stop = threading.Event()
    threading.Timer(2.0, stop.set).start()
    result = go(wire, tmp_path, "bulk_udp", stop, duration="30")
    assert (result.outcome, {job.status for job in result.jobs}) == ("interrupted", {"Stopped"})
    paths_kept = sorted(tmp_path.glob("files/*/iperf3_json.json"))
    assert paths_kept
    assert all(json.loads(path.read_text())["intervals"] for path in paths_kept)
