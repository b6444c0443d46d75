# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of ip(8) that make the devices, addresses and routes of a lab. `netns` runs them.

Names of the topology and the lab's id need no quoting: they are letters, digits, hyphens and dots.
"""

from collections.abc import Iterator, Sequence

from satlab.common import netns_names
from satlab.common.terminals import LAN, SAT, further
from satlab.common.topology import NetworkKind, Route, Topology
from satlab.link.opensand import Tap

TUN_QUEUE_PACKETS = 10000
"""Length of a TUN's transmit queue, so long that only the link's own queue drops packets."""
VETH_INDEX = 100
"""First interface index of our ends of veth pairs; the kernel gives the other ends low numbers. If
both ends had the same index, the kernel's link watch would take them for plain devices and turn
them on up to a second late.
"""
LOOPBACK = "link set dev lo up"
_MULTICAST = "224.0.0.0/4"
"""OpenSAND joins groups, and sends to them, on the emulation network."""


def tun(interface: str, mtu: int) -> list[str]:
    """Make a persistent TUN without packet information. Its reader chooses the offloads."""
    return [
        f"tuntap add dev {interface} mode tun",
        f"link set dev {interface} mtu {mtu} txqueuelen {TUN_QUEUE_PACKETS}",
    ]


def bridge(interface: str, mtu: int, mac: str | None = None) -> str:
    """Make a bridge that learns nothing of multicast groups; `mac` None: the kernel chooses."""
    address = f" address {mac}" if mac else ""
    return f"link add dev {interface}{address} mtu {mtu} type bridge mcast_snooping 0"


def port(interface: str, of: str) -> str:
    """Turn an interface on as a port of a bridge."""
    return f"link set dev {interface} master {of} up"


def bridged_tap(interface: str, mtu: int, tap: Tap) -> list[str]:
    """Make a persistent TAP without packet information, the only port of bridge `interface`."""
    queue = f"mtu {mtu} address {tap.mac} txqueuelen {TUN_QUEUE_PACKETS}"
    return [
        bridge(interface, mtu, tap.mac),
        f"tuntap add dev {tap.name} mode tap",
        f"link set dev {tap.name} {queue}",
        port(tap.name, interface),
    ]


def veth(interface: str, peer: str, namespace: str, mtu: int, index: int) -> str:
    """Make a veth pair whose peer is in another namespace from the start. `index` is the number of
    our interface.
    """
    ours = f"{interface} index {index} mtu {mtu}"
    return f"link add dev {ours} type veth peer name {peer} mtu {mtu} netns {namespace}"


def nodes_of_terminals(topology: Topology) -> tuple[str, ...]:
    """Return the nodes of further terminals. STs come first, as their wires reach into the clients'
    namespaces.
    """
    terminals = further(topology)
    return (*(terminal.st for terminal in terminals), *(terminal.client for terminal in terminals))


def devices_of_terminal(topology: Topology, lab_id: str, node: str) -> list[str]:
    """Make the TUN of a further terminal's ST, and the wire to its client; nothing for other nodes.

    A lab of many terminals has hundreds of addresses and routes: one process for each namespace
    makes all.
    """
    terminal = next((one for one in further(topology) if one.st == node), None)
    if terminal is None:
        return []
    ends = topology.nodes[node].interfaces
    sat, lan = (topology.networks[ends[name].network].mtu for name in (SAT, LAN))
    client = netns_names.name(lab_id, terminal.client)
    return [*tun(SAT, sat), veth(LAN, LAN, client, lan, VETH_INDEX + terminal.number)]


def addresses(
    topology: Topology, node: str, routes: Sequence[Route], congctl: str, *, emulation: bool
) -> Iterator[str]:
    """Turn a node's interfaces on with their addresses, and add its routes. All its routes get the
    congestion control `congctl`.
    """
    yield LOOPBACK
    for interface, end in topology.nodes[node].interfaces.items():
        network = topology.networks[end.network]
        is_emulation = network.kind is NetworkKind.EMULATION
        if is_emulation and not emulation:
            continue
        subnet = network.subnet
        yield f"addr add {end.address}/{subnet.prefixlen} dev {interface}"
        yield f"link set dev {interface} up"
        # The kernel's own route, with the congestion control.
        own = f"proto kernel scope link src {end.address} congctl {congctl}"
        yield f"route replace {subnet} dev {interface} {own}"
        if is_emulation:
            yield f"route add {_MULTICAST} dev {interface} scope link congctl {congctl}"
    for route in routes:
        via = f"via {route.via} dev {route.interface}"
        yield f"route add {route.destination} {via} congctl {congctl}"
