# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose return link is an SCPC carrier."""

import re
import subprocess
from pathlib import Path

import pytest

from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from satlab.link.plan import ScpcPlan

pytestmark = pytest.mark.net


def test_p307_packets_cross_an_scpc_return_link(lab_id: str, satlink: Path) -> None:
    options = LinkOptions(profile="geo-scpc")
    up = Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    try:
        assert isinstance(up.plan.return_, ScpcPlan)
        server = up.topology.address_of(Role.SERVER)
        argv = [*up.enter_argv("client"), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", server]
        said = subprocess.run(argv, capture_output=True, text=True, timeout=40, check=False).stdout
        found = [float(value) for value in re.findall(r"time=([0-9.]+)", said)]
        assert len(found) == 3, said
        assert min(found) >= up.plan.rtt_ms.configured
    finally:
        lab.down(lab_id)
