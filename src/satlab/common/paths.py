# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of the product's parts, relative to its root folder."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
ROOT = data if (data := _PACKAGE / "data").is_dir() else _PACKAGE.parents[1]
"""The checkout; in a wheel the folder of its data."""
LAB_FILE = ROOT / "vagrant" / "lab.yml"
PROFILES = ROOT / "opensand-profiles"
SCENARIOS = ROOT / "openbach-scenarios" / "scenarios"
JOBS = ROOT / "openbach-scenarios" / "jobs"
WEB_TARGETS = ROOT / "web-targets"
SUITES = ROOT / "suites"
PAPERS = ROOT / "papers"
SCHEMAS = ROOT / "schemas"
SHIM = _PACKAGE / "openbach" / "shim"
PROGRAMS_VARIABLE = "SATLAB_PROGRAMS"
PROGRAMS = Path(os.environ.get(PROGRAMS_VARIABLE, ROOT / "target" / "release"))
"""Our programs. Tests choose the folder of the build profile `ci`."""
SATBOX = PROGRAMS / "satbox"
SATLINK = PROGRAMS / "satlink"
SATVIRTUAL = PROGRAMS / "satvirtual"
SATPERF = PROGRAMS / "satperf"
SATFEC = PROGRAMS / "satfec"
SATPEP = PROGRAMS / "satpep"
DASHJS = ROOT / ".satlab" / "dashjs"
"""npm's folder of the player of satlab_video, if `./satlab --install dashjs` made it."""
PICOQUIC = ROOT / ".satlab" / "picoquic" / "picoquicdemo"
"""Built by satlab.common.install (docs/decisions/0016-picoquic.md)."""
PICOQUIC_LOCKSTEP = PICOQUIC.with_name("picoquic-lockstep")
"""picoquic under the virtual clock, built with it (tests/endpoints/picoquic)."""
PYTHONPATH = f"{_PACKAGE.parent}:{ROOT}"
"""Where a new Python process finds the product."""
STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where a program finds others, whatever the caller's variable PATH is."""


def shipped_profiles(folder: Path = PROFILES) -> tuple[str, ...]:
    """Return the names of the profiles in a folder, geo first; without their common base (`_base`)."""
    names = [
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("_")
    ]
    return tuple(sorted(names, key=lambda name: (name != "geo", name)))


def state_folder() -> Path:
    """Return the folder of what this user's satlab keeps between calls (XDG base directory
    specification).
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "satlab"
