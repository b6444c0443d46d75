# SPDX-License-Identifier: GPL-3.0-or-later
"""A program that measures a path with UDP: echoes for its round-trip time, then a train of
datagrams at a fixed rate for its rate and losses.

`send` runs at one end and `answer` at the other. When `answer` has printed `{"ready": true}`, a line
on the stdin of `send` starts it. Both print their figures as JSON. The kernel timestamps arrivals,
and the time for which an echo was held is subtracted (as in TWAMP, RFC 5357), so a program that runs
late does not measure longer times.

The text of this module runs on hosts without satlab: it imports nothing of satlab.
"""

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

ECHO, REPLY, TRAIN, END = b"e", b"r", b"t", b"f"
HEADER = struct.Struct("!8scIq")
"""Of each datagram: the key of this measurement, the kind, a number, and of a REPLY the time for
which it was held, ns; of TRAIN and END the number of datagrams of the train.
"""
ECHO_BYTES, TRAIN_BYTES = 56, 1472
"""Payloads: with the headers of IPv4 and UDP 84 bytes, as of ping, and 1500."""
TICK_S = 0.001
"""Period at which a sender sends what is due, s."""
ENDS, END_SPACING_S = 5, 0.02
"""Copies of END, as the queue may be full or lose one."""
READ_S = 0.002
"""Period at which a receiver reads a train, s: to wake up for each datagram costs too much."""
MOST_READ = 1000
BUFFER_BYTES = 32_000_000
MOST_TRAIN = 10_000_000
BATCH = 44
"""Most datagrams of a train that are given to the kernel at once."""
UDP_SEGMENT, UDP_GRO, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 103, 104, 33, 35  # not in Python


class Datagram(NamedTuple):
    """A datagram with the key; `arrived_ns`: since the epoch, by the kernel."""

    kind: bytes
    number: int
    value: int
    arrived_ns: int
    sender: tuple[str, int]


class Endpoint:
    """A UDP socket that takes only datagrams with the key, and says when they arrived."""

    def __init__(self, key: bytes, address: str, port: int) -> None:
        self.key = key
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.socket.bind((address, port))
        self._buffer = bytearray(65_536)

    def datagram(self, kind: bytes, number: int, value: int = 0) -> bytes:
        return HEADER.pack(self.key, kind, number, value).ljust(ECHO_BYTES, b"\0")

    def received(self, within_s: float) -> Iterator[Datagram]:
        """Yield all datagrams that wait; none if none comes in time."""
        if not select.select([self.socket], [], [], max(0.0, within_s))[0]:
            return
        for _ in range(MOST_READ):
            try:
                found = self.socket.recvmsg_into([self._buffer], 128, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            length, ancillary, _, sender = found
            arrived_ns, size = time.time_ns(), length
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, ns = struct.unpack("qq", data)
                    arrived_ns = seconds * 10**9 + ns
                elif (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):  # the kernel has merged some
                    size = int.from_bytes(data, sys.byteorder)
            for start in range(0, length - HEADER.size + 1, size):
                key, kind, number, value = HEADER.unpack_from(self._buffer, start)
                if key == self.key:
                    yield Datagram(kind, number, value, arrived_ns, sender)


class Train:
    """What arrived of a train. Its rate is the slope of a line through the arrivals of its second
    half: then the queue has filled, and packets of one frame arrive together.
    """

    def __init__(self) -> None:
        self.received = 0
        self._seen = bytearray()
        self._first_ns = 0
        self._n = self._t = self._c = self._tt = self._tc = 0.0

    def add(self, number: int, total: int, arrived_ns: int) -> None:
        if not self._seen:
            self._seen = bytearray(max(0, min(total, MOST_TRAIN)))
        if number >= len(self._seen) or self._seen[number]:
            return
        self._seen[number] = 1
        self.received += 1
        if 2 * number < total:
            return
        self._first_ns = self._first_ns or arrived_ns
        seconds = (arrived_ns - self._first_ns) / 1e9
        count = self._n
        self._n += 1
        self._t += seconds
        self._c += count
        self._tt += seconds * seconds
        self._tc += seconds * count

    def rate_bps(self) -> float | None:
        """Return the rate of payload, bit/s; None if too little arrived."""
        spread = self._n * self._tt - self._t * self._t
        if spread <= 0:
            return None
        return (self._n * self._tc - self._t * self._c) / spread * TRAIN_BYTES * 8


class Answered(NamedTuple):
    """Datagrams of the train, and its rate, bit/s of payload; None: too few."""

    received: int
    rate_bps: float | None


class Sent(NamedTuple):
    """RTT of each echo, ms (None: no answer), and the number of datagrams of the train."""

    rtts_ms: list[float | None]
    sent: int


def answer(end: Endpoint, silence_s: float) -> Answered:
    """Answer echoes and count a train, until its end or `silence_s` without a datagram; twice as
    long for the first one, as `send` may still be starting.
    """
    train, until = Train(), time.monotonic() + 2 * silence_s
    ends = set[int]()
    while time.monotonic() < until and ENDS - 1 not in ends:
        last = None
        for last in end.received(until - time.monotonic()):
            if last.kind == ECHO:
                held_ns = time.time_ns() - last.arrived_ns
                end.socket.sendto(end.datagram(REPLY, last.number, held_ns), last.sender)
            elif last.kind == TRAIN:
                train.add(last.number, last.value, last.arrived_ns)
            elif last.kind == END:
                ends.add(last.number)
        if last:
            until = time.monotonic() + (ENDS * END_SPACING_S if ends else silence_s)
            if last.kind == TRAIN:
                time.sleep(READ_S)
    return Answered(train.received, train.rate_bps())


def send(
    end: Endpoint,
    to: tuple[str, int],
    echoes: int,
    interval_s: float,
    bps: float,
    seconds: float,
    answers_s: float,
) -> Sent:
    """Send echoes, then a train; wait for answers until `answers_s` after the last echo."""
    sent_ns = [0] * echoes
    rtts_ms: list[float | None] = [None] * echoes
    start = time.monotonic()
    for number in range(echoes):
        time.sleep(max(0.0, start + number * interval_s - time.monotonic()))
        sent_ns[number] = time.time_ns()
        end.socket.sendto(end.datagram(ECHO, number), to)
    last = time.monotonic()
    total = min(MOST_TRAIN, int(bps * seconds / 8 / TRAIN_BYTES))
    if total:
        send_train(end, to, total, seconds)
    for number in range(ENDS):
        end.socket.sendto(end.datagram(END, number, total), to)
        time.sleep(END_SPACING_S)
    while None in rtts_ms:
        found = list(end.received(last + answers_s - time.monotonic()))
        for one in found:
            if one.kind == REPLY and one.number < echoes:
                rtt_ns = one.arrived_ns - sent_ns[one.number] - one.value
                rtts_ms[one.number] = rtt_ns / 1e6
        if not found:
            break
    return Sent(rtts_ms, total)


def send_train(end: Endpoint, to: tuple[str, int], total: int, seconds: float) -> None:
    """Send a train of `total` datagrams over `seconds`. After a delay, overdue ones are sent at once."""
    end.socket.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, TRAIN_BYTES)
    batch = memoryview(bytearray(BATCH * TRAIN_BYTES))
    sent, start = 0, time.monotonic()
    while sent < total:
        time.sleep(TICK_S)
        due = min(total, int((time.monotonic() - start) / seconds * total))
        while sent < due:
            count = min(BATCH, due - sent)
            for place in range(count):
                HEADER.pack_into(batch, place * TRAIN_BYTES, end.key, TRAIN, sent + place, total)
            end.socket.sendto(batch[: count * TRAIN_BYTES], to)
            sent += count
    end.socket.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 0)


def main() -> None:
    """Run as a program: own address, port, then SILENCE_S (`answer`) or the other end's address and
    the numbers of `send`. A line of stdin has the key, 16 hexadecimal digits.
    """
    verb, address, port, *words = sys.argv[1:]
    key = bytes.fromhex(sys.stdin.buffer.readline().decode())
    if verb == "answer":
        end = Endpoint(key, address, int(port))
        print(json.dumps({"ready": True}), flush=True)
        result: Answered | Sent = answer(end, float(words[0]))
    else:
        end = Endpoint(key, address, 0)
        if not sys.stdin.buffer.readline():  # nobody wants the figures any more
            return
        echoes, *numbers = words[1:]
        result = send(end, (words[0], int(port)), int(echoes), *map(float, numbers))
    print(json.dumps(result._asdict()))


if __name__ == "__main__":
    main()
