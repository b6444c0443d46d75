# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology of `vagrant/lab.yml`: nodes, networks, addresses, and the routes that follow from
them.

`load` reads the file and reports every fault at once; `routes` is a pure function. Namespaces
(`netns`) and the roles of the VM lab are rendered from the same values.
"""

import itertools
import re
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from satlab.common import yaml_text
from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import LAB_FILE

FURTHER = re.compile(r"(?:st|client|client-lan)-([2-9]|[1-9][0-9])")
"""Names of the nodes and LANs of further terminals, with their number (`terminals`)."""


def _text(value: object) -> object:
    """Refuse a number in place of an address: `ipaddress` would read 10 as 0.0.0.10."""
    if not isinstance(value, str | IPv4Address | IPv4Network):
        raise ValueError("write it as text, not as a number or a list")
    return value


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
"""Name of a node or a network."""
InterfaceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]{0,14}$")]
"""Name of an interface: at most 15 characters (IFNAMSIZ of Linux, less the closing zero)."""
Address = Annotated[IPv4Address, BeforeValidator(_text)]
Subnet = Annotated[IPv4Network, BeforeValidator(_text)]


def _named() -> Any:
    """Return a mapping by name with at least one entry, whose schema refuses names of another form."""
    return Field(min_length=1, json_schema_extra={"additionalProperties": False})


class _Model(BaseModel):
    """Read-only. Fields that the schema does not name are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True
    )  # built where used: commands start sooner


class NetworkKind(StrEnum):
    """How a network is carried in the embedded lab."""

    LAN = "lan"
    SATELLITE = "satellite"
    INTERNET = "internet"
    EMULATION = "emulation"


class Role(StrEnum):
    """What a node does on the path."""

    CLIENT = "client"
    PROXY = "proxy"
    ST = "st"
    SAT = "sat"
    GW = "gw"
    SERVER = "server"


class Size(StrEnum):
    """The size of a lab: link and endpoints; with OpenBACH's controller and collector; with a
    second client and server.

    An embedded lab has no controller. Flows whose file names a second node have one of size
    `dumbbell` (`flows`).
    """

    SMALL = "small"
    FULL = "full"
    DUMBBELL = "dumbbell"


SECOND = {"client2": Role.CLIENT, "server2": Role.SERVER}
"""Further nodes of a lab of size dumbbell."""


class Network(_Model):
    """A subnet.

    `mtu` is in bytes. `one_way_delay_ms` is the delay of the terrestrial segment; only internet
    networks have it.

    `size` is the smallest lab with this network; networks of size small are in all labs. A node is
    in the labs of its networks.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"kind": {"const": "internet"}}},
            "then": {"required": ["one_way_delay_ms"]},
            "else": {"properties": {"one_way_delay_ms": False}},
        }
    )
    kind: NetworkKind
    subnet: Subnet
    mtu: int = Field(default=1500, ge=576, le=65535)
    size: Literal[Size.SMALL, Size.DUMBBELL] = Size.SMALL
    one_way_delay_ms: float | None = Field(default=None, ge=0, le=10000)

    @model_validator(mode="after")
    def _delay_where_it_acts(self) -> Self:
        if (self.kind is NetworkKind.INTERNET) != (self.one_way_delay_ms is not None):
            raise ValueError(
                "one_way_delay_ms belongs to internet networks, and each of them needs it"
            )
        return self


class Interface(_Model):
    """The interface of a node on a network: the network's name in `Topology.networks`, and the
    node's address.
    """

    network: str
    address: Address


class Node(_Model):
    """One machine of the path."""

    role: Role
    interfaces: dict[InterfaceName, Interface] = _named()

    @property
    def address(self) -> str:
        """Return the machine's address: the one of its first interface."""
        return str(next(iter(self.interfaces.values())).address)


class Service(StrEnum):
    """The service of a machine outside the path."""

    OPENBACH_CONTROLLER = "openbach_controller"
    COLLECTOR = "collector"


class Box(_Model):
    """The disk image from which machines start, by its name in Vagrant. An image that is not built
    here has a fixed version.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$")
    version: str = Field(pattern=r"^[0-9][0-9A-Za-z.]*$")


class Machine(_Model):
    """One machine of the VM lab: its address on the control network, its memory in MiB, and the
    smallest lab that has it.
    """

    address: Address
    memory_mib: int = Field(default=512, ge=256, le=1048576)
    cpus: int = Field(default=1, ge=1, le=256)
    size: Size = Size.SMALL
    services: tuple[Service, ...] = ()


class Management(_Model):
    """Vagrant's own network: its name in libvirt, and the subnet that it gets if that is free."""

    network: str = Field(default="satlab-management", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    subnet: Subnet = IPv4Network("192.168.125.0/24")


class Machines(_Model):
    """The VM lab.

    `control` carries ssh, Ansible and statistics, not measured traffic; its first host runs satlab.
    `pool` is libvirt's storage pool of the machines' disks.
    """

    control: Subnet
    management: Management = Management()
    pool: str = Field(default="default", pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    box: Box
    hosts: dict[Name, Machine] = _named()


class Topology(_Model):
    """The lab of `vagrant/lab.yml`: networks, nodes in the order of the path, machines.

    Only the VM lab uses `machines`.

    `ipv6`: nodes of the embedded lab also have IPv6 addresses (`common/ipv6.py`).
    """

    schema_: Literal["satlab/lab/1"] = Field(alias="schema")
    networks: dict[Name, Network] = _named()
    nodes: dict[Name, Node] = _named()
    machines: Machines | None = None
    ipv6: bool = False

    def node_of(self, role: Role) -> str:
        """Return the name of the only node with `role` (client, st, sat, gw or server)."""
        return next(name for name, node in self.nodes.items() if node.role is role)

    def address_of(self, role: Role) -> str:
        """Return the first address of the only node with `role`."""
        return self.nodes[self.node_of(role)].address

    def network_of(self, kind: NetworkKind) -> str:
        """Return the name of the only network of `kind` (satellite or internet)."""
        return next(name for name, network in self.networks.items() if network.kind is kind)

    def ends(self, network: str) -> list["InterfaceEnd"]:
        """Return the interfaces on `network`, in the order of the nodes."""
        return [end for end in _ends(self) if end.network == network]

    def of_size(self, size: Size) -> "Topology":
        """Return this topology without networks of other sizes, interfaces on them, and nodes that
        then have none.
        """
        networks = {
            name: network
            for name, network in self.networks.items()
            if network.size in (Size.SMALL, size)
        }
        gone = self.networks.keys() - networks.keys()
        nodes: dict[str, Node] = {}
        for name, node in self.nodes.items():
            kept = {key: end for key, end in node.interfaces.items() if end.network not in gone}
            if kept:
                nodes[name] = node.model_copy(update={"interfaces": kept})
        return self.model_copy(update={"networks": networks, "nodes": nodes})

    def of_one_terminal(self) -> "Topology":
        """Return this topology without nodes, LANs and machines of further terminals."""

        def kept(entries: dict[str, Any]) -> dict[str, Any]:
            return {name: entry for name, entry in entries.items() if not FURTHER.fullmatch(name)}

        machines = self.machines and self.machines.model_copy(
            update={"hosts": kept(self.machines.hosts)}
        )
        parts = {"networks": kept(self.networks), "nodes": kept(self.nodes), "machines": machines}
        return self.model_copy(update=parts)


@dataclass(frozen=True)
class InterfaceEnd:
    """One interface, with the names it goes by."""

    node: str
    interface: str
    network: str
    address: IPv4Address


@dataclass(frozen=True)
class Route:
    """Where a node sends packets for `destination`: out of `interface`, to the neighbour's address
    `via`.
    """

    destination: IPv4Network
    via: IPv4Address
    interface: str


# --- routes ---------------------------------------------------------------------------------------


def _ends(topology: Topology) -> Iterator[InterfaceEnd]:
    for node, config in topology.nodes.items():
        for name, interface in config.interfaces.items():
            yield InterfaceEnd(node, name, interface.network, interface.address)


@dataclass(frozen=True)
class _Index:
    """The interfaces of a topology by node and by network, each in the order of the nodes."""

    by_node: dict[str, list[InterfaceEnd]]
    by_network: dict[str, list[InterfaceEnd]]

    @classmethod
    def of(cls, topology: Topology) -> "_Index":
        index = cls({}, {})
        for end in _ends(topology):
            index.by_node.setdefault(end.node, []).append(end)
            index.by_network.setdefault(end.network, []).append(end)
        return index


def _hops(
    topology: Topology, source: str, index: _Index
) -> dict[str, tuple[InterfaceEnd, InterfaceEnd] | None]:
    """Return the first hop (own interface, neighbour's) to each node that `source` reaches, nearest
    node first.

    Breadth first over the networks that carry user traffic; ties go to the earlier node of the
    file.
    """
    first: dict[str, tuple[InterfaceEnd, InterfaceEnd] | None] = {source: None}
    queue = deque([source])
    while queue:
        here = queue.popleft()
        for own in index.by_node.get(here, ()):
            if topology.networks[own.network].kind is NetworkKind.EMULATION:
                continue
            for other in index.by_network[own.network]:
                if other.node not in first:
                    first[other.node] = first[here] or (own, other)
                    queue.append(other.node)
    return first


def routes(topology: Topology) -> dict[str, tuple[Route, ...]]:
    """Return each node's routes to the subnets it is not attached to, by fewest hops, emulation
    networks left out.

    Deterministic: the same file results in the same routes, in the order of its networks. No
    default routes: the lab is closed.
    """
    index = _Index.of(topology)
    return {node: tuple(_routes_of(topology, node, index)) for node in topology.nodes}


def _routes_of(topology: Topology, node: str, index: _Index) -> Iterator[Route]:
    hops = _hops(topology, node, index)
    order = {reached: number for number, reached in enumerate(hops)}
    attached = {interface.network for interface in topology.nodes[node].interfaces.values()}
    for name, network in topology.networks.items():
        if name in attached or network.kind is NetworkKind.EMULATION:
            continue
        holders = [end.node for end in index.by_network.get(name, ()) if end.node in order]
        hop = hops[min(holders, key=order.__getitem__)] if holders else None
        if hop is not None:
            own, other = hop
            yield Route(network.subnet, other.address, own.interface)


# --- reading --------------------------------------------------------------------------------------

Path_ = tuple[Hashable, ...]


def load(path: Path = LAB_FILE, *, whole: bool = False, size: Size = Size.SMALL) -> Topology:
    """Read and check a topology of a size: of one terminal, or with the further ones that the file
    names (`whole`).

    Raises:
        ConfigError: with every fault found; the place of each is `file:line: element`.
    """
    lines: dict[Path_, int] = {}
    try:
        data = yaml_text.read(path, lines)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error}", hint="check the path and its permissions"
        ) from error
    topology, found = _check(data)
    faults = [
        Fault(
            f"{path}:{_line(lines, one.where)}: {'.'.join(map(str, one.where)) or 'file'}",
            one.reason,
            one.remedy,
        )
        for one in found
    ]
    if faults or topology is None:
        raise ConfigError(
            f"{path}: the topology is not usable", faults, "fix the lines named above"
        )
    topology = topology.of_size(size)
    return topology if whole else topology.of_one_terminal()


def _line(lines: dict[Path_, int], where: Path_) -> int:
    """Return the line of an element, or of the nearest one around it that the file has."""
    return next((lines[where[:n]] for n in range(len(where), -1, -1) if where[:n] in lines), 1)


# --- checks ---------------------------------------------------------------------------------------


class Found(NamedTuple):
    """A fault at an element of the file."""

    where: Path_
    reason: str
    remedy: str


def _check(data: Any) -> tuple[Topology | None, list[Found]]:
    """Check shape, then the references between elements.

    Elements of wrong shape are left out of the second part.
    """
    try:
        topology = Topology.model_validate(data)
        found = [
            *_consistency(topology, set(topology.networks)),
            *_completeness(topology.of_one_terminal()),
        ]
        return topology, [*found, *_machine_faults(topology)]
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    found = [_shape_fault(dict(error)) for error in errors]
    known = (
        set(data["networks"])
        if isinstance(data, dict) and isinstance(data.get("networks"), dict)
        else set()
    )
    try:
        partial = Topology.model_validate(_without(data, [tuple(error["loc"]) for error in errors]))
    except ValidationError:
        return None, found
    return None, [*found, *_consistency(partial, known)]


def _shape_fault(error: dict[str, Any]) -> Found:
    where = tuple(part for part in error["loc"] if part != "[key]")
    reason = error["msg"].removeprefix("Value error, ")
    got = error.get("input")
    if isinstance(got, str | int | float):
        reason += f", got {got!r}"
    remedies = {"extra_forbidden": "remove it", "missing": "add it"}
    return Found(where, reason, remedies.get(error["type"], "see schemas/lab.schema.json"))


def _without(data: Any, places: list[Path_]) -> Any:
    """Copy `data` less the networks, nodes or interfaces that hold a fault."""
    if not isinstance(data, dict):
        return data
    bad = {
        where[:4] if where[2:3] == ("interfaces",) and len(where) > 3 else where[:2]
        for where in places
    }

    def prune(value: Any, where: Path_) -> Any:
        if not isinstance(value, dict):
            return value
        return {k: prune(v, (*where, k)) for k, v in value.items() if (*where, k) not in bad}

    return prune(data, ())


def _consistency(topology: Topology, known: set[str]) -> Iterator[Found]:
    """Check references between elements: networks, addresses, subnets."""
    ends = list(_ends(topology))
    holder: dict[IPv4Address, InterfaceEnd] = {}
    for end in ends:
        where = ("nodes", end.node, "interfaces", end.interface)
        if end.network not in known:
            yield Found(
                (*where, "network"),
                f"unknown network {end.network!r}",
                f"one of {', '.join(sorted(known))}",
            )
        first = holder.setdefault(end.address, end)
        if first is not end:
            taken = f"{end.address} is also the address of {first.node}.{first.interface}"
            yield Found((*where, "address"), taken, "assign each interface its own")
        network = topology.networks.get(end.network)
        if network and not _is_host(end.address, network.subnet):
            outside = f"{end.address} is not a host address of {end.network}, {network.subnet}"
            yield Found(
                (*where, "address"), outside, "take one from the subnet, not its first or last"
            )
    for (name_a, a), (name_b, b) in itertools.combinations(topology.networks.items(), 2):
        if a.subnet.overlaps(b.subnet):
            yield Found(
                ("networks", name_b, "subnet"),
                f"{b.subnet} overlaps {a.subnet} of {name_a}",
                "keep subnets apart",
            )


def _machine_faults(topology: Topology) -> Iterator[Found]:
    """Check the machines of the VM lab: one for each node, each with an address on a separate
    network.
    """
    machines = topology.machines
    if machines is None:
        return
    for node in topology.nodes:
        if node not in machines.hosts:
            yield Found(("machines", "hosts"), f"node {node!r} has no machine", "add it")
    for name, network in topology.networks.items():
        if network.subnet.overlaps(machines.control):
            yield Found(
                ("machines", "control"),
                f"{machines.control} overlaps {network.subnet} of {name}",
                "keep subnets apart",
            )
    holder: dict[IPv4Address, str] = {}
    for name, machine in machines.hosts.items():
        where = ("machines", "hosts", name, "address")
        first = holder.setdefault(machine.address, name)
        if first != name:
            yield Found(
                where,
                f"{machine.address} is also the address of {first}",
                "assign each machine its own",
            )
        if not _is_host(machine.address, machines.control):
            outside = (
                f"{machine.address} is not a host address of the control network,"
                f" {machines.control}"
            )
            yield Found(where, outside, "take one from the subnet, not its first or last")
        elif machine.address == control_address(machines):
            yield Found(where, f"{machine.address} is the host's own address", "take another one")
        if name not in topology.nodes and not machine.services:
            yield Found(
                ("machines", "hosts", name),
                "is not a node and has no services",
                "add services, or remove it",
            )


def control_address(machines: Machines) -> IPv4Address:
    """Return the address of the host that drives the lab on the control network: the first one."""
    return machines.control.network_address + 1


def _is_host(address: IPv4Address, subnet: IPv4Network) -> bool:
    return address in subnet and address not in (subnet.network_address, subnet.broadcast_address)


def _completeness(topology: Topology) -> list[Found]:
    """Check that the path is complete: the roles, two interfaces per wire, and the order client,
    ST, GW, server.
    """
    small, dumbbell = (topology.of_size(size) for size in (Size.SMALL, Size.DUMBBELL))
    missing = [*_counts(small)]
    missing += _second_faults(dumbbell) if dumbbell.networks != small.networks else []
    if missing:
        return missing
    faults = [*_order(small, small.node_of(Role.CLIENT), small.node_of(Role.SERVER))]
    return faults + ([*_order(dumbbell, *SECOND)] if set(SECOND) <= set(dumbbell.nodes) else [])


def _counts(topology: Topology) -> Iterator[Found]:
    for role in (Role.CLIENT, Role.ST, Role.SAT, Role.GW, Role.SERVER):
        count = [node.role for node in topology.nodes.values()].count(role)
        if count != 1:
            yield Found(
                ("nodes",), f"{count} nodes have the role {role.value}", "exactly one has it"
            )
    for kind in (NetworkKind.SATELLITE, NetworkKind.INTERNET):
        count = [network.kind for network in topology.networks.values()].count(kind)
        if count != 1:
            yield Found(
                ("networks",),
                f"{count} networks are of kind {kind.value}",
                "exactly one is: the emulator serves it",
            )
    yield from _wires(topology)


def _wires(topology: Topology) -> Iterator[Found]:
    for name, network in topology.networks.items():
        ends = topology.ends(name)
        if network.kind is not NetworkKind.EMULATION and (
            len(ends),
            len({end.node for end in ends}),
        ) != (2, 2):
            at = ", ".join(f"{end.node}.{end.interface}" for end in ends) or "nothing"
            yield Found(("networks", name), f"{at} is attached", "a wire joins exactly two nodes")


def _second_faults(topology: Topology) -> Iterator[Found]:
    """Check that a lab of size dumbbell has the second client and server, and no other node in
    addition.
    """
    small = topology.of_size(Size.SMALL).nodes
    for name, role in SECOND.items():
        if topology.nodes.get(name) is None or name in small:
            yield Found(
                ("nodes",),
                f"no {name} on a network of size dumbbell",
                f"add one with the role {role.value}",
            )
        elif topology.nodes[name].role is not role:
            yield Found(
                ("nodes", name, "role"),
                f"is {topology.nodes[name].role.value}",
                f"write {role.value}",
            )
    for name in topology.nodes:
        if name not in small and name not in SECOND:
            yield Found(
                ("nodes", name),
                "is on networks of size dumbbell alone",
                f"those have {' and '.join(SECOND)}",
            )
    yield from (
        found
        for found in _wires(topology)
        if topology.networks[str(found.where[1])].size is Size.DUMBBELL
    )


def _order(topology: Topology, client: str, server: str) -> Iterator[Found]:
    """Check the way from client to server: over the satellite from ST to GW, then over the
    internet.
    """
    path = _path(topology, client, server)
    expected = [
        (Role.ST, NetworkKind.SATELLITE, Role.GW),
        (None, NetworkKind.INTERNET, Role.SERVER),
    ]
    steps = iter(path)
    for near, kind, far in expected:
        step = next((s for s in steps if topology.networks[s[0].network].kind is kind), None)
        if step is None:
            yield Found(
                ("nodes",),
                f"the way from client to server does not cross the {kind.value} network",
                "join the nodes",
            )
            return
        roles = (topology.nodes[step[0].node].role, topology.nodes[step[1].node].role)
        if roles[1] is not far or near not in (None, roles[0]):
            name = step[0].network
            yield Found(
                ("networks", name),
                f"joins {step[0].node} to {step[1].node}",
                f"its far end is the {far.value}",
            )


def _path(topology: Topology, source: str, target: str) -> list[tuple[InterfaceEnd, InterfaceEnd]]:
    """Return the hops from `source` to `target` as (own interface, neighbour's); empty when there
    is no way.
    """
    path: list[tuple[InterfaceEnd, InterfaceEnd]] = []
    index = _Index.of(topology)
    while source != target:
        hop = _hops(topology, source, index).get(target)
        if hop is None:
            return []
        path.append(hop)
        source = hop[1].node
    return path
