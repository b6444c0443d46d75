# SPDX-License-Identifier: GPL-3.0-or-later
"""A live session on a control network, as a conductor's ssh is, while the TCP scenarios run: it
fails none of them.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from satlab.common import netns_names, paths
from satlab.common.console import ProgressLog
from satlab.common.errors import ExitStatus
from satlab.link.options import LinkOptions
from satlab.run import scenario_run
from satlab.run.run_id import new_run_id
from tests import namespaces
from tests.polling import until

pytestmark = [pytest.mark.net, pytest.mark.usefixtures("satlink")]

OTHERS = ("bbr", "reno")
"""Congestion controls that no component of these scenarios uses by default. The test takes the
first that the kernel has.
"""
NEAR, FAR = "10.99.7.1", "10.99.7.2"
SESSION = """
import socket, sys, threading, time
far, control = sys.argv[1:]
if far == "serve":
    peer, _ = socket.create_server((control, 22)).accept()
    while peer.recv(4096): pass
else:
    session = socket.socket()
    session.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    session.connect((far, 22))
    print("connected", flush=True)
    while True:
        session.sendall(b"x" * 100)
        time.sleep(0.05)
"""


def within(lab: str, node: str, *argv: str) -> list[str]:
    return ["ip", "netns", "exec", netns_names.name(lab, node), *argv]


def plant(lab: str, stop: threading.Event, planted: list[str]) -> None:
    """Keep a session between client and server on a network of its own, from the lab's start to
    `stop`.

    satlink starts when the lab has set all its routes: one that comes between would not be the
    lab's.
    """
    while not (Path("/run/satlab") / lab / "satlink.out").exists():
        if stop.wait(0.05):
            return
    ends = (("client", NEAR), ("server", FAR))
    namespaces.join(
        *(namespaces.End(netns_names.name(lab, node), "ctl0", address) for node, address in ends)
    )
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    control = next(each for each in OTHERS if each in known)
    python = (sys.executable, "-c", SESSION)
    server = subprocess.Popen(within(lab, "server", *python, "serve", FAR))
    try:
        listening = within(lab, "server", "ss", "-tlnH")
        until(lambda: f"{FAR}:22" in namespaces.run(*listening), "the server", seconds=10)
        client = subprocess.Popen(
            within(lab, "client", *python, FAR, control), stdout=subprocess.PIPE, text=True
        )
        try:
            assert client.stdout is not None
            planted.append(f"{control} {client.stdout.readline().strip()}")
            stop.wait()
            planted.append("alive" if client.poll() is None else "gone")
        finally:
            client.kill()
            client.wait()
    finally:
        server.kill()
        server.wait()


@contextmanager
def control_session(lab: str) -> Iterator[list[str]]:
    stop, planted = threading.Event(), list[str]()
    thread = threading.Thread(target=plant, args=(lab, stop, planted))
    thread.start()
    try:
        yield planted
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("tcp", {"pep": "none", "duration": "5"}),
        ("web_tcp", {"pep": "haproxy", "protocol": "h1", "runs": "1"}),
    ],
)
def test_a_live_session_on_a_control_network_fails_no_scenario(
    scenario: str, settings: dict[str, str], tmp_path: Path
) -> None:
    request = scenario_run.RunRequest(
        paths.SCENARIOS / f"{scenario}.json",
        LinkOptions(profile="leo"),
        settings,
        runs=tmp_path,
        report=False,
    )
    request = replace(request, run_id=new_run_id(scenario, "leo"))
    prepared = scenario_run.prepare(request)
    # The session ends before the lab does, which owns its interfaces.
    over = threading.Event()
    with control_session(scenario_run.lab_id(prepared.about.run_id)) as planted:
        outcome = scenario_run.execute(prepared, ProgressLog(quiet=True), over)
    assert planted[0].endswith("connected"), planted
    assert outcome.status in (ExitStatus.OK, ExitStatus.UNCALIBRATED), outcome.reason  # a busy host
    files = list((outcome.folder / "raw/files").rglob("tcp_conf_json*.json"))
    assert len(files) == 4
    seen = [each for file in files for each in json.loads(file.read_text())["connections"]]
    assert seen
    assert not any("10.99.7." in each["peer"] for each in seen)
