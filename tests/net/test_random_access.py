# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab whose return link has random access."""

import re
import subprocess
from pathlib import Path

import pytest

from satlab.common.topology import Role
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions

pytestmark = pytest.mark.net


def test_p329_packets_of_both_terminals_cross_a_return_link_with_random_access(
    lab_id: str, satlink: Path
) -> None:
    options = LinkOptions(profile="geo-aloha")
    up = Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    try:
        server = up.topology.address_of(Role.SERVER)
        for client in ("client", "client-2"):
            argv = [*up.enter_argv(client), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "5", server]
            said = subprocess.run(
                argv, capture_output=True, text=True, timeout=40, check=False
            ).stdout
            found = [float(value) for value in re.findall(r"time=([0-9.]+)", said)]
            assert len(found) == 3, said
            # An echo waits for the end of an SA frame of 79.5 ms.
            assert min(found) >= up.plan.rtt_ms.configured + 79.5
    finally:
        lab.down(lab_id)
