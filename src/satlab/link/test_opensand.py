# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND as emulator, as far as no privileges are needed: command lines, cross checks, words.

More in tests/net.
"""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError, HostError
from satlab.common.terminals import ProfileTerminal
from satlab.common.topology import Role, Topology, load
from satlab.link import opensand, opensand_xml
from satlab.link.opensand import Description, Entity, GroundEntity, Machine, Platform, Tap
from satlab.link.options import LinkOptions

TOPOLOGY = load()


SECOND = {
    "st4": {
        "entity_id": 4,
        "emu_address": "10.77.0.4",
        "tap_iface": "tap",
        "mac_address": "00:00:00:00:00:04",
        "path_local": None,
        "infrastructure": "infrastructure_st.xml",
        "profile": "profile_st4.xml",
    }
}


def description(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return what satlink says of the shipped profiles; `changes` by entity."""
    document: dict[str, Any] = {
        "schema": "satlab/profile-description/2",
        "topology": "topology.xml",
        "sat": {"entity_id": 2, "emu_address": "10.77.0.1"},
        "gw": {
            "entity_id": 0,
            "emu_address": "10.77.0.2",
            "tap_iface": "tap",
            "mac_address": "00:00:00:00:00:01",
        },
        "st": {
            "entity_id": 1,
            "emu_address": "10.77.0.3",
            "tap_iface": "tap",
            "mac_address": "00:00:00:00:00:02",
        },
    }
    for entity in ("sat", "gw", "st"):
        profile = None if entity == "sat" else f"profile_{entity}.xml"
        files = {"infrastructure": f"infrastructure_{entity}.xml", "profile": profile}
        document[entity] |= {"path_local": None} | files | changes.get(entity, {})
    document["further_sts"] = list(changes.get("further", {}).values())
    document["further_gws"] = []
    return document


def platform(**changes: dict[str, Any]) -> Platform:
    return Platform(
        Path("/usr/bin/opensand"), Path("/p"), Description.model_validate(description(**changes))
    )


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable that counts as OpenSAND."""
    file = tmp_path / "opensand-8"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.setenv(opensand.PROGRAM_VARIABLE, str(file))
    return file


def test_terminals_of_a_lab_are_those_of_the_profile_unless_their_number_is_given(
    tmp_path: Path,
) -> None:
    program = satlink(tmp_path, description(further=SECOND))
    assert LinkOptions().profile_terminals(program) == (ProfileTerminal(4),)
    for options in ({"terminals": 1}, {"terminals": 3}, {"timing": "opensand"}):
        assert LinkOptions.of(**options).profile_terminals(program) == ()
    assert list(LinkOptions().topology((ProfileTerminal(4),)).nodes)[-2:] == ["st-2", "client-2"]
    assert LinkOptions(terminals=1).topology() == TOPOLOGY
    with pytest.raises(HostError):
        LinkOptions().profile_terminals(tmp_path / "missing")


def test_p346_opensand_with_terminals_of_several_gateways_is_refused_by_name() -> None:
    found = Description.model_validate(description(further={"st4": SECOND["st4"] | {"gateway": 6}}))
    (fault,) = opensand.misfits(found, TOPOLOGY)
    assert "belongs to GW 6, and a lab with OpenSAND has one gateway" in fault.reason
    assert fault.remedy == "use satlink, which has several gateways"


def satlink(folder: Path, answer: dict[str, Any]) -> Path:
    (folder / "answer").write_text(json.dumps(answer))
    file = folder / "satlink"
    file.write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\ncat "{folder}/answer"\n')
    file.chmod(0o755)
    return file


def prepare(folder: Path, topology: Topology = TOPOLOGY, **changes: dict[str, Any]) -> Platform:
    return opensand.prepare(folder, topology, satlink(folder, description(**changes)))


# --- preparation ----------------------------------------------------------------------------------


def test_model_and_schema_agree() -> None:
    schema = json.loads((paths.SCHEMAS / "profile-description.schema.json").read_text())
    jsonschema.validate(description(), schema)
    station = schema["$defs"]["Station"]
    assert station["properties"].keys() == GroundEntity.model_fields.keys()
    assert set(station["required"]) == Entity.model_fields.keys()
    for name in ("sat", "gw", "st"):
        assert schema["properties"][name]["$ref"] == "#/$defs/Station"
    assert schema["properties"].keys() == {"schema", *Description.model_fields} - {"schema_"}
    with pytest.raises(ValueError, match="extra_forbidden"):
        Description.model_validate(description(sat={"tap_iface": "tap"}))


def test_satlink_is_asked_and_the_program_found(tmp_path: Path, program: Path) -> None:
    found = prepare(tmp_path)
    assert (tmp_path / "asked").read_text() == f"describe {tmp_path}\n"
    assert (found.program, found.profile) == (program, tmp_path)


def test_every_misfit_is_named(tmp_path: Path, program: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(
            tmp_path,
            sat={"emu_address": "10.77.0.9"},
            st={"emu_address": "10.77.0.1", "tap_iface": "sat0"},
        )
    assert [fault.place for fault in caught.value.faults] == [
        "infrastructure_sat.xml: entity/entity_sat/emu_address",
        "infrastructure_st.xml: entity/entity_st/emu_address",
        "infrastructure_st.xml: entity/entity_st/tap_iface",
    ]
    assert "10.77.0.9, but sat has 10.77.0.1" in caught.value.faults[0].reason


def test_a_topology_without_emulation_network_does_not_fit(tmp_path: Path, program: Path) -> None:
    document = TOPOLOGY.model_dump(mode="json", by_alias=True, exclude_none=True)
    del document["nodes"]["gw"]["interfaces"]["emu0"]
    with pytest.raises(ConfigError) as caught:
        prepare(tmp_path, Topology.model_validate(document))
    assert "gw has no address on the emulation network" in caught.value.faults[0].reason


def test_without_the_program_the_hint_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(opensand.PROGRAM_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(HostError, match="missing: OpenSAND is not installed") as caught:
        prepare(tmp_path)
    assert "package `opensand`" in caught.value.hint


def test_commands_are_in_order_and_name_the_profile_s_files() -> None:
    found = platform(further=SECOND)
    machines = found.machines(TOPOLOGY)
    assert [machine.name for machine in machines] == ["sat", "gw", "st", "st4"]
    commands = {m.name: found.command(m, Path(f"/run/{m.name}.xml")) for m in machines}
    begin = ["nice", "-n", "-15", "/usr/bin/opensand", "-i"]
    assert commands["sat"] == [*begin, "/run/sat.xml", "-t", "/p/topology.xml", "-v"]
    for name in ("gw", "st", "st4"):
        assert commands[name] == [
            *begin,
            *f"/run/{name}.xml -t /p/topology.xml -p /p/profile_{name}.xml -v".split(),
        ]


def test_a_second_terminal_has_a_node_of_its_own() -> None:
    found = platform(further=SECOND)
    topology = found.topology(TOPOLOGY)
    assert topology.node_of(Role.ST) == "st"
    interfaces = topology.nodes["st4"].interfaces
    assert {name: str(i.address) for name, i in interfaces.items()} == {
        "sat0": "198.18.63.104",
        "emu0": "10.77.0.4",
    }
    assert found.taps(topology)["st4"] == Tap("tap", "00:00:00:00:00:04")
    assert platform().topology(TOPOLOGY) == TOPOLOGY


def test_each_lab_keeps_its_own_probes(tmp_path: Path) -> None:
    """The entity's logs and probes go to the lab's folder; a further terminal knows itself; the
    rest is unchanged.
    """
    found = platform(further=SECOND)
    source = paths.PROFILES / "geo-dama" / "infrastructure_st.xml"
    terminal, second = found.description.st, found.description.further_sts[0]
    opensand_xml.for_lab(source, terminal, tmp_path / "own", tmp_path / "st.xml")
    opensand_xml.for_lab(source, second, tmp_path / "other", tmp_path / "st4.xml")
    before, own, other = (
        opensand_xml.read(file) for file in (source, tmp_path / "st.xml", tmp_path / "st4.xml")
    )
    assert own.findtext("storage/path_local") == str(tmp_path / "own")
    assert own.findtext("storage/enable_local") == "true"
    assert own.findtext("entity/entity_st/entity_id") == "1"
    assert other.findtext("storage/path_local") == str(tmp_path / "other")
    assert other.findtext("entity/entity_st/entity_id") == "4"
    assert other.findtext("entity/entity_st/emu_address") == "10.77.0.4"
    assert [child.tag for child in own] == [child.tag for child in before]
    for section in ("logs", "infrastructure"):
        assert list(map(str.strip, itertext(own, section))) == list(
            map(str.strip, itertext(before, section))
        )


def itertext(root: ET.Element, section: str) -> list[str]:
    found = root.find(section)
    assert found is not None
    return list(found.itertext())


def test_a_file_without_storage_gets_one_in_its_place(tmp_path: Path) -> None:
    root = opensand_xml.read(paths.PROFILES / "geo" / "infrastructure_sat.xml")
    storage = root.find("storage")
    assert storage is not None
    root.remove(storage)
    opensand_xml.write(root, tmp_path / "bare.xml")
    opensand_xml.for_lab(
        tmp_path / "bare.xml", platform().description.sat, tmp_path / "own", tmp_path / "sat.xml"
    )
    done = opensand_xml.read(tmp_path / "sat.xml")
    assert [child.tag for child in done] == ["entity", "logs", "storage", "infrastructure"]
    assert [leaf.tag for leaf in done.iterfind("storage/*")] == ["enable_local", "path_local"]


def test_taps_are_those_of_the_profile() -> None:
    taps = platform(st={"tap_iface": "opensand_tap"}).taps(TOPOLOGY)
    assert taps == {
        "st": Tap("opensand_tap", "00:00:00:00:00:02"),
        "gw": Tap("tap", "00:00:00:00:00:01"),
    }


def test_small_buffers_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rmem_max").write_text("212992\n")
    monkeypatch.setattr(opensand, "RMEM_MAX", tmp_path / "rmem_max")
    (note,) = platform().notes()
    assert "cut to 212992 bytes" in note
    (tmp_path / "rmem_max").write_text("4194304\n")
    assert platform().notes() == []


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (14, "topology file"),
        (15, "profile file"),
        (103, "initialized"),
        (139, "crash"),
        (-11, "crash"),
        (99, ""),
    ],
)
def test_exit_codes_have_a_meaning(code: int, says: str) -> None:
    assert says in opensand.meaning(code)
    assert bool(says) == bool(opensand.meaning(code))


@pytest.mark.parametrize(
    ("role", "log", "says"),
    [
        (Role.GW, "", "gw is not initialized"),
        (Role.GW, "[EVENT][gw0][status] Blocks initialized\n", "gw is initialized"),
        (
            Role.ST,
            "[EVENT][st1][status] Blocks initialized\n",
            "st is initialized but not logged on",
        ),
        (
            Role.ST,
            "[status] Blocks initialized\n[EVENT][st1][dvb.login] Login complete with MAC 1\n",
            "st is logged on",
        ),
    ],
)
def test_logs_show_the_progress_of_a_start(role: Role, log: str, says: str) -> None:
    machine = Machine(role.value, role.value, role, platform().description.of(role))
    assert opensand.progress(machine, log) == says


def test_options_that_opensand_cannot_do_are_refused_by_name() -> None:
    asked = LinkOptions(
        emulator="opensand", loss=0.01, queue_bdp=3.0, seed=2, terrestrial_delay_ms=10.0
    )
    with pytest.raises(ConfigError) as caught:
        asked.request()
    assert [fault.place for fault in caught.value.faults] == [
        "--seed 2",
        "--loss 0.01",
        "--queue-bdp 3.0",
    ]
    request = LinkOptions(emulator="opensand", terrestrial_delay_ms=10.0).request()
    assert (request.emulator, request.terrestrial_one_way_delay_ms) == ("opensand", 10.0)


def test_no_tap_gets_what_only_opensand_takes_for_a_mac_address(
    tmp_path: Path, program: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(tmp_path, st={"mac_address": "02"})
    assert [fault.place for fault in caught.value.faults] == [
        "infrastructure_st.xml: entity/entity_st/mac_address"
    ]
