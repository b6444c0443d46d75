# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that parses a run's raw files: `python -m collect.reader OUT WHAT...`.

It opens no file of the run itself: its parent does on request (`serve`), over the socket on stdin.
So it needs no right to the run folder and can run as any user, and a hostile file harms only this
process. `stored` writes OUT/stored.json, `records` OUT/records.parquet.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from collect import raw, run_records
from collect.raw import RefusedError

RUN = Path("/run-folder")
"""Name of the run folder in a reader's requests."""
STORED = "stored.json"
_REQUEST_BYTES = 16 << 10
"""Longest request, bytes: a path has at most 4096 bytes, and JSON may need four for each."""


class Broker:
    """The folder of a run, opened by another process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def open(self, root: Path, name: str, most: int) -> BufferedReader:
        _, handles = self._ask({"open": str(root.relative_to(RUN) / name), "most": most})
        return os.fdopen(handles[0], "rb")

    def names(self, root: Path, folder: str) -> list[str]:
        answer, _ = self._ask({"names": str(root.relative_to(RUN) / folder)})
        return [str(name) for name in answer["names"]]

    def _ask(self, request: Mapping[str, Any]) -> tuple[dict[str, Any], list[int]]:
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        text, handles, _, _ = socket.recv_fds(self._connection, 1 << 16, 1)
        while text and not text.endswith(b"\n"):
            text += self._connection.recv(1 << 20)
        if not text:
            raise OSError("nobody opens files")
        answer = json.loads(text)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        return answer, handles


def serve(connection: socket.socket, run_dir: Path, why_not: Callable[[str], str]) -> str | None:
    """Answer one request of a reader; return the name of the file that it opened, "" for none, None
    at its end.

    `why_not` returns why a file, by its name in the run folder, must not be opened; empty if it
    may. Raises OSError if the reader sends an invalid request, or does not take the answer.
    """
    text = connection.recv(_REQUEST_BYTES)
    while text and not text.endswith(b"\n") and len(text) < _REQUEST_BYTES:
        text += connection.recv(_REQUEST_BYTES) or b"\n"
    if not text:
        return None
    try:
        request = json.loads(text)
        name = str(request["open"] if "open" in request else request["names"])
        most = min(int(request.get("most", 0)), raw.LINES_BYTES)
    except (ValueError, KeyError, TypeError) as error:
        raise OSError("a reader sent what is not a request") from error
    file = None
    try:
        if "open" in request and (why := why_not(name)):
            raise RefusedError(why)
        if "open" in request:
            file = raw.DISK.open(run_dir, name, most)
            answer: dict[str, Any] = {}
        else:
            answer = {"names": raw.DISK.names(run_dir, name)}
    except RefusedError as error:
        answer = {"refused": str(error)}
    except OSError as error:
        answer = {"errno": error.errno}
    text = json.dumps(answer).encode() + b"\n"
    if file is None:
        connection.sendall(text)
        return ""
    with file:
        socket.send_fds(connection, [text], [file.fileno()])
    return name


def main() -> None:
    raw.read_from(Broker(socket.socket(fileno=0)))
    out = Path(sys.argv[1])
    if "stored" in sys.argv[2:]:
        (out / STORED).write_text(
            run_records.stored(RUN).model_dump_json(by_alias=True), encoding="utf-8"
        )
    if "records" in sys.argv[2:]:
        run_records.collect(RUN, out)


if __name__ == "__main__":
    main()
