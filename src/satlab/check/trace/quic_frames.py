# SPDX-License-Identifier: GPL-3.0-or-later
"""The frames of a decrypted QUIC packet (RFC 9000, section 19)."""

from collections.abc import Iterator
from typing import NamedTuple

from satlab.check.trace.quic_headers import varint

ACK, ACK_ECN, CRYPTO, NEW_CONNECTION_ID = 0x02, 0x03, 0x06, 0x18
PATH_CHALLENGE, PATH_RESPONSE = 0x1A, 0x1B
_INTEGERS = {
    0x01: 0,  # PING
    0x04: 3,  # RESET_STREAM
    0x05: 2,  # STOP_SENDING
    0x10: 1,  # MAX_DATA
    0x11: 2,  # MAX_STREAM_DATA
    0x12: 1,  # MAX_STREAMS
    0x13: 1,
    0x14: 1,  # DATA_BLOCKED
    0x15: 2,  # STREAM_DATA_BLOCKED
    0x16: 1,  # STREAMS_BLOCKED
    0x17: 1,
    0x19: 1,  # RETIRE_CONNECTION_ID
    0x1E: 0,  # HANDSHAKE_DONE
    0x1F: 0,  # IMMEDIATE_ACK (draft-ietf-quic-ack-frequency)
    0xAF: 4,  # ACK_FREQUENCY
    0x2F5: 1,  # TIMESTAMP (draft-huitema-quic-ts)
}
"""Frames that consist of so many integers."""
_BEFORE_DATA = {
    0x07: (0, True),  # NEW_TOKEN
    **{kind: (2 if kind & 4 else 1, bool(kind & 2)) for kind in range(0x08, 0x10)},  # STREAM
    0x1C: (2, True),  # CONNECTION_CLOSE
    0x1D: (1, True),
    0x30: (0, False),  # DATAGRAM (RFC 9221)
    0x31: (0, True),
}
"""Frames that end with data: how many integers precede, and whether the data has a size. Without
one it fills the packet.
"""
RESET_TOKEN_BYTES = 16


class EcnCounts(NamedTuple):
    """The counts of an ACK frame: packets that its sender received with each mark."""

    ect0: int
    ect1: int
    ce: int


class Frame(NamedTuple):
    """A frame: `data` of CRYPTO frames (at `offset`) and of path validation, or the connection id
    of NEW_CONNECTION_ID; counts of ACK frames.
    """

    kind: int
    data: bytes = b""
    offset: int = 0
    ecn: EcnCounts | None = None


def frames(plain: bytes) -> Iterator[Frame]:
    """Yield the frames but PADDING, up to the first one that is damaged or unknown."""
    at = 0
    try:
        while at < len(plain):
            if plain[at] == 0:  # PADDING
                at += 1
                continue
            kind, at = varint(plain, at)
            frame, at = _frame(kind, plain, at)
            if frame is None or at > len(plain):
                return
            yield frame
    except IndexError:
        return


def _frame(kind: int, plain: bytes, at: int) -> tuple[Frame | None, int]:
    """Return the frame whose type ends at `at` (None: an unknown type), and its end."""
    frame: Frame | None = Frame(kind)
    if kind in _INTEGERS:
        _, at = _integers(plain, at, _INTEGERS[kind])
    elif kind in (ACK, ACK_ECN):
        (_, _, ranges, _), at = _integers(plain, at, 4)
        at = _skip(plain, at, 2 * ranges)
        if kind == ACK_ECN:
            counts, at = _integers(plain, at, 3)
            frame = Frame(kind, ecn=EcnCounts(*counts))
    elif kind == CRYPTO:
        (offset, size), at = _integers(plain, at, 2)
        frame, at = Frame(kind, plain[at : at + size], offset), at + size
    elif kind in (PATH_CHALLENGE, PATH_RESPONSE):
        frame, at = Frame(kind, plain[at : at + 8]), at + 8
    elif kind == NEW_CONNECTION_ID:
        (_, _), at = _integers(plain, at, 2)
        end = at + 1 + plain[at]
        frame, at = Frame(kind, plain[at + 1 : end]), end + RESET_TOKEN_BYTES
    elif kind in _BEFORE_DATA:
        integers, has_size = _BEFORE_DATA[kind]
        _, at = _integers(plain, at, integers)
        size, at = varint(plain, at) if has_size else (len(plain) - at, at)
        at += size
    else:
        frame = None
    return frame, at


def _integers(plain: bytes, at: int, count: int) -> tuple[list[int], int]:
    found = []
    for _ in range(count):
        value, at = varint(plain, at)
        found.append(value)
    return found, at


def _skip(plain: bytes, at: int, count: int) -> int:
    """Return the position after `count` integers. A hostile count ends at the packet's end."""
    for _ in range(count):
        _, at = varint(plain, at)
    return at
