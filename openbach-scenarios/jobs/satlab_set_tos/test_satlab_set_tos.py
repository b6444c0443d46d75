# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SEND = (
    "import socket; s=socket.socket(2,2); [s.sendto(b'x'*100, ('192.0.2.2', int(p))) for p in"
    " (5004, 5004, 9)]"
)


def test_a_rule_names_what_is_asked_for(module: Callable[[str], ModuleType]) -> None:
    job = module("satlab_set_tos")
    words = "46 -s 198.18.1.0/24 -d 198.18.4.2/32 -p udp --destination-port 5004".split()
    text = job.table(job.parser().parse_args(words)).text()
    expected = (
        "ip saddr 198.18.1.0/24 ip daddr 198.18.4.2/32 meta l4proto udp udp dport 5004 counter ip"
        " dscp set 46"
    )
    assert expected in text


@pytest.mark.net
def test_selected_packets_are_marked_until_the_job_ends(
    trial: Callable[[str], Any], node: Any
) -> None:
    job = trial("satlab_set_tos")
    process = job.start("46", "-p", "udp", "--destination-port", "5004", within=node.within)
    job.ready()
    node.run("python3", "-c", SEND)
    rules = node.run("nft", "list", "ruleset")
    assert "dscp set ef" in rules
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    last = [record for record in job.records() if "marked_packets" in record][-1]
    assert (last["marked_packets"], last["marked_bytes"]) == (2, 2 * 128)
    assert node.run("nft", "list", "ruleset") == ""
