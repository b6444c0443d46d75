# SPDX-License-Identifier: GPL-3.0-or-later
"""Flows of every stack on one link, on the real clock."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ConfigError
from satlab.flows import real_clock
from tests.polling import until

pytestmark = pytest.mark.net
QUIET = ProgressLog(quiet=True)


@pytest.fixture(autouse=True)
def _needs_programs(satlink: Path) -> None:
    for program in (
        paths.SATVIRTUAL,
        paths.SATPERF,
        Path("/usr/bin/gtlsclient"),
        Path("/usr/bin/iperf3"),
    ):
        if not program.exists():
            pytest.skip(f"{program} is not installed")


def flows_file(folder: Path, duration_s: float, flows: list[dict[str, Any]], **more: Any) -> Path:
    """Write a file of flows, most of which go from server1 to client1 from the start on."""
    half = {"rate_mbps": 10, "delay_ms": 40, "queue": {"bytes": 60_000}}
    step = {"at_s": duration_s / 2, "direction": "both", "delay_ms": 80}
    given = [{"from": "server1", "to": "client1", "start_s": 0} | flow for flow in flows]
    request = {
        "schema": "satlab/virtual-flows/1",
        "seed": 1,
        "duration_s": duration_s,
        "phases_s": [duration_s / 2],
        "wire": {"forward": half, "return": half, "timeline": [step]},
        "flows": given,
        **more,
    }
    file = folder / "flows.json"
    file.write_text(json.dumps(request))
    return file


def run(file: Path) -> dict[str, Any]:
    """Carry flows out on the real clock; what they leave is in the folder `run` next to the file."""
    return real_clock.run(file, file.with_name("run"), QUIET, threading.Event())


def assert_all_ok(outcome: Mapping[str, Any]) -> None:
    reasons = {flow["id"]: flow["reason"] for flow in outcome["flows"]}
    assert {flow["status"] for flow in outcome["flows"]} == {"ok"}, reasons


TWO = {"from": "server2", "to": "client2"}
UP = {"from": "client1", "to": "server1"}


@pytest.mark.promise("P87")
def test_every_stack_shares_a_link_whose_delay_changes(tmp_path: Path) -> None:
    flows: list[dict[str, Any]] = [
        {"id": "quinn", "stack": "quinn", "congestion_control": "cubic"},
        {"id": "quiche", "stack": "quiche", "congestion_control": "reno", "start_s": 0.5},
        {"id": "ngtcp2", "stack": "ngtcp2", "congestion_control": "cubic", "datagram_bytes": 1200},
        {"id": "tcp", "stack": "tcp", "congestion_control": "cubic"} | TWO,
        {"id": "udp", "stack": "udp", "rate_mbps": 0.5, "group": "cross", "stop_s": 3},
        {"id": "up", "stack": "ngtcp2", "congestion_control": "reno", "group": "up"} | UP,
    ]
    outcome = run(flows_file(tmp_path, 6, flows))
    found = json.loads((tmp_path / "run" / "outcome.json").read_text())
    schema = json.loads((paths.SCHEMAS / "virtual-flows-outcome.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)
    assert found == outcome
    assert found["clock"] == "real"
    by_id = {flow["id"]: flow for flow in found["flows"]}
    assert_all_ok(found)
    for name in ("quinn", "quiche", "ngtcp2", "tcp", "up"):
        flow = by_id[name]
        assert flow["goodput_mbps"] > 0.1, name
        first, second = (phase["rtt_ms"]["mean"] for phase in flow["phases"])
        assert 79 < first < 300, (name, first)  # 80 ms, two queues of 48 ms, and a busy host
        assert second > first, (name, first, second)
        assert all(flow["sources"].values())
    # The full queue drops what it likes of it.
    assert by_id["udp"]["sent_packets"] == pytest.approx(3 * 0.5e6 / 8 / 1228, rel=0.2)
    received = by_id["udp"]["sent_packets"] - by_id["udp"]["lost_packets"]
    assert by_id["udp"]["goodput_mbps"] == pytest.approx(received * 1200 * 8 / 3e6, rel=0.01)
    assert 0.1 < by_id["udp"]["goodput_mbps"] < 0.6
    forward = next(
        group
        for group in found["groups"]
        if (group["group"], group["direction"]) == ("all", "forward")
    )
    assert forward["flows"] == 4
    assert forward["jain"] is not None
    assert 0.4 < forward["utilisation"] < 1
    assert found["queues"][0]["phases"][0]["max_ms"] > 5


def test_picoquic_s_flow_has_figures_of_both_ends(tmp_path: Path) -> None:
    flows: list[dict[str, Any]] = [
        {"id": "picoquic", "stack": "picoquic", "congestion_control": "bbr"}
    ]
    outcome = run(flows_file(tmp_path, 6, flows))
    (flow,) = outcome["flows"]
    assert flow["status"] == "ok", flow["reason"]
    assert flow["goodput_mbps"] > 0.1
    assert flow["sources"]["window, RTT, losses"] == "qlog of the server"
    assert 79 < flow["phases"][0]["rtt_ms"]["mean"] < 300


@pytest.mark.promise("P88")
def test_clients_take_another_address_while_their_flows_run(tmp_path: Path) -> None:
    flows: list[dict[str, Any]] = [
        {"id": "quinn", "stack": "quinn", "congestion_control": "cubic", "migrate_s": [2, 4]},
        {"id": "noq", "stack": "noq", "congestion_control": "bbr3", "migrate_s": [3]},
        {"id": "ngtcp2", "stack": "ngtcp2", "congestion_control": "reno", "datagram_bytes": 1200}
        | {"migrate_s": [3]},
        {"id": "stays", "stack": "ngtcp2", "congestion_control": "cubic", "start_s": 0.5},
    ]
    file = flows_file(tmp_path, 6, flows)
    request = json.loads(file.read_text())
    request["wire"]["timeline"][0] |= {"waiting": "flush", "outage_s": 0.3}
    file.write_text(json.dumps(request))
    outcome = run(file)
    by_id = {flow["id"]: flow for flow in outcome["flows"]}
    assert_all_ok(outcome)
    assert [
        len(by_id[name].get("moved_s", [])) for name in ("quinn", "noq", "ngtcp2", "stays")
    ] == [2, 1, 1, 0]
    for name, asked in (("quinn", 2), ("noq", 3), ("ngtcp2", 3)):
        assert asked - 0.1 <= by_id[name]["moved_s"][0] < 5.9, name
        assert by_id[name]["phases"][1]["goodput_mbps"]["mean"] > 0.05, name


def test_a_dumbbell_s_flows_run_in_nodes_of_their_own(tmp_path: Path) -> None:
    flows: list[dict[str, Any]] = [
        {"id": "a", "stack": "ngtcp2", "congestion_control": "cubic"},
        {"id": "b", "stack": "noq", "congestion_control": "reno", "migrate_s": [2]} | TWO,
        {"id": "c", "stack": "tcp", "congestion_control": "cubic", "from": "server2"},
        {"id": "d", "stack": "tcp", "congestion_control": "cubic"} | UP | {"from": "client2"},
        {"id": "e", "stack": "udp", "rate_mbps": 0.5, "to": "client2", "group": "cross"},
    ]
    outcome = run(flows_file(tmp_path, 4, flows))
    found = {flow["id"]: flow for flow in outcome["flows"]}
    assert_all_ok(outcome)
    assert all(flow["goodput_mbps"] > 0.05 for flow in found.values())
    assert len(found["b"]["moved_s"]) == 1
    # Two servers, two clients: each captured what is theirs.
    assert all(
        flow["sent_packets"] > 0 and flow["bins"]["received_bytes"][-2] is not None
        for flow in found.values()
    )


def ancestors(pid: int) -> Iterator[int]:
    """Yield the parent of a process, its parent, and so on."""
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.partition("PPid:")[2].split()[0])
        yield pid


def ours(words: tuple[str, ...]) -> int | None:
    """Return our process whose command line has these words: the workers next to us have such
    programs, too.
    """
    for entry in Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if (
                argv
                and argv[0].endswith(words[0].encode())
                and all(word.encode() in argv for word in words[1:])
            ):
                pid = int(entry.name)
                if os.getpid() in ancestors(pid):
                    return pid
        except OSError:
            continue
    return None


def kill(words: tuple[str, ...]) -> None:
    """Kill our process with these words a second after it is there."""
    until(lambda: ours(words), words[0])
    time.sleep(1)
    pid = ours(words)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.promise("P86")
def test_a_flow_that_dies_stays_in_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows: list[dict[str, Any]] = [
        {"id": "dies", "stack": "ngtcp2", "congestion_control": "bbr2"},
        {"id": "lives", "stack": "noq", "congestion_control": "bbr3", "start_s": 0.2},
    ]
    start = real_clock.FlowRunner._follow

    def follow(self: Any, *rest: Any) -> None:
        threading.Thread(target=kill, args=(("gtlsclient", "4433"),), daemon=True).start()
        start(self, *rest)

    monkeypatch.setattr(real_clock.FlowRunner, "_follow", follow)
    outcome = run(flows_file(tmp_path, 5, flows))
    dies, lives = outcome["flows"]
    assert (dies["status"], lives["status"]) == ("failed", "ok"), (dies["reason"], lives["reason"])
    assert "signal 9" in dies["reason"]
    assert 0.5 < dies["ended_s"] < 4.5
    (group,) = outcome["groups"]
    assert (group["flows"], group["failed"]) == (2, 1)
    assert real_clock.exit_status(outcome) == 1


TCP = {"stack": "tcp", "congestion_control": "cubic"}


@pytest.mark.parametrize(
    ("flows", "words"),
    [
        ([{"stack": "quinn", "congestion_control": "bbr2"}], ["bbr2 is not offered with quinn"]),
        (
            [{"stack": "quiche", "congestion_control": "cubic", "migrate_s": [1]}],
            ["none on the real clock"],
        ),
        ([TCP] * 65, ["server1 has no port left", "65 are too many for the real clock"]),
    ],
    ids=["control", "stack", "ports"],
)
@pytest.mark.promise("P87")
def test_what_cannot_be_is_named_before_a_lab_is_built(
    tmp_path: Path, flows: list[dict[str, Any]], words: list[str]
) -> None:
    """More of it: tests/test_flows.py."""
    numbered = [{"id": str(number)} | flow for number, flow in enumerate(flows)]
    with pytest.raises(ConfigError) as caught:
        real_clock.prepare(flows_file(tmp_path, 5, numbered), tmp_path)
    said = str(caught.value) + " ".join(map(str, caught.value.faults))
    assert all(one in said for one in words), said
    assert caught.value.status == 2
