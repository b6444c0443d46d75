# SPDX-License-Identifier: GPL-3.0-or-later
"""The real OpenSAND as emulator of the satellite segment: its needs, its logs and its exit codes.

`satlink describe` reads the profile; this module compares it with the topology. Nothing here runs OpenSAND: the lab
does (`lab`), as it runs satlink. Facts on its behaviour are those of release 8.2.0.
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

from pydantic import BaseModel, ConfigDict, Field

from satlab.common.errors import ConfigError, Fault, HostError
from satlab.common.topology import NetworkKind, Role, Topology
from satlab.link.satlink import ask

PROGRAM = "opensand"
PROGRAM_VARIABLE = "SATLAB_OPENSAND"
START_ORDER = (Role.SAT, Role.GW, Role.ST)
NICENESS = -15
"""At normal priority, round-trip times on a busy host were up to 790 ms instead of the usual 530 ms."""
SOCKET_BUFFER_BYTES = 1048580
"""OpenSAND's default `udp_rmem`; the kernel cuts it to net.core.rmem_max, and BBFRAMEs come in bursts."""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")

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
    -signal.SIGSEGV: "a crash, most often after a failed initialization: its last error says of what",
}
_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_OF_A_SHELL = 128
"""A shell between OpenSAND and satlab reports signal N as status 128 + N."""


# --- the profile ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tap:
    """A TAP that OpenSAND serves; the bridge over it has the same MAC, by which OpenSAND routes frames."""

    name: str
    mac: str


class _Model(BaseModel):
    """Read-only, and closed to fields that the schema does not name."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Entity(_Model):
    """An entity of the platform; `path_local` is the folder of its own logs and probes, None where it keeps none."""

    entity_id: int
    emu_address: IPv4Address
    path_local: str | None


class GroundEntity(Entity):
    """ST or GW: reads and writes Ethernet frames on the TAP `tap_iface`."""

    tap_iface: str
    mac_address: str


class Description(_Model):
    """What a profile requires of hosts and networks (schemas/profile-description.schema.json)."""

    schema_: Literal["satlab/profile-description/1"] = Field(alias="schema")
    profile_sha256: str
    sat: Entity
    gw: GroundEntity
    st: GroundEntity

    def of(self, role: Role) -> Entity:
        """Return the entity that plays `role`: sat, gw or st."""
        return {Role.SAT: self.sat, Role.GW: self.gw, Role.ST: self.st}[role]


# --- the platform ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Platform:
    """OpenSAND ready to be started in a lab: the program, the folder of its XML, and its description."""

    program: Path
    profile: Path
    description: Description

    def commands(self) -> dict[Role, list[str]]:
        """Return the command lines in the order of the start."""
        return {role: self._argv(role) for role in START_ORDER}

    def _argv(self, role: Role) -> list[str]:
        """Return the command of an entity: the files of the profile, its log on stderr."""
        files = {"-i": f"infrastructure_{role.value}.xml", "-t": "topology.xml"}
        if role is not Role.SAT:  # a transparent satellite has no profile
            files["-p"] = f"profile_{role.value}.xml"
        options = [part for option, name in files.items() for part in (option, str(self.profile / name))]
        return ["nice", "-n", str(NICENESS), str(self.program), *options, "-v"]

    def taps(self, topology: Topology) -> dict[str, Tap]:
        """Return the TAPs, by node."""
        grounds = {Role.ST: self.description.st, Role.GW: self.description.gw}
        return {topology.node_of(role): Tap(e.tap_iface, e.mac_address) for role, e in grounds.items()}

    def notes(self) -> list[str]:
        """Return the parts of the profile that this host does not support."""
        notes = []
        for role in START_ORDER:
            folder = self.description.of(role).path_local
            if folder is not None and not _can_be_made(Path(folder)):
                notes.append(
                    f"infrastructure_{role.value}.xml: path_local {folder} cannot be written: no probes from it"
                )
        rmem_max = int(RMEM_MAX.read_text())
        if rmem_max < SOCKET_BUFFER_BYTES:
            notes.append(
                f"OpenSAND's socket buffers are cut to {rmem_max} bytes and may lose bursts of frames: "
                f"sysctl net.core.rmem_max={SOCKET_BUFFER_BYTES}"
            )
        return notes


def describe(profile: Path, satlink: Path, *, lenient: bool = False) -> Description:
    """Read a profile; `lenient`: accept what OpenSAND's loader accepts although it is wrong.

    Raises:
        ConfigError: the profile is wrong, with every fault.
        HostError: satlink does not answer.
    """
    arguments = [*(["--lenient"] if lenient else []), str(profile)]
    return ask(Description, satlink, "describe", arguments, f"profile {profile} is not usable")


def prepare(profile: Path, topology: Topology, satlink: Path, *, lenient: bool = False) -> Platform:
    """Find the program, read the profile, and compare it with the topology; changes nothing.

    `lenient` as in `describe`.

    Raises:
        ConfigError: the profile is wrong or does not fit the topology, with every fault.
        HostError: there is no OpenSAND, or satlink does not answer.
    """
    folder = profile.resolve()
    description = describe(folder, satlink, lenient=lenient)
    faults = list(_misfits(description, topology))
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
            "install the package `opensand` from its project's repository (github.com/CNES/net4sat-packages), or leave "
            "--emulator out: satlink, the default, emulates the same profile"
        )
        raise HostError(f"{name}: OpenSAND is not installed, or not an executable", hint)
    return Path(program).absolute()


def _misfits(description: Description, topology: Topology) -> Iterator[Fault]:
    """Find where profile and topology differ: addresses on the emulation network, names of interfaces.

    A profile that was read leniently may have an address that no host can have.
    """
    for role in START_ORDER:
        entity, node = description.of(role), topology.node_of(role)
        section = f"infrastructure_{role.value}.xml: entity/entity_{role.value}"
        interfaces = topology.nodes[node].interfaces
        kinds = {name: topology.networks[i.network].kind for name, i in interfaces.items()}
        addresses = [str(i.address) for name, i in interfaces.items() if kinds[name] is NetworkKind.EMULATION]
        if addresses != [str(entity.emu_address)]:
            known = " and ".join(addresses) or "no address"
            reason = f"{entity.emu_address}, but {node} has {known} on the emulation network of lab.yml"
            yield Fault(f"{section}/emu_address", reason, "OpenSAND binds its sockets to it: make both equal")
        if not isinstance(entity, GroundEntity):
            continue
        if entity.tap_iface in {*interfaces, "lo"}:
            reason = f"{entity.tap_iface} is another interface of {node} in lab.yml"
            yield Fault(f"{section}/tap_iface", reason, "choose another name")
        if not _MAC.fullmatch(entity.mac_address):
            reason = f"{entity.mac_address} is not a MAC address, and the TAP needs one"
            yield Fault(f"{section}/mac_address", reason, "six bytes, such as 00:00:00:00:00:02")


def _can_be_made(folder: Path) -> bool:
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)


# --- logs and exit codes --------------------------------------------------------------------------------------------


def process_name(role: Role) -> str:
    """Return the name of an entity's process and of its log."""
    return f"{PROGRAM}-{role.value}"


def meaning(exit_code: int) -> str:
    """Return what an exit code means; negative ones are signals. Empty for codes that are not documented."""
    return _EXIT_CODES.get(_OF_A_SHELL - exit_code if exit_code > _OF_A_SHELL else exit_code, "")


def progress(role: Role, log: str) -> str:
    """Return how far an entity's start has come, from its log."""
    if _INITIALIZED not in log:
        return f"{role.value} is not initialized"
    if role is Role.ST and _LOGGED_ON not in log:
        return f"{role.value} is initialized but not logged on"
    return f"{role.value} is {'logged on' if role is Role.ST else 'initialized'}"
