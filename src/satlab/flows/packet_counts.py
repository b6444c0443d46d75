# SPDX-License-Identifier: GPL-3.0-or-later
"""The packets of each flow at the interfaces of both ends, by the flow's port at the server's side."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from satlab.check.trace.pcap import TCP, UDP, Packet
from satlab.flows.time_series import Total

STEP_S = 0.01
"""Shortest time between two entries of a total."""


@dataclass
class Passed:
    """What passed an interface in one direction: payload above UDP or TCP in bytes, times in Unix
    time, s.
    """

    packets: int = 0
    payload_bytes: int = 0
    first_unix_s: float | None = None
    total: Total = field(default_factory=Total)

    def add(self, t_unix_s: float, size: int) -> None:
        """Count a packet."""
        if self.first_unix_s is None:
            self.first_unix_s = t_unix_s
            self.total.add(t_unix_s, 0)
        self.packets += 1
        self.payload_bytes += size
        if t_unix_s - self.total.times[-1] >= STEP_S:
            self.total.add(t_unix_s, self.payload_bytes)

    def finish(self) -> None:
        """Note the last total."""
        if self.first_unix_s is not None:
            self.total.add(self.total.times[-1], self.payload_bytes)


@dataclass
class AtInterface:
    """The packets of a flow at one interface, by sending side. `clients`: each source address of
    the client's side, with the Unix time of its first packet, s.
    """

    from_server: Passed = field(default_factory=Passed)
    from_client: Passed = field(default_factory=Passed)
    clients: list[tuple[float, bytes]] = field(default_factory=list)

    def of(self, side: str) -> Passed:
        """Return the counters of the packets that a side sent."""
        return self.from_server if side == "server" else self.from_client

    def note_client(self, t_unix_s: float, address: bytes) -> None:
        """Note the source address of a packet of the client's side."""
        if not self.clients or self.clients[-1][1] != address:
            self.clients.append((t_unix_s, address))


def count(
    packets: Iterable[Packet], servers: Iterable[str], ports: Iterable[int]
) -> dict[int, AtInterface]:
    """Count the packets of the flows at an interface.

    `servers` are the addresses of the server's side; `ports` are those of the flows.
    """
    hosts = {IPv4Address(address).packed for address in servers}
    found = {port: AtInterface() for port in ports}
    for packet in packets:
        head = packet.head
        ip_bytes = 4 * (head[0] & 0xF) if head else 0
        if len(head) < ip_bytes + 14 or head[9] not in (UDP, TCP):
            continue
        from_server = head[12:16] in hosts
        ends = [int.from_bytes(head[at : at + 2], "big") for at in (ip_bytes, ip_bytes + 2)]
        port = next((end for end in ends if end in found), None)
        if port is None:
            continue
        headers = ip_bytes + (8 if head[9] == UDP else 4 * (head[ip_bytes + 12] >> 4))
        way = found[port].from_server if from_server else found[port].from_client
        way.add(packet.t_ns * 1e-9, max(0, packet.length - headers))
        if not from_server:
            found[port].note_client(packet.t_ns * 1e-9, head[12:16])
    for one in found.values():
        one.from_server.finish()
        one.from_client.finish()
    return found
