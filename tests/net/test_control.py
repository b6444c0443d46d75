# SPDX-License-Identifier: GPL-3.0-or-later
"""The link of a lab changes while packets cross it."""

import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from satlab.common.processes import wait
from satlab.lab.lab import Lab
from satlab.link import control
from satlab.link.config import LinkSet, Timeline, TimelineStep
from tests import json_lines
from tests.net.conftest import rtts_ms

pytestmark = pytest.mark.net

SERVER = "198.18.4.2"
UpAsAsked = Callable[..., Lab]


def control_of(the_lab: Lab) -> Path:
    """Return the control socket of a lab."""
    return Path(the_lab.config.control or "")


def changes(the_lab: Lab) -> list[dict[str, object]]:
    return json_lines.read(Path(the_lab.config.metrics), "change")


@pytest.mark.promise("P7")
def test_delay_changes_while_ping_runs(up_as_asked: UpAsAsked) -> None:
    """250 ms each way, then 100 ms: the RTT falls by 300 ms, and the change stands in the metrics."""
    the_lab = up_as_asked("geo")
    path = control_of(the_lab)
    assert path.stat().st_mode & 0o777 == 0o600
    argv = [*the_lab.enter_argv("client"), "ping", "-n", "-c", "30", "-i", "0.1", "-W", "3", SERVER]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as ping:
        assert ping.stdout is not None
        seen = [ping.stdout.readline() for _ in range(8)]
        control.change(path, LinkSet.model_validate({"direction": "both", "delay_ms": 100}))
        seen += ping.stdout.readlines()
    found = [float(value) for value in re.findall(r"time=([0-9.]+)", "".join(seen))]
    assert len(found) == 30
    before, after = found[:5], found[-5:]
    assert min(before) > 580
    assert 280 < min(after) < 330
    assert wait(lambda: len(changes(the_lab)) == 2, 30)
    assert {c["direction"] for c in changes(the_lab)} == {"forward", "return"}
    assert control.state(path)["directions"]["return"]["delay_ms"] == 100


def test_no_bytes_stop_the_link(up_as_asked: UpAsAsked) -> None:
    """Nonsense, halves and silence on the socket leave packets and later requests alone."""
    the_lab = up_as_asked("geo")
    path = control_of(the_lab)
    for junk in (b"", b"\0\xff" * 500 + b"\n", b"[" * 70000, b'{"set": {}}\n', b'{"set":'):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(junk)
    assert control.state(path)["ok"]
    assert len(rtts_ms(the_lab, "client", SERVER, count=3, every_s=0.1)) == 3
    assert the_lab.status().phase == "up"


@pytest.mark.promise("P7")
def test_a_timeline_acts_at_its_exact_times(up_as_asked: UpAsAsked) -> None:
    """Steps since the request are carried out at exact distances, the end of an outage included."""
    steps = [
        {"at_s": 0.25, "set": {"direction": "forward", "delay_ms": 20}},
        {"at_s": 0.5, "set": {"direction": "forward", "outage": 0.125}},
    ]
    timeline = Timeline(starts="on-request", steps=tuple(map(TimelineStep.model_validate, steps)))
    the_lab = up_as_asked("geo", timeline=timeline)
    path = control_of(the_lab)
    zero = control.start_timeline(path)["t_s"]
    assert wait(lambda: len(changes(the_lab)) == 3, 30)
    done = changes(the_lab)
    assert [c["set"] for c in done] == [{"delay_ms": 20.0}, {"outage": 0.125}, {"outage": False}]
    assert [float(str(c["t_s"])) - zero for c in done] == pytest.approx(
        [0.25, 0.5, 0.625], abs=1e-6
    )
    state = control.state(path)
    assert state["timeline"] == {"steps": 2, "started": True}
