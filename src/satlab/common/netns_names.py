# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of the embedded lab's namespaces: networks `satlab-<lab id>.<node>`, and the user namespace
they belong to.
"""

from pathlib import Path

RUN_NETNS = Path("/run/netns")
USERS = Path("/run/satlab-users")
PREFIX = "satlab-"


def name(lab_id: str, node: str) -> str:
    """Return the name of a node's namespace.

    The dot separates lab and node: neither part may contain one.
    """
    return f"{PREFIX}{lab_id}.{node}"


def path(lab_id: str, node: str) -> Path:
    """Return the file that `nsenter --net=` and satlink take."""
    return RUN_NETNS / name(lab_id, node)


def user_path(lab_id: str) -> Path:
    """Return the file of the user namespace that owns a lab's network namespaces."""
    return USERS / lab_id
