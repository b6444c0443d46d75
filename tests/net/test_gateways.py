# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs with two gateways: a terminal's packets go by the gateway of its spot, and by another one
after a handover.
"""

import json
import subprocess
import time
from pathlib import Path

import pytest

from satlab.common.errors import ConfigError
from satlab.common.topology import Role
from satlab.lab.lab import Lab
from satlab.link import control
from satlab.link.change_options import LinkChange
from tests import json_lines
from tests.net.conftest import Up, rtts_ms

pytestmark = pytest.mark.net


@pytest.fixture
def spots(up: Up) -> Lab:
    """A lab with the terminals of geo-spots: ST 1 at GW 0, ST 4 at GW 6."""
    return up(profile="geo-spots")


def changes(the_lab: Lab) -> list[dict[str, object]]:
    """Return the lines about changes of gateway that satlink has written."""
    lines = json_lines.read(Path(the_lab.config.metrics), "change")
    return [line for line in lines if "gateway" in line["set"]]


def packets(the_lab: Lab, way: str) -> list[int]:
    """Return the packets that satlink has taken from (`tx`) or written to (`rx`) the device of each
    gateway.
    """
    found = []
    for node in ("gw", "gw-2"):
        argv = [*the_lab.enter_argv(node), "ip", "-s", "-j", "link", "show", "sat0"]
        said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        found.append(int(json.loads(said)[0]["stats64"][way]["packets"]))
    return found


@pytest.mark.promise("P21")
def test_p347_each_terminal_has_the_delay_and_the_gateway_of_its_spot(spots: Lab) -> None:
    server, nodes = spots.topology.address_of(Role.SERVER), spots.topology.nodes
    begun = packets(spots, "tx")
    own = rtts_ms(spots, "client", server)
    between = packets(spots, "tx")
    other = rtts_ms(spots, "client-2", server)
    ended = packets(spots, "tx")
    assert len(own) == len(other) == 5
    # 250 and 255 ms one way, and 40 ms behind the gateways; frames, slots and a busy host add to
    # that.
    assert min(own) >= 580
    assert min(other) >= 590
    assert [now - then for then, now in zip(begun, between, strict=True)] == [5, 0]
    assert [now - then for then, now in zip(between, ended, strict=True)] == [0, 5]
    # From spot to spot over both gateways: a satellite each, and no terrestrial delay.
    across = rtts_ms(spots, "client", nodes["client-2"].address)
    assert len(across) == 5
    assert min(across) >= 2 * (250 + 255)
    assert [one.gateway for one in spots.plan.terminals] == [0, 6]


@pytest.mark.promise("P22")
def test_p365_echoes_have_the_delay_of_the_new_gateway_and_go_by_it(spots: Lab) -> None:
    server = spots.topology.address_of(Role.SERVER)
    before = rtts_ms(spots, "client", server)
    socket = Path(spots.config.control or "")
    control.change(socket, LinkChange(gateway=6, terminal=1).link_set("both"))
    time.sleep(1.0)  # the logon: a plan down, and a burst up
    begun = packets(spots, "rx")
    after = rtts_ms(spots, "client", server)
    ended = packets(spots, "rx")
    assert len(before) == len(after) == 5
    assert min(before) >= 580
    assert min(after) >= 590
    assert 3 <= min(after) - min(before) <= 40
    assert [now - then for then, now in zip(begun, ended, strict=True)] == [0, 5]
    # Routes lead to the first gateway, and the packets go on by the other one.
    assert packets(spots, "tx")[0] >= 10
    assert [
        (line["direction"], line["terminal"], line["set"], line["error"]) for line in changes(spots)
    ] == [
        (direction, 1, {"gateway": {"id": 6, "waiting": "keep"}}, None)
        for direction in ("forward", "return")
    ]
    # Terminals of one gateway reach each other, too.
    assert len(rtts_ms(spots, "client", spots.topology.nodes["client-2"].address)) == 5
    state = control.state(socket)["directions"]
    assert [state[name]["terminals"]["1"] for name in ("forward", "return")] == [{"gateway": 6}] * 2
    with pytest.raises(ConfigError) as refused:
        control.change(socket, LinkChange(gateway=5).link_set("both"))
    assert "GW 5 is not in this lab (it has [0, 6])" in str(refused.value.faults)


def test_p365_a_timeline_moves_all_terminals_and_no_echo_is_lost(up: Up, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.json"
    steps = [{"at_s": 2, "set": {"direction": "both", "gateway": {"id": 6, "waiting": "keep"}}}]
    steps += [{"at_s": 5, "set": {"direction": "both", "gateway": {"id": 0, "waiting": "keep"}}}]
    timeline.write_text(json.dumps(steps))
    the_lab = up(profile="geo-spots", timeline=timeline)
    server = the_lab.topology.address_of(Role.SERVER)
    argv = [*the_lab.enter_argv("client-2"), *"ping -n -c 40 -i 0.2 -W 5".split(), server]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ", 0% packet loss" in done.stdout, done.stdout
    moved = changes(the_lab)
    assert len(moved) == 8
    assert {line["error"] for line in moved} == {None}
    assert {line["origin"] for line in moved} == {"timeline"}
