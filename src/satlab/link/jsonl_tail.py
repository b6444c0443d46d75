# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a file of JSON lines while another process appends to it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 4 << 20
"""Bytes read at a time."""


@dataclass
class GrowingFile:
    """Reads each line once. `offset`: bytes read so far."""

    path: Path
    offset: int = 0

    def read(self) -> list[dict[str, Any]]:
        """Return the next whole lines, at most `MAX_BYTES`; none if there is no file or nothing
        new.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                lines, newline, _ = file.read(MAX_BYTES).rpartition(b"\n")
        except OSError:
            return []
        self.offset += len(lines) + len(newline)
        return [json.loads(line) for line in lines.splitlines()]
