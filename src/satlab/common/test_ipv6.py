# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv6 addresses of a lab: one for each of IPv4, in the range of RFC 5180."""

from ipaddress import IPv4Address, IPv4Network

import pytest

from satlab.common import ipv6
from satlab.common.errors import ConfigError
from satlab.common.terminals import MOST, with_terminals
from satlab.common.topology import load, routes


def test_an_address_follows_from_that_of_ipv4() -> None:
    assert str(ipv6.subnet(IPv4Network("198.18.4.0/24"))) == "2001:2:0:1204::/64"
    assert str(ipv6.address(IPv4Address("198.18.4.2"))) == "2001:2:0:1204::2"
    with pytest.raises(ConfigError, match="has no IPv6 subnet"):
        ipv6.subnet(IPv4Network("198.18.0.0/16"))


def test_every_address_of_64_terminals_occurs_once_in_the_range_of_rfc_5180() -> None:
    topology = with_terminals(load(), MOST)
    lines = [line for node in topology.nodes for line in ipv6.lines(topology, node, (), "cubic")]
    found = [line.split()[2].partition("/")[0] for line in lines if line.startswith("addr add 2")]
    assert len(set(found)) == len(found) == 10 + 3 * (MOST - 1)
    assert all(one.startswith("2001:2:0:12") for one in found)


def test_routes_are_those_of_ipv4() -> None:
    topology = load()
    plan = routes(topology)["client"]
    lines = ipv6.lines(topology, "client", plan, "cubic")
    assert lines[:3] == [
        "addr add 2001:2:0:1201::2/64 dev lan0 nodad noprefixroute",
        "route add 2001:2:0:1201::/64 dev lan0 congctl cubic",
        "addr add fe80::2/64 dev lan0 nodad",
    ]
    assert lines[3:] == [
        f"route add {ipv6.subnet(route.destination)} via 2001:2:0:1201::1 dev lan0 congctl cubic"
        for route in plan
    ]
    assert ipv6.lines(topology, "sat", routes(topology)["sat"], "cubic") == []
