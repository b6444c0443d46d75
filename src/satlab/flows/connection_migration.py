# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that changes its address while its flow runs on the real clock (RFC 9000, section 9).

A client has two addresses, both at its first interface, and uses them in turn. satperf binds a
socket to each address that it is told. ngtcp2 asks the kernel for the source address of its route.
So before the change, packets of that program's user get another route, whose source is the second
address (ip-rule(8), `uidrange`).
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from satlab.check import sandboxed_program
from satlab.common import topology
from satlab.common.errors import HostError
from satlab.flows.flow_nodes import COMMAND_S, ip
from satlab.lab.lab import Lab
from satlab.lab.sandbox import Limits, Sandbox

TABLE = 1449
"""Routing table with the second address. The tunnel of the flows uses the number before."""
LEAD_S = 1.0
"""Longest time between the new route and the program's question for it. The program has started by
then.
"""
EARLY_S = 0.1
"""A program that estimates the time of its change may be this early."""
LATE_S = 1.0
"""A change of address this close to the flow's end counts even if no packet arrives."""
_BIT = 128


def other(address: str) -> str:
    """Return the second address of a client: its address with the highest bit of the last byte
    changed, as under the virtual clock.
    """
    return str(IPv4Address(int(IPv4Address(address)) ^ _BIT))


def taken(address: str, index: int) -> str:
    """Return the address that a client takes with its change number `index`, from 0."""
    return address if index % 2 else other(address)


def prepare(lab: Lab, node: str, servers: Iterable[str]) -> None:
    """Add the second address to a client's node, and a table of routes to `servers` with that
    address.

    Raises HostError if another node has the address or the kernel refuses.
    """
    first = next(iter(lab.topology.nodes[node].interfaces.items()))
    interface, second = first[0], other(str(first[1].address))
    held = {
        str(end.address) for one in lab.topology.nodes.values() for end in one.interfaces.values()
    }
    if second in held:
        raise HostError(
            f"{second}, the second address of {node}, is of another node", "change vagrant/lab.yml"
        )
    ip(lab, node, f"address add {second}/32 dev {interface}")
    for server in servers:
        way = next(
            one
            for one in topology.routes(lab.topology)[node]
            if IPv4Address(server) in one.destination
        )
        path = f"via {way.via} dev {way.interface} src {second}"
        ip(lab, node, f"route add {server} {path} table {TABLE}")


def lead(lab: Lab, node: str, uid: int, log: Path) -> None:
    """Send the packets of a user on a node over the route with the second address.

    The kernel accepts the user's number only inside the lab's user namespace, so `ip` runs in a
    sandbox; its output goes to `log`. Raises HostError if the kernel refuses.
    """
    command = f"rule add uidrange {uid}-{uid} lookup {TABLE}"
    place = lab.place(node)
    if place.user is None:
        ip(lab, node, command)
        return
    box = Sandbox(
        place=place, name="route", limits=Limits(seconds=COMMAND_S), capabilities=("net_admin",)
    )
    try:
        process = sandboxed_program.start(box, ("ip", *command.split()), log)
    except sandboxed_program.NotStartedError as error:
        raise HostError(f"ip {command}: {error}") from error
    report = process.poll(COMMAND_S) or process.stop()
    if report.reason:
        raise HostError(f"ip {command}: {report.reason}")


def lead_s(start_s: float, at_s: float) -> float:
    """Return when to change the route of a flow that starts at `start_s` and takes the second
    address at `at_s`.
    """
    return max((start_s + at_s) / 2, at_s - LEAD_S)


def arrivals(
    runs: Sequence[tuple[float, str]], asked_s: Sequence[float], address: str
) -> list[float | None]:
    """Return for each change of address when the first packet from the new address arrived; None:
    never.

    `runs`: the times at which the source address of the packets changed, each with the new address.
    A client that probes a new path sends from both addresses for a while (RFC 9000, section 9.1).
    """

    def first(index: int, at_s: float) -> float | None:
        expected = taken(address, index)
        return next(
            (t_s for t_s, source in runs if source == expected and t_s >= at_s - EARLY_S), None
        )

    return [first(index, at_s) for index, at_s in enumerate(asked_s)]
