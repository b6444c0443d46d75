# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of a host on which its figures depend, and the results of `satlab bench host`
there.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from satlab import __version__
from satlab.common import paths
from satlab.run import manifest

SCHEMA = "satlab/bench-host/1"


def stamp() -> tuple[str, dict[str, Any]]:
    """Return a digest of the properties on which this host's figures depend, and these properties,
    without the host's name and load.
    """
    facts = {name: value for name, value in manifest.host().items() if name != "load_1min"}
    text = json.dumps([facts, __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12], facts


def known(digest: str) -> Mapping[str, Any] | None:
    """Return the results of `satlab bench host` for this stamp; None if there are none, or they are
    for another stamp.
    """
    try:
        found = json.loads(file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_ours = (
        isinstance(found, dict) and found.get("schema") == SCHEMA and found.get("stamp") == digest
    )
    return found if is_ours and isinstance(found.get("labs"), int) else None


def file() -> Path:
    """Return where `satlab bench host` keeps its result."""
    return paths.state_folder() / f"host-{os.uname().nodename}.json"
