# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenSAND labs for tests, written from the shipped GEO profile: in each layout of OpenSAND's
tools, and with edits.

Their tools' own files are not reachable here. What these have in common with them: the layouts,
leaves that they leave out, the default MAC of sections that are about other entities, and MAC
addresses of hosts behind an entity.
"""

from pathlib import Path

from satlab.common import paths

FILES = (
    "infrastructure_sat.xml",
    "infrastructure_gw.xml",
    "infrastructure_st.xml",
    "topology.xml",
    "profile_gw.xml",
    "profile_st.xml",
)
_BY_ROLE = ("sat/infrastructure.xml", "gw/infrastructure.xml", "st/infrastructure.xml")
LAYOUTS = {
    "one-folder": FILES,
    "by-role": (*_BY_ROLE, "topology.xml", "gw/profile.xml", "st/profile.xml"),
    "by-role-with-topology-inside": (
        *_BY_ROLE,
        "st/topology.xml",
        "gw/profile.xml",
        "st/profile.xml",
    ),
    "entities": (
        "entities/sat/infrastructure.xml",
        "entities/gw0/infrastructure.xml",
        "entities/st1/infrastructure.xml",
        "topology.xml",
        "entities/gw0/profile.xml",
        "entities/st1/profile.xml",
    ),
}
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


SEVERAL = "geo-terminals"
"""A shipped profile with three terminals, one of them of another group."""
_FURTHER = (4, 5)
_FOLDERS = {
    "by-role": {"sat": "sat", "gw": "gw", "st": "st", "st4": "st4", "st5": "st5"},
    "entities": {
        name: f"entities/{folder}"
        for name, folder in (
            ("sat", "sat"),
            ("gw", "gw0"),
            ("st", "st1"),
            ("st4", "st4"),
            ("st5", "st5"),
        )
    },
}
SEVERAL_LAYOUTS = ("one-folder", *_FOLDERS)


def write_several(folder: Path, layout: str) -> Path:
    """Write a lab of several terminals: each has a profile of its own, outside of one folder its
    infrastructure, too.

    Leaves that their tools leave out are left out.
    """
    source = paths.PROFILES / SEVERAL
    folders = _FOLDERS.get(layout, {})
    texts = {file.name: file.read_text() for file in source.glob("*.xml")}
    if folders:
        first = texts["infrastructure_st.xml"]
        own = (
            "<entity_id>1</entity_id>",
            "<emu_address>10.77.0.3<",
            "<mac_address>00:00:00:00:00:02<",
        )
        for number in _FURTHER:
            of_entity, rest = first.partition("<logs>")[::2]
            new = (
                f"<entity_id>{number}</entity_id>",
                f"<emu_address>10.77.0.{number}<",
                f"<mac_address>00:00:00:00:00:0{number}<",
            )
            for old, replacement in zip(own, new, strict=True):
                of_entity = of_entity.replace(old, replacement)
            texts[f"infrastructure_st{number}.xml"] = f"{of_entity}<logs>{rest}"
    for name, text in texts.items():
        kind, _, entity = name.removesuffix(".xml").partition("_")
        place = folder / (f"{folders[entity]}/{kind}.xml" if entity and folders else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        kept = text.replace("<ra_enabled>false</ra_enabled>", "").replace(
            "<default_gw>0</default_gw>", ""
        )
        place.write_text(kept)
    return folder
