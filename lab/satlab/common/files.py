# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are replaced as a whole."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str, mode: int = 0o666) -> None:
    """Replace a file's content: a reader sees the old text or the new one, never half of it. The umask cuts `mode`."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    with open(scratch, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        file.write(text)
    scratch.replace(path)
