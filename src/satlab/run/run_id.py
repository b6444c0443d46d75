# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of runs."""

import secrets
import time
from pathlib import Path


def new_run_id(scenario: str, profile: str) -> str:
    """Make a run id of at most 64 characters that sorts by time: date, scenario, profile, four
    random digits.
    """
    when = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return (
        f"{when}-{scenario[:24].replace(' ', '_')}-{Path(profile).name[:12]}-{secrets.token_hex(2)}"
    )
