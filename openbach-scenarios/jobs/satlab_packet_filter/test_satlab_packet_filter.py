# SPDX-License-Identifier: GPL-3.0-or-later
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.polling import until

SEND = """
import contextlib, socket
sender = socket.socket(2, 2)
for port in (5004, 5004, 9):
    with contextlib.suppress(PermissionError):  # what the kernel returns of a dropped packet
        sender.sendto(b"x" * 100, ("192.0.2.2", port))
"""
HEARD = """
import socket, subprocess, sys
heard = {}
for port in (5004, 9):
    heard[port] = socket.socket(2, 2)
    heard[port].bind(("192.0.2.2", port))
    heard[port].settimeout(3)
subprocess.run(sys.argv[1:], check=True)
heard[9].recv(200)
heard[5004].settimeout(0.1)
try:
    heard[5004].recv(200)
    print("heard")
except TimeoutError:
    print("silent")
"""
Module = Callable[[str], ModuleType]


@pytest.fixture
def job(module: Module) -> ModuleType:
    return module("satlab_packet_filter")


@pytest.mark.parametrize(
    ("words", "rule", "chain"),
    [
        (
            "FORWARD -s 198.18.1.0/24 -i lan0 -o sat0 -p tcp --dport 5201 drop",
            (
                'ip saddr 198.18.1.0/24 iifname "lan0" oifname "sat0" meta l4proto tcp tcp dport'
                " 5201 counter drop"
            ),
            "type filter hook forward priority 0; policy accept;",
        ),
        (
            "INPUT -p icmp accept",
            "meta l4proto icmp counter accept",
            "type filter hook input priority 0",
        ),
        (
            "OUTPUT -d 198.18.4.2/32 mark 7",
            "counter meta mark set 7",
            "type route hook output priority -150",
        ),
        (
            "POSTROUTING -p udp dscp 46",
            "counter ip dscp set 46",
            "type filter hook postrouting priority -150",
        ),
    ],
)
def test_a_rule_selects_and_does_what_is_asked_for(
    job: ModuleType, words: str, rule: str, chain: str
) -> None:
    options = job.parser().parse_args(words.split())
    assert job.fault(options) == ""
    text = job.table(options).text()
    assert rule in text
    assert chain in text
    assert text.count("drop") == rule.count("drop"), "nothing else is dropped"


def test_an_exclusive_rule_drops_others_of_the_measured_networks_alone(job: ModuleType) -> None:
    options = job.parser().parse_args(["INPUT", "-p", "udp", "accept", "--only"])
    lines = job.table(options).text().splitlines()
    first = lines.index("meta l4proto udp counter accept")
    assert lines[first + 1 : first + 3] == [
        "ip saddr 198.18.0.0/16 drop",
        "ip daddr 198.18.0.0/16 drop",
    ]
    assert "policy accept" in lines[first - 1]


@pytest.mark.net
@pytest.mark.parametrize(("action", "heard"), [(("drop",), "silent"), (("mark", "7"), "heard")])
@pytest.mark.promise("P50")
def test_selected_packets_only_until_the_job_ends(
    trial: Callable[[str], Any], node: Any, action: tuple[str, ...], heard: str
) -> None:
    job = trial("satlab_packet_filter")
    process = job.start("OUTPUT", "-p", "udp", "--dport", "5004", *action, within=node.within)
    job.ready()
    send = [*node.within, "python3", "-c", SEND]
    assert node.far.run("python3", "-c", HEARD, *send).strip() == heard
    process.terminate()
    assert process.wait(120) == 0, process.communicate()
    last = [record for record in job.records() if "selected_packets" in record][-1]
    assert (last["selected_packets"], last["selected_bytes"]) == (2, 2 * 128)
    assert node.run("nft", "list", "ruleset") == ""
    assert node.far.run("python3", "-c", HEARD, *send).strip() == "heard"


@pytest.mark.net
def test_two_filters_hold_at_the_same_time(trial: Callable[[str], Any], node: Any) -> None:
    job = trial("satlab_packet_filter")
    processes = [
        job.start("OUTPUT", "-p", each, "accept", within=node.within, JOB_INSTANCE_ID=str(number))
        for number, each in enumerate(("tcp", "udp"), start=1)
    ]
    until(
        lambda: {r["_metadata"]["job_instance_id"] for r in job.records() if "ready" in r} == {1, 2}
    )
    assert node.run("nft", "list", "tables").count("satlab_packet_filter_") == 2
    for process in processes:
        process.terminate()
        assert process.wait(120) == 0
    assert node.run("nft", "list", "ruleset") == ""
