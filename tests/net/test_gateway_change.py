# SPDX-License-Identifier: GPL-3.0-or-later
"""A terminal goes over to another gateway while packets flow: their delay, their way, and the lines
about it.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.common.errors import ConfigError
from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link import control
from satlab.link.change_options import LinkChange
from satlab.link.options import LinkOptions
from tests.net.conftest import rtts_ms
from tests.net.test_spots import packets

pytestmark = pytest.mark.net


def lab_of_spots(lab_id: str, satlink: Path, timeline: Path | None = None) -> Lab:
    """Bring up the terminals of geo-spots: ST 1 at GW 0, ST 4 at GW 6."""
    options = LinkOptions(profile="geo-spots", timeline=timeline)
    further = options.profile_terminals(satlink)
    return Lab.up(
        lab_id, options.topology(further), options.request(terminals=further), satlink=satlink
    )


@pytest.fixture
def spots(lab_id: str, satlink: Path) -> Iterator[Lab]:
    yield lab_of_spots(lab_id, satlink)
    lab.down(lab_id)


def changes(the_lab: Lab) -> list[dict[str, object]]:
    """Return the lines about changes of gateway that satlink has written."""
    lines = map(json.loads, Path(the_lab.config.metrics).read_text().splitlines())
    return [line for line in lines if line["type"] == "change" and "gateway" in line["set"]]


def received(the_lab: Lab, node: str) -> int:
    """Return the packets that satlink has written to a gateway's device."""
    argv = [*the_lab.enter_argv(node), "ip", "-s", "-j", "link", "show", "sat0"]
    (link,) = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return int(link["stats64"]["rx"]["packets"])


@pytest.mark.promise("P22")
def test_p365_echoes_have_the_delay_of_the_new_gateway_and_go_by_it(spots: Lab) -> None:
    server = spots.topology.address_of(Role.SERVER)
    before = rtts_ms(spots, "client", server)
    socket = Path(spots.config.control or "")
    control.change(socket, LinkChange(gateway=6, terminal=1).link_set("both"))
    time.sleep(1.0)  # the logon: a plan down, and a burst up
    begun = [received(spots, node) for node in ("gw", "gw-2")]
    after = rtts_ms(spots, "client", server)
    ended = [received(spots, node) for node in ("gw", "gw-2")]
    assert len(before) == len(after) == 5
    # 250 and 255 ms one way, and 40 ms behind the gateways; frames, slots and a busy host add to
    # that.
    assert min(before) >= 580
    assert min(after) >= 590
    assert 3 <= min(after) - min(before) <= 40
    assert [now - then for then, now in zip(begun, ended, strict=True)] == [0, 5]
    # Routes lead to the first gateway, and the packets go on by the other one.
    assert packets(spots, "gw") >= 10
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


def test_p365_a_timeline_moves_all_terminals_and_no_echo_is_lost(
    lab_id: str, satlink: Path, tmp_path: Path
) -> None:
    timeline = tmp_path / "timeline.json"
    steps = [{"at_s": 2, "set": {"direction": "both", "gateway": {"id": 6, "waiting": "keep"}}}]
    steps += [{"at_s": 5, "set": {"direction": "both", "gateway": {"id": 0, "waiting": "keep"}}}]
    timeline.write_text(json.dumps(steps))
    the_lab = lab_of_spots(lab_id, satlink, timeline)
    try:
        server = the_lab.topology.address_of(Role.SERVER)
        argv = [*the_lab.enter_argv("client-2"), *"ping -n -c 40 -i 0.2 -W 5".split(), server]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ", 0% packet loss" in done.stdout, done.stdout
        moved = changes(the_lab)
        assert len(moved) == 8
        assert {line["error"] for line in moved} == {None}
        assert {line["origin"] for line in moved} == {"timeline"}
    finally:
        lab.down(lab_id)
