# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines for `ip -batch` that set up the namespaces of further terminals. `netns` runs them.

A lab of many terminals has hundreds of addresses and routes. One process for each namespace adds
them.
"""

from collections.abc import Iterator, Sequence

from satlab.common import netns_names
from satlab.common.terminals import LAN, SAT, Terminal, further
from satlab.common.topology import Route, Topology

TUN_QUEUE_PACKETS = 10000
"""Length of a TUN's transmit queue, so long that only the link's own queue drops packets."""
VETH_INDEX = 100
"""First interface index of our ends of veth pairs; the kernel gives the other ends low numbers. If
both ends had the same index, the kernel's link watch would take them for plain devices and turn
them on up to a second late.
"""


def nodes(topology: Topology) -> tuple[str, ...]:
    """Return the nodes that these lines set up. STs come first, as their wires reach into the
    clients' namespaces.
    """
    terminals = further(topology)
    return (*(terminal.st for terminal in terminals), *(terminal.client for terminal in terminals))


def networks(topology: Topology) -> frozenset[str]:
    """Return the networks that these lines make: the LANs of further terminals."""
    return frozenset(terminal.lan for terminal in further(topology))


def lines(
    topology: Topology, lab_id: str, node: str, routes: Sequence[Route], congctl: str
) -> list[str]:
    """Return the lines for one of `nodes`. All its routes get the congestion control `congctl`.

    Names of the topology and the lab's id need no quoting: they are letters, digits, hyphens and
    dots.
    """
    devices = ["link set dev lo up"]
    terminal = next((one for one in further(topology) if one.st == node), None)
    if terminal is not None:
        devices += _devices(topology, lab_id, terminal)
    return [
        *devices,
        *_addresses(topology, node, congctl),
        *(
            f"route add {route.destination} via {route.via} dev {route.interface} congctl {congctl}"
            for route in routes
        ),
    ]


def _devices(topology: Topology, lab_id: str, terminal: Terminal) -> Iterator[str]:
    ends = topology.nodes[terminal.st].interfaces
    sat, lan = (topology.networks[ends[name].network].mtu for name in (SAT, LAN))
    yield f"tuntap add dev {SAT} mode tun"
    yield f"link set dev {SAT} mtu {sat} txqueuelen {TUN_QUEUE_PACKETS}"
    client = netns_names.name(lab_id, terminal.client)
    index = VETH_INDEX + terminal.number
    yield (
        f"link add dev {LAN} index {index} mtu {lan} type veth peer name {LAN} mtu {lan} netns"
        f" {client}"
    )


def _addresses(topology: Topology, node: str, congctl: str) -> Iterator[str]:
    for interface, end in topology.nodes[node].interfaces.items():
        subnet = topology.networks[end.network].subnet
        yield f"addr add {end.address}/{subnet.prefixlen} dev {interface}"
        yield f"link set dev {interface} up"
        # The kernel's own route, with the congestion control.
        yield (
            f"route replace {subnet} dev {interface} proto kernel scope link src {end.address}"
            f" congctl {congctl}"
        )
