# SPDX-License-Identifier: GPL-3.0-or-later
"""The headers of QUIC packets that are readable without keys (RFC 9000, section 17)."""

from collections.abc import Iterator
from typing import Literal

Kind = Literal["initial", "0-rtt", "handshake", "retry", "1-rtt"]
_LONG: tuple[Kind, ...] = ("initial", "0-rtt", "handshake", "retry")
"""Types of long headers, RFC 9000, section 17.2."""


def quic_packets(payload: bytes) -> Iterator[tuple[Kind, bytes]]:
    """Yield type and source connection id (empty for 1-RTT) of a datagram's QUIC packets (RFC 9000,
    section 12.2).

    Ends at a packet that is cut off or not of QUIC version 1.
    """
    while payload:  # the fixed bit may be greased (RFC 9287)
        if not payload[0] & 0x80:
            yield "1-rtt", b""
            return
        kind, name = _LONG[payload[0] >> 4 & 3], b""
        try:
            at = 6 + payload[5]
            name = payload[at + 1 : at + 1 + payload[at]]
            at += 1 + payload[at]
            if kind == "retry":
                payload = b""
            else:
                token, at = varint(payload, at) if kind == "initial" else (0, at)
                length, at = varint(payload, at + token)
                payload = payload[at + length :]
        except IndexError:
            payload = b""
        yield kind, name


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a variable-length integer (RFC 9000, section 16), and the position after it.

    Raises IndexError.
    """
    size = 1 << (data[at] >> 6)
    if at + size > len(data):
        raise IndexError(at)
    return int.from_bytes(data[at : at + size]) & ((1 << (8 * size - 2)) - 1), at + size
