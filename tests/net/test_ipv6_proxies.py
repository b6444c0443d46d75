# SPDX-License-Identifier: GPL-3.0-or-later
"""Proxies over IPv6: connections are split with the client's own address, and each leg finds the
MTU of its path.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import pytest

from collect import summaries
from satlab.common import ipv6, paths
from satlab.common.topology import Role
from satlab.lab import pki
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from tests import job_programs
from tests.net.conftest import AsPlanned, Up, measured_run
from tests.polling import until

pytestmark = pytest.mark.net
NAME = "kepler.satlab.test"
SIZE = 2_000_000
PROXIES = ("proxy-st", "proxy-gw")
PORT = 4433
SEND = """
import socket, sys
listener = socket.create_server((sys.argv[1], 4433), family=socket.AF_INET6)
connection, peer = listener.accept()
connection.recv(1)
connection.sendall(peer[0].encode().ljust(int(sys.argv[2])))
connection.close()
"""
FETCH = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 4433), 20)
connection.sendall(b"?")
received = b"".join(iter(lambda: connection.recv(65536), b""))
print(len(received), received.decode().strip())
"""


@pytest.fixture
def _haproxy() -> None:
    if not shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin"):
        pytest.skip("haproxy is not installed")


@pytest.mark.usefixtures("_haproxy")
@pytest.mark.parametrize(
    ("scenario", "more"), [("tcp", {"duration": "3"}), ("web_tcp", {"protocol": "h1"})]
)
def test_p304_connections_over_ipv6_are_split_in_a_run(
    as_planned: AsPlanned, scenario: str, more: dict[str, Any]
) -> None:
    link = LinkOptions(profile="leo", ip="6")
    result = measured_run(as_planned, scenario, link, pep="haproxy", **more)
    found = summaries(result.records)
    split = [row["value"] for row in found if row["metric"] == "pep_connections_count"]
    assert len(split) == 2
    assert all(value for value in split)
    kept = (result.folder / "raw" / "jobs.jsonl").read_text()
    assert "2001:2:0:1204::2" in kept
    assert "198.18." not in kept
    legs = {row["value"] for row in found if row["metric"] == "tcp_leg_ok"}
    assert legs == {1.0}, (
        "each leg over IPv6 has the congestion control and window that were asked for"
    )


class Path6:
    """A lab with both IP versions, whose satellite segment has a smaller MTU than the LANs, and
    proxies on it.
    """

    def __init__(self, up: Lab, folder: Path) -> None:
        self.up, self.folder = up, folder
        ends = (up.topology.nodes[up.topology.node_of(role)] for role in (Role.CLIENT, Role.SERVER))
        self.client, self.server = (
            str(ipv6.address(next(iter(node.interfaces.values())).address)) for node in ends
        )
        self.pki = pki.create(folder, [NAME], [], datetime.now(UTC))
        self.started: list[subprocess.Popen[str]] = []
        for node in ("st", "gw"):
            argv = [*up.enter_argv(node), "ip", "link", "set", "dev", "sat0", "mtu", "1400"]
            subprocess.run(argv, check=True)

    def start(self, node: str, *argv: str, log: IO[str] | int = subprocess.DEVNULL) -> None:
        command = [*self.up.enter_argv(node), *argv]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
        )
        self.started.append(process)

    def run(self, node: str, *argv: str) -> "subprocess.CompletedProcess[str]":
        inside = [*self.up.enter_argv(node), *argv]
        return subprocess.run(inside, capture_output=True, text=True, timeout=60, check=False)

    def listening(self, option: str) -> None:
        sockets = ("ss", "-Hln", option, "sport", "=", f":{PORT}")
        until(lambda: str(PORT) in self.run("server", *sockets).stdout, "the server")

    def proxy(self, node: str, engine: str) -> None:
        raw = self.folder / node
        raw.mkdir()
        port = ("-l", str(PORT)) if engine.startswith("quic") else ()
        words = (engine, self.client, self.server, *port)
        pki_folder = str(self.pki.folder)
        with (raw / "log").open("w") as log:
            command = job_programs.command("satlab_pep", node, raw, *words, SATLAB_PKI=pki_folder)
            self.start(node, *command, log=log)
        job, stats = self.started[-1], raw / "stats.jsonl"

        def is_ready() -> bool:
            return stats.exists() and '"ready": 1' in stats.read_text()

        until(lambda: is_ready() or job.poll() is not None, "the proxy")
        assert is_ready(), (raw / "log").read_text()

    def connections(self) -> list[int]:
        """End all, and return how many connections each proxy has split."""
        for process in self.started:
            process.send_signal(signal.SIGTERM)
        for process in self.started:
            process.wait(20)
        files = [next((self.folder / node).glob("files/*/pep_json.json")) for node in PROXIES]
        return [json.loads(file.read_text())["connections"] for file in files]


@pytest.fixture
def path6(up: Up, tmp_path: Path) -> Iterator[Path6]:
    made = Path6(up(profile="leo", ip="both"), tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("_haproxy")
def test_p305_legs_of_tcp_find_the_mtu_of_their_path(path6: Path6) -> None:
    """No leg's endpoint has the address of the proxy:

    ICMP errors are about connections of client and server.
    """
    for node in PROXIES:
        path6.proxy(node, "haproxy")
    path6.start("server", sys.executable, "-c", SEND, path6.server, str(SIZE))
    path6.listening("-t")
    done = path6.run("client", sys.executable, "-c", FETCH, path6.server)
    assert done.stdout.split() == [str(SIZE), path6.client], done.stderr
    assert path6.connections() == [1, 1]


def test_p305_legs_of_quic_find_the_mtu_of_their_path(path6: Path6) -> None:
    for node in PROXIES:
        path6.proxy(node, "quic")
    program, at = str(paths.PROGRAMS / "satperf"), f"[{path6.server}]:{PORT}"
    trust = ("--cert", str(path6.pki.server_cert), "--key", str(path6.pki.server_key))
    path6.start("server", program, "server", "--listen", at, *trust)
    path6.listening("-u")
    call = (
        *f"--connect {at} --server-name {NAME} --ca {path6.pki.ca_cert} --bytes {SIZE}".split(),
    )
    done = path6.run("client", program, "client", *call)
    assert done.returncode == 0, done.stderr
    (end,) = (
        line
        for line in map(json.loads, done.stdout.splitlines())
        if (line["type"], line["side"]) == ("summary", "client")
    )
    assert (end["bytes"], end["data_equal"]) == (SIZE, True)
    assert path6.connections() == [1, 1]
