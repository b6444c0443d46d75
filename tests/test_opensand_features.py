# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of features in docs/opensand.md: what satlink accepts, what it refuses by name, what
passes to OpenSAND.
"""

import json
import re
from pathlib import Path

import pytest

from satlab.common import paths
from satlab.link import opensand, satlink
from tests.opensand_layouts import Edits, write

DOCUMENT = paths.ROOT / "docs" / "opensand.md"


def leaf(name: str, value: object) -> str:
    return f"<{name}>{value}</{name}>"


def item(*leaves: tuple[str, object]) -> str:
    return leaf("item", "".join(leaf(name, text) for name, text in leaves))


def carrier(kind: str, wave_form: str, group: str = "Standard") -> str:
    return item(("bandwidth", 5000), ("type", kind), ("wave_form", wave_form), ("group", group))


def another_carrier(
    band: str, kind: str, wave_form: str, group: str = "Standard"
) -> tuple[str, str, str]:
    """Edit a band: one more carrier at its end."""
    return "topology.xml", f"</{band}>", f"{carrier(kind, wave_form, group)}</{band}>"


def host(number: int, tail: str) -> str:
    address, mac = f"10.77.0.{number}", f"00:00:00:00:00:{number:02}"
    return item(("entity_id", number), ("emu_address", address), ("mac_address", mac)) + tail


def attenuation(kind: str, leaves: str) -> tuple[str, str, str]:
    ideal = (
        "<attenuation_type>Ideal</attenuation_type>\n       "
        " <ideal_attenuation_value>0.0</ideal_attenuation_value>"
    )
    return "profile_st.xml", ideal, f"<attenuation_type>{kind}</attenuation_type>{leaves}"


DELAY = "<delay_type>ConstantDelay</delay_type>\n        <delay_value>125</delay_value>"
SERIES = "<file_path>series.txt</file_path><refresh_period>200</refresh_period><loop>true</loop>"
ON_OFF = "".join(
    leaf(f"onoff_attenuation_{name}", value)
    for name, value in (("on", 2), ("off", 3), ("amplitude", 1.5))
)
CONNECTION = item(
    ("id", 1),
    ("mac_src", "00:00:00:00:00:01"),
    ("mac_dst", "00:00:00:00:00:02"),
    ("tci_802_1q", 1),
    ("tci_802_1ad", 1),
    ("protocol", "0800"),
)
SIMULATED = "".join(
    leaf(f"simulation_{name}", 1)
    for name in "nb_station rt_bandwidth max_rbdc max_vbdc mean_requests amplitude_request".split()
)


def in_place_of(
    file: str, name: str, old: object, new: object, more: str = ""
) -> tuple[str, str, str]:
    """Edit the value of a leaf, and add siblings behind it."""
    return file, leaf(name, old), leaf(name, new) + more


def requests(name: str, most: int) -> tuple[str, str, str]:
    return in_place_of(
        "profile_st.xml", f"{name}_enabled", "false", "true", leaf(f"{name}_max", most)
    )


ST, GW, TOPOLOGY = "profile_st.xml", "profile_gw.xml", "topology.xml"
SCPC = (
    in_place_of(TOPOLOGY, "type", "DAMA", "SCPC"),
    in_place_of(TOPOLOGY, "wave_form", "3-12", "1-4"),
    in_place_of("profile_st.xml", "dama_enabled", "true", "false"),
    in_place_of("profile_st.xml", "scpc_enabled", "false", "true"),
)
RANDOM_ACCESS = (
    "".join(
        leaf(name, value)
        for name, value in {"timeout": 8, "replicas": 2, "max_packets": 5, "max_retry": 3}.items()
    )
    + leaf("backoff_algo", "BEB")
    + leaf("max_cw", 8)
    + leaf("backoff_multiple", 2)
)
ALOHA = (
    in_place_of(TOPOLOGY, "type", "DAMA", "ALOHA"),
    in_place_of("profile_st.xml", "ra_enabled", "false", "true"),
    in_place_of("profile_st.xml", "dama_enabled", "true", "false"),
    (ST, ">DAMA_RBDC<", ">SALOHA<"),
    (ST, "<random_access/>", leaf("random_access", RANDOM_ACCESS)),
)
CONTENDERS = item(("category", "Standard"), ("max_packets", 3), ("replicas", 2), ("ratio", 10))
SECOND_SPOT = item(
    (
        "assignments",
        leaf("gateway_id", 10)
        + leaf("sat_id_gw", 2)
        + leaf("sat_id_st", 2)
        + leaf("forward_regen_level", "Transparent")
        + leaf("return_regen_level", "Transparent"),
    ),
    ("roll_off", leaf("forward", 0.25) + leaf("return", 0.25)),
    ("forward_band", carrier("ACM", "1")),
    ("return_band", carrier("DAMA", "3-12")),
)
BURST = "<burst_length>{} sym</burst_length>\n        <crdsa_frame>"
FILE = leaf("file_attenuation_file", "series.txt") + leaf("file_attenuation_loop", "true")
TRIANGLE = leaf("triangle_attenuation_slope", 0.5) + leaf("triangle_attenuation_period", 4)
MAC_BEHIND_ST = item(("entity_id", 1), ("mac_address", "02:00:00:00:00:b1"))
LINKED = item(("linked_sat_id", 3), ("isl_type", "Interconnect"))
REGENERATION = "forward_regen_level"
FEATURES: dict[str, tuple[Edits, ...]] = {
    "one forward carrier, CCM or ACM": ((), ((TOPOLOGY, "<wave_form>1<", "<wave_form>1-28<"),)),
    "return link with CRA, RBDC, VBDC": ((requests("rbdc", 8000), requests("vbdc", 800)),),
    "1616-symbol bursts": (
        (
            (TOPOLOGY, BURST.format(536), BURST.format(1616)),
            (TOPOLOGY, "<wave_form>3-12<", "<wave_form>13-22<"),
        ),
    ),
    "forward frames of 2 ms, superframes of 5 ms": (
        (
            (TOPOLOGY, "<forward_duration>10.0<", "<forward_duration>2.0<"),
            (TOPOLOGY, "<return_duration>26.5<", "<return_duration>5.0<"),
        ),
    ),
    "attenuation: ideal, file, on/off, triangular": (
        (),
        (attenuation("File", FILE),),
        (attenuation("On/Off", ON_OFF),),
        (attenuation("Triangular", TRIANGLE),),
    ),
    "delay from a file": (((ST, DELAY, f"<delay_type>FileDelay</delay_type>{SERIES}"),),),
    "constant threshold": (
        (
            in_place_of(
                ST, "minimal_condition_type", "ACM-Loop", "Constant", leaf("threshold", -3.0)
            ),
        ),
    ),
    "RLE with CRC": (((ST, "Sequence Number", "CRC"),),),
    "802.1Q on the LAN": ((in_place_of(ST, "lan_frame_type", "Ethernet", "802.1Q"),),),
    "further MAC addresses": ((("*", "</terminals>", f"{MAC_BEHIND_ST}</terminals>"),),),
    "several terminals": (
        (("*", "</terminals>", host(5, "</terminals>")), in_place_of(ST, "cra", 10000, 3000)),
    ),
    "Premium group": (((TOPOLOGY, ">Standard<", ">Premium<"), (ST, ">Standard<", ">Premium<")),),
    "several gateways or spots": (
        (("*", "</gateways>", host(10, "</gateways>")),),
        (
            ("*", "</gateways>", host(10, "</gateways>")),
            (TOPOLOGY, "</spots>", f"{SECOND_SPOT}</spots>"),
        ),
    ),
    "two forward carriers of one group": ((another_carrier("forward_band", "ACM", "1"),),),
    "two DAMA carriers of one group": ((another_carrier("return_band", "DAMA", "3-12"),),),
    "carriers of another group": (
        (
            another_carrier("forward_band", "ACM", "1", "Premium"),
            another_carrier("return_band", "DAMA", "3-12", "Premium"),
        ),
    ),
    "802.1ad on the LAN": ((in_place_of(ST, "lan_frame_type", "Ethernet", "802.1ad"),),),
    "802.1Q or 802.1ad on the satellite": tuple(
        (in_place_of(ST, "sat_frame_type", "Ethernet", kind),) for kind in ("802.1Q", "802.1ad")
    ),
    "virtual connections": (
        ((GW, "<virtual_connections/>", leaf("virtual_connections", CONNECTION)),),
    ),
    "simulated terminals": ((in_place_of(GW, "simulation", "None", "Random", SIMULATED),),),
    "return SCPC of one terminal": (SCPC,),
    "return SCPC of several terminals": ((*SCPC, ("*", "</terminals>", host(5, "</terminals>"))),),
    "SCPC and DAMA at once": ((SCPC[0], SCPC[1], SCPC[3]),),
    "BBFrame regeneration": ((in_place_of(TOPOLOGY, REGENERATION, "Transparent", "BBFrame"),),),
    "IP regeneration": ((in_place_of(TOPOLOGY, REGENERATION, "Transparent", "IP"),),),
    "ISL, two satellites": (
        (("infrastructure_sat.xml", "<isl_settings/>", leaf("isl_settings", LINKED)),),
    ),
    "split gateway": (
        (in_place_of("infrastructure_gw.xml", "entity_type", "Gateway", "Gateway Phy"),),
    ),
    "slotted Aloha, CRDSA": (ALOHA, (*ALOHA, (GW, ">CRDSA<", ">DSA<"))),
    "slotted Aloha and DAMA at once": ((ALOHA[1], ALOHA[4]), (*ALOHA[:2], *ALOHA[3:])),
    "simulated traffic on slotted Aloha": (
        (*ALOHA, (GW, "<simulations/>", leaf("simulations", CONTENDERS))),
    ),
    "VCM": (
        (
            in_place_of(TOPOLOGY, "type", "ACM", "VCM"),
            (
                TOPOLOGY,
                "</item>\n          </forward_band>",
                "<ratio>1</ratio></item></forward_band>",
            ),
        ),
    ),
    "control plane off": ((in_place_of(ST, "disable_control_plane", "false", "true"),),),
}
"""Each row of the table, with the edits of the GEO profile that use it."""


def rows() -> dict[str, str]:
    """Return the second column of the table by the first."""
    section = DOCUMENT.read_text().partition("## Features")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ")
    ]
    return {feature: verdict for feature, verdict, _ in cells if verdict in {"yes", "refused"}}


def test_the_table_has_exactly_what_is_tested() -> None:
    assert list(rows()) == list(FEATURES)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.promise("P54")
def test_a_feature_is_what_the_table_says(tmp_path: Path, feature: str) -> None:
    if not paths.SATLINK.exists():
        pytest.skip(f"{paths.SATLINK} is not built")
    for number, edits in enumerate(FEATURES[feature]):
        folder = write(tmp_path / str(number), edits=edits)
        (folder / "series.txt").write_text(
            "0 125\n5 100\n" if "delay" in feature else "0 1.0\n5 2.0\n"
        )
        said = json.loads(satlink.run(paths.SATLINK, "inspect", [str(folder)], "").stdout)
        named = [fault["reason"] for fault in said["unsupported"]]
        if rows()[feature] == "yes":
            assert not named, (feature, said)
            assert said["link"], (feature, said)
        else:
            assert any(re.search("not supported by satlink", reason) for reason in named), (
                feature,
                said,
            )
        # OpenSAND judges it: the machines are read all the same.
        assert opensand.describe(folder, paths.SATLINK).gw.tap_iface == "tap"
