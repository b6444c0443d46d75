# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND as emulator, as far as no privileges are needed: command lines, cross checks, words. More in tests/net."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError, HostError
from satlab.common.topology import Role, Topology, load
from satlab.link import opensand
from satlab.link.opensand import Description, Entity, GroundEntity, Platform, Tap
from satlab.link.options import LinkOptions

TOPOLOGY = load()


def description(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return what satlink says of the shipped profiles; `changes` by entity."""
    document: dict[str, Any] = {
        "schema": "satlab/profile-description/1",
        "profile_sha256": "0" * 64,
        "sat": {"entity_id": 2, "emu_address": "10.77.0.1"},
        "gw": {"entity_id": 0, "emu_address": "10.77.0.2", "tap_iface": "tap", "mac_address": "00:00:00:00:00:01"},
        "st": {"entity_id": 1, "emu_address": "10.77.0.3", "tap_iface": "tap", "mac_address": "00:00:00:00:00:02"},
    }
    for entity in ("sat", "gw", "st"):
        document[entity] |= {"path_local": None} | changes.get(entity, {})
    return document


def platform(**changes: dict[str, Any]) -> Platform:
    return Platform(Path("/usr/bin/opensand"), Path("/p"), Description.model_validate(description(**changes)))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable that counts as OpenSAND."""
    file = tmp_path / "opensand-8"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    monkeypatch.setenv(opensand.PROGRAM_VARIABLE, str(file))
    return file


def satlink(folder: Path, answer: dict[str, Any]) -> Path:
    (folder / "answer").write_text(json.dumps(answer))
    file = folder / "satlink"
    file.write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\ncat "{folder}/answer"\n')
    file.chmod(0o755)
    return file


def prepare(folder: Path, topology: Topology = TOPOLOGY, **changes: dict[str, Any]) -> Platform:
    return opensand.prepare(folder, topology, satlink(folder, description(**changes)))


# --- preparation ----------------------------------------------------------------------------------------------------


def test_model_and_schema_agree() -> None:
    schema = json.loads((paths.SCHEMAS / "profile-description.schema.json").read_text())
    jsonschema.validate(description(), schema)
    assert schema["properties"]["sat"]["properties"].keys() == Entity.model_fields.keys()
    assert schema["$defs"]["station"]["properties"].keys() == GroundEntity.model_fields.keys()
    assert {schema["properties"][name]["$ref"] for name in ("gw", "st")} == {"#/$defs/station"}
    with pytest.raises(ValueError, match="extra_forbidden"):
        Description.model_validate(description(sat={"tap_iface": "tap"}))


def test_satlink_is_asked_and_the_program_found(tmp_path: Path, program: Path) -> None:
    found = prepare(tmp_path)
    assert (tmp_path / "asked").read_text() == f"describe {tmp_path}\n"
    assert (found.program, found.profile) == (program, tmp_path)


def test_every_misfit_is_named(tmp_path: Path, program: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(tmp_path, sat={"emu_address": "10.77.0.9"}, st={"emu_address": "10.77.0.1", "tap_iface": "sat0"})
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


def test_without_the_program_the_hint_names_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(opensand.PROGRAM_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(HostError, match="missing: OpenSAND is not installed") as caught:
        prepare(tmp_path)
    assert "package `opensand`" in caught.value.hint


def test_commands_are_in_order_and_name_the_profile_s_files() -> None:
    commands = platform().commands()
    assert list(commands) == [Role.SAT, Role.GW, Role.ST]
    begin = ["nice", "-n", "-15", "/usr/bin/opensand", "-i"]
    assert commands[Role.SAT] == [*begin, "/p/infrastructure_sat.xml", "-t", "/p/topology.xml", "-v"]
    ground = ["/p/infrastructure_st.xml", "-t", "/p/topology.xml", "-p", "/p/profile_st.xml", "-v"]
    assert commands[Role.ST] == [*begin, *ground]


def test_taps_are_those_of_the_profile() -> None:
    taps = platform(st={"tap_iface": "opensand_tap"}).taps(TOPOLOGY)
    assert taps == {"st": Tap("opensand_tap", "00:00:00:00:00:02"), "gw": Tap("tap", "00:00:00:00:00:01")}


def test_notes_name_folders_that_cannot_be_made_and_small_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "rmem_max").write_text("212992\n")
    monkeypatch.setattr(opensand, "RMEM_MAX", tmp_path / "rmem_max")
    found = platform(st={"path_local": f"{tmp_path}/file/logs"}, gw={"path_local": f"{tmp_path}/new/logs"}).notes()
    assert len(found) == 2
    assert "infrastructure_st.xml: path_local" in found[0]
    assert "cut to 212992 bytes" in found[1]
    (tmp_path / "rmem_max").write_text("4194304\n")
    assert platform().notes() == []


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "says"),
    [(14, "topology file"), (15, "profile file"), (103, "initialized"), (139, "crash"), (-11, "crash"), (99, "")],
)
def test_exit_codes_have_a_meaning(code: int, says: str) -> None:
    assert says in opensand.meaning(code)
    assert bool(says) == bool(opensand.meaning(code))


@pytest.mark.parametrize(
    ("role", "log", "says"),
    [
        (Role.GW, "", "gw is not initialized"),
        (Role.GW, "[EVENT][gw0][status] Blocks initialized\n", "gw is initialized"),
        (Role.ST, "[EVENT][st1][status] Blocks initialized\n", "st is initialized but not logged on"),
        (
            Role.ST,
            "[status] Blocks initialized\n[EVENT][st1][dvb.login] Login complete with MAC 1\n",
            "st is logged on",
        ),
    ],
)
def test_logs_show_the_progress_of_a_start(role: Role, log: str, says: str) -> None:
    assert opensand.progress(role, log) == says


def test_options_that_opensand_cannot_do_are_refused_by_name() -> None:
    asked = LinkOptions(emulator="opensand", loss=0.01, queue_bdp=3.0, seed=2, terrestrial_delay_ms=10.0)
    with pytest.raises(ConfigError) as caught:
        asked.request()
    assert [fault.place for fault in caught.value.faults] == ["--seed 2", "--loss 0.01", "--queue-bdp 3.0"]
    request = LinkOptions(emulator="opensand", terrestrial_delay_ms=10.0).request()
    assert (request.emulator, request.terrestrial_one_way_delay_ms) == ("opensand", 10.0)


def test_opensand_s_own_leniency_can_be_asked_for(tmp_path: Path, program: Path) -> None:
    assert LinkOptions(emulator="opensand", lenient=True).request().lenient
    opensand.prepare(tmp_path, TOPOLOGY, satlink(tmp_path, description()), lenient=True)
    assert (tmp_path / "asked").read_text() == f"describe --lenient {tmp_path}\n"


def test_no_tap_gets_what_only_opensand_takes_for_a_mac_address(tmp_path: Path, program: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prepare(tmp_path, st={"mac_address": "02"})
    assert [fault.place for fault in caught.value.faults] == ["infrastructure_st.xml: entity/entity_st/mac_address"]
