# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox of a process that parses files of others: it has no network, bounded memory, satlab's
code, and one folder to write its answer to.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from satlab.common import paths, scratch
from satlab.lab import privileges, sandbox
from satlab.lab.sandbox import Limits, Mount, Sandbox


def variables(**further: str) -> dict[str, str]:
    """Return the variables of a reader in Python."""
    code = {"PYTHONPATH": paths.PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1"}
    return {**sandbox.ENVIRONMENT, **code, **further}


def confined(
    place: Path, out: Path, name: str, limits: Limits, environment: Mapping[str, str]
) -> list[str]:
    """Return the argv prefix of a reader: for root a sandbox, for others nothing.

    `out` is the folder that the reader writes to, in `place`, which it does not see.
    """
    if os.geteuid() != 0:
        return []
    box = Sandbox(
        mounts=(*sandbox.programs(), Mount(out, writable=True)),
        name=name,
        variables=environment,
        limits=limits,
    )
    scratch.sized(out, limits.disk_bytes, limits.files)
    privileges.chown(out, box.uid)
    root = place / "root"
    root.mkdir(mode=0o700, exist_ok=True)
    return box.argv(place / "sandbox.json", root)
