# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages of a server and its certificates: folders, the name of a page's host, the trusted key."""

import argparse
import os
import re
from collections.abc import Callable
from pathlib import Path

from jobkit import JobError

HOST_SUFFIX = ".satlab.test"


def add_pages(options: argparse.ArgumentParser, of: Callable[[str], Path] = Path) -> None:
    """Add the option of the folder of pages. `of` reads its path."""
    www = os.environ.get("SATLAB_WWW", "/srv/satlab/www")
    options.add_argument(
        "--root", type=of, default=www, help="folder of pages (default: $SATLAB_WWW)"
    )


def add_certificates(options: argparse.ArgumentParser, of: Callable[[str], Path] = Path) -> None:
    """Add the option of the folder of certificates. `of` reads its path."""
    pki = os.environ.get("SATLAB_PKI", "/etc/satlab/pki")
    options.add_argument(
        "--pki", type=of, default=pki, help="folder of certificates (default: $SATLAB_PKI)"
    )


def read_pin(pki: Path) -> str:
    """Return the pin of the server's key, from `spki.txt`. Raises JobError."""
    try:
        spki = (pki / "spki.txt").read_text(encoding="ascii").strip()
    except OSError as error:
        raise JobError(
            f"pin of the server's key: {error}", "set SATLAB_PKI to the run's certificates"
        ) from error
    if not re.fullmatch(r"[A-Za-z0-9+/]{43}=", spki):
        raise JobError(
            f"{pki / 'spki.txt'}: not a SHA-256 in base64", "make the certificates again"
        )
    return spki
