# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose return link is an SCPC carrier."""

from pathlib import Path

import pytest

from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from satlab.link.plan import ScpcPlan
from tests.net.conftest import rtts_ms

pytestmark = pytest.mark.net


def test_p307_packets_cross_an_scpc_return_link(lab_id: str, satlink: Path) -> None:
    options = LinkOptions(profile="geo-scpc")
    up = Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    try:
        assert isinstance(up.plan.return_, ScpcPlan)
        found = rtts_ms(up, "client", up.topology.address_of(Role.SERVER), count=3)
        assert len(found) == 3 and min(found) >= up.plan.rtt_ms.configured
    finally:
        lab.down(lab_id)
