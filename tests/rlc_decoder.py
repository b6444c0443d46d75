# SPDX-License-Identifier: GPL-3.0-or-later
"""A decoder of RFC 8681 (FEC Encoding ID 10), written apart from the tunnel's: the tests' second
eye.

It works on all frames at once: a list of equations over the missing packets, and Gaussian
elimination. A frame is one byte, 0 for source and 1 for repair; then a packet and its number (4
bytes), or key (16 bits), density (4), number of packets (12), first of them (32), and the repair
symbol. A source symbol is 0, the length (16 bits), the packet, zeros.
"""

from dataclasses import dataclass, field

MASK = 0xFFFFFFFF
FULL_DENSITY = 15
HEAD = 3


def tinymt32(seed: int) -> "list[int]":
    """Return the state of the generator of RFC 8682 after its initialisation."""
    state = [seed, 0x8F7011EE, 0xFC78FF1F, 0x3793FDFF]
    for i in range(1, 8):
        before = state[(i - 1) & 3]
        state[i & 3] ^= (i + 1812433253 * (before ^ before >> 30)) & MASK
    for _ in range(8):
        draw(state)
    return state


def draw(state: "list[int]") -> int:
    """Step the generator, and return its 32 bits."""
    y = state[3]
    x = (state[0] & 0x7FFFFFFF) ^ state[1] ^ state[2]
    x ^= x << 1 & MASK
    y ^= y >> 1 ^ x
    state[:] = [state[1], state[2], x ^ y << 10 & MASK, y]
    if y & 1:
        state[1] ^= 0x8F7011EE
        state[2] ^= 0xFC78FF1F
    mixed = (state[0] + (state[2] >> 8)) & MASK
    return state[3] ^ mixed ^ (0x3793FDFF if mixed & 1 else 0)


def coefficients(key: int, density: int, count: int) -> "list[int]":
    """Return the coefficients of a repair symbol (RFC 8681 section 3.6)."""
    state = tinymt32(key)
    found: list[int] = []
    for _ in range(count):
        value = 0
        if density == FULL_DENSITY or draw(state) & 15 <= density:
            while not value:
                value = draw(state) & 255
        found.append(value)
    return found


def times(a: int, b: int) -> int:
    """Multiply in GF(2^8), polynomial 0x11D, bit by bit."""
    product = 0
    while b:
        product ^= a * (b & 1)
        a = a << 1 ^ (0x11D if a & 128 else 0)
        b >>= 1
    return product


INVERSE = {a: next(b for b in range(1, 256) if times(a, b) == 1) for a in range(1, 256)}


class MalformedError(Exception):
    """Bytes that are no frame, or no source symbol."""


@dataclass
class Equation:
    """Coefficients by number of the packet, and the sum."""

    factors: dict[int, int]
    total: bytearray

    def add(self, factor: int, other: dict[int, int], total: bytes | bytearray) -> None:
        for number, value in other.items():
            self.factors[number] = self.factors.get(number, 0) ^ times(factor, value)
        self.factors = {number: value for number, value in self.factors.items() if value}
        self.total.extend(bytes(max(0, len(total) - len(self.total))))
        for place, value in enumerate(total):
            self.total[place] ^= times(factor, value)


@dataclass
class Decoder:
    """Source packets by number, and the repair symbols."""

    packets: dict[int, bytes] = field(default_factory=dict)
    equations: list[Equation] = field(default_factory=list)

    def take(self, frame: bytes) -> None:
        """Take one frame."""
        if frame[0] == 0:
            self.packets[int.from_bytes(frame[-4:])] = frame[1:-4]
            return
        if frame[0] != 1:
            raise MalformedError(frame)
        key, spread, first = (
            int.from_bytes(frame[1:3]),
            int.from_bytes(frame[3:5]),
            int.from_bytes(frame[5:9]),
        )
        values = coefficients(key, spread >> 12, spread & 0xFFF)
        numbers = ((first + place) & MASK for place in range(len(values)))
        factors = {number: value for number, value in zip(numbers, values, strict=True) if value}
        self.equations.append(Equation(factors, bytearray(frame[9:])))

    def recover(self) -> dict[int, bytes]:
        """Return the packets that the equations make known, by number."""
        solved: list[Equation] = []
        for equation in self.equations:
            for number in equation.factors.keys() & self.packets.keys():
                packet = self.packets[number]
                symbol = b"\0" + len(packet).to_bytes(2) + packet
                equation.add(equation.factors[number], {number: 1}, symbol)
            for other in solved:
                pivot = min(other.factors)
                equation.add(equation.factors.get(pivot, 0), other.factors, other.total)
            if not equation.factors:
                continue
            pivot = min(equation.factors)
            row = Equation({}, bytearray())
            row.add(INVERSE[equation.factors[pivot]], equation.factors, equation.total)
            for other in solved:
                other.add(other.factors.get(pivot, 0), row.factors, row.total)
            solved.append(row)
        alone = [row for row in solved if len(row.factors) == 1]
        return {min(row.factors): packet_in(row.total) for row in alone}


def packet_in(symbol: bytes | bytearray) -> bytes:
    """Return the packet of a source symbol; what follows it must be zeros."""
    length = int.from_bytes(symbol[1:HEAD])
    if symbol[0] or any(symbol[HEAD + length :]):
        raise MalformedError(symbol)
    return bytes(symbol[HEAD : HEAD + length])
