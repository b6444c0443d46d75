# SPDX-License-Identifier: GPL-3.0-or-later
"""Cross traffic: datagrams at a constant rate. This file runs as a program: `send ADDRESS PORT
BYTES MBPS`, `receive ADDRESS PORT`. What was sent and what arrived is counted from packets, so it
prints nothing.
"""

import socket
import sys
import time

IP_UDP_HEADER_BYTES = 28
TICK_S = 0.002


def due(elapsed_s: float, ip_bytes: int, mbps: float) -> int:
    """Return how many packets should have left by now. The first packet leaves at once."""
    return 1 + int(elapsed_s * mbps * 1e6 / (8 * ip_bytes))


def send(address: str, port: int, size: int, mbps: float) -> None:
    """Send until the process ends, and catch up after a delay. `mbps` counts IP packets."""
    payload = bytes(size)
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        start = time.monotonic()
        while True:
            while sent < due(time.monotonic() - start, size + IP_UDP_HEADER_BYTES, mbps):
                sender.sendto(payload, (address, port))
                sent += 1
            time.sleep(TICK_S)


def receive(address: str, port: int) -> None:
    """Receive datagrams until the process ends."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((address, port))
        while True:
            receiver.recv(65536)


def main() -> None:
    verb, address, port, *rest = sys.argv[1:]
    if verb == "send":
        send(address, int(port), int(rest[0]), float(rest[1]))
    receive(address, int(port))


if __name__ == "__main__":
    main()
