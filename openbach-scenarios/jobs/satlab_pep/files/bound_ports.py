# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make generate` from openbach-scenarios/_kit/bound_ports.py: change it there.
"""Tells which ports of this network namespace are in use (proc(5): /proc/net/tcp and udp, with a 6
at the end for IPv6).
"""

from collections.abc import Sequence
from pathlib import Path

LISTENING, UDP_BOUND = "0A", "07"
"""States of a socket in these files."""


def is_bound(sockets: Sequence[str], port: int) -> bool:
    """Return whether a port is listened on. `sockets`: files of /proc/net of one protocol, such as
    tcp and tcp6.
    """
    state = LISTENING if sockets[0].startswith("tcp") else UDP_BOUND
    lists = [file for name in sockets if (file := Path(f"/proc/net/{name}")).exists()]
    lines = [line.split() for file in lists for line in file.read_text("ascii").splitlines()[1:]]
    return any(line[1].endswith(f":{port:04X}") and line[3] == state for line in lines)
