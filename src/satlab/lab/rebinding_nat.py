# SPDX-License-Identifier: GPL-3.0-or-later
"""A NAT at the client's gateway that forgets its bindings at given times.

All packets between client and satellite link pass a TUN of the gateway and are rewritten here: the
kernel's own NAT keeps the bindings of a flow for as long as it lives. A flow begins with its own
address and port. At each rebinding it gets another port, and on request another address of the
client's subnet; packets to the old ones are dropped, as the QUIC network simulator does (scenario
`rebind`).
"""

import contextlib
import os
import random
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from satlab.common.topology import Role
from satlab.lab import netns
from satlab.lab.lab import Lab

INTERFACE = "nat0"
UDP = 17
MAX_PACKET_BYTES = 65535
STOP_S = 0.2
"""Longest time until the thread sees its end, s."""


@dataclass
class RebindingNat:
    """The bindings. The first rebinding is `first_s` after the first packet of the client, the
    others follow every `every_s`.

    `gateway` is the other address of the subnet that is in use.
    """

    client: IPv4Address
    gateway: IPv4Address
    first_s: float
    every_s: float
    changes_address: bool
    seed: int
    rebindings: int = 0
    _address: IPv4Address = field(init=False)
    _out: dict[int, int] = field(default_factory=dict)
    """The outer port of each of the client's ports."""
    _back: dict[int, int] = field(default_factory=dict)
    _due_s: float | None = None

    def __post_init__(self) -> None:
        self._address = self.client
        self._random = random.Random(self.seed)  # noqa: S311 - addresses and ports, not secrets

    def translated(self, packet: bytes, now_s: float) -> bytes | None:
        """Return the packet as it goes on; None if no binding is left for it. Packets other than
        UDP over IPv4 stay as they are.
        """
        if len(packet) < 28 or packet[0] >> 4 != 4 or packet[9] != UDP:
            return packet
        at = 4 * (packet[0] & 0xF)
        source, destination = (int.from_bytes(packet[n : n + 2]) for n in (at, at + 2))
        if packet[12:16] == self.client.packed:
            self._rebind_if_due(now_s)
            if source not in self._out:
                self._out[source] = self._back[source] = source
            return _rewritten(packet, 12, self._address, at, self._out[source])
        if packet[16:19] != self.client.packed[:3]:
            return packet
        port = self._back.get(destination)
        if port is None or packet[16:20] != self._address.packed:
            return None
        return _rewritten(packet, 16, self.client, at + 2, port)

    def _rebind_if_due(self, now_s: float) -> None:
        if self._due_s is None:
            self._due_s = now_s + self.first_s
        while now_s >= self._due_s:
            self._due_s += self.every_s
            self._rebind()

    def _rebind(self) -> None:
        self.rebindings += 1
        if self.changes_address:
            used = {self.client, self.gateway, self._address}
            subnet = int(self.client) & ~0xFF
            free = [IPv4Address(subnet | last) for last in range(1, 255)]
            self._address = self._random.choice([one for one in free if one not in used])
        taken = {*self._back, *self._out.values()}
        self._back.clear()
        for port in self._out:
            free_port = self._free_port(taken)
            taken.add(free_port)
            self._out[port], self._back[free_port] = free_port, port

    def _free_port(self, taken: set[int]) -> int:
        while (port := self._random.randrange(1024, 65536)) in taken:
            pass
        return port


def _rewritten(packet: bytes, address_at: int, address: IPv4Address, at: int, port: int) -> bytes:
    """Return the packet with another address and port, and with the checksums that follow."""
    data = bytearray(packet)
    data[address_at : address_at + 4] = address.packed
    data[at : at + 2] = port.to_bytes(2)
    start = 4 * (packet[0] & 0xF)
    is_first = not (packet[6] & 0x1F or packet[7])
    old = [packet[address_at : address_at + 4], packet[at : at + 2]]
    new = [address.packed, port.to_bytes(2)]
    data[10:12] = _updated(packet[10:12], old[0], new[0])
    if is_first and packet[start + 6 : start + 8] != b"\0\0":
        updated = _updated(packet[start + 6 : start + 8], b"".join(old), b"".join(new))
        data[start + 6 : start + 8] = b"\xff\xff" if updated == b"\0\0" else updated
    return bytes(data)


def _updated(checksum: bytes, old: bytes, new: bytes) -> bytes:
    """Return a checksum after a change of what it covers (RFC 1624, equation 3)."""
    total = 0xFFFF ^ int.from_bytes(checksum)
    for at in range(0, len(old), 2):
        total += (0xFFFF ^ int.from_bytes(old[at : at + 2])) + int.from_bytes(new[at : at + 2])
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (0xFFFF ^ total).to_bytes(2)


@contextlib.contextmanager
def running(up: Lab, nat: RebindingNat) -> Iterator[None]:
    """Let the packets between client and satellite link pass the NAT during the block."""
    node = up.topology.node_of(Role.PROXY)
    arriving = tuple(up.topology.nodes[node].interfaces)
    device = netns.open_diversion(up.lab_id, node, INTERFACE, arriving)
    stopped = threading.Event()
    thread = threading.Thread(target=_forward, args=(device, nat, stopped), name="nat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        os.close(device)


def _forward(device: int, nat: RebindingNat, stopped: threading.Event) -> None:
    while not stopped.is_set():
        if not select.select([device], [], [], STOP_S)[0]:
            continue
        packet = nat.translated(os.read(device, MAX_PACKET_BYTES), time.monotonic())
        if packet is not None:
            with contextlib.suppress(OSError):  # the kernel refuses a malformed packet
                os.write(device, packet)
