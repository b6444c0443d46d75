# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND labs for tests, written from the shipped GEO profile: in each layout of OpenSAND's tools, and with edits.

Their tools' own files are not reachable here. What these have in common with them: the layouts, leaves that they leave
out, the default MAC of sections that are about other entities, and MAC addresses of hosts behind an entity.
"""

from pathlib import Path

from satlab.common import paths

FILES = (
    "infrastructure_sat.xml", "infrastructure_gw.xml", "infrastructure_st.xml",
    "topology.xml", "profile_gw.xml", "profile_st.xml",
)  # fmt: skip
_BY_ROLE = ("sat/infrastructure.xml", "gw/infrastructure.xml", "st/infrastructure.xml")
LAYOUTS = {
    "one-folder": FILES,
    "by-role": (*_BY_ROLE, "topology.xml", "gw/profile.xml", "st/profile.xml"),
    "by-role-with-topology-inside": (*_BY_ROLE, "st/topology.xml", "gw/profile.xml", "st/profile.xml"),
    "entities": (
        "entities/sat/infrastructure.xml", "entities/gw0/infrastructure.xml", "entities/st1/infrastructure.xml",
        "topology.xml", "entities/gw0/profile.xml", "entities/st1/profile.xml",
    ),
}  # fmt: skip
Edits = tuple[tuple[str, str, str], ...]
"""File (by its name in one folder, or `*`: every infrastructure file), text, its replacement."""

UPSTREAM: Edits = (
    ("profile_st.xml", "<ra_enabled>false</ra_enabled>", ""),
    ("profile_st.xml", "<rbdc_enabled>false</rbdc_enabled>", ""),
    ("profile_st.xml", "<vbdc_enabled>false</vbdc_enabled>", ""),
    ("*", "<default_gw>0</default_gw>", ""),
    (
        "*",
        "</terminals>",
        "<item><entity_id>0</entity_id><mac_address>02:00:00:00:00:a0</mac_address></item></terminals>",
    ),
    ("*", "<emu_address>10.77.0.1<", "<emu_address>192.168.18.1<"),
    ("*", "<emu_address>10.77.0.2<", "<emu_address>192.168.18.2<"),
    ("*", "<emu_address>10.77.0.3<", "<emu_address>192.168.18.3<"),
)
"""As their tools write it."""


def write(folder: Path, layout: str = "one-folder", edits: Edits = ()) -> Path:
    """Write a lab; every edit must find its text."""
    for name, place in zip(FILES, LAYOUTS[layout], strict=True):
        text = (paths.PROFILES / "geo" / name).read_text()
        for file, old, new in edits:
            if file == name or (file == "*" and name.startswith("infrastructure")):
                if old not in text:
                    raise ValueError(f"{file} does not contain {old}")
                text = text.replace(old, new)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(text)
    return folder
