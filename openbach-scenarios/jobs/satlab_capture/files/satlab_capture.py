#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: capture the packets of one interface with dumpcap into a private file of limited
duration and size.
"""

import argparse
import contextlib
import os
import re
import subprocess
import syslog
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collect_agent
from jobkit import (
    announce,
    argument_parser,
    matching,
    run_job,
    start_stoppable,
    stop_event,
    whole,
)

# dumpcap 4.0, on stderr when it ends: "Packets received/dropped on interface 'lan0': 6/0
# (pcap:0/...".
_COUNTS = re.compile(r"^Packets received/dropped on interface .*: (\d+)/(\d+) ", re.MULTILINE)
_CAPTURING = "File: "
"""How its line begins once the interface is open and the file is there."""
_NAME = r"(?!-)[^\s/]{1,15}"
"""The kernel's names of interfaces, without those that dumpcap would take for an option."""


@dataclass(frozen=True)
class Capture:
    """The counts that dumpcap reported at its end."""

    packets: int
    dropped: int
    size: int


def argv(options: argparse.Namespace, file: Path) -> list[str]:
    limits = ["-a", f"duration:{options.seconds}", "-a", f"filesize:{options.megabytes * 1000}"]
    filtering = ["-f", options.filter] if options.filter else []
    snaplen = ["-s", str(options.snaplen)] if options.snaplen else []
    return [
        "dumpcap",
        "-q",
        "-p",
        "-i",
        options.interface,
        *limits,
        *snaplen,
        *filtering,
        "-w",
        str(file),
    ]


def read(log: str, file: Path) -> Capture | None:
    """Read dumpcap's log; None when it did not capture to its end."""
    counts = _COUNTS.search(log)
    if counts is None or not file.is_file():
        return None
    return Capture(int(counts[1]), int(counts[2]), file.stat().st_size)


def run(command: list[str], stop: threading.Event) -> str:
    """Run dumpcap until a limit is reached or this job is stopped; return its log."""
    try:
        # dumpcap ends in order on SIGTERM. An agent may have signalled it before us.
        quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
        dumpcap = start_stoppable(command, stop, stdout=quiet, stderr=pipe, text=True)
    except OSError as error:
        return f"dumpcap cannot be started: {error}"
    lines: list[str] = []
    with dumpcap, contextlib.ExitStack() as until_end:
        for line in dumpcap.stderr or ():
            lines.append(line)
            if line.startswith(_CAPTURING):
                until_end.enter_context(announce("satlab_capture"))
    return "".join(lines)


def keep(capture: Capture, file: Path) -> bool:
    """Send the figures and store the file; return whether both were accepted."""
    when = collect_agent.now()
    figures: dict[str, Any] = {
        "packets": capture.packets,
        "dropped_packets": capture.dropped,
        "file_bytes": capture.size,
    }
    answers = [
        collect_agent.send_stat(when, **figures),
        collect_agent.store_files(when, capture_pcapng=str(file)),
    ]
    return all(answer == "OK" for answer in answers)


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("interface", type=matching(_NAME, "the name of an interface"))
    parser.add_argument(
        "-t", "--seconds", type=whole(1, 3600), default=60, help="longest duration, s"
    )
    parser.add_argument(
        "-m", "--megabytes", type=whole(1, 1000), default=50, help="largest size of the file, MB"
    )
    parser.add_argument(
        "-s",
        "--snaplen",
        type=whole(0, 65535),
        default=128,
        help="bytes that are kept of each packet; 0: all",
    )
    parser.add_argument("-f", "--filter", default="", help="capture filter, pcap-filter(7)")
    return parser.parse_args()


def main() -> int:
    """Run the job; 0 when the capture came to its end and was stored."""
    stop, options = stop_event(), _arguments()
    os.umask(0o077)  # captured packets are private
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "capture.pcapng"
        log = run(argv(options, file), stop)
        capture = read(log, file)
        if capture is None:
            collect_agent.send_log(syslog.LOG_ERR, " ".join(log.split())[:500])
            return 1
        if capture.dropped:
            collect_agent.send_log(
                syslog.LOG_WARNING, f"{capture.dropped} packets are missing in the capture"
            )
        return 0 if keep(capture, file) else 1


if __name__ == "__main__":
    run_job(__file__, main)
