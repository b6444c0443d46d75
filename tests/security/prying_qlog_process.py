# SPDX-License-Identifier: GPL-3.0-or-later
"""The reader of a qlog file as a hostile file would steer it: it hangs, takes memory, dies, floods,
lies or looks around.
"""

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from satlab.check.trace.qlog_process import ANSWER, ANSWER_FILE, Answer, Fault


def look(folder: str) -> list[Any]:
    """Return whether it has a user of its own, network, capabilities, and the file's folder."""
    try:
        socket.create_connection(("127.0.0.1", 1), timeout=1)
    except OSError as error:
        network = error.strerror
    lines = Path("/proc/self/status").read_text().splitlines()
    (capabilities,) = [line.split()[1] for line in lines if line.startswith("CapEff:")]
    return [os.getuid() != 0, network, capabilities, Path(folder).exists()]


if __name__ == "__main__":
    word, _, rest = sys.stdin.readline().strip().partition(" ")
    answer = Path(sys.argv[1]) / ANSWER_FILE
    match word:
        case "hang":
            time.sleep(3600)
        case "eat":
            _ = [bytearray(1 << 20) for _ in range(4000)]
        case "die":
            os.abort()
        case "flood":
            with answer.open("wb") as file:
                while True:
                    file.write(b" " * (1 << 20))
        case "lie":
            answer.write_text('{"found": {"sent_packets": "many"}, "version": 1}')
        case "link":
            answer.symlink_to("/etc/passwd")
        case "look":
            answer.write_bytes(ANSWER.dump_json(Answer(Fault("broken", str(look(rest))))))
