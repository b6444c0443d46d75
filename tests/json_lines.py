# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of JSON lines, which a program may still write."""

import json
from pathlib import Path
from typing import Any


def read(file: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the whole lines so far, of one type or all; none if the file is missing."""
    text = file.read_text() if file.exists() else ""
    found = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
    return [line for line in found if not kind or line["type"] == kind]
