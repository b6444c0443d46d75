# SPDX-License-Identifier: GPL-3.0-or-later
"""`tcp_end.py server|client REQUEST`: a transfer over plain TCP, timed where it arrives; standard library alone.

REQUEST is JSON: host, port, and for the client direction, bytes, marks (bytes), timeout_s, output (file). The client
sends it as its first line. Times are of the Unix clock, which both ends share.
"""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 18


def serve(wanted: dict[str, Any]) -> None:
    """Answer one client after another until somebody ends us."""
    with socket.create_server((wanted["host"], wanted["port"])) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                asked = json.loads(line_of(connection))
                if asked["direction"] == "download":
                    send(connection, asked["bytes"])
                else:
                    connection.sendall(json.dumps(receive(connection, asked)).encode() + b"\n")


def ask(wanted: dict[str, Any]) -> dict[str, Any]:
    """Transfer; give what came when."""
    began = time.time()
    with socket.create_connection((wanted["host"], wanted["port"]), timeout=wanted["timeout_s"]) as connection:
        connected = time.time()
        connection.sendall(json.dumps(wanted).encode() + b"\n")
        if wanted["direction"] == "download":
            told = receive(connection, wanted)
        else:
            send(connection, wanted["bytes"])
            told = json.loads(line_of(connection))
    return {"began": began, "connected": connected, **told}


def line_of(connection: socket.socket) -> bytes:
    """Read a line and not a byte of what follows it."""
    line = b""
    while not line.endswith(b"\n") and (byte := connection.recv(1)):
        line += byte
    return line


def send(connection: socket.socket, count: int) -> None:
    """Send so many bytes."""
    chunk = bytes(CHUNK_BYTES)
    while count > 0:
        count -= connection.send(chunk[:count])


def receive(connection: socket.socket, wanted: dict[str, Any]) -> dict[str, Any]:
    """Receive until all is there, the other end is gone, or the time is over."""
    end = time.time() + wanted["timeout_s"]
    buffer, count, first = bytearray(CHUNK_BYTES), 0, None
    reached: list[float] = []
    while count < wanted["bytes"] and (left := end - time.time()) > 0:
        connection.settimeout(left)
        try:
            size = connection.recv_into(buffer)
        except TimeoutError:
            break
        if size == 0:
            break
        now = time.time()
        first = first or now
        count += size
        reached += [now for mark in wanted["marks"][len(reached) :] if count >= mark]
    return {"bytes": count, "first": first, "reached": reached, "late": time.time() >= end}


def main() -> int:
    """Be one of the ends."""
    wanted = json.loads(sys.argv[2])
    try:
        if sys.argv[1] == "server":
            serve(wanted)
        else:
            Path(wanted["output"]).write_text(json.dumps(ask(wanted)))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
