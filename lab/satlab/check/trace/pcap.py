# SPDX-License-Identifier: GPL-3.0-or-later
"""What the packets at a client tell of a transfer: times, goodput, and what slowed it down, without a key."""

import math
import struct
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal

from satlab.check.trace.capture import Packet

UDP, TCP = 17, 6
Kind = Literal["initial", "0-rtt", "handshake", "retry", "1-rtt"]
_LONG: tuple[Kind, ...] = ("initial", "0-rtt", "handshake", "retry")
"""Types of long headers, RFC 9000, section 17.2."""
SYN = 0x02
NS = 1e-9


@dataclass(frozen=True)
class Datagram:
    """One packet of the connection: time in s since the first one, payload in bytes above UDP or TCP, what is in it."""

    t_s: float
    from_server: bool
    size: int
    kinds: tuple[Kind, ...]
    ids: tuple[bytes, ...] = ()

    @property
    def is_data(self) -> bool:
        """Return whether it may hold payload: 1-RTT packets, and whatever TCP carries."""
        return self.size > 0 and self.kinds[-1:] in ((), ("1-rtt",))


@dataclass(frozen=True)
class CapturedTransfer:
    """A transfer as its client's interface saw it; `protocol` is 17 or 6, times are since the client's first packet."""

    protocol: int
    datagrams: tuple[Datagram, ...]
    start_unix_s: float = 0.0

    @property
    def arrivals(self) -> list[Datagram]:
        """Return what came from the server and may hold payload."""
        return [one for one in self.datagrams if one.from_server and one.is_data]

    @property
    def handshake_s(self) -> float | None:
        """Return when the client could speak: its first 1-RTT packet after the server's first; SYN-ACK with TCP."""
        answer = self.first_answer_s
        if self.protocol == TCP or answer is None:
            return answer
        mine = (one.t_s for one in self.datagrams if not one.from_server and "1-rtt" in one.kinds and one.t_s >= answer)
        return next(mine, None)

    @property
    def first_answer_s(self) -> float | None:
        """Return when the server's first packet came."""
        return next((one.t_s for one in self.datagrams if one.from_server), None)

    @property
    def first_byte_s(self) -> float | None:
        """Return when the first packet came that may hold payload: full, and after the client could ask; else None.

        Full is what has 1200 bytes of UDP payload, which each path must carry (RFC 9000, section 14): what a server
        sends before its payload, settings and tickets, is less. A probe of the path's MTU is full: it may make this
        earlier than the first byte was, never later.
        """
        if self.protocol == TCP:
            return next((one.t_s for one in self.arrivals), None)
        mine = (one for one in self.datagrams if not one.from_server)
        asked = next((one.t_s for one in mine if {"0-rtt", "1-rtt"} & set(one.kinds)), math.inf)
        full = (one.t_s for one in self.arrivals if one.kinds == ("1-rtt",) and one.size >= FULL_PACKET)
        return next((t_s for t_s in full if t_s > asked), None)

    @property
    def server_ids(self) -> set[bytes]:
        """Return the source connection ids of the server's Initial packets: one for each handshake."""
        initials = (one for one in self.datagrams if one.from_server and "initial" in one.kinds)
        return {name for one in initials for name in one.ids}

    def count(self, kind: Kind, *, from_server: bool) -> int:
        """Count the datagrams of one side that hold a packet of a kind."""
        return sum(kind in one.kinds for one in self.datagrams if one.from_server is from_server)

    def times_s(self, marks: Sequence[int], size: int) -> tuple[float | None, ...]:
        """Tell when each of the amounts `marks` of `size` bytes had come, by its share of all that came.

        Headers, retransmissions and what else a stack sends are taken as spread evenly over the payload.
        """
        came = self.arrivals
        total = list(accumulate(one.size for one in came))
        if not total:
            return (None,) * len(marks)
        return tuple(
            came[min(bisect_left(total, total[-1] * mark / size), len(came) - 1)].t_s if mark <= size else None
            for mark in marks
        )

    def goodput_bps(self, size: int) -> float | None:
        """Return the QUIC interop runner's goodput: payload bits over the time of the server's 1-RTT packets."""
        came = self.arrivals
        lasted = came[-1].t_s - came[0].t_s if came else 0.0
        return 8 * size / lasted if lasted > 0 else None


def read(packets: Sequence[Packet], server: IPv4Address, port: int) -> CapturedTransfer | None:
    """Find the packets between a client and a server's port; None where there are none."""
    found: list[Datagram] = []
    protocol = start = 0
    for packet in packets:
        parsed = _parse(packet, server.packed, port)
        if parsed is None or not (protocol in (0, parsed[0]) and (found or not parsed[1])):
            continue
        protocol, from_server, payload, size = parsed
        start = start or packet.t_ns
        parts = list(parts_of(payload)) if protocol == UDP else []
        kinds, ids = tuple(kind for kind, _ in parts), tuple(name for _, name in parts if name)
        found.append(Datagram((packet.t_ns - start) * NS, from_server, size, kinds, ids))
    return CapturedTransfer(protocol, tuple(found), start * NS) if found else None


def _parse(packet: Packet, server: bytes, port: int) -> tuple[int, bool, bytes, int] | None:
    """Return protocol, whether it is the server's, the payload's first bytes and its size."""
    head = packet.head
    if len(head) < 28 or head[0] >> 4 != 4 or head[9] not in (UDP, TCP):
        return None
    words = 4 * (head[0] & 0xF)
    source, destination = struct.unpack_from("!HH", head, words)
    from_server = head[12:16] == server and source == port
    if not from_server and not (head[16:20] == server and destination == port):
        return None
    above = 8 if head[9] == UDP else 4 * (head[words + 12] >> 4)
    start = words + above
    return head[9], from_server, head[start:], packet.length - start


def tcp_again(packets: Sequence[Packet]) -> float | None:
    """Return the share of bytes that had been sent before, of the TCP flow with the most bytes; None without any.

    What lies below the furthest sequence number (RFC 9293, section 3.4, modulo 2^32) has been sent before.
    """
    flows: dict[bytes, tuple[int, int, int]] = {}
    for packet in packets:
        head = packet.head
        words = 4 * (head[0] & 0xF) if head else 0
        if len(head) < words + 20 or head[0] >> 4 != 4 or head[9] != TCP:
            continue
        size = packet.length - words - 4 * (head[words + 12] >> 4)
        if size <= 0:
            continue
        flow, sequence = head[12:20] + head[words : words + 4], int.from_bytes(head[words + 4 : words + 8])
        furthest, whole, again = flows.get(flow, (sequence, 0, 0))
        ahead = (sequence + size - furthest + (1 << 31)) % (1 << 32) - (1 << 31)
        again += min(size, max(0, size - ahead))
        flows[flow] = ((furthest + max(0, ahead)) % (1 << 32), whole + size, again)
    most = max(flows.values(), key=lambda flow: flow[1], default=None)
    return most[2] / most[1] if most else None


def parts_of(payload: bytes) -> Iterator[tuple[Kind, bytes]]:
    """Yield kind and source connection id (none for 1-RTT) of the QUIC packets of a datagram (RFC 9000, section 12.2).

    What is cut off or no QUIC version 1 ends the list.
    """
    while payload:  # the fixed bit may be greased (RFC 9287)
        if not payload[0] & 0x80:
            yield "1-rtt", b""
            return
        kind = _LONG[payload[0] >> 4 & 3]
        try:
            name, payload = _after_long_header(payload, kind)
        except IndexError:
            yield kind, b""
            return
        yield kind, name


def _after_long_header(payload: bytes, kind: Kind) -> tuple[bytes, bytes]:
    """Return the source connection id and what follows the packet. Raises IndexError where it is cut off."""
    at = 6 + payload[5]
    name = payload[at + 1 : at + 1 + payload[at]]
    at += 1 + payload[at]
    if kind == "retry":
        return name, b""
    if kind == "initial":
        token, at = _varint(payload, at)
        at += token
    length, at = _varint(payload, at)
    return name, payload[at + length :]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer (RFC 9000, section 16); give it and the place behind it."""
    size = 1 << (data[at] >> 6)
    value = data[at] & 0x3F
    for byte in data[at + 1 : at + size]:
        value = value << 8 | byte
    return value, at + size


# --- what slowed it down --------------------------------------------------------------------------------------------

SMALL_WINDOW_PACKETS = 4
"""An initial window below this is told: RFC 9002, section 7.2 recommends ten packets, RFC 2581 allowed two."""
FULL_PACKET = 1200
STEADY = 0.15
"""A window that does not change by more than this share from round trip to round trip is taken as a limit."""
LONGER_PERCENT = 25
BELOW_RATE = 0.7
LEAST_ROUNDS = 6
BUSY = 0.85
"""Share of a core from which a program is taken as limited by it."""
WAITING = 0.25
"""Share of the time from which waiting for a core is told. A program that gets what it needs hardly ever waits."""


def symptoms(
    wire: CapturedTransfer, rtt_s: float, rate_bps: float, cpu_s: Mapping[str, tuple[float, float]]
) -> tuple[str, ...]:
    """Name what slowed a download down, as far as it shows from outside.

    `rtt_s` is the idle link's; `rate_bps` what it carries; `cpu_s` how long each program (its name) ran, and how long
    it could have run and had no core.
    """
    lasted = wire.datagrams[-1].t_s
    found = [_lost_handshake(wire, rtt_s), _small_start(wire, rtt_s), _constant_window(wire, rtt_s, rate_bps)]
    for name, (used, waited) in cpu_s.items():
        if lasted > 1 and used > BUSY * lasted:
            found.append(f"CPU limit: the {name} took {used / lasted:.0%} of a core")
        elif lasted > 1 and waited > WAITING * lasted:
            took = f"took {used / lasted:.1%} of a core"
            found.append(f"CPU limit: the {name} waited for a core {waited / lasted:.0%} of the time, and {took}")
    return tuple(filter(None, found))


def _lost_handshake(wire: CapturedTransfer, rtt_s: float) -> str:
    answer, done = wire.first_answer_s, wire.handshake_s
    if answer is not None and answer > 1.5 * rtt_s:
        return f"lost handshake packet: the first answer came after {answer:.2f} s, a round trip is {rtt_s:.2f} s"
    if answer is not None and done is not None and done - answer > 0.7 * rtt_s and wire.protocol == UDP:
        retries = wire.count("retry", from_server=True)
        if done - answer > (retries + 0.7) * rtt_s:
            return f"lost handshake packet: the handshake took {done:.2f} s, a round trip is {rtt_s:.2f} s"
    return ""


def _small_start(wire: CapturedTransfer, rtt_s: float) -> str:
    """Look at the first flight of payload: what comes a round trip after the client could ask."""
    done = wire.handshake_s
    if done is None:
        return ""
    came = [one for one in wire.arrivals if one.t_s > done + 0.9 * rtt_s]
    flight = [one.size for one in came if one.t_s < came[0].t_s + 0.6 * rtt_s]
    rest = sum(one.size for one in came) - sum(flight)
    if sum(flight) < SMALL_WINDOW_PACKETS * FULL_PACKET < rest:
        return f"small initial window: the first flight held {sum(flight)} bytes in {len(flight)} packets"
    return ""


def _constant_window(wire: CapturedTransfer, rtt_s: float, rate_bps: float) -> str:
    """Look whether each round trip of the later part brings the same amount, and less than the link could carry.

    A window's round trip is a little longer than the idle link's, so round trips of several lengths are tried.
    """
    came = wire.arrivals
    if not came:
        return ""
    times, total = [one.t_s for one in came], [0, *accumulate(one.size for one in came)]
    middle = (times[0] + times[-1]) / 2
    later = total[-1] - total[bisect_left(times, middle)]
    if 8 * later > BELOW_RATE * rate_bps * (times[-1] - middle):
        return ""
    found = []
    for percent in range(100, 100 + LONGER_PERCENT):
        lasting = rtt_s * percent / 100
        edges = [middle + n * lasting for n in range(math.floor((times[-1] - middle) / lasting) + 1)]
        rounds = [after - before for before, after in pairwise(total[bisect_left(times, edge)] for edge in edges)]
        if len(rounds) >= LEAST_ROUNDS:
            found.append(((max(rounds) - min(rounds)) / max(median(rounds), 1), median(rounds), rate_bps * lasting / 8))
    spread, typical, room = min(found, default=(math.inf, 0.0, 0.0))
    if spread > 2 * STEADY:
        return ""
    return f"constant window: {typical / 1e6:.2f} MB a round trip, where the link carries {room / 1e6:.2f} MB"
