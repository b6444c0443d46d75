# SPDX-License-Identifier: GPL-3.0-or-later
"""`tcp_transfer.py server|client REQUEST`: a transfer over plain TCP, timed at its receiver;
standard library alone.

REQUEST is JSON: host, port, and for the client direction, bytes, marks (bytes), timeout_s, output
(file). The client sends it to the server as its first line. Times are of the Unix clock, which both
endpoints share.
"""

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 18


def serve(request: dict[str, Any]) -> None:
    """Serve one client after another until the process is ended."""
    with socket.create_server((request["host"], request["port"])) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                transfer = json.loads(read_line(connection))
                if transfer["direction"] == "download":
                    send(connection, transfer["bytes"])
                else:
                    connection.sendall(json.dumps(receive(connection, transfer)).encode() + b"\n")


def run_client(request: dict[str, Any]) -> dict[str, Any]:
    """Run the transfer and return the receiver's result with the client's times."""
    began = time.time()
    with socket.create_connection(
        (request["host"], request["port"]), timeout=request["timeout_s"]
    ) as connection:
        connected = time.time()
        connection.sendall(json.dumps(request).encode() + b"\n")
        if request["direction"] == "download":
            result = receive(connection, request)
        else:
            send(connection, request["bytes"])
            result = json.loads(read_line(connection))
    return {"began": began, "connected": connected, **result}


def read_line(connection: socket.socket) -> bytes:
    """Read a line, and no byte beyond its end."""
    line = b""
    while not line.endswith(b"\n") and (byte := connection.recv(1)):
        line += byte
    return line


def send(connection: socket.socket, count: int) -> None:
    chunk = bytes(CHUNK_BYTES)
    while count > 0:
        count -= connection.send(chunk[:count])


def receive(connection: socket.socket, request: dict[str, Any]) -> dict[str, Any]:
    """Receive until all bytes have arrived, the sender closes, or the time is over."""
    end = time.time() + request["timeout_s"]
    buffer, count, first = bytearray(CHUNK_BYTES), 0, None
    reached: list[float] = []
    while count < request["bytes"] and (left := end - time.time()) > 0:
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
        reached += [now for mark in request["marks"][len(reached) :] if count >= mark]
    return {"bytes": count, "first": first, "reached": reached, "late": time.time() >= end}


def main() -> int:
    request = json.loads(sys.argv[2])
    try:
        if sys.argv[1] == "server":
            serve(request)
        else:
            Path(request["output"]).write_text(json.dumps(run_client(request)))
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
