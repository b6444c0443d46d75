# SPDX-License-Identifier: GPL-3.0-or-later
"""Network namespaces that tests join by wires."""

import subprocess
from typing import NamedTuple


class End(NamedTuple):
    """An end of a wire: a namespace, an interface there, its address with /24."""

    node: str
    device: str
    address: str


def run(*argv: str, text: str | None = None) -> str:
    """Run a short command, which must succeed; return its output."""
    return subprocess.run(argv, input=text, check=True, capture_output=True, text=True).stdout


def add(node: str) -> None:
    """Make a namespace with a loopback interface that is up."""
    run("ip", "netns", "add", node)
    run("ip", "-n", node, "link", "set", "lo", "up")


def join(*ends: End) -> None:
    """Join two namespaces."""
    near, far = ends
    words = f"{near.device} netns {near.node} type veth peer name {far.device} netns {far.node}"
    run("ip", "link", "add", *words.split())
    for node, device, address in ends:
        run("ip", "-n", node, "address", "add", f"{address}/24", "dev", device)
        run("ip", "-n", node, "link", "set", device, "up")


def remove(*nodes: str) -> None:
    """Remove namespaces, those that are there."""
    for node in nodes:
        subprocess.run(["ip", "netns", "delete", node], check=False, capture_output=True)
