# SPDX-License-Identifier: GPL-3.0-or-later
"""Namespaces like those of a lab's node, without the lab."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from satlab.common import paths
from satlab.lab.privileges import FIRST_UID, UIDS
from satlab.lab.sandbox import ENVIRONMENT, Place


@contextmanager
def new_place(folder: Path) -> Iterator[Place]:
    """Make a network namespace that belongs to a user namespace, kept in a folder."""
    user, network = folder / "user-namespace", folder / "networks" / "network"
    argv = [paths.SATBOX, "namespaces", user, FIRST_UID, UIDS, network]
    subprocess.run(list(map(str, argv)), env=ENVIRONMENT, check=True)
    try:
        yield Place(network, user)
    finally:
        subprocess.run(["umount", "-l", user, network, network.parent], check=True)
