# SPDX-License-Identifier: GPL-3.0-or-later
"""Remedies for names that do not exist."""

import difflib
from collections.abc import Iterable


def remedy(name: str, known: Iterable[str], rest: str = "known: {}") -> str:
    """Return the nearest known name as a question; without a near one `rest` with all names."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else rest.format(", ".join(names) or "none")
