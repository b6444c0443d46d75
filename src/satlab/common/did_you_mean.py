# SPDX-License-Identifier: GPL-3.0-or-later
"""Remedies for names that do not exist."""

from collections.abc import Iterable
from difflib import SequenceMatcher

LEAST = 0.6
"""Similarity from which a name is near."""


def remedy(name: str, known: Iterable[str], rest: str = "known: {}") -> str:
    """Return the nearest known names as a question; without a near one `rest` with all names."""
    alike = {each: SequenceMatcher(None, name, each).ratio() for each in known}
    best = max(alike.values(), default=0.0)
    near = [each for each, share in alike.items() if share == best >= LEAST]
    if near:
        return f"did you mean {' or '.join(near)}?"
    return rest.format(", ".join(alike) or "none")
