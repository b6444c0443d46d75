# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer as the captured packets show it without keys: times, amounts and goodput."""

import math
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import accumulate
from typing import NamedTuple

from satlab.check.trace.pcap import TCP, UDP, Packet
from satlab.check.trace.quic_headers import Kind, quic_packets

NS = 1e-9
FULL_DATAGRAM_BYTES = 1200
"""UDP payload that each path must carry (RFC 9000, section 14)."""
MIN_OVERHEAD_BYTES = 19
"""Smallest overhead of a QUIC packet that carries payload, bytes: first byte, packet number, type
of the frame, tag (RFC 9000, RFC 9001).
"""
SMALL_DATAGRAM_BYTES = 100
"""A datagram smaller than this at the end may carry no payload but acknowledgements, tickets or
CONNECTION_CLOSE.
"""


@dataclass(frozen=True)
class Datagram:
    """A packet of the connection: time in s since the first one, and its payload above UDP or TCP
    in bytes (`size`).

    `kinds` and `ids` are the types and source connection ids of its QUIC packets.
    """

    t_s: float
    from_server: bool
    size: int
    kinds: tuple[Kind, ...]
    ids: tuple[bytes, ...] = ()

    @property
    def is_data(self) -> bool:
        """Whether it may carry the transfer's payload: a 1-RTT packet, the rest of an aggregate, or
        payload of TCP.
        """
        return self.size > 0 and self.kinds[-1:] in ((), ("1-rtt",))


@dataclass(frozen=True)
class CapturedTransfer:
    """A transfer at its client's interface; `protocol` is 17 or 6, times are since the client's
    first packet.

    `heads`: whether it is from the server, and the captured bytes of each captured UDP payload.
    """

    protocol: int
    datagrams: tuple[Datagram, ...]
    start_unix_s: float = 0.0
    heads: tuple[tuple[bool, bytes], ...] = ()

    @property
    def arrivals(self) -> list[Datagram]:
        """Datagrams from the server that may carry payload."""
        return [one for one in self.datagrams if one.from_server and one.is_data]

    @property
    def last_packet_s(self) -> float | None:
        """Time of the server's last packet that may carry payload."""
        return max((one.t_s for one in self.arrivals), default=None)

    def payload_arrivals(self, size: int) -> list[Datagram]:
        """Return the arrivals up to the last one that must have carried payload, if `size` bytes
        arrived in all.

        Small packets at the end are left out if the packets before them are enough for all bytes: a
        server may send small packets after the payload. If the payload itself ends in a small
        packet, the result ends one packet early.
        """
        arrivals = self.arrivals
        if self.protocol == TCP:
            return arrivals
        room = sum(one.size - MIN_OVERHEAD_BYTES for one in arrivals)
        while arrivals and arrivals[-1].size < SMALL_DATAGRAM_BYTES:
            room -= arrivals[-1].size - MIN_OVERHEAD_BYTES
            if room < size:
                break
            arrivals.pop()
        return arrivals

    @property
    def arrived_bytes(self) -> int:
        return sum(one.size for one in self.arrivals)

    @property
    def handshake_s(self) -> float | None:
        """The client's first 1-RTT packet after the server's first packet; with TCP the SYN-ACK."""
        answer = self.first_answer_s
        if self.protocol == TCP or answer is None:
            return answer
        sent = (one for one in self.datagrams if not one.from_server and one.t_s >= answer)
        return next((one.t_s for one in sent if "1-rtt" in one.kinds), None)

    @property
    def handshake_ms(self) -> float | None:
        return None if self.handshake_s is None else self.handshake_s * 1000

    @property
    def first_answer_s(self) -> float | None:
        """Time of the server's first packet."""
        return next((one.t_s for one in self.datagrams if one.from_server), None)

    @property
    def first_byte_s(self) -> float | None:
        """Time of the first full 1-RTT packet from the server after the client could request; None
        if there is none.

        A full packet has FULL_DATAGRAM_BYTES or more. Packets before the payload (settings,
        tickets) are smaller, but a probe of the path's MTU is full. So this time may be earlier
        than the first byte, never later.
        """
        if self.protocol == TCP:
            return next((one.t_s for one in self.arrivals), None)
        sent = (one for one in self.datagrams if not one.from_server)
        requested_s = next(
            (one.t_s for one in sent if {"0-rtt", "1-rtt"} & set(one.kinds)), math.inf
        )
        full = (
            one.t_s
            for one in self.arrivals
            if one.kinds == ("1-rtt",) and one.size >= FULL_DATAGRAM_BYTES
        )
        return next((t_s for t_s in full if t_s > requested_s), None)

    @property
    def server_ids(self) -> set[bytes]:
        """Source connection ids of the server's Initial packets: one per handshake."""
        initials = (one for one in self.datagrams if one.from_server and "initial" in one.kinds)
        return {name for one in initials for name in one.ids}

    @property
    def last_start_s(self) -> float:
        """Time of the client's first packet of the last connection that the server answered.

        If the client has no source ids, this is the time of its last Initial packet before that
        answer.
        """
        answers: dict[bytes, float] = {}
        for one in self.datagrams:
            if one.from_server and "initial" in one.kinds:
                answers |= {name: one.t_s for name in one.ids if name not in answers}
        if len(answers) < 2:
            return 0.0
        answered_s = max(answers.values())
        initials = [one for one in self.datagrams if not one.from_server and "initial" in one.kinds]
        before = [one for one in initials if one.t_s <= answered_s]
        if not before:
            return 0.0
        return (
            next(one.t_s for one in before if one.ids == before[-1].ids)
            if before[-1].ids
            else before[-1].t_s
        )

    def count(self, kind: Kind, *, from_server: bool) -> int:
        """Count the datagrams from one side that have a packet of a kind."""
        return sum(kind in one.kinds for one in self.datagrams if one.from_server is from_server)

    def times_s(self, marks: Sequence[int], size: int) -> tuple[float | None, ...]:
        """Return the time at which each amount of `marks` (of `size` bytes) had arrived, s: the
        time at which its share of all bytes had arrived.

        Headers, retransmissions and other frames are assumed to be spread evenly over the payload.
        The last byte came with the last packet that must have carried payload.
        """
        arrivals = self.payload_arrivals(size)
        total = list(accumulate(one.size for one in arrivals))
        if not total:
            return (None,) * len(marks)
        return tuple(
            arrivals[min(bisect_left(total, total[-1] * mark / size), len(arrivals) - 1)].t_s
            if mark <= size
            else None
            for mark in marks
        )

    def goodput_bps(self, size: int) -> float | None:
        """Return the QUIC interop runner's goodput: payload bits over the time of the server's
        1-RTT packets.
        """
        arrivals = self.arrivals
        duration_s = arrivals[-1].t_s - arrivals[0].t_s if arrivals else 0.0
        return 8 * size / duration_s if duration_s > 0 else None


def transfer_of(
    packets: Sequence[Packet], server: IPv4Address, port: int
) -> CapturedTransfer | None:
    """Return the transfer between a client and a server's port; None without its packets.

    The transfer starts with the client's first packet: earlier packets from the server belong to
    another connection.
    """
    datagrams: list[Datagram] = []
    heads: list[tuple[bool, bytes]] = []
    protocol = start_ns = 0
    for packet in packets:
        segment = _parse(packet, server.packed, port)
        if segment is None or protocol not in (0, segment.protocol):
            continue
        if segment.from_server and not datagrams:
            continue
        protocol, from_server, payload, size = segment
        start_ns = start_ns or packet.t_ns
        parts = list(quic_packets(payload)) if protocol == UDP else []
        kinds = tuple(part.kind for part in parts)
        ids = tuple(part.source for part in parts if part.source)
        datagrams.append(Datagram((packet.t_ns - start_ns) * NS, from_server, size, kinds, ids))
        if protocol == UDP and payload:
            heads.append((from_server, payload))
    return (
        CapturedTransfer(protocol, tuple(datagrams), start_ns * NS, tuple(heads))
        if datagrams
        else None
    )


class _Segment(NamedTuple):
    """A packet of the transfer: the captured part of its payload, and the size of the whole
    payload, bytes.
    """

    protocol: int
    from_server: bool
    payload: bytes
    size: int


def _parse(packet: Packet, server: bytes, port: int) -> _Segment | None:
    """Return the packet's segment; None for packets outside the transfer."""
    head = packet.head
    if len(head) < 28 or head[0] >> 4 != 4 or head[9] not in (UDP, TCP):
        return None
    ip_bytes = 4 * (head[0] & 0xF)
    is_first = not (head[6] & 0x1F or head[7])
    # Later fragments have no ports, and a program can make a packet as short as it likes.
    if not is_first or len(head) < ip_bytes + (8 if head[9] == UDP else 20):
        return None
    source, destination = struct.unpack_from("!HH", head, ip_bytes)
    from_server = head[12:16] == server and source == port
    if not from_server and not (head[16:20] == server and destination == port):
        return None
    start = ip_bytes + (8 if head[9] == UDP else 4 * (head[ip_bytes + 12] >> 4))
    return _Segment(head[9], from_server, head[start:], packet.length - start)


def tcp_retransmitted_share(packets: Sequence[Packet]) -> float | None:
    """Return the share of retransmitted bytes in the largest TCP flow; None without a flow.

    Bytes below the highest sequence number so far (RFC 9293, section 3.4, modulo 2^32) are
    retransmitted.
    """
    flows: dict[bytes, tuple[int, int, int]] = {}
    for packet in packets:
        head = packet.head
        ip_bytes = 4 * (head[0] & 0xF) if head else 0
        if len(head) < ip_bytes + 20 or head[0] >> 4 != 4 or head[9] != TCP:
            continue
        size = packet.length - ip_bytes - 4 * (head[ip_bytes + 12] >> 4)
        if size <= 0:
            continue
        flow = head[12:20] + head[ip_bytes : ip_bytes + 4]
        sequence = int.from_bytes(head[ip_bytes + 4 : ip_bytes + 8])
        highest, total, retransmitted = flows.get(flow, (sequence, 0, 0))
        new = (sequence + size - highest + (1 << 31)) % (1 << 32) - (1 << 31)
        retransmitted += min(size, max(0, size - new))
        flows[flow] = ((highest + max(0, new)) % (1 << 32), total + size, retransmitted)
    largest = max(flows.values(), key=lambda flow: flow[1], default=None)
    return largest[2] / largest[1] if largest else None
