# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs with IPv6: both versions cross the link to each terminal, and nothing else speaks."""

import re
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collect import summaries
from satlab.common import ipv6, paths
from satlab.common.processes import wait
from satlab.common.terminals import clients
from satlab.common.topology import Role
from satlab.lab import lab, pki
from satlab.lab.lab import Lab
from satlab.link.options import LinkOptions
from tests.net.conftest import AsPlanned, measured_run

pytestmark = pytest.mark.net


@pytest.fixture
def both(lab_id: str, satlink: Path) -> Iterator[Lab]:
    options = LinkOptions(profile="leo", terminals=2, ip="both")
    yield Lab.up(lab_id, options.topology(), options.request(), satlink=satlink)
    lab.down(lab_id)


def ping(the_lab: Lab, node: str, *words: str) -> str:
    argv = [*the_lab.enter_argv(node), "ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout


def test_p200_each_client_reaches_the_server_over_both_versions(both: Lab) -> None:
    server = both.topology.nodes[both.topology.node_of(Role.SERVER)].interfaces["inet0"].address
    for client in clients(both.topology):
        for to in (str(server), str(ipv6.address(server))):
            found = [
                float(value) for value in re.findall(r"time=([0-9.]+)", ping(both, client, to))
            ]
            assert len(found) == 3, (client, to)
            assert min(found) >= both.plan.rtt_ms.configured, (client, to)


def test_p200_a_packet_too_long_is_reported_and_addresses_are_the_lab_s_alone(both: Lab) -> None:
    server = both.topology.nodes[both.topology.node_of(Role.SERVER)].interfaces["inet0"].address
    argv = [*both.enter_argv("st"), "ip", "link", "set", "dev", "sat0", "mtu", "1400"]
    subprocess.run(argv, check=True)
    # RFC 8201: the ST reports its MTU, and the client keeps it for the path.
    said = ping(both, "client", "-M", "do", "-s", "1400", str(ipv6.address(server)))
    assert re.search(r"mtu ?[=:] ?1400", said), said
    for node in ("client-2", "gw"):
        shown = subprocess.run(
            [*both.enter_argv(node), "ip", "-6", "-o", "addr"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        found = re.findall(r"(\S+) +inet6 (\S+)/\d+", shown)
        assert all(
            one == "::1" or one.startswith("2001:2:0:12") or name == "lan0" for name, one in found
        ), shown


@pytest.mark.promise("P23")
def test_p201_a_transfer_over_ipv6_reaches_the_rate_of_the_link(as_planned: AsPlanned) -> None:
    link = LinkOptions(profile="leo", ip="6")
    result = measured_run(as_planned, "bulk_udp", link, duration="4")
    (goodput,) = (
        row["value"] for row in summaries(result.records) if row["metric"] == "goodput_bps"
    )
    assert goodput is not None and goodput > 8e6
    assert "2001:2:0:1204::2" in (result.folder / "raw" / "jobs.jsonl").read_text()


def test_p294_quic_reaches_its_server_over_ipv6(as_planned: AsPlanned) -> None:
    link = LinkOptions(profile="leo", ip="6")
    result = measured_run(as_planned, "quic", link, pep="none", duration="4")
    (goodput,) = (
        row["value"] for row in summaries(result.records) if row["metric"] == "goodput_bps"
    )
    assert goodput is not None and goodput > 4e6
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
    for node in ("st", "gw"):
        argv = [*both.enter_argv(node), "ip", "link", "set", "dev", "sat0", "mtu", "1400"]
        subprocess.run(argv, check=True)
    made = pki.create(tmp_path, ["kepler.satlab.test"], [], datetime.now(UTC))
    server = ipv6.address(
        both.topology.nodes[both.topology.node_of(Role.SERVER)].interfaces["inet0"].address
    )
    serving = [
        *both.enter_argv("server"),
        str(paths.PROGRAMS / "satperf"),
        *f"server --listen [{server}]:4433 --once --cert".split(),
        str(made.folder / "server.crt"),
        "--key",
        str(made.folder / "server.key"),
    ]
    asking = [
        *both.enter_argv("client"),
        str(paths.PROGRAMS / "satperf"),
        *f"client --connect [{server}]:4433 --server-name kepler.satlab.test --ca".split(),
        str(made.folder / "ca.crt"),
        "--bytes",
        "2000000",
        "--direction",
        direction,
    ]
    with subprocess.Popen(serving, stdout=subprocess.DEVNULL) as process:
        try:
            sockets = [*both.enter_argv("server"), "ss", "-Hlun", "sport = :4433"]
            assert wait(
                lambda: b"4433" in subprocess.run(sockets, capture_output=True, check=True).stdout,
                10,
            )
            done = subprocess.run(asking, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
        finally:
            process.terminate()
