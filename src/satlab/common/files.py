# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are replaced as a whole, and new folders."""

import itertools
import os
import time
from pathlib import Path


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace a file's content: a reader sees the old text or the new one, never half of it.

    The umask cuts `mode`.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    with open(
        scratch, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)
    ) as file:
        file.write(text)
    scratch.replace(path)


def new_folder(parent: Path, name: str) -> Path:
    """Make a folder PARENT/NAME-DATE-TIME (UTC), with -2, -3 and so on where others began in the
    same second.
    """
    first = f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    for number in itertools.count(1):
        folder = parent / (first if number == 1 else f"{first}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError
