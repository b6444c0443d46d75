# SPDX-License-Identifier: GPL-3.0-or-later
"""The URL of a service, as a user writes it."""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class WebUrl(NamedTuple):
    """The parts of `http[s]://[user:password@]host[:port][path]`; user and password are unquoted."""

    host: str
    port: int
    path: str
    user: str
    password: str
    secure: bool


def parse(url: str, port: int) -> WebUrl | None:
    """Parse a URL, with a default port; None if it is invalid."""
    try:
        parts = urlsplit(url)
        port = parts.port or port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return WebUrl(parts.hostname, port, parts.path, user, password, parts.scheme == "https")
