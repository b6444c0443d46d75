# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of raw files with a parser that a document can steer: it hangs, takes memory, dies or
looks around.
"""

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from collect import raw, reader

_READ = raw._check_values


def steered(content: bytes) -> None:
    """Do what a document says in place of counting its values."""
    if b'"hang"' in content:
        time.sleep(3600)
    if b'"eat"' in content:
        _ = [bytearray(1 << 20) for _ in range(4000)]
    if b'"die"' in content:
        os.abort()
    if b'"look"' in content:
        raise raw.RefusedError(f"sees {look()}")
    _READ(content)


def look() -> list[Any]:
    """Return whether it has a user of its own, network, capabilities, what lies next to its folder,
    what is opened.
    """
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=1)
    except OSError as error:
        network = error.strerror
    lines = Path("/proc/self/status").read_text().splitlines()
    (capabilities,) = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    asked = []
    for name in ("../outside", "/etc/passwd", "raw/../../outside", "outside"):
        try:
            raw.open_plain(reader.RUN, name, 1000).close()
            asked.append("opened")
        except (OSError, raw.RefusedError) as error:
            asked.append(str(error))
    return [
        os.getuid() != 0,
        network,
        capabilities,
        [each.name for each in Path(sys.argv[1]).parent.iterdir()],
        asked,
    ]


if __name__ == "__main__":
    raw._check_values = steered
    reader.main()
