# SPDX-License-Identifier: GPL-3.0-or-later
"""Client and server of lockstep.py, with the same settings, over UDP on the real clock: to compare
both clocks.

Start: `python transfer.py server HOST PORT BYTES CERTIFICATE KEY`, then `client HOST PORT BYTES CA
NAME`. The client ends with status 0 when BYTES have arrived. One client at a time.
"""

import runpy
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

LOCKSTEP = runpy.run_path(str(Path(__file__).with_name("lockstep.py")))
BUFFER_BYTES = 1 << 22
MOST_AT_ONCE = 64
"""Datagrams that are taken before the stack may answer."""


def setup(role: str, size: int, certificate: str, other: str) -> dict[str, Any]:
    """Return what satlab would send to the program in lock-step."""
    common = {"role": role, "direction": "download", "bytes": size, "early_data": False}
    own = {"server_name": other} if role == "client" else {"key": Path(other).read_text()}
    return common | {"certificate": Path(certificate).read_text()} | own


def arrived(udp: socket.socket, timeout_s: float | None) -> tuple[list[bytes], Any]:
    """Wait for datagrams; return those that are there, and the last sender."""
    found, sender = [], None
    if select.select([udp], [], [], timeout_s)[0]:
        for _ in range(MOST_AT_ONCE):
            try:
                data, sender = udp.recvfrom(65536)
            except BlockingIOError:
                break
            found.append(data)
    return found, sender


def run(role: str, address: tuple[str, int], endpoint: Any) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            udp.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        if role == "server":
            udp.bind(address)
        udp.setblocking(False)
        data: list[bytes] = []
        peer, start = address, role == "client"
        while True:
            answer = endpoint.step({"now_ns": time.monotonic_ns(), "start": start}, data)
            start = False
            while sent := endpoint.take():
                for one in sent:
                    send(udp, one, peer)
            report = answer.get("report", {})
            if role == "client" and (report.get("sha256") or report.get("error")):
                print(report)
                return (
                    0
                    if report["sha256"] and report["received_bytes"] == endpoint.setup["bytes"]
                    else 1
                )
            due_ns = answer["timer_ns"]
            timeout_s = None if due_ns is None else max(0.0, due_ns / 1e9 - time.monotonic())
            data, sender = arrived(udp, timeout_s)
            peer = sender or peer


def send(udp: socket.socket, data: bytes, peer: Any) -> None:
    """Send a datagram; wait while the buffer of the socket is full."""
    while True:
        try:
            udp.sendto(data, peer)
        except BlockingIOError:
            select.select([], [udp], [])
        else:
            return


def main() -> int:
    role, host, port, size, certificate, other = sys.argv[1:]
    return run(
        role, (host, int(port)), LOCKSTEP["Endpoint"](setup(role, int(size), certificate, other))
    )


if __name__ == "__main__":
    sys.exit(main())
