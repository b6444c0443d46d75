# SPDX-License-Identifier: GPL-3.0-or-later
"""The real OpenSAND as emulator: what it needs of a lab, its commands, logs and exit codes.

`satlink describe` reads the profile, and this module compares it with the topology. The lab starts
OpenSAND (`lab`), as it starts satlink. Facts are those of release 8.2.0.
"""

import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal

from pydantic import Field

from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.topology import Interface, NetworkKind, Node, Role, Topology
from satlab.link.config import LinkModel
from satlab.link.satlink import ask

PROGRAM = "opensand"
PROGRAM_VARIABLE = "SATLAB_OPENSAND"
START_ORDER = (Role.SAT, Role.GW, Role.ST)
NICENESS = -15
"""Priority of OpenSAND's processes. At the normal one, round-trip times on a busy host rose from
530 to 790 ms.
"""
SOCKET_BUFFER_BYTES = 1048580
"""OpenSAND's default `udp_rmem`, for bursts of BBFRAMEs. The kernel limits it to net.core.rmem_max.
"""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")

_FIRST_FURTHER = 100
"""Last byte of the addresses of further terminals on the satellite network, minus their ids."""
_INITIALIZED = "Blocks initialized"
_LOGGED_ON = "Login complete"

_EXIT_CODES = {
    0: "a normal end, or an option it does not know",
    2: "no infrastructure file was given",
    3: "no topology file was given",
    10: "infrastructure file not loadable",
    11: "entity type missing in the infrastructure file",
    12: "entity id missing in the infrastructure file",
    13: "unknown entity type in the infrastructure file",
    14: "topology file not loadable",
    15: "profile file not loadable",
    100: "plugins not loadable",
    101: "log levels not usable: all five are needed",
    102: "blocks could not be made",
    103: "blocks could not be initialized or run",
    -signal.SIGSEGV: (
        "a crash, most often after a failed initialization: its last error says of what"
    ),
}
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_OF_A_SHELL = 128
"""A shell between OpenSAND and satlab reports signal N as status 128 + N."""


# --- the profile ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tap:
    """A TAP that OpenSAND serves. The bridge over it has the same MAC, because OpenSAND routes
    frames by MAC.
    """

    name: str
    mac: str


class Entity(LinkModel):
    """An entity of the platform. `path_local` is the folder of its own logs and probes; None if it
    keeps none.

    `infrastructure` and `profile` are its files, relative to the folder of the profile.
    """

    entity_id: int
    emu_address: IPv4Address
    path_local: str | None
    infrastructure: str
    profile: str | None


class GroundEntity(Entity):
    """ST or GW: reads and writes Ethernet frames on the TAP `tap_iface`.

    `gateway` is the id of a further terminal's gateway, where that is another than the first
    terminal's.
    """

    tap_iface: str
    mac_address: str
    gateway: int | None = None


class Description(LinkModel):
    """What a profile requires of hosts and networks (schemas/profile-description.schema.json)."""

    schema_: Literal["satlab/profile-description/2"] = Field(alias="schema")
    topology: str
    sat: Entity
    gw: GroundEntity
    st: GroundEntity
    further_sts: tuple[GroundEntity, ...]
    further_gws: tuple[GroundEntity, ...] = ()

    def of(self, role: Role) -> Entity:
        """Return the entity that plays `role`: sat, gw or st."""
        return {Role.SAT: self.sat, Role.GW: self.gw, Role.ST: self.st}[role]


# --- the platform ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """An entity and the node on which it runs. `name` is the name of its process, log and folder:
    sat, gw, st, st4.
    """

    name: str
    node: str
    role: Role
    entity: Entity


@dataclass(frozen=True)
class Platform:
    """OpenSAND ready to be started in a lab: the program, the folder of its XML, and its
    description.
    """

    program: Path
    profile: Path
    description: Description

    def topology(self, topology: Topology) -> Topology:
        """Return a topology with a node for each further terminal. These nodes are only on the
        satellite network and the emulation network.
        """
        further = {
            f"st{one.entity_id}": self._node(topology, one) for one in self.description.further_sts
        }
        return topology.model_copy(update={"nodes": {**topology.nodes, **further}})

    def _node(self, topology: Topology, entity: Entity) -> Node:
        """Return the node of a further terminal, with an address on the satellite network that
        follows from its id.
        """
        satellite, emulation = (
            topology.network_of(kind) for kind in (NetworkKind.SATELLITE, NetworkKind.EMULATION)
        )
        address = (
            topology.networks[satellite].subnet.network_address + _FIRST_FURTHER + entity.entity_id
        )
        own = topology.nodes[topology.node_of(Role.ST)].interfaces
        names = {interface.network: name for name, interface in own.items()}
        addresses = {satellite: address, emulation: entity.emu_address}
        return Node(
            role=Role.ST,
            interfaces={names[n]: Interface(network=n, address=a) for n, a in addresses.items()},
        )

    def machines(self, topology: Topology) -> list[Machine]:
        """Return the entities in the order of their start: SAT, GW, then the terminals."""
        first = [
            Machine(r.value, topology.node_of(r), r, self.description.of(r)) for r in START_ORDER
        ]
        further = [(f"st{entity.entity_id}", entity) for entity in self.description.further_sts]
        return [*first, *(Machine(name, name, Role.ST, entity) for name, entity in further)]

    def command(self, machine: Machine, infrastructure: Path) -> list[str]:
        """Return the command of an entity: its infrastructure file, the profile's other files, its
        log on stderr.
        """
        files = {"-i": infrastructure, "-t": self.profile / self.description.topology}
        if machine.entity.profile is not None:  # a transparent satellite has none
            files["-p"] = self.profile / machine.entity.profile
        options = [part for option, file in files.items() for part in (option, str(file))]
        return ["nice", "-n", str(NICENESS), str(self.program), *options, "-v"]

    def taps(self, topology: Topology) -> dict[str, Tap]:
        """Return the TAPs, by node."""
        grounds = [(m.node, m.entity) for m in self.machines(topology)]
        return {
            node: Tap(e.tap_iface, e.mac_address)
            for node, e in grounds
            if isinstance(e, GroundEntity)
        }

    def notes(self) -> list[str]:
        """Return the parts of the profile that this host, or a lab, does not support."""
        rmem_max = int(RMEM_MAX.read_text())
        if rmem_max >= SOCKET_BUFFER_BYTES:
            return []
        return [
            f"OpenSAND's socket buffers are cut to {rmem_max} bytes and may lose bursts of frames: "
            f"sysctl net.core.rmem_max={SOCKET_BUFFER_BYTES}",
        ]


def describe(profile: Path, satlink: Path) -> Description:
    """Read the needs of a profile's machines; OpenSAND itself checks the rest.

    Raises:
        ConfigError: something that a machine needs is missing, with every fault.
        HostError: satlink does not answer.
    """
    return ask(Description, satlink, "describe", [str(profile)], f"profile {profile} is not usable")


def prepare(profile: Path, topology: Topology, satlink: Path) -> Platform:
    """Find the program, read the profile, and compare it with the topology; changes nothing.

    Raises:
        ConfigError: the profile is wrong or does not fit the topology, with every fault.
        HostError: there is no OpenSAND, or satlink does not answer.
    """
    folder = profile.resolve()
    description = describe(folder, satlink)
    faults = list(misfits(description, topology))
    if faults:
        raise ConfigError(f"profile {folder} does not fit lab.yml", faults, "make both equal")
    return Platform(find_program(), folder, description)


def find_program() -> Path:
    """Return OpenSAND's program: SATLAB_OPENSAND, or `opensand` on PATH.

    Raises:
        HostError: there is none; the hint says where to get it.
    """
    name = os.environ.get(PROGRAM_VARIABLE) or PROGRAM
    program = shutil.which(name)
    if program is None:
        hint = (
            "install the package `opensand` from its project's repository"
            " (github.com/CNES/net4sat-packages), or leave --emulator out: satlink, the default,"
            " emulates the same profile"
        )
        raise HostError(f"{name}: OpenSAND is not installed, or not an executable", hint)
    return Path(program).absolute()


def misfits(description: Description, topology: Topology) -> Iterator[Fault]:
    """Return the differences between profile and topology: addresses on the emulation network,
    names of interfaces.

    A profile that was read leniently may have an address that no host can have.
    """
    for role in START_ORDER:
        entity, node = description.of(role), topology.node_of(role)
        section = f"{entity.infrastructure}: entity/entity_{role.value}"
        interfaces = topology.nodes[node].interfaces
        kinds = {name: topology.networks[i.network].kind for name, i in interfaces.items()}
        addresses = [
            str(i.address) for name, i in interfaces.items() if kinds[name] is NetworkKind.EMULATION
        ]
        if addresses != [str(entity.emu_address)]:
            known = " and ".join(addresses) or "no address"
            reason = (
                f"{entity.emu_address}, but {node} has {known} on the emulation network of lab.yml"
            )
            yield Fault(
                f"{section}/emu_address",
                reason,
                "satlab profile import writes a profile with these addresses",
            )
        if isinstance(entity, GroundEntity):
            yield from _misfits_of_tap(section, entity, {*interfaces, "lo"})
    for further in description.further_sts:
        place = f"{further.infrastructure}: infrastructure/terminals: ST {further.entity_id}"
        subnets = [n.subnet for n in topology.networks.values() if n.kind is NetworkKind.EMULATION]
        if not any(further.emu_address in subnet for subnet in subnets):
            reason = f"{further.emu_address} is not on the emulation network of lab.yml"
            yield Fault(
                f"{place}/emu_address",
                reason,
                "satlab profile import writes a profile with addresses that are",
            )
        if further.gateway is not None:
            reason = f"belongs to GW {further.gateway}, and a lab with OpenSAND has one gateway"
            yield Fault(place, reason, "use satlink, which has several gateways")
        yield from _misfits_of_tap(place, further, {"lo"})


def _misfits_of_tap(place: str, entity: GroundEntity, taken: set[str]) -> Iterator[Fault]:
    if entity.tap_iface in taken:
        yield Fault(
            f"{place}/tap_iface",
            f"{entity.tap_iface} is another interface of its node in lab.yml",
            "rename it",
        )
    if not _MAC.fullmatch(entity.mac_address):
        reason = f"{entity.mac_address} is not a MAC address, and the TAP needs one"
        yield Fault(f"{place}/mac_address", reason, "six bytes, such as 00:00:00:00:00:02")
    elif is_multicast(entity.mac_address):
        reason = f"{entity.mac_address} is a multicast address, which no interface can have"
        yield Fault(f"{place}/mac_address", reason, "satlab profile import replaces it")


def is_multicast(mac: str) -> bool:
    """Return whether this is a MAC address of a group: bit 0 of the first byte is 1."""
    return bool(_MAC.fullmatch(mac)) and int(mac[:2], 16) % 2 == 1


# --- logs and exit codes --------------------------------------------------------------------------


def process_name(machine: Machine) -> str:
    """Return the name of an entity's process and of its log."""
    return f"{PROGRAM}-{machine.name}"


def is_initialized(log: str) -> bool:
    """Return whether an entity takes messages. An earlier logon is lost and repeated after 5 s."""
    return _INITIALIZED in log


def meaning(exit_code: int) -> str:
    """Return the meaning of an exit code (negative: a signal); empty for undocumented codes."""
    return _EXIT_CODES.get(_OF_A_SHELL - exit_code if exit_code > _OF_A_SHELL else exit_code, "")


def progress(machine: Machine, log: str) -> str:
    """Return the progress of an entity's start, from its log."""
    name = machine.name
    if not is_initialized(log):
        return f"{name} is not initialized"
    if machine.role is Role.ST and _LOGGED_ON not in log:
        return f"{name} is initialized but not logged on"
    return f"{name} is {'logged on' if machine.role is Role.ST else 'initialized'}"
