# SPDX-License-Identifier: GPL-3.0-or-later
"""Terminal, satellite and gateway as three processes in three namespaces, joined by UDP."""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from satlab.common.paths import PROFILES
from satlab.common.processes import wait
from satlab.run import link_probe
from satlab.run.link_probe import ProbePath
from tests import json_lines, namespaces

pytestmark = pytest.mark.net

BUSY_HOST_MS = 10.0
SUPERFRAME_MS = 26.5
ADDRESSES = {"st": "10.77.0.3", "sat": "10.77.0.1", "gw": "10.77.0.2"}
"""Of the emulation network, as in vagrant/lab.yml."""
SATELLITE = {"st": "198.18.63.2", "gw": "198.18.63.1"}
TERRESTRIAL = {"near": "198.18.4.1", "far": "198.18.4.2"}
HOST = {"near": "gw", "far": "server"}
TERRESTRIAL_MS = 20.0
PORT = 55500
RATE_ERROR = 0.05
"""The processes share two cores with a traffic generator and its receiver."""


class Platform:
    """Three namespaces with their processes; every call is `ip netns exec`."""

    def __init__(self, folder: Path, satlink: Path, profile: str) -> None:
        self.folder, self.satlink, self.profile = folder, satlink, profile
        self.mark = f"t{secrets.token_hex(4)}"
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.config = folder / "link.json"

    def namespace(self, entity: str) -> str:
        return f"{self.mark}-{entity}"

    def inside(self, entity: str, *argv: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(entity), *argv]

    def ip(self, entity: str, words: str) -> None:
        call("ip", "-n", self.namespace(entity), *words.split())

    def build(self) -> None:
        for entity in (*ADDRESSES, "server"):
            namespaces.add(self.namespace(entity))
        self.ip("sat", "link add emu0 mtu 9000 type bridge")
        for entity, address in SATELLITE.items():
            peer = f"peer name emu0 mtu 9000 netns {self.namespace(entity)}"
            self.ip("sat", f"link add {entity} mtu 9000 type veth {peer}")
            self.ip("sat", f"link set {entity} master emu0 up")
            self.ip(entity, "tuntap add mode tun name sat0")
            self.ip(entity, f"addr add {address}/24 dev sat0")
            self.ip(entity, "link set sat0 mtu 1500 up")
        for entity, address in ADDRESSES.items():
            self.ip(entity, f"addr add {address}/24 dev emu0")
            self.ip(entity, "link set emu0 up")
        for end, address in TERRESTRIAL.items():
            self.ip("gw", f"tuntap add mode tun name {end}")
            self.ip("gw", f"link set {end} mtu 1500 netns {self.namespace(HOST[end])}")
            self.ip(HOST[end], f"addr add {address}/24 dev {end}")
            self.ip(HOST[end], f"link set {end} up")
        call(*self.inside("gw", "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        self.ip("st", "route add default dev sat0")
        self.ip("server", f"route add default via {TERRESTRIAL['near']}")
        self.config.write_text(json.dumps(link(self), indent=1))

    def start(self, entity: str) -> None:
        home = self.folder / entity
        home.mkdir(exist_ok=True)
        argv = self.inside(entity, str(self.satlink), "run", "--entity", entity, str(self.config))
        process = subprocess.Popen(argv, cwd=home, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["ready"] is True
        self.processes[entity] = process

    def samples(self, entity: str) -> list[dict[str, Any]]:
        return json_lines.read(self.folder / entity / "link.jsonl", "sample")

    def remove(self) -> None:
        for process in self.processes.values():
            process.terminate()
            process.wait(timeout=10)
        namespaces.remove(*map(self.namespace, (*ADDRESSES, "server")))


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=20)


def link(platform: Platform) -> dict[str, Any]:
    way = {"queue": {"bdp": 1.2}, "loss": {"ratio": 0, "unit": "packet"}}
    ends = {
        name: {"netns": f"/run/netns/{platform.namespace(name)}", "tun": "sat0"}
        for name in SATELLITE
    }
    ends |= {
        end: {"netns": f"/run/netns/{platform.namespace(HOST[end])}", "tun": end}
        for end in TERRESTRIAL
    }
    return {
        "schema": "satlab/link-config/1",
        "run_id": "entities",
        "profile": str(PROFILES / platform.profile),
        "timing": "standard",
        "seed": 1,
        "forward": way,
        "return": way,
        "terrestrial_one_way_delay_ms": TERRESTRIAL_MS,
        **ends,
        "metrics": "link.jsonl",
        "metrics_interval_ms": 100,
        "emulation": {**ADDRESSES, "port": PORT},
    }


@pytest.fixture
def platform(request: pytest.FixtureRequest, tmp_path: Path, satlink: Path) -> Iterator[Platform]:
    made = Platform(tmp_path, satlink, request.param)
    try:
        made.build()
        for entity in ADDRESSES:
            made.start(entity)
        yield made
    finally:
        made.remove()


def rtts_ms(
    platform: Platform, count: int, every_s: float = 0.05, target: str = SATELLITE["gw"]
) -> list[float]:
    ping = platform.inside(
        "st", "ping", "-n", "-c", str(count), "-i", str(every_s), "-W", "4", target
    )
    done = subprocess.run(ping, capture_output=True, text=True, timeout=60, check=False)
    said = [line for line in done.stdout.splitlines() if "time=" in line]
    return [float(line.rpartition("time=")[2].removesuffix(" ms")) for line in said]


def goodput_bps(platform: Platform, offered_bps: int) -> float:
    """Steady UDP goodput from gateway to terminal, first half of 4 s left out."""
    path = ProbePath("st", SATELLITE["st"], "gw", SATELLITE["gw"])
    return link_probe.measure(platform.inside, path, offered_bps, 4).rate_bps or 0.0


def silent_ms(platform: Platform) -> float:
    """How long the terminal has not heard the satellite."""
    samples = platform.samples("st")
    value = samples[-1]["forward"]["heard"]["silent_ms"] if samples else None
    return float("inf") if value is None else float(value)


def strangers(platform: Platform) -> int:
    """Datagrams of others that the terminal dropped."""
    return sum(int(sample["forward"]["heard"]["strangers"]) for sample in platform.samples("st"))


def planned(platform: Platform, satlink: Path) -> dict[str, Any]:
    asked = subprocess.run(
        [satlink, "plan", platform.config], capture_output=True, text=True, timeout=20, check=True
    )
    plan: dict[str, Any] = json.loads(asked.stdout)
    return plan


@pytest.mark.timing
@pytest.mark.parametrize("platform", ["leo"], indirect=True)
def test_three_processes_do_what_the_plan_says_and_outlive_the_satellite(
    platform: Platform, satlink: Path
) -> None:
    plan = planned(platform, satlink)
    assert wait(lambda: silent_ms(platform) < 500, 10)
    rtts = rtts_ms(platform, 20)
    assert len(rtts) == 20
    rate, expected = goodput_bps(platform, 21_000_000), plan["forward"]["udp_goodput_bps"]
    print(
        f"RTT {min(rtts):.1f} to {max(rtts):.1f} ms, plan {plan['rtt_ms']}; {rate:.0f} bit/s, plan"
        f" {expected:.0f}"
    )
    least, most = (plan["rtt_ms"][name] - 2 * TERRESTRIAL_MS for name in ("min", "max"))
    assert least <= min(rtts)
    assert sorted(rtts)[10] <= most + BUSY_HOST_MS
    assert abs(rate / expected - 1) <= RATE_ERROR

    # A stranger, and bytes that are no datagram of the neighbour's.
    nonsense = f"exec 3<>/dev/udp/{ADDRESSES['st']}/{PORT}; echo x >&3"
    call(*platform.inside("gw", "bash", "-c", nonsense))
    assert wait(lambda: strangers(platform) == 1, 30)

    os.kill(platform.processes["sat"].pid, signal.SIGKILL)
    platform.processes.pop("sat").wait(timeout=30)
    assert wait(lambda: silent_ms(platform) > 500, 10)
    assert rtts_ms(platform, 2) == []
    platform.start("sat")
    assert wait(lambda: silent_ms(platform) < 500, 10)
    assert len(rtts_ms(platform, 5)) == 5
    for entity, process in platform.processes.items():
        assert process.poll() is None, entity


def slots_assigned(platform: Platform) -> int:
    """Bursts that the terminal's return link was granted."""
    return sum(sample["return"]["slots_assigned"] or 0 for sample in platform.samples("st"))


@pytest.mark.parametrize("platform", ["geo-dama"], indirect=True)
def test_slots_on_demand_and_the_terrestrial_segment_in_three_processes(
    platform: Platform, satlink: Path
) -> None:
    plan = planned(platform, satlink)["rtt_ms"]
    assert wait(lambda: slots_assigned(platform) > 100, 10)
    rtts = rtts_ms(platform, 4, 0.5, TERRESTRIAL["far"])
    print(f"RTT {rtts}, plan {plan}")
    assert len(rtts) == 4
    # On a busy host a plan may come late, which costs a packet a superframe or more.
    assert plan["min"] <= min(rtts) <= plan["max"] + SUPERFRAME_MS + BUSY_HOST_MS
