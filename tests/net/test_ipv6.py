# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs with IPv6: both versions cross the link to each terminal, and nothing else speaks."""

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collect import summaries
from satlab.common import ipv6, paths
from satlab.common.processes import wait
from satlab.common.terminals import clients
from satlab.common.topology import Role
from satlab.lab import pki
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from tests.net.conftest import AsPlanned, Up, measured_run, rtts_ms

pytestmark = pytest.mark.net


@pytest.fixture
def both(up: Up) -> Lab:
    return up(profile="leo", terminals=2, ip="both")


def server6(both: Lab) -> str:
    """Return the server's IPv6 address."""
    node = both.topology.nodes[both.topology.node_of(Role.SERVER)]
    return str(ipv6.address(node.interfaces["inet0"].address))


def run(the_lab: Lab, node: str, *words: str) -> str:
    argv = [*the_lab.enter_argv(node), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout


def limit_mtu(the_lab: Lab, *nodes: str) -> None:
    """Give the satellite segment a smaller MTU than the LANs."""
    for node in nodes:
        words = "ip link set dev sat0 mtu 1400".split()
        subprocess.run([*the_lab.enter_argv(node), *words], check=True)


def test_p200_each_client_reaches_the_server_over_both_versions(both: Lab) -> None:
    for client in clients(both.topology):
        for to in (both.topology.address_of(Role.SERVER), server6(both)):
            found = rtts_ms(both, client, to, count=3)
            assert len(found) == 3, (client, to)
            assert min(found) >= both.plan.rtt_ms.configured, (client, to)


def test_p200_a_packet_too_long_is_reported_and_addresses_are_the_lab_s_alone(both: Lab) -> None:
    limit_mtu(both, "st")
    # RFC 8201: the ST reports its MTU, and the client keeps it for the path.
    large = "ping -n -c 3 -i 0.2 -W 2 -M do -s 1400".split()
    said = run(both, "client", *large, server6(both))
    assert re.search(r"mtu ?[=:] ?1400", said), said
    for node in ("client-2", "gw"):
        shown = run(both, node, "ip", "-6", "-o", "addr")
        found = re.findall(r"(\S+) +inet6 (\S+)/\d+", shown)
        assert all(
            one == "::1" or one.startswith("2001:2:0:12") or name == "lan0" for name, one in found
        ), shown


@pytest.mark.parametrize(
    ("scenario", "settings", "least_bps"),
    [("bulk_udp", {}, 8e6), ("quic", {"pep": "none"}, 4e6)],
)
@pytest.mark.promise("P23")
def test_p294_udp_and_quic_reach_the_rate_of_the_link_over_ipv6(
    as_planned: AsPlanned, scenario: str, settings: dict[str, Any], least_bps: float
) -> None:
    link = LinkOptions(profile="leo", ip="6")
    result = measured_run(as_planned, scenario, link, duration="4", **settings)
    (goodput,) = (
        row["value"] for row in summaries(result.records) if row["metric"] == "goodput_bps"
    )
    assert goodput is not None and goodput > least_bps
    kept = (result.folder / "raw" / "jobs.jsonl").read_text()
    assert "2001:2:0:1204::2" in kept
    assert "198.18.4.2" not in kept


@pytest.mark.parametrize("direction", ["download", "upload"])
@pytest.mark.promise("P23")
def test_p295_quic_crosses_a_link_with_a_smaller_mtu_over_ipv6(
    both: Lab, direction: str, tmp_path: Path
) -> None:
    """Its first packets have 1200 bytes (RFC 9000, section 14.1); larger ones are tried, and too
    long ones are lost.
    """
    limit_mtu(both, "st", "gw")
    made = pki.create(tmp_path, ["kepler.satlab.test"], [], datetime.now(UTC))
    program, at = paths.PROGRAMS / "satperf", f"[{server6(both)}]:4433"
    trust = f"--cert {made.server_cert} --key {made.server_key}"
    serving = f"{program} server --listen {at} --once {trust}".split()
    name = f"--server-name kepler.satlab.test --ca {made.ca_cert}"
    amount = f"--bytes 2000000 --direction {direction}"
    asking = f"{program} client --connect {at} {name} {amount}".split()
    asking = [*both.enter_argv("client"), *asking]
    with subprocess.Popen(
        [*both.enter_argv("server"), *serving], stdout=subprocess.DEVNULL
    ) as process:
        try:
            assert wait(lambda: "4433" in run(both, "server", "ss", "-Hlun"), 10)
            done = subprocess.run(asking, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
        finally:
            process.terminate()
