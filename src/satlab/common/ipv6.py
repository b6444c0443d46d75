# SPDX-License-Identifier: GPL-3.0-or-later
"""IPv6 next to IPv4: each benchmarking address of RFC 2544 has one of RFC 5180 section 8
(2001:2::/48).

The subnet 198.18.4.0/24 has 2001:2:0:1204::/64: the fourth group is the second and third byte of
its address. A host's last group is its last byte, so that 198.18.4.2 is 2001:2:0:1204::2.

The two subnets of the QUIC interop runner's endpoints have those of its contract. There a host's
last group has the digits of its last byte: 193.167.0.100 is fd00:cafe:cafe::100.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from satlab.common.errors import ConfigError
from satlab.common.topology import NetworkKind, Route, Topology

SPACE = IPv6Network("2001:2::/48")
INTEROP_RUNNER = {
    IPv4Network("193.167.0.0/24"): IPv6Network("fd00:cafe:cafe::/64"),
    IPv4Network("193.167.100.0/24"): IPv6Network("fd00:cafe:cafe:100::/64"),
}
PREFIX = 64
"""Length of every subnet."""
_IPV4_PREFIX = 24
SYSCTLS = {
    # Addresses are the lab's alone: none from the link or a router, and none that is to be tried
    # first.
    "ipv6/conf/default/addr_gen_mode": "1",
    "ipv6/conf/all/addr_gen_mode": "1",
    "ipv6/conf/default/accept_ra": "0",
    "ipv6/conf/all/accept_ra": "0",
    "ipv6/conf/default/accept_dad": "0",
    "ipv6/conf/default/disable_ipv6": "0",
    "ipv6/conf/all/disable_ipv6": "0",
    "ipv6/conf/all/forwarding": "1",
}
"""Of a namespace with IPv6; written before its interfaces are made."""


def subnet(network: IPv4Network) -> IPv6Network:
    """Return the IPv6 subnet of an IPv4 one of 24 bits. Raises ConfigError for another length."""
    if network.prefixlen != _IPV4_PREFIX:
        raise ConfigError(
            f"{network} has no IPv6 subnet", hint="IPv6 needs networks of 24 bits in lab.yml"
        )
    if network in INTEROP_RUNNER:
        return INTEROP_RUNNER[network]
    group = int(network.network_address) >> 8 & 0xFFFF
    return IPv6Network((int(SPACE.network_address) | group << 64, PREFIX))


def address(of: IPv4Address) -> IPv6Address:
    """Return the IPv6 address of a host."""
    network = IPv4Network((int(of) & ~0xFF, _IPV4_PREFIX))
    last = int(of) & 0xFF
    return subnet(network)[int(str(last), 16) if network in INTEROP_RUNNER else last]


def lines(topology: Topology, node: str, routes: tuple[Route, ...], congctl: str) -> list[str]:
    """Return the lines for `ip -6 -batch` that set up a node whose interfaces are up, emulation
    networks left out.

    All routes get the congestion control `congctl`; those to own subnets are made here in place of
    the kernel's, which has none.
    """
    made = []
    for interface, end in topology.nodes[node].interfaces.items():
        network = topology.networks[end.network]
        if network.kind is not NetworkKind.EMULATION:
            made += [
                f"addr add {address(end.address)}/{PREFIX} dev {interface} nodad noprefixroute",
                f"route add {subnet(network.subnet)} dev {interface} congctl {congctl}",
            ]
        if (
            network.kind is NetworkKind.LAN
        ):  # a router asks for its neighbours from a link-local address alone
            made.append(
                f"addr add fe80::{int(end.address) & 0xFF:x}/{PREFIX} dev {interface} nodad"
            )
    return [
        *made,
        *(
            f"route add {subnet(route.destination)} via {address(route.via)} dev {route.interface}"
            f" congctl {congctl}"
            for route in routes
        ),
    ]
