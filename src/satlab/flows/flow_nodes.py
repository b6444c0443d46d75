# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a lab between which flows run on the real clock, and commands of ip(8) there.

client1 and server1 are the client and the server of every lab. client2 and server2 exist only in a
lab of size dumbbell, which is made if a flow names one of them. In a tunnel (`fec`) all flows share
one node on each side.
"""

import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from satlab.common.errors import HostError
from satlab.common.topology import SECOND, Role, Size, Topology
from satlab.lab.lab import Lab

SIDES = ("server", "client")
COMMAND_S = 10.0


def size(request: Mapping[str, Any]) -> Size:
    """Return the size of the lab that a checked file of flows needs."""
    named = {flow[end] for flow in request["flows"] for end in ("from", "to")}
    return Size.DUMBBELL if named & SECOND.keys() and "fec" not in request else Size.SMALL


def of_flow(topology: Topology, flow: Mapping[str, Any]) -> dict[str, str]:
    """Return the node of each side of a flow."""
    ends = {
        side: name for name in (flow["from"], flow["to"]) for side in SIDES if name.startswith(side)
    }
    return {
        side: name if name in SECOND and name in topology.nodes else topology.node_of(Role(side))
        for side, name in ends.items()
    }


def used(of_flows: Iterable[Mapping[str, str]]) -> list[tuple[str, str]]:
    """Return the nodes that flows use, each once with its side."""
    return list(dict.fromkeys((side, nodes[side]) for nodes in of_flows for side in SIDES))


def ip(lab: Lab, node: str, command: str) -> None:
    """Run ip(8) in a node. What it adds ends with the lab.

    Raises HostError if it fails or does not end.
    """
    argv = [*lab.enter_argv(node), "ip", *command.split()]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise HostError(f"ip {command}: no end after {error.timeout:g} s") from error
    if done.returncode:
        raise HostError(f"ip {command}: {done.stderr.strip()}")
