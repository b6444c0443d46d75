# SPDX-License-Identifier: GPL-3.0-or-later
"""Further terminals of a lab: each is an ST with its own LAN and client, next to those of
`lab.yml`.

Terminal 1 is the one in `lab.yml`, with its proxies. Terminal N has the nodes `st-N` and
`client-N`,
joined by a LAN. Its addresses follow from N, and are benchmarking addresses (RFC 2544). `lab.yml`
may name further terminals: the VM lab has a machine for each of their nodes, and the embedded lab
has as many.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import LAB_FILE
from satlab.common.topology import (
    FURTHER,
    Interface,
    Network,
    NetworkKind,
    Node,
    Role,
    Size,
    Topology,
    load,
)

MOST = 64
"""Terminals that a lab can have; satlink's limit (schemas/link-config.schema.json)."""
FIRST_LAN = IPv4Network("198.18.64.0/24")
"""LANs of further terminals: terminal N has the Nth subnet after this one."""
FIRST_SPOT, FIRST_GW_LAN = (IPv4Network(f"198.18.{third}.0/24") for third in (160, 192))
"""Satellite networks of further spots, and the networks behind their gateways: as those LANs, by
the spot's number.
"""
LAN, SAT = "lan0", "sat0"
"""Names of the interfaces of a further terminal; its client has the first one."""
_ST = re.compile(r"st-([1-9][0-9]?)")


@dataclass(frozen=True)
class Terminal:
    """A further terminal: its number, nodes and LAN."""

    number: int
    st: str
    client: str
    lan: str

    @classmethod
    def of(cls, number: int) -> "Terminal":
        """Return the terminal with this number, from 2 on."""
        return cls(number, f"st-{number}", f"client-{number}", f"client-lan-{number}")

    @property
    def subnet(self) -> IPv4Network:
        """The subnet of its LAN."""
        return _nth(FIRST_LAN, self.number)


@dataclass(frozen=True)
class ProfileTerminal:
    """A further terminal of a profile: its id, and its gateway's id (None: the ST's gateway)."""

    id: int
    gateway: int | None = None


@dataclass(frozen=True)
class Spot:
    """A further spot: its number, gateway, satellite network, and the network between gateway and
    the servers' side.
    """

    number: int
    gateway: str
    satellite: str
    lan: str

    @classmethod
    def of(cls, number: int) -> "Spot":
        """Return the spot with this number, from 2 on."""
        return cls(number, f"gw-{number}", f"satellite-{number}", f"gw-lan-{number}")


def _nth(first: IPv4Network, number: int) -> IPv4Network:
    return IPv4Network((int(first.network_address) + number * first.num_addresses, 24))


def gateways(found: Iterable[ProfileTerminal]) -> tuple[int, ...]:
    """Return the ids of further gateways, in the order of their first terminals: that of spot 2
    first.
    """
    return tuple(dict.fromkeys(one.gateway for one in found if one.gateway is not None))


def spots(found: Sequence[ProfileTerminal]) -> tuple[int, ...]:
    """Return the number of each further terminal's spot; the ST's is 1."""
    numbers = {gateway: number for number, gateway in enumerate(gateways(found), 2)}
    return tuple(1 if one.gateway is None else numbers[one.gateway] for one in found)


def further_spots(topology: Topology) -> tuple[Spot, ...]:
    """Return the further spots of a topology, in order."""
    all_spots = map(Spot.of, range(2, MOST + 1))
    return tuple(itertools.takewhile(lambda spot: spot.gateway in topology.nodes, all_spots))


def further(topology: Topology) -> tuple[Terminal, ...]:
    """Return the further terminals of a topology, in order."""
    found = (_ST.fullmatch(name) for name in topology.nodes)
    terminals = (Terminal.of(int(match[1])) for match in found if match)
    return tuple(
        one for one in terminals if one.client in topology.nodes and one.lan in topology.networks
    )


def clients(topology: Topology) -> tuple[str, ...]:
    """Return the nodes of all clients, that of `lab.yml` first."""
    return (topology.node_of(Role.CLIENT), *(terminal.client for terminal in further(topology)))


def entities(topology: Topology) -> dict[str, str]:
    """Return the nodes of further terminals as entities: each plays itself."""
    return {node: node for terminal in further(topology) for node in (terminal.client, terminal.st)}


def with_terminals(topology: Topology, count: int, spots: Sequence[int] = ()) -> Topology:
    """Return a topology with `count` terminals in all, 1 to `MOST`; its further nodes come last.

    `spots`: the number of each further terminal's spot, new ones from 2 in the order of their first
    use; empty: all are in spot 1. A further spot is a satellite network with its own gateway, which
    has a network to the node behind the first one.

    Raises:
        ConfigError: the count is out of its limits, or lab.yml uses what a further terminal needs.
    """
    if not 1 <= count <= MOST:
        raise ConfigError(f"{count} terminals are not possible", hint=f"1 to {MOST}")
    for spot in map(Spot.of, sorted({*spots} - {1})):
        topology = _with_spot(topology, spot)
    first = topology.network_of(NetworkKind.SATELLITE)
    mtu = topology.networks[first].mtu
    taken = {end.address for end in topology.ends(first)}
    networks, nodes = dict(topology.networks), dict(topology.nodes)
    for terminal in map(Terminal.of, range(2, count + 1)):
        number = spots[terminal.number - 2] if spots else 1
        satellite = first if number == 1 else Spot.of(number).satellite
        subnet = topology.networks[satellite].subnet
        address = IPv4Address(int(subnet.network_address) + 1 + terminal.number)
        lan = terminal.subnet
        clashes = [
            name for name, network in topology.networks.items() if network.subnet.overlaps(lan)
        ]
        if (
            address in taken
            or address not in subnet
            or address == subnet.broadcast_address
            or clashes
        ):
            raise ConfigError(
                f"terminal {terminal.number} needs {address} on {satellite} and {lan}, which"
                " lab.yml uses or lacks",
                hint=(
                    f"keep {FIRST_LAN.network_address} and above free, and the satellite network"
                    " a /24"
                ),
            )
        networks[terminal.lan] = Network(kind=NetworkKind.LAN, subnet=lan, mtu=mtu)
        near, far = (IPv4Address(int(lan.network_address) + host) for host in (1, 2))
        on_lan = Interface(network=terminal.lan, address=near)
        on_satellite = Interface(network=satellite, address=address)
        nodes[terminal.st] = Node(role=Role.ST, interfaces={LAN: on_lan, SAT: on_satellite})
        nodes[terminal.client] = Node(
            role=Role.CLIENT, interfaces={LAN: Interface(network=terminal.lan, address=far)}
        )
    return topology.model_copy(update={"networks": networks, "nodes": nodes})


def _with_spot(topology: Topology, spot: Spot) -> Topology:
    """Return a topology with a further spot, its gateway and the network behind that."""
    satellite = topology.networks[topology.network_of(NetworkKind.SATELLITE)]
    gateway = topology.nodes[topology.node_of(Role.GW)]
    behind = [
        i.network
        for i in gateway.interfaces.values()
        if topology.networks[i.network].kind is NetworkKind.LAN
    ]
    hub = next(
        (
            e.node
            for network in behind
            for e in topology.ends(network)
            if topology.nodes[e.node] != gateway
        ),
        "",
    )
    card = f"{LAN[:-1]}{spot.number - 1}"
    space = _nth(FIRST_SPOT, spot.number)
    lan = _nth(FIRST_GW_LAN, spot.number)
    clashes = any(
        network.subnet.overlaps(one)
        for network in topology.networks.values()
        for one in (space, lan)
    )
    if (
        not hub
        or card in topology.nodes[hub].interfaces
        or clashes
        or spot.gateway in topology.nodes
    ):
        raise ConfigError(
            f"spot {spot.number} needs {space}, {lan} and the interface {card} of the node behind"
            " the gateway",
            hint="keep them free in lab.yml",
        )
    near, far = (IPv4Address(int(lan.network_address) + host) for host in (1, 2))
    networks = topology.networks | {
        spot.satellite: Network(kind=NetworkKind.SATELLITE, subnet=space, mtu=satellite.mtu),
        spot.lan: Network(kind=NetworkKind.LAN, subnet=lan, mtu=satellite.mtu),
    }
    on_satellite = Interface(
        network=spot.satellite, address=IPv4Address(int(space.network_address) + 1)
    )
    on_lan = Interface(network=spot.lan, address=near)
    cards = topology.nodes[hub].interfaces | {card: Interface(network=spot.lan, address=far)}
    nodes = topology.nodes | {
        hub: topology.nodes[hub].model_copy(update={"interfaces": cards}),
        spot.gateway: Node(role=Role.GW, interfaces={SAT: on_satellite, LAN: on_lan}),
    }
    return topology.model_copy(update={"networks": networks, "nodes": nodes})


def named(path: Path = LAB_FILE, size: Size = Size.SMALL) -> Topology:
    """Read a topology of a size with the further terminals that it names.

    Each has the nodes, LAN and addresses that `with_terminals` makes; its ST may have an interface
    on an emulation network, too.

    Raises:
        ConfigError: the file is not usable, or a further terminal differs from `with_terminals`;
        with every fault.
    """
    whole = load(path, whole=True, size=size)
    numbers = {int(match[1]) for name in whole.nodes if (match := FURTHER.fullmatch(name))}
    faults = list(
        _faults(whole, with_terminals(whole.of_one_terminal(), max(numbers, default=1)), str(path))
    )
    if faults:
        raise ConfigError(
            f"{path}: the further terminals are not usable", faults, "fix what is named above"
        )
    return whole


def _faults(whole: Topology, expected: Topology, path: str) -> Iterator[Fault]:
    """Find differences of the further terminals of a file."""
    for section, has, needs in (
        ("networks", whole.networks, expected.networks),
        (
            "nodes",
            {name: _without_emulation(whole, node) for name, node in whole.nodes.items()},
            expected.nodes,
        ),
    ):
        for name in filter(FURTHER.fullmatch, {**needs, **has}):
            place = f"{path}: {section}.{name}"
            if name not in needs:
                yield Fault(
                    place,
                    "belongs to no terminal",
                    "a terminal N has st-N, client-N and client-lan-N",
                )
            elif name not in has:
                yield Fault(place, "missing", f"add {_text(needs[name])}")
            elif has[name] != needs[name]:
                yield Fault(place, f"is {_text(has[name])}", f"write {_text(needs[name])}")


def _without_emulation(topology: Topology, node: Node) -> Node:
    kept = {
        name: interface
        for name, interface in node.interfaces.items()
        if topology.networks[interface.network].kind is not NetworkKind.EMULATION
    }
    return node.model_copy(update={"interfaces": kept})


def _text(part: Node | Network) -> str:
    return part.model_dump_json(exclude_none=True, exclude_defaults=True)
