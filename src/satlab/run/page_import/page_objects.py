# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of an imported page: type, size, domain and order of each; what was left out, and why.

Nothing else of a source reaches the page: no contents, paths, queries, headers or cookies.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from satlab.common.errors import ConfigError, Fault

MOST_OBJECTS = 250
"""The browser's timeline holds that many requests besides the document (Resource Timing 2, section
4.4).
"""
MOST_BYTES = 64 << 20
"""Largest size of one object, and of all together, bytes."""
MOST_READ = 32 << 20
"""Largest file that is read, bytes: JSON takes up to 30 times its size in memory."""
MOST_DOMAINS = 64
MOST_ENTRIES = 10_000
_MOST_FAULTS = 20
_MOST_OF_DOMAIN = 170
_DOMAIN = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)


@dataclass(frozen=True)
class Item:
    """An object as it was found.

    `loaded_as`: as in a manifest. `domain`: as in the source, checked.
    """

    loaded_as: str
    size_bytes: int
    domain: str
    is_compressed: bool = False


@dataclass
class Found:
    """The objects of a page, the document first; reasons why others are not among them; faults of
    the source.
    """

    items: list[Item] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)

    def refuse(self, source: Path) -> None:
        """Raise ConfigError if the source has faults; at most 20 are named."""
        if self.faults:
            more = len(self.faults) - _MOST_FAULTS
            shown = self.faults[:_MOST_FAULTS]
            if more > 0:
                shown.append(Fault(str(source), f"{more} further faults", "correct these first"))
            raise ConfigError(f"{source} cannot be imported", shown)


class RefusedError(Exception):
    """An object of the source is wrong; `remedy` is empty for the usual one: remove it."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class LeftOutError(Exception):
    """What the source names is ordinary, but no object of the page."""


def domain(name: str | None) -> str | None:
    """Return a domain in the form that a manifest has, or None if that is not possible: an
    underscore is a hyphen.
    """
    try:
        plain = (name or "").rstrip(".").encode("idna").decode("ascii").lower().replace("_", "-")
    except UnicodeError:
        return None
    return plain if len(plain) <= _MOST_OF_DOMAIN and _DOMAIN.fullmatch(plain) else None


def loaded_as(mime: str) -> str:
    """Return the element that loads an object of a MIME type.

    Fonts, data and videos are loaded as images of their size.
    """
    kind = mime.partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        return "iframe"
    if kind == "text/css":
        return "stylesheet"
    return "script" if "javascript" in kind or "ecmascript" in kind else "img"
