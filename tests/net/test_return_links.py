# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs whose return link is an SCPC carrier or has random access."""

import pytest

from satlab.common.topology import Role
from satlab.link.plan import ScpcPlan
from tests.net.conftest import Up, rtts_ms

pytestmark = pytest.mark.net


def test_p307_packets_cross_an_scpc_return_link(up: Up) -> None:
    the_lab = up(profile="geo-scpc")
    assert isinstance(the_lab.plan.return_, ScpcPlan)
    found = rtts_ms(the_lab, "client", the_lab.topology.address_of(Role.SERVER), count=3)
    assert len(found) == 3 and min(found) >= the_lab.plan.rtt_ms.configured


def test_p329_packets_of_both_terminals_cross_a_return_link_with_random_access(up: Up) -> None:
    the_lab = up(profile="geo-aloha")
    for client in ("client", "client-2"):
        found = rtts_ms(the_lab, client, the_lab.topology.address_of(Role.SERVER), count=3)
        # An echo waits for the end of an SA frame of 79.5 ms.
        assert len(found) == 3 and min(found) >= the_lab.plan.rtt_ms.configured + 79.5
