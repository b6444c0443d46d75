# SPDX-License-Identifier: GPL-3.0-or-later
"""lab.yml with the second terminal that docs/how-to/terminals.md adds to it."""

import re
from pathlib import Path
from typing import Any

import yaml

from satlab.common import paths

DOCUMENT = paths.ROOT / "docs" / "how-to" / "terminals.md"


def data() -> dict[str, Any]:
    """Return the content of such a lab.yml."""
    (block,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    merged: dict[str, Any] = _merged(
        yaml.safe_load(paths.LAB_FILE.read_text()), yaml.safe_load(block)
    )
    return merged


def write(file: Path, content: dict[str, Any] | None = None) -> Path:
    """Write such a lab.yml, or one with other content."""
    file.write_text(yaml.safe_dump(data() if content is None else content, sort_keys=False))
    return file


def _merged(base: Any, more: Any) -> Any:
    if not isinstance(base, dict):
        return more
    return base | {key: _merged(base.get(key), value) for key, value in more.items()}
