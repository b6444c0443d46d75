# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs with IPv6: both versions cross the link to each terminal, and nothing else speaks."""

import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collect import summaries
from satlab.common import ipv6, paths
from satlab.common.console import ProgressLog
from satlab.common.terminals import clients
from satlab.common.topology import Role
from satlab.experiment import run
from satlab.experiment.run_folder import RunResult
from satlab.link.options import LinkOptions
from satlab.netlab import lab
from satlab.netlab.lab import Lab
from tests.net.conftest import AsPlanned

pytestmark = pytest.mark.net


@pytest.fixture
def both(lab_id: str, satlink: Path) -> Iterator[Lab]:
    options = LinkOptions(profile="leo", terminals=2, ip="both")
    yield Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    lab.down(lab_id)


def ping(the_lab: Lab, node: str, *words: str) -> str:
    argv = [*the_lab.enter_argv(node), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout


def test_p250_each_client_reaches_the_server_over_both_versions(both: Lab) -> None:
    server = both.topology.nodes[both.topology.node_of(Role.SERVER)].interfaces["inet0"].address
    for client in clients(both.topology):
        for to in (str(server), str(ipv6.address(server))):
            found = [float(value) for value in re.findall(r"time=([0-9.]+)", ping(both, client, to))]
            assert len(found) == 3, (client, to)
            assert min(found) >= both.plan.rtt_ms.configured, (client, to)


def test_p250_a_packet_too_long_is_reported_and_addresses_are_the_lab_s_alone(both: Lab) -> None:
    server = both.topology.nodes[both.topology.node_of(Role.SERVER)].interfaces["inet0"].address
    argv = [*both.enter_argv("st"), "ip", "link", "set", "dev", "sat0", "mtu", "1400"]
    subprocess.run(argv, check=True)
    # RFC 8201: the ST reports its MTU, and the client keeps it for the path.
    said = ping(both, "client", "-M", "do", "-s", "1400", str(ipv6.address(server)))
    assert re.search(r"mtu ?[=:] ?1400", said), said
    for node in ("client-2", "gw"):
        shown = subprocess.run(
            [*both.enter_argv(node), "ip", "-6", "-o", "addr"], capture_output=True, text=True, check=True
        ).stdout
        found = re.findall(r"(\S+) +inet6 (\S+)/\d+", shown)
        assert all(one == "::1" or one.startswith("2001:2:0:12") or name == "lan0" for name, one in found), shown


def test_p251_a_transfer_over_ipv6_reaches_the_rate_of_the_link(as_planned: AsPlanned) -> None:
    def attempt(runs: Path) -> RunResult:
        link = LinkOptions(profile="leo", ip="6")
        request = run.RunRequest(paths.SCENARIOS / "bulk_udp.json", link, {"duration": "4"}, runs=runs, report=False)
        return run.execute(run.prepare(request), ProgressLog(quiet=True), threading.Event())

    result = as_planned(attempt)
    assert result.status in (0, 4), result.reason
    (goodput,) = (row["value"] for row in summaries(result.records) if row["metric"] == "goodput_bps")
    assert goodput is not None and goodput > 8e6
    assert "2001:2:0:1204::2" in (result.folder / "raw" / "jobs.jsonl").read_text()
