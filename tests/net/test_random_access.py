# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose return link has random access."""

from pathlib import Path

import pytest

from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from tests.net.conftest import rtts_ms

pytestmark = pytest.mark.net


def test_p329_packets_of_both_terminals_cross_a_return_link_with_random_access(
    lab_id: str, satlink: Path
) -> None:
    options = LinkOptions(profile="geo-aloha")
    up = Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    try:
        for client in ("client", "client-2"):
            found = rtts_ms(up, client, up.topology.address_of(Role.SERVER), count=3)
            # An echo waits for the end of an SA frame of 79.5 ms.
            assert len(found) == 3 and min(found) >= up.plan.rtt_ms.configured + 79.5
    finally:
        lab.down(lab_id)
