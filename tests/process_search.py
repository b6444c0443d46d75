# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes of this host that have a text in their environment or command line."""

import contextlib
from pathlib import Path
from typing import Literal


def having(text: str, where: Literal["environ", "cmdline"]) -> list[int]:
    """Return the ids of processes with a text in a file of proc(5), where a NUL ends each entry."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if text.encode() in (place / where).read_bytes():
                found.append(int(place.name))
    return found
