# SPDX-License-Identifier: GPL-3.0-or-later
"""The client's LAN loses packets, carried by a satlink of its own."""

import subprocess
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.processes import wait
from satlab.common.topology import load
from satlab.lab import lab
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest
from tests import json_lines

pytestmark = pytest.mark.net

PROXY, SERVER = "198.18.1.1", "198.18.4.2"


def replies(the_lab: Lab, address: str, count: int) -> int:
    argv = [*the_lab.enter_argv("client"), *f"ping -n -q -c {count} -i 0.01 -W 3 {address}".split()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return int(done.stdout.split(" received")[0].rsplit(" ", 1)[1])


@pytest.mark.promise("P5")
def test_the_lan_loses_what_was_asked_for_and_the_rest_nothing(lab_id: str, satlink: Path) -> None:
    """10 % each way leave 81 % of the echoes; the metrics of the LAN count the others."""
    request = LinkRequest(profile=paths.PROFILES / "leo", lan_loss=0.1)
    the_lab = Lab.up(lab_id, load(), request, satlink=satlink)
    assert Lab.up(lab_id, load(), request, satlink=satlink).found
    with pytest.raises(ConfigError, match="another configuration"):
        Lab.up(lab_id, load(), LinkRequest(profile=paths.PROFILES / "leo"), satlink=satlink)
    metrics = Path(the_lab.config.metrics)
    came = replies(the_lab, PROXY, 600)
    assert abs(came - 486) < 4 * 9.6
    assert 0 < replies(the_lab, SERVER, 20) <= 20

    def lost() -> int:
        samples = json_lines.read(metrics.with_name("lan.jsonl"), "sample")
        return sum(
            s[d]["lost_packets"] for s in samples for d in ("terrestrial_down", "terrestrial_up")
        )

    assert wait(lambda: lost() >= 600 - came, 30)
    assert the_lab.lan is not None
    assert the_lab.lan.near.netns.endswith(".client")  # down is towards it
    path = json_lines.read(metrics, "sample")
    assert not any(sample[d]["lost_packets"] for sample in path for d in ("forward", "return"))
    lab.down(lab_id)
