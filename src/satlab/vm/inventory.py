# SPDX-License-Identifier: GPL-3.0-or-later
"""The Ansible inventory of a lab, derived from `vagrant/lab.yml`: groups are the names of the roles
that hosts get.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from satlab.common.errors import ConfigError, Fault
from satlab.common.paths import LAB_FILE
from satlab.common.terminals import further
from satlab.common.topology import (
    FURTHER,
    Machines,
    NetworkKind,
    Role,
    Size,
    Topology,
    control_address,
    routes,
)
from satlab.link.config import Emulator

GROUPS = {
    Role.CLIENT: "endpoint_client",
    Role.PROXY: "pep",
    Role.ST: "emulator",
    Role.SAT: "emulator",
    Role.GW: "emulator",
    Role.SERVER: "web_target",
}
"""The group of each role of the path; every node is in `path` as well."""


@dataclass(frozen=True)
class VmOptions:
    """A user's choices for a lab; `variables` go to every host."""

    size: Size = Size.SMALL
    emulator: Emulator = "satlink"
    variables: Mapping[str, Any] | None = None


def machines(topology: Topology) -> Machines:
    """Return the part of lab.yml that the VM lab needs.

    Raises:
        ConfigError: there is none, the file asks for IPv6, or a terminal has no interface on the
            emulation network.
    """
    if topology.ipv6:
        raise ConfigError(
            f"{LAB_FILE}: the VM lab has no IPv6", hint="leave ipv6 out; the embedded lab has it"
        )
    if topology.machines is None:
        raise ConfigError(
            f"{LAB_FILE}: has no machines",
            hint="the VM lab needs them: see schemas/lab.schema.json",
        )
    joined = {
        end.node
        for name, network in topology.networks.items()
        if network.kind is NetworkKind.EMULATION
        for end in topology.ends(name)
    }
    faults = [
        Fault(f"nodes.{one.st}.interfaces", "none is on the emulation network", "add one")
        for one in further(topology)
        if one.st not in joined
    ]
    if faults:
        raise ConfigError(f"{LAB_FILE}: the VM lab cannot join its terminals", faults)
    return topology.machines


def side(topology: Topology, name: str) -> str:
    """Return the name of an emulator's node in the roles: st, sat or gw, or a further terminal's
    own name.
    """
    return name if FURTHER.fullmatch(name) else topology.nodes[name].role.value


def terminals(topology: Topology) -> list[str]:
    """Return the nodes of all STs, that of the first terminal first."""
    return [topology.node_of(Role.ST), *(one.st for one in further(topology))]


def hosts(topology: Topology, size: Size) -> list[str]:
    """Name the hosts of a lab of this size, in the order of the file."""
    return [
        name for name, host in machines(topology).hosts.items() if host.size in (Size.SMALL, size)
    ]


def mac(address: IPv4Address) -> str:
    """Return the MAC of the interface with this address: 02:73 and its four bytes.

    The Vagrantfile does the same.
    """
    return "02:73:" + address.packed.hex(":")


def inventory(
    topology: Topology, choices: VmOptions, connection: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the inventory as plain data; `connection` holds variables for single hosts, such as
    the key to use.
    """
    found = machines(topology)
    names = hosts(topology, choices.size)
    groups: dict[str, Any] = {"path": {"hosts": {}}}
    for name in names:
        node = topology.nodes.get(name)
        for group in ["path", GROUPS[node.role]] if node else []:
            groups.setdefault(group, {"hosts": {}})["hosts"][name] = {}
        for service in found.hosts[name].services:
            groups.setdefault(service.value, {"hosts": {}})["hosts"][name] = {}
    shared = {
        "satlab_control_network": str(found.control),
        "satlab_control_host": str(control_address(found)),
        "satlab_lab_networks": [str(network.subnet) for network in topology.networks.values()],
        "satlab_emulator": choices.emulator,
        **(choices.variables or {}),
    }
    host_vars = {name: _host(topology, name) | dict(connection.get(name, {})) for name in names}
    return {"all": {"vars": shared, "hosts": host_vars, "children": groups}}


def _host(topology: Topology, name: str) -> dict[str, Any]:
    """Return one host's variables for the roles."""
    described: dict[str, Any] = {"ansible_host": str(machines(topology).hosts[name].address)}
    node = topology.nodes.get(name)
    if node is None:
        return described
    described["satlab_role"] = node.role.value
    if GROUPS[node.role] == "emulator":
        described["satlab_side"] = side(topology, name)
    described["satlab_interfaces"] = [
        {
            "name": interface,
            "kind": (network := topology.networks[end.network]).kind.value,
            "address": f"{end.address}/{network.subnet.prefixlen}",
            "mac": mac(end.address),
            "mtu": network.mtu,
        }
        | ({"delay_ms": network.one_way_delay_ms} if network.kind is NetworkKind.INTERNET else {})
        for interface, end in node.interfaces.items()
    ]
    described["satlab_routes"] = [
        {"destination": str(route.destination), "via": str(route.via), "interface": route.interface}
        for route in routes(topology)[name]
    ]
    return described


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write an inventory, private to its owner."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text("---\n" + yaml.safe_dump(dict(content), sort_keys=False))
