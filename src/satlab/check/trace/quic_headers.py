# SPDX-License-Identifier: GPL-3.0-or-later
"""The headers of QUIC packets that are readable without keys (RFC 9000, section 17)."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

Kind = Literal["initial", "0-rtt", "handshake", "retry", "1-rtt"]
_LONG: tuple[Kind, ...] = ("initial", "0-rtt", "handshake", "retry")
"""Types of long headers, RFC 9000, section 17.2."""


class QuicPacket(NamedTuple):
    """A packet of a datagram: its type, and what a long header has besides.

    `data` ends with the packet. `number_at` is where its packet number starts; None if the packet
    has none, or is cut off before it.
    """

    kind: Kind
    source: bytes = b""
    destination: bytes = b""
    data: bytes = b""
    number_at: int | None = None


def quic_packets(payload: bytes) -> Iterator[QuicPacket]:
    """Yield the QUIC packets of a datagram (RFC 9000, section 12.2).

    Ends at a packet that is cut off or not of QUIC version 1.
    """
    while payload:  # the fixed bit may be greased (RFC 9287)
        if not payload[0] & 0x80:
            yield QuicPacket("1-rtt")
            return
        kind, source, destination = _LONG[payload[0] >> 4 & 3], b"", b""
        try:
            at = 6 + payload[5]
            destination = payload[6:at]
            source = payload[at + 1 : at + 1 + payload[at]]
            at += 1 + payload[at]
            if kind == "initial":
                token, at = varint(payload, at)
                at += token
            if kind == "retry":
                yield QuicPacket(kind, source, destination, payload)
                return
            length, at = varint(payload, at)
        except IndexError:
            yield QuicPacket(kind, source, destination, payload)
            return
        yield QuicPacket(kind, source, destination, payload[: at + length], at)
        payload = payload[at + length :]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer (RFC 9000, section 16), and the position after it.

    Raises IndexError.
    """
    size = 1 << (data[at] >> 6)
    if at + size > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + size]) & ((1 << (8 * size - 2)) - 1), at + size
