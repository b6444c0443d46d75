# SPDX-License-Identifier: GPL-3.0-or-later
"""UDP flows for benchmarks, with little CPU time: datagrams leave and are read in batches, by few
programs.

`receive ADDRESS PORT BYTES` prints `{"ready": true}`, then the counts of the received datagrams.
`send BYTES BPS SECONDS ADDRESS:PORT...` prints those of the sent ones, a list in the order of the
addresses. BYTES is the payload of a datagram, BPS the rate of all payload to each address; 0: as
fast as it goes.
"""

import contextlib
import itertools
import json
import socket
import sys
import time
from collections.abc import Iterator, Sequence

UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h; not in Python
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 32_000_000
TICK_S = 0.001
"""Length of a burst of datagrams, s."""
PHASES = 4
"""Parts of a tick; several flows send at different parts."""
DRAIN_S = 0.005
"""Period of a receiver's reads, s. Waking up for each datagram costs more than the datagram."""
MOST_BYTES, MOST_DATAGRAMS = 65_000, 64
SILENCE_S = 2.0
"""Time without a datagram after which a receiver ends, s. It waits longer for the first one."""


def bursts(
    size: int, bps: float, seconds: float, flows: int = 1
) -> Iterator[tuple[float, int, int]]:
    """Yield when to send, s from the start, for which of the flows, and how many datagrams of
    `size` bytes. Without end if `bps` is 0.
    """
    if not bps:
        yield from itertools.cycle((0.0, flow, MOST_DATAGRAMS) for flow in range(flows))
    sent = 0
    for tick in range(1, round(seconds / TICK_S) + 1):
        owed = int(tick * TICK_S * bps / (8 * size)) - sent
        if owed > 0:
            sent += owed
            for flow in range(flows):
                phase = flow * PHASES // flows / PHASES
                yield (tick + phase) * TICK_S, flow, owed


def send(
    ends: Sequence[tuple[str, int]], size: int, bps: float, seconds: float
) -> list[dict[str, float]]:
    """Send a flow at a steady rate to each address, and catch up after a delay.

    If `bps` is 0, send as fast as it goes for so many seconds.
    """
    most = min(MOST_DATAGRAMS, MOST_BYTES // size)
    payload = memoryview(bytes(most * size))
    packets = [0] * len(ends)
    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in ends
        ]
        for sender, end in zip(senders, ends, strict=True):
            sender.connect(end)
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        start = time.monotonic()
        for at, flow, datagrams in bursts(size, bps, seconds, len(ends)):
            if (left := start + at - time.monotonic()) > 0:
                time.sleep(left)
            if not bps and time.monotonic() >= start + seconds:
                break
            for first in range(0, datagrams, most):
                count = min(most, datagrams - first)
                senders[flow].send(payload[: count * size])
                packets[flow] += count
        elapsed = time.monotonic() - start
    return [{"packets": count, "seconds": elapsed} for count in packets]


def receive(address: str, port: int, size: int) -> dict[str, float]:
    """Count datagrams from the first one until SILENCE_S without any."""
    buffer = bytearray(65_536)
    received, first, last = 0, 0.0, 0.0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        receiver.bind((address, port))
        print(json.dumps({"ready": True}), flush=True)
        receiver.settimeout(10 + SILENCE_S)
        with contextlib.suppress(TimeoutError):
            received = receiver.recv_into(buffer)
            first = last = time.monotonic()
        receiver.setblocking(False)
        while first and time.monotonic() < last + SILENCE_S:
            time.sleep(DRAIN_S)
            with contextlib.suppress(BlockingIOError):
                while True:
                    received += receiver.recv_into(buffer)
                    last = time.monotonic()
    return {"packets": received // size, "seconds": last - first}


def main() -> None:
    """Run as a program."""
    verb, *words = sys.argv[1:]
    if verb == "send":
        size, bps, seconds, *ends = words
        to = [(address, int(port)) for address, _, port in (end.rpartition(":") for end in ends)]
        print(json.dumps(send(to, int(size), float(bps), float(seconds))))
    else:
        address, port, size = words
        print(json.dumps(receive(address, int(port), int(size))))


if __name__ == "__main__":
    main()
