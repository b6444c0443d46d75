# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab profile import`: makes a profile with this lab's addresses out of one of OpenSAND."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from shutil import copyfile
from typing import Literal
from xml.etree import ElementTree as ET

from pydantic import Field

from satlab.common import paths, topology
from satlab.common.errors import ConfigError, Fault
from satlab.common.topology import NetworkKind, Role, Topology
from satlab.link import opensand, opensand_xml
from satlab.link.config import LinkModel, build_config
from satlab.link.opensand import Description, Entity, GroundEntity
from satlab.link.options import LinkOptions
from satlab.link.plan import plan_link
from satlab.link.satlink import ask

_SERIES = (
    "physical_layer/delay/file_path",
    *(f"physical_layer/{leg}_attenuation/file_attenuation_file" for leg in ("uplink", "downlink")),
)
"""Leaves that name a file of values over time."""


class Line(LinkModel):
    """One remark of satlink about a profile."""

    file: str
    line: int
    element: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.element}: {self.reason} ({self.remedy})"


class Inspection(LinkModel):
    """satlink's judgement of a profile (schemas/profile-inspection.schema.json); `link`: None where
    there are faults.
    """

    schema_: Literal["satlab/profile-inspection/1"] = Field(alias="schema")
    link: str | None
    warnings: tuple[Line, ...]
    unsupported: tuple[Line, ...]
    faults: tuple[Line, ...]


@dataclass(frozen=True)
class Imported:
    """Result of an import: the profile that was written, its entities, and satlink's judgement."""

    target: Path
    entities: tuple[str, ...]
    inspection: Inspection
    refused: tuple[str, ...]
    """Why satlink does not run it, though nothing in the profile is unsupported or faulty."""
    needs_lenient: bool

    def lines(self) -> Iterator[str]:
        """Yield the entities, the link, what satlink cannot do, and the place of the profile."""
        yield from self.entities
        if self.inspection.link:
            yield f"link: {self.inspection.link}"
        yield from (f"warning: {line}" for line in self.inspection.warnings)
        yield from (
            f"satlink cannot: {line}"
            for line in (*self.inspection.unsupported, *self.inspection.faults, *self.refused)
        )
        if self.inspection.unsupported or self.inspection.faults or self.refused:
            yield f"{self.target}: for OpenSAND alone (--emulator opensand)"
        elif self.needs_lenient:
            yield f"{self.target}: for satlink with --lenient (see the warnings) and OpenSAND"
        else:
            yield f"{self.target}: for satlink and OpenSAND"


def run(source: Path, target: Path, satlink: Path = paths.SATLINK) -> Imported:
    """Read the profile in `source` and write it to the new folder `target`, with the addresses of
    lab.yml.

    MACs of entities that are multicast are replaced: no interface can have them. The rest is
    unchanged, whether satlink carries it or not; files of values over time are copied.

    Raises:
        ConfigError: there is no such profile, a machine's needs are not in it, or `target` exists.
        HostError: satlink does not answer.
    """
    if target.exists():
        raise ConfigError(
            f"the folder for the profile exists already: {target.absolute()}",
            hint="choose another one with --to"
            + ("" if target.resolve() == source.resolve() else ", or remove it"),
        )
    if not source.is_dir():
        raise ConfigError(f"{source}: no such folder")
    found = opensand.describe(source.resolve(), satlink)
    lab = topology.load(paths.LAB_FILE)
    addresses, macs = dict(_addresses(found, lab)), dict(_usable_macs(found))
    target.mkdir(parents=True)
    for role in opensand.START_ORDER:
        root = opensand_xml.read(source / found.of(role).infrastructure)
        _readdress(root, addresses, macs)
        opensand_xml.write(root, target / f"infrastructure_{role.value}.xml")
    for name, file in _files(found):
        _copy(source / file, target / name)
    inspection = ask(
        Inspection, satlink, "inspect", [str(target)], f"profile {source} is not usable"
    )
    shown = (*_filled_in(found), *_entities(found, addresses, macs))
    refused, needs_lenient = tuple[str, ...](), False
    if not (inspection.unsupported or inspection.faults):
        needs_lenient = bool(_refusal(target, satlink, lenient=False))
        refused = _refusal(target, satlink, lenient=True) if needs_lenient else ()
    return Imported(target, shown, inspection, refused, needs_lenient)


def _refusal(profile: Path, satlink: Path, *, lenient: bool) -> tuple[str, ...]:
    """Return why satlink refuses a lab with this profile and all its terminals; empty if it does
    not.
    """
    options = LinkOptions(profile=str(profile.resolve()), lenient=lenient)
    try:
        further = options.profile_terminals(satlink)
        topology_ = options.topology(further)
        request = options.request(terminals=further)
        plan_link(build_config(topology_, "import", request, metrics=profile / "metrics"), satlink)
    except ConfigError as error:
        return tuple(map(str, error.faults)) or (str(error),)
    return ()


def _filled_in(found: Description) -> Iterator[str]:
    """Yield a line for each file that OpenSAND's command line tool filled in."""
    entities = [found.sat, found.gw, found.st, *(one for _, one in _further(found))]
    files = [found.topology, *(one.infrastructure for one in entities)]
    files += [one.profile for one in entities if one.profile]
    for file in dict.fromkeys(files):
        if Path(file).stem.endswith(_FILLED_IN):
            yield f"{file}: read instead of its template {file.replace(_FILLED_IN, '')}"


_FILLED_IN = "_updated"


def _files(found: Description) -> Iterator[tuple[str, str]]:
    """Yield the names of topology and profiles in a folder of this project, with their files."""
    yield "topology.xml", found.topology
    own = [("gw", found.gw), ("st", found.st), ("sat", found.sat)]
    shared = {found.gw.profile, found.st.profile}
    yield from ((f"profile_{name}.xml", one.profile) for name, one in own if one.profile)
    for name, entity in _further(found):
        if entity.profile and entity.profile not in shared:
            yield f"profile_{name}.xml", entity.profile


def _further(found: Description) -> Iterator[tuple[str, Entity]]:
    """Yield further gateways and terminals by name: gw6, st4."""
    yield from ((f"gw{one.entity_id}", one) for one in found.further_gws)
    yield from ((f"st{one.entity_id}", one) for one in found.further_sts)


def _addresses(found: Description, lab: Topology) -> Iterator[tuple[int, IPv4Address]]:
    """Yield each entity's address on the emulation network of lab.yml; further ground entities have
    none there.
    """
    network = lab.network_of(NetworkKind.EMULATION)
    ends = {end.node: end.address for end in lab.ends(network)}
    for role in opensand.START_ORDER:
        yield found.of(role).entity_id, ends[lab.node_of(role)]
    for _, one in _further(found):
        yield one.entity_id, lab.networks[network].subnet.network_address + _FIRST + one.entity_id


_FIRST = 100
"""Last byte of the addresses of further terminals and gateways, minus their ids."""


def _usable_macs(found: Description) -> Iterator[tuple[tuple[int, str], str]]:
    """Yield a locally administered address for each entity whose MAC is multicast, as those that
    OpenSAND's deployment tool proposes. Keys: the entity's id and its MAC in lower case.
    """
    for entity in (found.gw, found.st, *(one for _, one in _further(found))):
        if isinstance(entity, GroundEntity) and opensand.is_multicast(entity.mac_address):
            mac = f"02:00:00:00:00:{entity.entity_id:02x}"
            yield (entity.entity_id, entity.mac_address.lower()), mac


def _readdress(
    root: ET.Element, addresses: dict[int, IPv4Address], macs: dict[tuple[int, str], str]
) -> None:
    """Change addresses and MACs of the entities of an infrastructure file, in their own sections
    and in the lists.
    """
    own = [root.find(f"entity/entity_{role.value}") for role in (Role.SAT, Role.GW, Role.ST)]
    items = root.iterfind("infrastructure/*/item")
    for place in [*(section for section in own if section is not None), *items]:
        leaf, entity_id = place.find("emu_address"), place.findtext("entity_id", "")
        if leaf is not None and entity_id.isdecimal() and int(entity_id) in addresses:
            leaf.text = str(addresses[int(entity_id)])
        mac = place.find("mac_address")
        if mac is not None and mac.text and entity_id.isdecimal():
            mac.text = macs.get((int(entity_id), mac.text.lower()), mac.text)


def _copy(source: Path, target: Path) -> None:
    """Copy an XML file and the files of values over time that it names."""
    root = opensand_xml.read(source)
    for path in _SERIES:
        name = root.findtext(path)
        if name and not Path(name).is_absolute():
            series = (source.parent / name).resolve()
            if not series.is_file():
                raise ConfigError(
                    f"{source}: {path} names {name}", [Fault(str(series), "cannot be read")]
                )
            copyfile(series, target.parent / series.name)
            opensand_xml.put(root, path, series.name)
    opensand_xml.write(root, target)


def _entities(
    found: Description, addresses: dict[int, IPv4Address], macs: dict[tuple[int, str], str]
) -> Iterator[str]:
    """Yield a line for each entity: where it was, and its address and MAC now."""
    names: dict[str, Entity] = {"sat": found.sat, "gw": found.gw, "st": found.st}
    for name, entity in {**names, **dict(_further(found))}.items():
        profile = f", {entity.profile}" if entity.profile else ""
        yield (
            f"{name}: id {entity.entity_id}, {entity.infrastructure}{profile},"
            f" address {entity.emu_address}, now {addresses[entity.entity_id]}"
        )
        old = entity.mac_address if isinstance(entity, GroundEntity) else ""
        if (new := macs.get((entity.entity_id, old.lower()))) is not None:
            yield f"{name}: MAC {old} is multicast, which no interface can have; now {new}"
