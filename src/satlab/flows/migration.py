# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that takes another address while its flow runs (RFC 9000, section 9): on the real clock.

A client has two own addresses, both at its first interface, and takes the one after the other.
satperf binds a socket to the address that it is started with. ngtcp2 asks the kernel for the
address of its route: before its moment, packets of this program's user follow a route of their own,
whose address is the second one (ip-rule(8), `uidrange`).
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from pathlib import Path

from satlab.check import sandboxed
from satlab.common import topology
from satlab.common.errors import HostError
from satlab.flows.routing import COMMAND_S, ip
from satlab.lab.lab import Lab
from satlab.lab.sandbox import Limits, Sandbox

TABLE = 1449
"""Of routes with the second address; the tunnel of the flows has the number before."""
LEAD_S = 1.0
"""From the route until its program asks for it, at most: the program has begun by then."""
EARLY_S = 0.1
"""A program that estimates its moment may be so much early."""
LATE_S = 1.0
"""Packets of a migration this close to the flow's end need not arrive."""
_BIT = 128


def other(address: str) -> str:
    """Return the second address of a client, as under the virtual clock: the host's number with
    another highest bit.
    """
    return str(IPv4Address(int(IPv4Address(address)) ^ _BIT))


def taken(address: str, index: int) -> str:
    """Return the address that a client takes with a migration, the first one being 0."""
    return address if index % 2 else other(address)


def prepare(lab: Lab, node: str, servers: Iterable[str]) -> None:
    """Make the second address of a client's node, and the table with the routes to `servers` that
    have it.

    Raises HostError where another node has the address, or the kernel refuses.
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
    ip(lab, node, "address", "add", f"{second}/32", "dev", interface)
    for server in servers:
        way = next(
            one
            for one in topology.routes(lab.topology)[node]
            if IPv4Address(server) in one.destination
        )
        path = ("via", str(way.via), "dev", way.interface, "src", second)
        ip(lab, node, "route", "add", server, *path, "table", str(TABLE))


def lead(lab: Lab, node: str, uid: int, log: Path) -> None:
    """Lead what a user sends from a node over the route with the second address, where it asks for
    one.

    The kernel takes a user's number from inside the lab's user namespace alone, so `ip` runs in a
    sandbox; its output goes to `log`. Raises HostError where it refuses.
    """
    words = ("rule", "add", "uidrange", f"{uid}-{uid}", "lookup", str(TABLE))
    place = lab.place(node)
    if place.user is None:
        ip(lab, node, *words)
        return
    box = Sandbox(
        place=place, name="route", limits=Limits(seconds=COMMAND_S), capabilities=("net_admin",)
    )
    try:
        process = sandboxed.start(box, ("ip", *words), log)
    except sandboxed.NotStartedError as error:
        raise HostError(f"ip {' '.join(words)}: {error}") from error
    report = process.poll(COMMAND_S) or process.stop()
    if report.reason:
        raise HostError(f"ip {' '.join(words)}: {report.reason}")


def lead_s(start_s: float, at_s: float) -> float:
    """Return when to lead a flow that starts at `start_s` and takes the second address at `at_s`."""
    return max((start_s + at_s) / 2, at_s - LEAD_S)


def arrivals(
    runs: Sequence[tuple[float, str]], asked_s: Sequence[float], address: str
) -> list[float | None]:
    """Return when packets from the address that each migration takes first arrived; None: never.

    `runs` are times at which packets from another address than that before began to arrive. A
    client that probes a new path sends from both addresses for a while (RFC 9000, section 9.1).
    """

    def first(index: int, at_s: float) -> float | None:
        expected = taken(address, index)
        return next(
            (t_s for t_s, source in runs if source == expected and t_s >= at_s - EARLY_S), None
        )

    return [first(index, at_s) for index, at_s in enumerate(asked_s)]
