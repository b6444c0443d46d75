# SPDX-License-Identifier: GPL-3.0-or-later
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SEND = """
import socket
with socket.create_connection(("192.0.2.2", 5001)) as connection:
    connection.sendall(b"x" * 250_000)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
"""
TAKE = """
import socket, time
listener = socket.create_server(("192.0.2.2", 5001))
print("listening", flush=True)
connection, _ = listener.accept()
first = connection.recv(1 << 16)
began, size = time.monotonic(), 0
while block := connection.recv(1 << 16):
    size += len(block)
print(8 * size / (time.monotonic() - began), flush=True)
"""
MEASURED = ("-n", "192.0.2.0/24")


@pytest.fixture
def job(module: Callable[[str], ModuleType]) -> ModuleType:
    return module("satlab_shape")


def test_the_command_names_rate_burst_and_queue(job: ModuleType) -> None:
    words = job.command(job.parser().parse_args(["lan0", "1000000"]))
    assert (
        " ".join(words)
        == "qdisc add dev lan0 root handle 1: tbf rate 1000000bit burst 3200b limit 15000b"
    )
    words = job.command(job.parser().parse_args(["lan0", "80000000", "-l", "5000"]))
    assert " ".join(words).endswith("tbf rate 80000000bit burst 100000b limit 5000b")


@pytest.mark.net
@pytest.mark.promise("P50")
def test_a_transfer_has_the_rate_and_then_the_interface_is_as_before(
    trial: Callable[[str], Any], node: Any
) -> None:
    before = node.run("tc", "qdisc", "show", "dev", "lan0")
    job = trial("satlab_shape")
    process = job.start("lan0", "1000000", *MEASURED, within=node.within)
    job.ready()
    argv = [*node.far.within, sys.executable, "-c", TAKE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listening\n"
        node.run(sys.executable, "-c", SEND)
        rate_bps = float(receiver.stdout.readline())
    # Headers of TCP, IP and Ethernet leave some 95 % to the payload; a busy host takes more.
    assert 0.5e6 < rate_bps < 1.0e6
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    last = [record for record in job.records() if "sent_bytes" in record][-1]
    assert last["sent_bytes"] > 250_000
    assert node.run("tc", "qdisc", "show", "dev", "lan0") == before


@pytest.mark.net
def test_other_interfaces_and_disciplines_are_left_alone(
    trial: Callable[[str], Any], node: Any
) -> None:
    job = trial("satlab_shape")
    status, output = job.run("lan0", "1000000", within=node.within)
    assert (status, "it is not measured" in output) == (3, True), output
    foreign = "root handle 7: tbf rate 1mbit burst 5k limit 9k"
    node.run("tc", "qdisc", "add", "dev", "lan0", *foreign.split())
    status, output = job.run("lan0", "1000000", *MEASURED, within=node.within)
    assert (status, "has a queueing discipline already: tbf 7:" in output) == (3, True), output
    assert "7:" in node.run("tc", "qdisc", "show", "dev", "lan0")
    assert "satlab_link" in output, "where delay and losses are set"


@pytest.mark.net
def test_what_the_kernel_refuses_leaves_nothing(trial: Callable[[str], Any], node: Any) -> None:
    before = node.run("tc", "qdisc", "show", "dev", "lan0")
    status, output = trial("satlab_shape").run("lan9", "1000000", within=node.within)
    assert (status, "lan9" in output) == (3, True)
    job = trial("satlab_shape")
    process = job.start("lan0", "1000000", *MEASURED, within=node.within)
    job.ready()
    node.run("tc", "qdisc", "del", "dev", "lan0", "root")
    deadline = time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.returncode == 3
    assert node.run("tc", "qdisc", "show", "dev", "lan0") == before
