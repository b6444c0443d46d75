# SPDX-License-Identifier: GPL-3.0-or-later
"""A documentation site by the rules of ours, from other pages."""

import subprocess
import sys
from pathlib import Path

from satlab.common import paths


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Write the site of the pages in `source` to `out`; what is wrong with them is on stderr, and
    fails.
    """
    argv = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "-c",
        str(paths.ROOT / "docs/site"),
        str(source),
        str(out),
    ]
    return subprocess.run(argv, capture_output=True, text=True, check=False)
