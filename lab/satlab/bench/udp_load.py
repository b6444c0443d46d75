# SPDX-License-Identifier: GPL-3.0-or-later
"""A UDP flow for benchmarks, with little CPU time: datagrams leave and arrive in large packets.

`receive ADDRESS PORT BYTES` prints `{"ready": true}`, then the counts of the received datagrams; `send ADDRESS
PORT BYTES BPS SECONDS` prints those of the sent ones. BYTES is the payload of a datagram, BPS the rate of all payload.
"""

import json
import socket
import sys
import time
from collections.abc import Iterator

UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h; not in Python
SO_RCVBUFFORCE = 33
BUFFER_BYTES = 32_000_000
TICK_S = 0.001
"""Datagrams leave in bursts as long as this, as iperf3's do."""
MOST_BYTES, MOST_DATAGRAMS = 65_000, 64
SILENCE_S = 2.0
"""A receiver ends after this time without a datagram, s; it waits longer for the first one."""


def bursts(size: int, bps: float, seconds: float) -> Iterator[tuple[float, int]]:
    """Yield the times at which to send, s from the start, and how many datagrams of `size` bytes at each."""
    sent = 0
    for tick in range(1, round(seconds / TICK_S) + 1):
        owed = int(tick * TICK_S * bps / (8 * size)) - sent
        if owed > 0:
            sent += owed
            yield tick * TICK_S, owed


def send(address: str, port: int, size: int, bps: float, seconds: float) -> dict[str, float]:
    """Send a flow at a steady rate; late bursts are made up for."""
    most = min(MOST_DATAGRAMS, MOST_BYTES // size)
    payload = bytes(most * size)
    packets = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect((address, port))
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        start = time.monotonic()
        for at, datagrams in bursts(size, bps, seconds):
            time.sleep(max(0.0, start + at - time.monotonic()))
            for first in range(0, datagrams, most):
                count = min(most, datagrams - first)
                sender.send(memoryview(payload)[: count * size])
                packets += count
        elapsed = time.monotonic() - start
    return {"packets": packets, "seconds": elapsed}


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
        try:
            while True:
                received += receiver.recv_into(buffer)
                last = time.monotonic()
                if not first:
                    first = last
                    receiver.settimeout(SILENCE_S)
        except TimeoutError:
            pass
    return {"packets": received // size, "seconds": last - first}


def main() -> None:
    """Run as a program."""
    verb, address, *numbers = sys.argv[1:]
    port, size, *rest = numbers
    if verb == "send":
        bps, seconds = map(float, rest)
        print(json.dumps(send(address, int(port), int(size), bps, seconds)))
    else:
        print(json.dumps(receive(address, int(port), int(size))))


if __name__ == "__main__":
    main()
