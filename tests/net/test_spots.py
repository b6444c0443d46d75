# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab of a profile with two spots: each terminal's packets go by the gateway of its spot."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from satlab.common.terminals import ProfileTerminal
from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from tests.net.conftest import rtts_ms

pytestmark = pytest.mark.net


@pytest.fixture
def spots(lab_id: str, satlink: Path) -> Iterator[Lab]:
    """A lab with the terminals of geo-spots: ST 1 at GW 0, ST 4 at GW 6."""
    options = LinkOptions(profile="geo-spots")
    further = options.profile_terminals(satlink)
    assert further == (ProfileTerminal(4, 6),)
    yield Lab.up(
        lab_id, options.topology(further), options.request(terminals=further), satlink=satlink
    )
    lab.down(lab_id)


def packets(the_lab: Lab, node: str) -> int:
    """Return the packets that satlink has taken from a gateway's device."""
    argv = [*the_lab.enter_argv(node), "ip", "-s", "-j", "link", "show", "sat0"]
    (link,) = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return int(link["stats64"]["tx"]["packets"])


@pytest.mark.promise("P21")
def test_p347_each_terminal_has_the_delay_and_the_gateway_of_its_spot(spots: Lab) -> None:
    server, nodes = spots.topology.address_of(Role.SERVER), spots.topology.nodes
    begun = [packets(spots, node) for node in ("gw", "gw-2")]
    own = rtts_ms(spots, "client", server)
    between = [packets(spots, node) for node in ("gw", "gw-2")]
    other = rtts_ms(spots, "client-2", server)
    ended = [packets(spots, node) for node in ("gw", "gw-2")]
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
