# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of OpenSAND are imported from each layout: what is shown, what is written, and that satlink
plans it.
"""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from satlab.common import paths
from satlab.common.errors import ConfigError
from satlab.common.topology import load
from satlab.link import opensand, opensand_xml, satlink
from satlab.link.config import LinkRequest, build_config
from satlab.link.options import LinkOptions
from satlab.link.plan import LinkPlan, plan_link
from satlab.run import profile_import, validate
from tests.opensand_layouts import (
    FILES,
    LAYOUTS,
    SEVERAL,
    SEVERAL_LAYOUTS,
    UPSTREAM,
    write,
    write_several,
)


@pytest.fixture(autouse=True)
def _needs_satlink() -> None:
    if not paths.SATLINK.exists():
        pytest.skip(f"{paths.SATLINK} is not built")


def planned(profile: Path) -> LinkPlan:
    return plan_link(
        build_config(load(), "t", LinkRequest(profile=profile), metrics=profile / "metrics")
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.promise("P54")
def test_each_layout_becomes_a_profile_with_the_addresses_of_the_lab(
    tmp_path: Path, layout: str
) -> None:
    source = write(tmp_path / "lab", layout, UPSTREAM)
    done = profile_import.run(source, tmp_path / "profile")
    assert {file.name for file in done.target.iterdir()} == set(FILES)
    said = "\n".join(done.lines())
    assert "st: id 1, " in said
    assert "address 192.168.18.3, now 10.77.0.3" in said
    assert "link: forward QPSK 1/4 at 40.000 Mbaud" in said
    assert said.endswith("profile: for satlink and OpenSAND")
    assert validate.check(done.target) == []
    ours, geo = planned(done.target), planned(paths.PROFILES / "geo")
    assert (ours.forward, ours.return_, ours.rtt_ms) == (geo.forward, geo.return_, geo.rtt_ms)
    fits = opensand.describe(done.target, paths.SATLINK)
    assert not list(opensand.misfits(fits, load()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_validate_reads_each_layout_and_single_files(tmp_path: Path, layout: str) -> None:
    folder = write(tmp_path / "lab", layout, UPSTREAM)
    assert validate.check(folder) == []
    assert validate.check(tmp_path) == []
    for name in LAYOUTS[layout]:
        assert validate.check(folder / name) == []


PAYLOAD = {"16APSK 2/3": 5380, "32APSK 9/10": 7274}
"""Bytes of a BBFRAME of OpenSAND; 6 of them are a header of its own."""


def rate_kbps(topology: Path, modcod: str, baud: float) -> float:
    """Return the rate that OpenSAND computes: a BBFRAME costs its bits by the efficiency in its own
    table.
    """
    modulation, coding = modcod.split()
    rows = opensand_xml.read(topology).iterfind("wave_forms/dvb_s2/item")
    (row,) = (
        row
        for row in rows
        if (row.findtext("modulation"), row.findtext("coding")) == (modulation, coding)
    )
    symbols = int(PAYLOAD[modcod] * 8 / float(row.findtext("efficiency", "")))
    return baud / symbols * (PAYLOAD[modcod] - 6) * 8 / 1e3


@pytest.mark.parametrize("layout", SEVERAL_LAYOUTS)
@pytest.mark.promise("P54")
def test_p291_labs_of_several_terminals_are_shown_and_planned_with_opensand_s_rates(
    tmp_path: Path, layout: str
) -> None:
    folder = write_several(tmp_path / "lab", layout)
    warning, *lines = sorted(validate.check(folder), key=lambda line: "warning: " not in line)
    assert "crashes where forward carriers have two groups" in warning
    expected = [(1, "32APSK 9/10", 10e6), (4, "16APSK 2/3", 10e6), (5, "32APSK 9/10", 5e6)]
    for line, (number, modcod, baud) in zip(lines, expected, strict=True):
        found = re.search(rf"terminal {number}: forward {modcod} \d+ kbit/s \[(\d+)\]", line)
        assert found, line
        assert abs(float(found[1]) - rate_kbps(folder / "topology.xml", modcod, baud)) <= 1, line
    assert lines[2].endswith("carriers of Premium")
    done = profile_import.run(folder, tmp_path / "profile")
    assert {"profile_st4.xml", "profile_st5.xml"} < {file.name for file in done.target.iterdir()}
    assert "st5: id 5, " in "\n".join(done.lines())
    plans = []
    for profile in (done.target, paths.PROFILES / SEVERAL):
        options = LinkOptions(profile=str(profile))
        further = options.profile_terminals()
        request = options.request(terminals=further)
        plan = plan_link(
            build_config(options.topology(further), "t", request, metrics=tmp_path / "metrics")
        )
        own = {
            "profile": "",
            "profile_sha256": "",
            "advice": (),
        }  # advice names the profile's files
        plans.append(plan.model_copy(update=own))
    assert len(plans[0].terminals) == 3
    assert plans[0] == plans[1]
    assert [one.entity_id for one in opensand.describe(done.target, paths.SATLINK).further_sts] == [
        4,
        5,
    ]


def test_single_files_and_other_releases_are_refused_by_name(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "lab",
        edits=(("topology.xml", "<bandwidth>50000</bandwidth>", "<symbol_rate>4e7</symbol_rate>"),),
    )
    for path in (folder, folder / "topology.xml"):
        with pytest.raises(ConfigError) as caught:
            validate.check(path)
        assert any("OpenSAND 7.x or earlier" in fault.reason for fault in caught.value.faults)
    (tmp_path / "five").mkdir()
    (tmp_path / "five" / "core_global.conf").write_text("<configuration/>")
    with pytest.raises(ConfigError) as caught:
        validate.check(tmp_path / "five")
    assert any("OpenSAND 5.x" in fault.reason for fault in caught.value.faults)


def test_a_buffer_that_loses_every_packet_is_a_warning(tmp_path: Path) -> None:
    small = ("profile_st.xml", "<decap_buffer_len>5000<", "<decap_buffer_len>8<")
    folder = write(tmp_path / "lab", edits=(small,))
    (warning,) = validate.check(folder)
    assert "drops every forward packet" in warning
    assert "write 5000" in warning
    done = profile_import.run(folder, tmp_path / "profile")
    assert any("drops every forward packet" in line for line in done.lines())
    assert any("drops every forward packet" in line for line in planned(folder).advice)


def test_what_is_promised_for_satlink_is_planned(tmp_path: Path) -> None:
    """A profile that needs --lenient is not promised without it."""
    slip = ("profile_st.xml", "<cra>10000<", "<cra>10000.7<")
    done = profile_import.run(write(tmp_path / "lab", edits=(slip,)), tmp_path / "profile")
    said = list(done.lines())
    assert said[-1].endswith("profile: for satlink with --lenient (see the warnings) and OpenSAND")
    with pytest.raises(ConfigError):
        planned(done.target)
    options = LinkOptions(profile=str(done.target), lenient=True)
    plan_link(build_config(load(), "t", options.request(), metrics=tmp_path / "metrics"))


def test_files_that_opensand_s_tool_filled_in_are_read_instead_of_templates(
    tmp_path: Path,
) -> None:
    source = write(tmp_path / "lab", "by-role", UPSTREAM)
    for name in LAYOUTS["by-role"]:
        if not name.endswith("profile.xml"):
            filled = source / name.replace(".xml", "_updated.xml")
            (source / name).rename(filled)
            (source / name).write_text('<model version="1.0.0"><root/></model>')
    done = profile_import.run(source, tmp_path / "profile")
    said = list(done.lines())
    assert "topology_updated.xml: read instead of its template topology.xml" in said
    assert sum("read instead of its template" in line for line in said) == 4
    assert said[-1].endswith("profile: for satlink and OpenSAND")
    assert planned(done.target).rtt_ms == planned(paths.PROFILES / "geo").rtt_ms


def test_multicast_macs_are_replaced_and_refused_elsewhere(tmp_path: Path) -> None:
    """Those of OpenSAND's deployment tool: no interface can have them."""
    group = ("*", "<mac_address>00:00:00:00:00:02<", "<mac_address>FF:FF:FF:00:00:01<")
    source = write(tmp_path / "lab", "entities", (*UPSTREAM, group))
    refused = opensand.misfits(opensand.describe(source, paths.SATLINK), load())
    assert any("is a multicast address" in fault.reason for fault in refused)
    done = profile_import.run(source, tmp_path / "profile")
    said = "\n".join(done.lines())
    assert "st: MAC FF:FF:FF:00:00:01 is multicast" in said
    for name in FILES[:3]:
        root = opensand_xml.read(done.target / name)
        (item,) = (
            item
            for item in root.iterfind("infrastructure/terminals/item")
            if item.findtext("entity_id") == "1"
        )
        assert item.findtext("mac_address") == "02:00:00:00:00:01"
    found = opensand.describe(done.target, paths.SATLINK)
    assert found.st.mac_address == "02:00:00:00:00:01"
    assert not list(opensand.misfits(found, load()))


def test_what_satlink_cannot_do_is_shown_and_written(tmp_path: Path) -> None:
    frames = ("profile_gw.xml", "<sat_frame_type>Ethernet<", "<sat_frame_type>802.1ad<")
    done = profile_import.run(write(tmp_path / "lab", edits=(frames,)), tmp_path / "profile")
    said = list(done.lines())
    assert any(
        line.startswith("satlink cannot: ") and "802.1ad is not supported by satlink" in line
        for line in said
    )
    assert said[-1].endswith("for OpenSAND alone (--emulator opensand)")
    kept = opensand_xml.read(done.target / "profile_gw.xml")
    assert kept.findtext("network/qos_settings/sat_frame_type") == "802.1ad"


def test_files_of_values_over_time_come_along(tmp_path: Path) -> None:
    delay = (
        "profile_st.xml",
        "<delay_type>ConstantDelay</delay_type>\n        <delay_value>125</delay_value>",
        "<delay_type>FileDelay</delay_type><file_path>delay.txt</file_path><refresh_period>200</refresh_period><loop>true</loop>",
    )
    folder = write(tmp_path / "lab", "by-role", (delay,))
    with pytest.raises(ConfigError, match=r"names delay\.txt"):
        profile_import.run(folder, tmp_path / "early")
    (folder / "st" / "delay.txt").write_text("0 125\n5 100\n")
    done = profile_import.run(folder, tmp_path / "profile")
    assert (done.target / "delay.txt").read_text() == "0 125\n5 100\n"
    assert validate.check(done.target) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    source = write(tmp_path / "lab")
    (tmp_path / "profile").mkdir()
    taken = f"the folder for the profile exists already: {tmp_path / 'profile'}"
    with pytest.raises(ConfigError, match=re.escape(taken)) as caught:
        profile_import.run(source, tmp_path / "profile")
    assert caught.value.hint == "choose another one with --to, or remove it"
    with pytest.raises(ConfigError) as caught:
        profile_import.run(source, source)
    assert "remove" not in caught.value.hint, "the lab itself stays"


def test_model_and_schema_agree(tmp_path: Path) -> None:
    schema = json.loads((paths.SCHEMAS / "profile-inspection.schema.json").read_text())
    said = json.loads(
        satlink.run(paths.SATLINK, "inspect", [str(paths.PROFILES / "geo")], "").stdout
    )
    jsonschema.validate(said, schema)
    assert schema["properties"].keys() == {"schema", *profile_import.Inspection.model_fields} - {
        "schema_"
    }
    assert schema["$defs"]["Fault"]["properties"].keys() == profile_import.Line.model_fields.keys()


def test_errors_of_a_timeline_name_the_user_s_file(tmp_path: Path) -> None:
    file = tmp_path / "fade.json"
    loss = {"model": "trace", "file": "/nonexistent", "unit": "packet"}
    file.write_text(json.dumps([{"at_s": 1, "set": {"direction": "forward", "loss": loss}}]))
    request = LinkOptions(timeline=file).request()
    with pytest.raises(ConfigError) as caught:
        plan_link(build_config(load(), "t", request, metrics=tmp_path / "metrics"))
    said = f"{caught.value} {caught.value.faults}"
    assert str(file) in said
    assert "satlab-link-" not in said


def test_p343_an_import_keeps_the_profiles_and_terminals_of_further_gateways(
    tmp_path: Path,
) -> None:
    done = profile_import.run(paths.PROFILES / "geo-spots", tmp_path / "spots")
    assert {"profile_gw6.xml", "profile_st4.xml"} < {file.name for file in done.target.iterdir()}
    assert "gw6: id 6, " in "\n".join(done.lines())
    found = opensand.describe(done.target, paths.SATLINK)
    assert [(one.entity_id, one.gateway) for one in found.further_sts] == [(4, 6)]
    lines = validate.check(done.target)
    assert len(lines) == 2
    assert lines[1].endswith("spot of GW 6, carriers of Standard")
    options = LinkOptions(profile=str(done.target))
    further = options.profile_terminals()
    config = build_config(
        options.topology(further),
        "t",
        options.request(terminals=further),
        metrics=tmp_path / "metrics",
    )
    assert [(one.gateway, one.forward_modcod) for one in plan_link(config).terminals] == [
        (0, "32APSK 9/10"),
        (6, "32APSK 3/4"),
    ]
