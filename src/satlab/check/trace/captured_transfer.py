# SPDX-License-Identifier: GPL-3.0-or-later
"""A transfer as the captured packets show it without keys: times, amounts and goodput."""

import math
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from itertools import accumulate
from typing import NamedTuple

from satlab.check.trace.pcap import TCP, UDP, Packet, ip_header
from satlab.check.trace.quic_headers import Kind, QuicPacket, quic_packets

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
LEAST_ANSWER_S, ANSWER_SHARE = 0.15, 0.9
"""No answer to a request counts before this time, s (no link of a suite has a shorter round trip),
nor before this share of the measured round trip if that is shorter.
"""


IpAddress = IPv4Address | IPv6Address


class Address(NamedTuple):
    """An address and a port of UDP or TCP."""

    ip: IpAddress
    port: int


@dataclass(frozen=True)
class Datagram:
    """A packet of the connection: time in s since the first one, and its payload above UDP or TCP
    in bytes (`size`), of which `payload` was captured.

    `kinds` and `ids` are the types and source connection ids of its QUIC packets, `versions` those
    of its long headers. `client` and `server` are their addresses, `ecn` is the ECN field of the IP
    header (RFC 3168: 2 is ECT(0), 1 ECT(1), 3 CE).
    """

    t_s: float
    from_server: bool
    size: int
    kinds: tuple[Kind, ...]
    ids: tuple[bytes, ...] = ()
    versions: tuple[int, ...] = ()
    client: Address | None = None
    server: Address | None = None
    ecn: int = 0
    payload: bytes = field(default=b"", repr=False)

    @property
    def is_foreign(self) -> bool:
        """Whether it is of another connection."""
        return self.kinds == ("foreign",)

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
    `at_server`: the transfer at its server's interface; None: not captured.
    """

    protocol: int
    datagrams: tuple[Datagram, ...]
    start_unix_s: float = 0.0
    heads: tuple[tuple[bool, bytes], ...] = ()
    at_server: "CapturedTransfer | None" = field(default=None, repr=False)

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

        What arrived before an answer could is no payload. Small packets at the end are left out if
        the packets before them are enough for all bytes: a server may send small packets after the
        payload. If the payload itself ends in a small packet, the result ends one packet early.
        """
        arrivals = self.arrivals
        if self.protocol == TCP:
            return arrivals
        answers_s = self.answers_s
        arrivals = [one for one in arrivals if one.t_s > answers_s]
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

    def payload_bytes(self, size: int, until_s: float) -> int:
        """Return how much of a payload of `size` bytes can have arrived until a time."""
        arrivals = [one for one in self.payload_arrivals(size) if one.t_s <= until_s]
        return min(size, sum(max(0, one.size - MIN_OVERHEAD_BYTES) for one in arrivals))

    @property
    def handshake_s(self) -> float | None:
        """The client's first 1-RTT packet after the server's first packet; with TCP the SYN-ACK.

        Of several connections, that of the client's first address.
        """
        answer = self.first_answer_s
        if self.protocol == TCP or answer is None:
            return answer
        client = self.datagrams[0].client
        sent = (one for one in self.datagrams if not one.from_server and one.client == client)
        return next((one.t_s for one in sent if one.t_s >= answer and "1-rtt" in one.kinds), None)

    @property
    def handshake_ms(self) -> float | None:
        return None if self.handshake_s is None else self.handshake_s * 1000

    @property
    def first_answer_s(self) -> float | None:
        """Time of the server's first packet."""
        found = (one.t_s for one in self.datagrams if one.from_server and not one.is_foreign)
        return next(found, None)

    @property
    def first_request_s(self) -> float:
        """Time of the client's first packet that may carry a request: 0-RTT, or 1-RTT after the
        server's first packet; infinite if there is none.
        """
        answer = math.inf if self.first_answer_s is None else self.first_answer_s
        return next(
            (
                one.t_s
                for one in self.datagrams
                if not one.from_server
                and ("0-rtt" in one.kinds or ("1-rtt" in one.kinds and one.t_s >= answer))
            ),
            math.inf,
        )

    @property
    def answers_s(self) -> float:
        """Time before which no answer to the first request can arrive; 0 if the client sent none.

        Other 1-RTT packets of a server's first flight arrive before that: connection ids, tickets,
        full packets that probe the path's MTU. The round trip is measured from the client's last
        Initial packet before the server's first packet.
        """
        request, answer = self.first_request_s, self.first_answer_s
        if math.isinf(request) or answer is None:
            return 0.0
        asked_s = max(
            (
                one.t_s
                for one in self.datagrams
                if not one.from_server and "initial" in one.kinds and one.t_s < answer
            ),
            default=answer,
        )
        return request + min(LEAST_ANSWER_S, ANSWER_SHARE * (answer - asked_s))

    @property
    def first_byte_s(self) -> float | None:
        """Time of the first full 1-RTT packet from the server after an answer could arrive; None if
        there is none.

        A full packet has FULL_DATAGRAM_BYTES or more: packets before the payload (settings,
        tickets) are smaller. So this time may be earlier than the first byte, never later.
        """
        if self.protocol == TCP:
            return next((one.t_s for one in self.arrivals), None)
        if math.isinf(self.first_request_s):
            return None
        answers_s = self.answers_s
        full = (
            one.t_s
            for one in self.arrivals
            if one.kinds == ("1-rtt",) and one.size >= FULL_DATAGRAM_BYTES
        )
        return next((t_s for t_s in full if t_s > answers_s), None)

    @property
    def server_ids(self) -> set[bytes]:
        """Source connection ids of the server's Initial packets: one per handshake."""
        return {name for one in self._server_initials for name in one.ids}

    @property
    def handshakes(self) -> int:
        """Number of handshakes: of the server's connection ids or, if it has none, of the client's
        addresses.
        """
        without = {one.client for one in self._server_initials if not one.ids}
        return len(self.server_ids) + len(without)

    @property
    def _server_initials(self) -> list[Datagram]:
        return [one for one in self.datagrams if one.from_server and "initial" in one.kinds]

    @property
    def client_addresses(self) -> list[Address]:
        """Addresses that the client sent from, in the order of their first packet."""
        sent = (one.client for one in self.datagrams if not one.from_server)
        return list(dict.fromkeys(address for address in sent if address is not None))

    @property
    def last_start_s(self) -> float:
        """Time of the client's first packet of the last connection that the server answered.

        If the client has no source ids, this is the time of its last Initial packet before that
        answer.
        """
        answers: dict[bytes | Address | None, Datagram] = {}
        for one in self._server_initials:
            for name in one.ids or (one.client,):
                answers.setdefault(name, one)
        if len(answers) < 2:
            return 0.0
        answer = max(answers.values(), key=lambda one: one.t_s)
        before = [
            one
            for one in self.datagrams
            if not one.from_server
            and "initial" in one.kinds
            and one.client == answer.client
            and one.t_s <= answer.t_s
        ]
        if not before:
            return 0.0
        last = before[-1]
        return next(one.t_s for one in before if one.ids == last.ids) if last.ids else last.t_s

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
    packets: Sequence[Packet], server: IpAddress | Sequence[IpAddress], port: int | None
) -> CapturedTransfer | None:
    """Return the transfer between a client and a server's addresses; None without its packets.

    `port` None: any port of the server. The transfer starts with the client's first long header or,
    without one, with the client's first packet: earlier packets belong to another connection.
    """
    servers = set(server) if isinstance(server, Sequence) else {server}
    parsed = ((packet.t_ns, _parse(packet, servers, port)) for packet in packets)
    segments = [(t_ns, segment) for t_ns, segment in parsed if segment is not None]
    sent = [number for number, (_, one) in enumerate(segments) if not one.from_server]
    if not sent:
        return None
    start = next((number for number in sent if segments[number][1].is_long), sent[0])
    start_ns, first = segments[start]
    datagrams: list[Datagram] = []
    connections = _Connections()
    for t_ns, segment in segments[start:]:
        if segment.protocol != first.protocol:
            continue
        parts = connections.packets(segment) if segment.protocol == UDP else []
        datagrams.append(
            Datagram(
                (t_ns - start_ns) * NS,
                segment.from_server,
                segment.size,
                tuple(part.kind for part in parts),
                tuple(part.source for part in parts if part.source),
                tuple(part.version for part in parts if part.version is not None),
                segment.client,
                segment.server,
                segment.ecn,
                segment.payload if segment.protocol == UDP else b"",
            )
        )
    heads = tuple((one.from_server, one.payload) for one in datagrams if one.payload)
    return CapturedTransfer(first.protocol, tuple(datagrams), start_ns * NS, heads)


class _Segment(NamedTuple):
    """A packet of the transfer: the captured part of its payload, and the size of the whole
    payload, bytes.
    """

    protocol: int
    from_server: bool
    payload: bytes
    size: int
    client: Address
    server: Address
    ecn: int

    @property
    def is_long(self) -> bool:
        """Whether it starts with a long header of QUIC."""
        return self.protocol == UDP and self.payload[:1] >= b"\x80"


@dataclass
class _Connections:
    """What the packets so far say of connection ids: those of each address of the client, by
    receiver (True: the server), and the sides that sent 0-RTT or 1-RTT packets.
    """

    ids: dict[Address, dict[bool, set[bytes]]] = field(default_factory=dict)
    senders: dict[Address, set[bool]] = field(default_factory=dict)

    def packets(self, segment: _Segment) -> list[QuicPacket]:
        """Return the packets of a datagram; short headers of other connections are "foreign"."""
        parts = list(quic_packets(segment.payload, segment.size))
        if parts and parts[0].kind == "1-rtt" and not self._is_known(segment):
            return [QuicPacket("foreign", data=parts[0].data)]
        for part in parts:
            if part.version is not None:
                known = self.ids.setdefault(segment.client, {False: set(), True: set()})
                known[segment.from_server is False].add(part.destination)
                known[segment.from_server].add(part.source)
            if part.kind in ("0-rtt", "1-rtt"):
                self.senders.setdefault(segment.client, set()).add(segment.from_server)
        return parts

    def _is_known(self, segment: _Segment) -> bool:
        """Return whether a short header belongs to a connection of this capture.

        Its connection id is one of long headers, or the receiver gave it to the sender in a frame
        (NEW_CONNECTION_ID), for which it must have sent a 0-RTT or 1-RTT packet. A client may go on
        from another address. Without long headers nothing is known.
        """
        to_server = not segment.from_server
        own = self.ids.get(segment.client)
        if own is not None:
            names = own[to_server]
            has_sent = to_server in self.senders.get(segment.client, ())
        else:
            names = {name for one in self.ids.values() for name in one[to_server] if name}
            has_sent = any(to_server in sides for sides in self.senders.values())
        return not self.ids or has_sent or segment.payload[1:].startswith(tuple(names))


def _parse(packet: Packet, servers: set[IpAddress], port: int | None) -> _Segment | None:
    """Return the packet's segment; None for packets outside the transfer."""
    head, ip = packet.head, ip_header(packet.head)
    if ip is None or ip.protocol not in (UDP, TCP):
        return None
    # A program can make a packet as short as it likes.
    if len(head) < ip.size + (8 if ip.protocol == UDP else 20):
        return None
    source_port, destination_port = struct.unpack_from("!HH", head, ip.size)
    source, destination = Address(ip.source, source_port), Address(ip.destination, destination_port)
    from_server = source.ip in servers and port in (None, source.port)
    if not from_server and not (destination.ip in servers and port in (None, destination.port)):
        return None
    start = ip.size + (8 if ip.protocol == UDP else 4 * (head[ip.size + 12] >> 4))
    client, server = (destination, source) if from_server else (source, destination)
    size = packet.length - start
    return _Segment(ip.protocol, from_server, head[start:], size, client, server, ip.ecn)


def tcp_retransmitted_share(packets: Sequence[Packet]) -> float | None:
    """Return the share of retransmitted bytes in the largest TCP flow; None without a flow.

    Bytes below the highest sequence number so far (RFC 9293, section 3.4, modulo 2^32) are
    retransmitted.
    """
    flows: dict[tuple[IpAddress, IpAddress, bytes], tuple[int, int, int]] = {}
    for packet in packets:
        head, ip = packet.head, ip_header(packet.head)
        if ip is None or ip.protocol != TCP or len(head) < ip.size + 20:
            continue
        size = packet.length - ip.size - 4 * (head[ip.size + 12] >> 4)
        if size <= 0:
            continue
        flow = (ip.source, ip.destination, head[ip.size : ip.size + 4])
        sequence = int.from_bytes(head[ip.size + 4 : ip.size + 8])
        highest, total, retransmitted = flows.get(flow, (sequence, 0, 0))
        new = (sequence + size - highest + (1 << 31)) % (1 << 32) - (1 << 31)
        retransmitted += min(size, max(0, size - new))
        flows[flow] = ((highest + max(0, new)) % (1 << 32), total + size, retransmitted)
    largest = max(flows.values(), key=lambda flow: flow[1], default=None)
    return largest[2] / largest[1] if largest else None
