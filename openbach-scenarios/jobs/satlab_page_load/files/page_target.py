# SPDX-License-Identifier: GPL-3.0-or-later
"""The page that is loaded: what has to arrive, from which domains, and which key of the server is
trusted.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from urllib.parse import urlsplit

from jobkit import JobError
from served_page import HOST_SUFFIX, read_pin

PROTOCOLS = {"h1": ("http", 80, "http/1.1"), "h2": ("https", 443, "h2"), "h3": ("https", 443, "h3")}
Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class Target:
    """The page, its server, and the body bytes of each object by `key`.

    `spki` is empty for h1. `pki`: folder of the run's certificates.
    """

    page: str
    protocol: str
    server: Address
    expected: Mapping[str, int]
    spki: str
    pki: Path = Path()

    @property
    def host(self) -> str:
        """Return the name that the browser maps to the server's address."""
        return self.page + HOST_SUFFIX

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the domains of the page, its own first."""
        others = (key[2:].partition("/")[0] for key in self.expected if key.startswith("//"))
        return tuple(dict.fromkeys((self.host, *others)))

    @property
    def url(self) -> str:
        """Return the address of the document."""
        return f"{PROTOCOLS[self.protocol][0]}://{self.host}/"

    def key(self, url: str) -> str:
        """Return the path of a URL of the page's own host; of another host, too: //HOST/PATH."""
        parts = urlsplit(url)
        return parts.path if parts.netloc == self.host else f"//{parts.netloc}{parts.path}"


def read_target(page: str, protocol: str, server: Address, root: Path, pki: Path) -> Target:
    """Read what the page must hold from ROOT/PAGE/manifest.csv, and for h2 and h3 the pin from
    PKI/spki.txt.
    """
    try:
        with (root / page / "manifest.csv").open(encoding="utf-8", newline="") as file:
            expected = {_key(row, page): int(row["bytes"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, ValueError) as error:
        hint = "generate the page (satlab.lab.web_target) and set SATLAB_WWW"
        raise JobError(f"page {page}: {error!r}", hint) from error
    if not expected:
        raise JobError(
            f"page {page}: its manifest is empty", "generate it again: satlab.lab.web_target"
        )
    spki = "" if protocol == "h1" else read_pin(pki)
    return Target(page, protocol, server, expected, spki, pki)


def _key(row: Mapping[str, str], page: str) -> str:
    host = f"//{row['host']}.{page}{HOST_SUFFIX}" if row.get("host") else ""
    return f"{host}/{'' if row['loaded_as'] == 'document' else row['path']}"
