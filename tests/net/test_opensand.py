# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose satellite segment is OpenSAND's, here a stand-in: how it is called, what it finds,
how it ends.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import collect.opensand
from collect.records import Series
from satlab.common import netns_names, paths
from satlab.common.errors import ConfigError, HostError
from satlab.common.processes import wait
from satlab.common.topology import Role, load
from satlab.lab import lab, netns
from satlab.lab.lab import Lab
from satlab.link import opensand
from satlab.link.config import LinkRequest
from satlab.run import profile_import, scenario_run
from tests import json_lines, opensand_layouts
from tests.net import lab_up_process
from tests.net.conftest import AsPlanned, rtts_ms, satlab

pytestmark = pytest.mark.net

TOPOLOGY = load()
PROFILE = paths.PROFILES / "geo"
REQUEST = LinkRequest(profile=PROFILE, emulator="opensand")
SERVER = "198.18.4.2"
STANDIN = Path(__file__).with_name("standin_opensand.py")
ENTITIES = ("sat", "gw", "st")


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in in OpenSAND's place; return the file that records how it was called."""
    program = tmp_path / "opensand"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv(opensand.PROGRAM_VARIABLE, str(program))
    monkeypatch.setenv("OPENSAND_NOTE", str(tmp_path / "calls.jsonl"))
    return tmp_path / "calls.jsonl"


def ip(lab_id: str, node: str, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        ["ip", "-n", netns_names.name(lab_id, node), "-j", "-d", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return [entry for entry in json.loads(done.stdout) if entry]


def echo(the_lab: Lab) -> float:
    (rtt_ms,) = rtts_ms(the_lab, "client", SERVER, count=1, wait_s=3)
    return rtt_ms


# --- how it is called, and what it finds ----------------------------------------------------------


def test_entities_get_the_very_files_in_their_namespaces(
    lab_id: str, satlink: Path, calls: Path
) -> None:
    the_lab = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    made = json_lines.read(calls)
    by_kind = {call["kind"]: call for call in made}
    assert len(made) == 3
    for kind in ENTITIES:
        own = f"/run/satlab/{lab_id}/opensand/infrastructure_{kind}.xml"
        call, files = by_kind[kind], ["-i", own, "-t", f"{PROFILE}/topology.xml"]
        assert call["argv"] == [
            *files,
            *([] if kind == "sat" else ["-p", f"{PROFILE}/profile_{kind}.xml"]),
            "-v",
        ]
        assert call["netns"] == netns_names.path(lab_id, kind).stat().st_ino
        assert call["own_session"] is True
        assert call["niceness"] == max(-20, os.getpriority(os.PRIO_PROCESS, 0) + opensand.NICENESS)
        assert call["stdin"] == "/dev/null"
    assert 580 < echo(the_lab) < 700
    state = the_lab.status()
    assert (state.phase, state.emulator) == ("up", "opensand")
    logs = {name: Path(f"/run/satlab/{lab_id}/opensand-{name}.log") for name in ENTITIES}
    assert all("Blocks initialized" in log.read_text() for log in logs.values())
    assert {oct(log.stat().st_mode & 0o777) for log in logs.values()} == {"0o600"}
    the_lab.down()


def test_terminals_start_when_satellite_and_gateway_take_a_logon(
    lab_id: str, satlink: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSAND_LATE_S", "0.7")
    Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink).down()
    made = {call["kind"]: call for call in json_lines.read(calls)}
    assert made["st"]["started_s"] > max(made["sat"]["initialized_s"], made["gw"]["initialized_s"])


@pytest.mark.promise("P55")
def test_a_second_terminal_has_a_namespace_and_a_process(
    lab_id: str, satlink: Path, calls: Path
) -> None:
    request = LinkRequest(profile=paths.PROFILES / "geo-dama", emulator="opensand")
    the_lab = Lab.up(lab_id, TOPOLOGY, request, satlink=satlink)
    made = json_lines.read(calls)
    (second,) = [
        call for call in made if any("infrastructure_st4" in word for word in call["argv"])
    ]
    assert second["netns"] == netns_names.path(lab_id, "st4").stat().st_ino
    assert any(word.endswith("geo-dama/profile_st4.xml") for word in second["argv"])
    argv = [*the_lab.enter_argv("st4"), "ping", "-n", "-c", "1", "-W", "3", "198.18.63.1"]
    assert subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    assert 580 < echo(the_lab) < 700
    the_lab.down()


def test_frames_have_the_priority_of_their_dscp(lab_id: str, satlink: Path, calls: Path) -> None:
    the_lab = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    echo(the_lab)
    ping = f"ping -n -c 1 -W 3 -Q {46 << 2} {SERVER}"
    argv = [*the_lab.enter_argv("client"), *ping.split()]
    assert subprocess.run(argv, capture_output=True, timeout=10, check=False).returncode == 0
    made = [
        (call["kind"], call["priority"]) for call in json_lines.read(calls) if "priority" in call
    ]
    assert made == [("st", 5), ("gw", 5)]
    the_lab.down()


def test_parallel_labs_keep_their_own_probes(lab_id: str, satlink: Path, tmp_path: Path) -> None:
    """The profile names one folder of the host; each lab writes to that of its run."""
    other_id = f"{lab_id}2"
    labs = {one: tmp_path / one / "raw" for one in (lab_id, other_id)}
    for raw in labs.values():
        (raw / "logs").mkdir(parents=True)
    try:
        for one, raw in labs.items():
            request = LinkRequest(profile=PROFILE, emulator="opensand", logs=raw / "logs")
            echo(Lab.up(one, TOPOLOGY, request, satlink=satlink))
    finally:
        for one in labs:
            lab.down(one)
    for raw in labs.values():
        assert {file.name for file in raw.glob("opensand/*/*.csv")} == {"gw0_1.csv", "st0_1.csv"}
        rows = list(collect.opensand.records(raw, 0.0, 0.0))
        delays = [
            row
            for row in rows
            if isinstance(row, Series) and row.labels["probe"].endswith("phy.delay")
        ]
        assert {row.labels["entity"] for row in delays} == {"gw", "st"}
        assert all(261.0 in row.columns["opensand_probe"] for row in delays)


def test_a_lab_of_opensand_s_tools_runs_on_satlink(
    lab_id: str, satlink: Path, tmp_path: Path
) -> None:
    source = opensand_layouts.write(tmp_path / "lab", "entities", opensand_layouts.UPSTREAM)
    imported = profile_import.run(source, tmp_path / "profile").target
    the_lab = Lab.up(lab_id, TOPOLOGY, LinkRequest(profile=imported), satlink=satlink)
    assert 580 < echo(the_lab) < 700
    the_lab.down()


def test_probes_and_logs_reach_a_collector(lab_id: str, satlink: Path, tmp_path: Path) -> None:
    """Entities send within their namespaces; what they send arrives at the collector, and is in the
    run folder too.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probes:
        probes.bind(("127.0.0.1", 0))
        probes.settimeout(5)
        (tmp_path / "raw" / "logs").mkdir(parents=True)
        address = f"127.0.0.1:{probes.getsockname()[1]}"
        request = replace(REQUEST, probes=address, logs=tmp_path / "raw" / "logs")
        the_lab = Lab.up(lab_id, TOPOLOGY, request, satlink=satlink)
        try:
            heard: set[str] = set()
            while len(heard) < 2:  # the stand-in sends while packets pass
                echo(the_lab)
                heard.add(probes.recv(65536).decode().rpartition(" entity ")[2])
        finally:
            the_lab.down()
    assert heard == {"gw0", "st0"}
    assert len(list((tmp_path / "raw").glob("opensand/*/*.csv"))) == 2


def test_hosts_are_set_up_as_opensand_needs_them(lab_id: str, satlink: Path) -> None:
    the_lab = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    macs = {"gw": "00:00:00:00:00:01", "st": "00:00:00:00:00:02"}
    addresses = {"gw": "198.18.63.1", "st": "198.18.63.2"}
    for node, other in (("gw", "st"), ("st", "gw")):
        links = {link["ifname"]: link for link in ip(lab_id, node, "link")}
        assert links["sat0"]["address"] == links["tap"]["address"] == macs[node]
        assert links["tap"]["master"] == "sat0"
        assert links["tap"]["linkinfo"]["info_data"]["type"] == "tap"
        assert links["sat0"]["linkinfo"]["info_data"]["mcast_snooping"] == 0
        assert (links["sat0"]["mtu"], links["emu0"]["mtu"]) == (1500, 9000)
        neighbours = ip(lab_id, node, "neigh", "show", "dev", "sat0")
        assert [(n["dst"], n["lladdr"], n["state"]) for n in neighbours] == [
            (addresses[other], macs[other], ["PERMANENT"])
        ]
    for node in ENTITIES:
        assert not ip(lab_id, node, "-6", "addr")
        assert ip(lab_id, node, "route", "get", "239.137.194.220")[0]["dev"] == "emu0"
    hub = {link["ifname"]: link for link in ip(lab_id, "sat", "link")}
    assert hub["emu0"]["linkinfo"]["info_data"]["mcast_snooping"] == 0
    large = ["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", "8972", "10.77.0.2"]
    assert (
        subprocess.run(
            [*the_lab.enter_argv("st"), *large], check=False, capture_output=True
        ).returncode
        == 0
    )
    the_lab.down()


def test_satlink_serves_the_terrestrial_segment_alone(lab_id: str, satlink: Path) -> None:
    the_lab = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    echo(the_lab)

    def counted() -> bool:
        samples = json_lines.read(Path(the_lab.config.metrics), "sample")
        assert all(s["forward"] is None and s["return"] is None for s in samples)
        return any(s["terrestrial_up"]["out_packets"] for s in samples)

    assert wait(counted, 3)
    the_lab.down()


def test_up_twice_changes_nothing_and_another_emulator_is_refused(
    lab_id: str, satlink: Path
) -> None:
    first = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    assert Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink).found is True
    with pytest.raises(ConfigError, match="another configuration") as caught:
        Lab.up(lab_id, TOPOLOGY, LinkRequest(profile=PROFILE), satlink=satlink)
    assert {fault.place for fault in caught.value.faults} == {"link.st", "link.gw"}
    first.down()


# --- how its end is reported ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "entity", "says"),
    [
        (
            "topology",
            "gw",
            (
                r"opensand-gw ended with status 14 \(topology file not loadable\).*cannot load"
                r" .*topology"
            ),
        ),
        (
            "crash",
            "st",
            r"opensand-st ended by SIGSEGV \(a crash, .*cannot initialize the physical layer",
        ),
        (
            "idle",
            "st",
            (
                "no packet after 2 s: sat is initialized, gw is initialized, st is initialized but"
                " not logged"
            ),
        ),
        (
            "idle",
            "gw",
            "no packet after 2 s: sat is initialized, gw is initialized, st is logged on",
        ),
    ],
)
def test_a_failed_start_is_reported_and_leaves_nothing(
    lab_id: str, satlink: Path, monkeypatch: pytest.MonkeyPatch, mode: str, entity: str, says: str
) -> None:
    monkeypatch.setattr(lab, "OPENSAND_READY_DEADLINE_S", 2.0)
    monkeypatch.setenv("OPENSAND_MODE", mode)
    monkeypatch.setenv("OPENSAND_ENTITY", entity)
    with pytest.raises(HostError, match=says):
        Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    assert lab.status(lab_id).phase == "absent"


@pytest.mark.parametrize("role", opensand.START_ORDER)
def test_a_dead_entity_breaks_the_lab(lab_id: str, satlink: Path, role: Role) -> None:
    the_lab = Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    (pid,) = entity_pids(lab_id, role)
    os.kill(pid, signal.SIGKILL)
    assert wait(lambda: the_lab.status().phase == "broken", 30)
    assert f"opensand-{role.value} has ended by SIGKILL: " in the_lab.status().reason
    with pytest.raises(HostError, match="is broken"):
        Lab.attach(lab_id)
    the_lab.down()


def entity_pids(lab_id: str, role: Role) -> list[int]:
    searched, found = f"infrastructure_{role.value}.xml".encode(), []
    for pid in netns.occupants(lab_id):
        with contextlib.suppress(OSError):
            if searched in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def test_interrupted_while_it_waits(
    lab_id: str, satlink: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENSAND_MODE", "idle")
    with lab_up_process.start(lab_id, satlink, PROFILE, emulator="opensand") as child:
        assert wait(lambda: lab.status(lab_id).satlink_pid is not None, 10)
        child.send_signal(signal.SIGINT)
        assert child.wait(30) != 0
    assert lab.status(lab_id).phase == "absent"


@pytest.mark.parametrize(
    ("name", "call"), [("_start", 2), ("_start", 4), ("_await_opensand", 1), ("_await_ready", 1)]
)
def test_killed_in_the_middle(lab_id: str, satlink: Path, name: str, call: int) -> None:
    kill = ("lab", name, call)
    with lab_up_process.start(lab_id, satlink, PROFILE, *kill, emulator="opensand") as child:
        assert child.wait(20) == -signal.SIGKILL
    assert lab.status(lab_id).phase == "broken"
    assert lab.down(lab_id) is True


def test_a_host_without_opensand(
    lab_id: str, satlink: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(opensand.PROGRAM_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(HostError, match="OpenSAND is not installed") as caught:
        Lab.up(lab_id, TOPOLOGY, REQUEST, satlink=satlink)
    assert "package `opensand`" in caught.value.hint
    assert "satlink, the default" in caught.value.hint
    assert lab.status(lab_id).phase == "absent"


# --- a whole run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """A run over the command line: its status, its folder, the records that it printed."""

    status: int
    folder: Path
    rows: list[dict[str, Any]]

    def checks(self) -> dict[str, dict[str, Any]]:
        """Return the checks of its calibration by name."""
        text = (self.folder / "raw" / "calibration.json").read_text()
        return {check["name"]: check for check in json.loads(text)["checks"]}


def bulk_tcp(runs: Path) -> Ran:
    words = f"run bulk_tcp --emulator opensand --json --set duration=4 --runs {runs}"
    done = satlab(*words.split())
    (manifest,) = runs.glob("*/manifest.json")
    return Ran(done.returncode, manifest.parent, [*map(json.loads, done.stdout.splitlines())])


@pytest.mark.promise("P55")
def test_a_run_names_its_emulator_and_keeps_its_logs(as_planned: AsPlanned) -> None:
    ran = as_planned(bulk_tcp)
    folder, checks = ran.folder, ran.checks()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["emulator"], manifest["versions"]["opensand"]) == (
        "opensand",
        "OpenSAND stand-in",
    )
    assert {f"raw/logs/opensand-{kind}.log" for kind in ENTITIES} <= set(manifest["files"])
    assert json.loads((folder / "plan.json").read_text())["emulator"] == "opensand"
    assert "netns, opensand" in (folder / "report" / "index.html").read_text()
    late = {f"late_packet_ratio.terrestrial_{way}" for way in ("down", "up")}
    lost = {f"opensand_losses.{loss.cause}" for loss in collect.opensand.LOSSES}
    host = {
        "cpu_others_ratio",
        "cpu_steal_ratio",
        "cpu_wait_ratio.jobs",
        "memory_wait_ratio",
        "host_loss_ratio",
    }
    assert checks.keys() == {"rtt_ms", "forward_udp_goodput_bps"} | late | lost | host
    assert all(checks[name]["ok"] for name in lost)
    bounds = [checks["rtt_ms"][name] for name in ("low", "expected", "high")]
    assert bounds == pytest.approx([584, 602.25, 640], abs=0.1)
    assert checks["rtt_ms"]["ok"], checks["rtt_ms"]
    links = [row for row in ran.rows if row["metric"] == "link_in_packets"]
    directions = {row["labels"]["direction"] for row in links}
    assert directions == {"terrestrial_down", "terrestrial_up"}
    assert lab.status(scenario_run.lab_id(folder.name)).phase == "absent"


@pytest.mark.promise("P55")
def test_losses_of_opensand_mark_the_run_and_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in loses each hundredth packet at the GW and logs it as 8.2.0 does."""
    monkeypatch.setenv("OPENSAND_MODE", "lossy")
    monkeypatch.setenv("OPENSAND_ENTITY", "gw")
    ran = bulk_tcp(tmp_path)
    assert ran.status == 4
    judged, folder = ran.checks()["opensand_losses.gse_encapsulation"], ran.folder
    assert not judged["ok"]
    assert judged["measured"] >= 1
    counted = {
        (row["labels"]["entity"], row["labels"]["phase"]): row["value"]
        for row in ran.rows
        if row["metric"] == "opensand_losses" and row["labels"]["cause"] == "gse_encapsulation"
    }
    log = (folder / "raw" / "logs" / "opensand-gw.log").read_text()
    assert sum(counted.values()) == log.count("EncapErrorSizeBuffer")
    assert counted["gw", "scenario"] == judged["measured"]
    assert counted["gw", "calibration"] > 0
    assert not sum(value for (entity, _), value in counted.items() if entity != "gw")
    report = (folder / "report" / "index.html").read_text()
    assert "met a rest of a BBFRAME" in report
    assert "use a GSE plugin that keeps the packet" in report
