# SPDX-License-Identifier: GPL-3.0-or-later
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

SEND = (
    "import socket; s=socket.socket(2,2); [s.sendto(b'x'*972, ('192.0.2.2', int(p))) for p in"
    " (5004, 5004, 9)]"
)


def test_a_rule_selects_as_asked_for(module: Callable[[str], ModuleType]) -> None:
    job = module("satlab_rate")
    words = ["1", "FORWARD", "-s", "198.18.1.0/24", "-i", "lan0", "tcp", "--dport", "5201"]
    text = job.table(job.parser().parse_args(words)).text()
    assert 'ip saddr 198.18.1.0/24 iifname "lan0" meta l4proto tcp tcp dport 5201 counter' in text
    assert "hook forward" in text


@pytest.mark.net
def test_selected_packets_are_counted(trial: Callable[[str], Any], node: Any) -> None:
    job = trial("satlab_rate")
    process = job.start("0.3", "OUTPUT", "-o", "lan0", "udp", "--dport", "5004", within=node.within)
    job.ready()
    node.run("python3", "-c", SEND)
    deadline = time.monotonic() + 120
    while not any(record.get("rate", 0) > 0 for record in job.records()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    rates = [
        (record["rate"], record["packet_rate"]) for record in job.records() if record.get("rate")
    ]
    assert all(rate / packets == pytest.approx(8 * 1000) for rate, packets in rates), (
        "972 bytes, UDP and IP header"
    )
    assert node.run("nft", "list", "ruleset") == ""
