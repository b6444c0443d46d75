# SPDX-License-Identifier: GPL-3.0-or-later
"""The headers of QUIC packets that are readable without keys (RFC 8999, RFC 9000 section 17, RFC
9369).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

VERSION_NEGOTIATION, VERSION_1, VERSION_2 = 0, 0x00000001, 0x6B3343CF
LongKind = Literal["initial", "0-rtt", "handshake", "retry"]
Kind = Literal[LongKind, "1-rtt", "version negotiation", "unknown", "foreign"]
"""Types of packets. "unknown": a long header of another version, or a damaged one. "foreign": a
short header of another connection.
"""
LONG_KINDS: dict[int, tuple[LongKind, ...]] = {
    VERSION_1: ("initial", "0-rtt", "handshake", "retry"),
    VERSION_2: ("retry", "initial", "0-rtt", "handshake"),
}
"""Types of long headers by version and type bits (RFC 9000, section 17.2; RFC 9369, section 3.2)."""
MAX_ID_BYTES = 20
"""Longest connection id of versions 1 and 2 (RFC 9000, section 17.2)."""
MIN_PROTECTED_BYTES = 20
"""A packet has so many bytes at least from its packet number on: header protection samples 16 bytes
behind 4 bytes of packet number (RFC 9001, section 5.4.2).
"""


class QuicPacket(NamedTuple):
    """A packet of a datagram: its type, and what a long header has besides.

    `data` ends with the packet. `number_at` is where its packet number starts; None if the packet
    has none, or is cut off before it. A short header does not say how long its connection id is:
    `number_at` is known if the packet follows a long header.
    """

    kind: Kind
    source: bytes = b""
    destination: bytes = b""
    data: bytes = b""
    number_at: int | None = None
    version: int | None = None
    token: bytes = b""


def quic_packets(payload: bytes, size: int | None = None) -> Iterator[QuicPacket]:
    """Yield the QUIC packets of a datagram (RFC 9000, section 12.2).

    `size` is the datagram's size if `payload` is only its captured start.

    Stacks pad datagrams also behind their last packet, with zeros or with random bytes. So what
    follows a packet is a packet only if it has the same connection ids and fits into the datagram.
    All else is padding.
    """
    if not payload:
        return
    size = len(payload) if size is None else size
    if not payload[0] & 0x80:
        yield QuicPacket("1-rtt", data=payload)
        return
    first = packet = _long_packet(payload, size)
    yield packet
    kinds = {packet.kind}
    at = 0
    while packet.number_at is not None:
        at += len(packet.data)
        rest = payload[at:]
        if not rest.strip(b"\0"):
            return
        if rest[0] & 0x80:
            packet = _long_packet(rest, size - at)
            is_same = (packet.source, packet.destination) == (first.source, first.destination)
            if packet.kind not in ("initial", "0-rtt", "handshake") or not is_same:
                return
            yield packet
            kinds.add(packet.kind)
        else:
            if _is_short(rest, size - at, first.destination, kinds):
                number_at = 1 + len(first.destination)
                yield QuicPacket("1-rtt", b"", first.destination, rest, number_at)
            return


def _long_packet(data: bytes, size: int) -> QuicPacket:
    """Return the packet at the start of `data`, which has `size` bytes up to the datagram's end."""
    unknown = QuicPacket("unknown", data=data)
    if len(data) < 7 or len(data) <= 6 + data[5]:
        return unknown
    at = 6 + data[5]
    destination, version = data[6:at], int.from_bytes(data[1:5])
    source = data[at + 1 : at + 1 + data[at]]
    at += 1 + data[at]
    unknown = QuicPacket("unknown", source, destination, data, version=version)
    if version == VERSION_NEGOTIATION:
        return unknown._replace(kind="version negotiation")
    if version not in LONG_KINDS or max(len(source), len(destination)) > MAX_ID_BYTES:
        return unknown
    kind = LONG_KINDS[version][data[0] >> 4 & 3]
    packet = unknown._replace(kind=kind)
    if kind == "retry":  # neither its token nor the packet has a length
        return packet._replace(token=data[at:-16])
    token = b""
    try:
        if kind == "initial":
            length, at = varint(data, at)
            token = data[at : at + length]
            at += length
        length, at = varint(data, at)
    except IndexError:
        return packet if len(data) < size else unknown  # cut off by the capture, or damaged
    fits = at + length <= size
    return packet._replace(data=data[: at + length], number_at=at, token=token) if fits else unknown


def _is_short(data: bytes, size: int, destination: bytes, kinds: set[Kind]) -> bool:
    """Return whether the rest of a datagram is a packet with a short header.

    The fixed bit may be greased (RFC 9287), so the connection id decides. An empty one decides
    nothing: then the fixed bit must be set, and no Initial packet may precede without a Handshake
    packet, because both sides complete the handshake before they send 1-RTT packets, or with them.
    """
    if size < 1 + len(destination) + MIN_PROTECTED_BYTES:
        return False
    if destination:
        return data[1:].startswith(destination)
    return bool(data[0] & 0x40) and ("initial" not in kinds or "handshake" in kinds)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer (RFC 9000, section 16), and the position after it.

    Raises IndexError.
    """
    size = 1 << (data[at] >> 6)
    if at + size > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + size]) & ((1 << (8 * size - 2)) - 1), at + size
