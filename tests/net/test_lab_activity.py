# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs and TCP connections in namespaces that are named as those of a lab."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest

from satlab.common import netns_names
from satlab.experiment.lab_activity import Document, Sampler, Sampling
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
            subprocess.run(["ip", "netns", "add", name], check=True)
        subprocess.run(["ip", "link", "add", "lan0", "netns", names[0], "type", "veth", "peer", "name", "lan0",
                        "netns", names[1]], check=True)  # fmt: skip
        for name, address in zip(names, ("198.18.200.1", SERVER), strict=True):
            subprocess.run(["ip", "-n", name, "address", "add", f"{address}/24", "dev", "lan0"], check=True)
            subprocess.run(["ip", "-n", name, "link", "set", "lan0", "up"], check=True)
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
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def test_p315_a_transfer_has_a_window_and_its_programs_cpu_time(lab_id: str) -> None:
    sampler = Sampler(lab_id)
    assert sampler.sample() is None, "nothing to compare with"
    samples: list[Document] = []

    def has_both() -> bool:
        if found := sampler.sample():
            samples.append(found)
        return any(each["flows"] for each in samples) and any(each["programs"] for each in samples)

    until(has_both, "a flow and CPU time")
    (flow,) = next(each["flows"] for each in samples if each["flows"])
    assert (flow["node"], flow["peer"]) == ("client", f"{SERVER}:7")
    assert flow["cwnd_bytes"] > 1000
    nodes = {load["node"] for each in samples for load in each["programs"]}
    assert nodes and nodes <= {"client", "server"}


def test_a_lab_that_is_gone_ends_nothing(lab_id: str) -> None:
    found: list[Document] = []
    with Sampling(lab_id, found.append, interval_s=0.01) as sampling:
        sampling.begin()
        sampling.begin()
        until(lambda: found, "a sample")
    with Sampling("no-such-lab", found.append, interval_s=0.01) as sampling:
        sampling.begin()
