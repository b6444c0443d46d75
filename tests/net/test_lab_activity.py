# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and their connections in namespaces that are named as those of a lab."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest

from satlab.common import netns_names
from satlab.common.paths import PROGRAMS
from satlab.lab import pki
from satlab.run.lab_activity import Activity, Sampler, Sampling
from tests import namespaces
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
SERVER = "198.18.200.2"
SINK = f"""
import socket
listener = socket.create_server(("{SERVER}", 7))
print("up", flush=True)
connection, _ = listener.accept()
while connection.recv(1 << 16):
    pass
"""
SOURCE = f"""
import socket, time
connection = socket.create_connection(("{SERVER}", 7), 10)
while True:
    connection.sendall(bytes(1 << 16))
    time.sleep(0.01)
"""


@pytest.fixture
def lab_id() -> Iterator[str]:
    """Make two namespaces, joined by a wire, with a transfer from one to the other."""
    found = f"act{secrets.token_hex(3)}"
    names = [netns_names.name(found, node) for node in ("client", "server")]
    started: list[subprocess.Popen[str]] = []
    try:
        for name in names:
            namespaces.add(name)
        ends = zip(names, ("198.18.200.1", SERVER), strict=True)
        namespaces.join(*(namespaces.End(name, "lan0", address) for name, address in ends))
        for name, script in ((names[1], SINK), (names[0], SOURCE)):
            inside = ["ip", "netns", "exec", name, sys.executable, "-c", script]
            started.append(subprocess.Popen(inside, stdout=subprocess.PIPE, text=True))
            if script is SINK:
                assert started[0].stdout is not None
                assert started[0].stdout.readline() == "up\n"
        yield found
    finally:
        for process in started:
            process.kill()
            process.communicate()
        namespaces.remove(*names)


@pytest.mark.promise("P61")
def test_p318_a_transfer_has_a_window_and_its_programs_cpu_time(lab_id: str) -> None:
    sampler = Sampler(lab_id)
    assert sampler.sample() is None, "nothing to compare with"
    samples: list[Activity] = []

    def has_both() -> bool:
        if found := sampler.sample():
            samples.append(found)
        return any(each["flows"] for each in samples) and any(each["programs"] for each in samples)

    until(has_both, "a flow and CPU time")
    (flow,) = next(each["flows"] for each in samples if each["flows"])
    assert (flow.node, flow.peer) == ("client", f"{SERVER}:7")
    assert flow.cwnd_bytes > 1000
    nodes = {load.node for each in samples for load in each["programs"]}
    assert nodes and nodes <= {"client", "server"}


@pytest.mark.skipif(
    not all((PROGRAMS / name).exists() for name in ("satpep", "satperf")), reason="not built"
)
def test_p348_quic_flows_have_windows_while_they_last(lab_id: str, tmp_path: Path) -> None:
    """quinn directly, quiche through satpep: the senders, and both legs of the proxy.

    Receivers are not shown.
    """
    made = pki.create(
        tmp_path / "pki", ["kepler.satlab.test"], [ip_address(SERVER)], datetime.now(UTC)
    )
    trust = ("--cert", str(made.server_cert), "--key", str(made.server_key))
    started: list[subprocess.Popen[bytes]] = []

    def start(node: str, folder: str, program: str, *argv: str) -> None:
        (tmp_path / folder).mkdir()
        entered = f"ip netns exec {netns_names.name(lab_id, node)} {PROGRAMS / program}".split()
        inside = [*entered, *argv]
        started.append(subprocess.Popen(inside, stdout=subprocess.DEVNULL, cwd=tmp_path / folder))

    def serve(port: int, stack: str) -> None:
        place = f"server --listen {SERVER}:{port} --stack {stack} --output satperf.jsonl".split()
        start("server", f"server-{stack}", "satperf", *place, *trust)

    def call(port: int, stack: str) -> None:
        place = f"--connect {SERVER}:{port} --server-name kepler.satlab.test --ca {made.ca_cert}"
        amount = f"--stack {stack} --duration 600 --source-mbps 2 --output satperf.jsonl"
        start("client", f"client-{stack}", "satperf", *f"client {place} {amount}".split())

    sampler = Sampler(lab_id)
    found: dict[tuple[str, str], int] = {}

    def has_all() -> bool:
        sample = sampler.sample()
        for flow in sample["flows"] if sample else ():
            if flow.source != "kernel":
                assert flow.node == "server", "a receiver's window says nothing"
                found[flow.source, flow.peer] = flow.cwnd_bytes
        return len(found) == 4

    try:
        serve(4433, "quinn")
        serve(4434, "quiche")
        proxy = (
            *f"quic --listen {SERVER}:4435 --next-hop {SERVER}:4434 --ca {made.ca_cert}".split(),
        )
        start("server", "proxy", "satpep", *proxy, *trust, "--metrics", "satpep.jsonl")
        server = netns_names.name(lab_id, "server")
        listening = f"ip netns exec {server} cat /proc/net/udp".split()
        ports = (":1151 ", ":1152 ", ":1153 ")
        until(
            lambda: all(port in subprocess.check_output(listening, text=True) for port in ports),
            "the servers",
        )
        call(4433, "quinn")
        call(4435, "quiche")
        until(has_all, "windows of both transfers and of both legs")
        assert all(window > 1000 for window in found.values()), found
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_lab_that_is_gone_ends_nothing(lab_id: str) -> None:
    found: list[Activity] = []
    with Sampling(lab_id, found.append, interval_s=0.01) as sampling:
        sampling.begin()
        sampling.begin()
        until(lambda: found, "a sample")
    with Sampling("no-such-lab", found.append, interval_s=0.01) as sampling:
        sampling.begin()
