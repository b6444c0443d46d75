# SPDX-License-Identifier: GPL-3.0-or-later
"""A receiver of Return Link Encapsulation (ETSI TS 103 179), written apart from the emulator's: the
tests' second eye.

A burst is a row of PPDUs, most significant bit first, whose length counts what follows the first 16
bits; zeros are padding.

| PPDU | first 16 bits | next |
|---|---|---|
| complete | S=1 E=1, length 11, ALPDU label type 2, protocol type suppressed 1 | ALPDU |
| start | S=1 E=0, length 11, fragment id 3 | CRC used 1, total length 12, label type 2, suppressed 1; ALPDU |
| continuation | S=0 E=0, length 11, fragment id 3 | ALPDU |
| end | S=0 E=1, length 11, fragment id 3 | ALPDU, which ends with its trailer |

An ALPDU is a protocol type (none when suppressed, one byte when compressed, three in the fallback
form), the packet, and, when fragmented, a sequence number of one byte (an agreement of the link;
the other choice, a CRC-32, is refused).
"""

from dataclasses import dataclass, field

TYPES = {0x0D: 0x0800, 0x11: 0x86DD}
"""Compressed protocol types that an IP link needs."""
FALLBACK = 0xFF


class MalformedError(Exception):
    """Bytes that are no RLE."""


@dataclass
class _Alpdu:
    """One in reassembly: `total` bytes are announced, trailer included."""

    total: int
    suppressed: bool
    crc: bool
    data: bytearray


@dataclass
class Receiver:
    """Takes bursts in order, returns IP packets."""

    contexts: dict[int, _Alpdu] = field(default_factory=dict)
    expected: dict[int, int] = field(default_factory=dict)
    """The sequence number that comes next, by fragment id."""

    def burst(self, payload: bytes) -> list[bytes]:
        """Return the packets that end in this burst."""
        packets = []
        while len(payload) >= 2:
            head = int.from_bytes(payload[:2], "big")
            start, end, length, low = head >> 15, head >> 14 & 1, head >> 3 & 0x7FF, head & 7
            if not start and not end and not length:
                break
            size = 2 + length
            ppdu, payload = payload[:size], payload[size:]
            if len(ppdu) < size:
                raise MalformedError(f"a PPDU of {size} bytes where {len(ppdu)} are left")
            packet = self._ppdu(bool(start), bool(end), low, ppdu[2:])
            packets += [packet] if packet is not None else []
        if any(payload):
            raise MalformedError("padding is not zero")
        return packets

    def lost(self) -> None:
        """A burst was missed: what is in reassembly has lost a fragment, and its sequence number is
        used up.
        """
        for context in list(self.contexts):
            self._abandon(context)

    def _ppdu(self, start: bool, end: bool, low: int, body: bytes) -> bytes | None:
        if start and end:
            return _packet(body, suppressed=bool(low & 1))
        if start:
            self._abandon(low)
            word = int.from_bytes(body[:2], "big")
            total, suppressed, crc = word >> 3 & 0xFFF, bool(word & 1), bool(word >> 15)
            self.contexts[low] = _Alpdu(total, suppressed, crc, bytearray(body[2:]))
            return None
        if low in self.contexts:
            self.contexts[low].data += body
        return self._reassembled(low, body[-1]) if end else None

    def _reassembled(self, context: int, number: int) -> bytes | None:
        """Return what an end PPDU completes, if it is whole: a gap in the numbers may join
        fragments of two packets.
        """
        expected, self.expected[context] = self.expected.get(context, 0), (number + 1) % 256
        alpdu = self.contexts.pop(context, None)
        if alpdu is None:
            return None
        if alpdu.crc:
            raise MalformedError("a CRC where sequence numbers are agreed")
        if number != expected:
            return None
        if len(alpdu.data) != alpdu.total:
            raise MalformedError(f"{len(alpdu.data)} bytes where {alpdu.total} are announced")
        return _packet(bytes(alpdu.data[:-1]), alpdu.suppressed)

    def _abandon(self, context: int) -> None:
        if self.contexts.pop(context, None):
            self.expected[context] = (self.expected.get(context, 0) + 1) % 256


def _packet(alpdu: bytes, suppressed: bool) -> bytes:
    """Take the protocol type off, which must be the packet's own."""
    if suppressed:
        return alpdu
    size, kind = (
        (3, int.from_bytes(alpdu[1:3], "big")) if alpdu[0] == FALLBACK else (1, TYPES.get(alpdu[0]))
    )
    packet = alpdu[size:]
    if kind != _type_of(packet):
        raise MalformedError(
            f"protocol type {alpdu[:size].hex()} before a packet that begins with"
            f" {packet[:1].hex()}"
        )
    return packet


def _type_of(packet: bytes) -> int:
    return {4: 0x0800, 6: 0x86DD}[packet[0] >> 4]
