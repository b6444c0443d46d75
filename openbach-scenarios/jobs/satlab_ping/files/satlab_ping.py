#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: ICMP echo with iputils ping; a statistic for each reply, all of them in a file."""

import argparse
import ipaddress
import re
import signal
import subprocess
import syslog
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import collect_agent
from jobkit import argument_parser, run_job, start_stoppable, stop_event, store_json, whole

_REPLY = re.compile(
    r"\[(\d+\.\d+)\] \d+ bytes from .*icmp_seq=(\d+) .*time=(\d+(?:\.\d+)?) ms(?!.*DUP!)"
)
_SILENCE = re.compile(r"no answer yet for icmp_seq=(\d+)")
_SUMMARY = re.compile(r"(\d+) packets transmitted, (\d+) received")


@dataclass
class Echo:
    """The replies that ping has reported so far.

    `sent` is ping's own count, or without its summary the highest number seen.
    """

    sent: int = 0
    rtt_ms: list[float] = field(default_factory=list)

    def take(self, line: str) -> tuple[int, float] | None:
        """Read one line of `ping -n -D -O`; return (time in ms since the epoch, round-trip time in
        ms) of a reply.
        """
        if reply := _REPLY.match(line):
            self.sent = max(self.sent, int(reply[2]))
            self.rtt_ms.append(float(reply[3]))
            return round(float(reply[1]) * 1000), float(reply[3])
        if silence := _SILENCE.search(line):
            self.sent = max(self.sent, int(silence[1]))
        elif summary := _SUMMARY.search(line):
            self.sent = int(summary[1])
        return None


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("destination_ip", type=ipaddress.ip_address)
    parser.add_argument("-c", "--count", type=whole(1, 10**9), default=10)
    parser.add_argument("-i", "--interval", type=float, default=1.0)
    return parser.parse_args()


def _follow(lines: Iterable[str]) -> Echo:
    echo = Echo()
    for line in lines:
        print(line, end="")  # into the job's log
        if reply := echo.take(line):
            collect_agent.send_stat(reply[0], rtt_ms=reply[1])
    return echo


def main() -> int:
    """Run the job; 0 when at least one reply came and the file was stored."""
    stop, options = stop_event(), _arguments()
    destination = str(options.destination_ip)
    argv = ["ping", "-n", "-D", "-O", "-i", str(options.interval), "-c", str(options.count)]
    argv.append(destination)
    start_unix_s = time.time()
    pipe, to_pipe = subprocess.PIPE, subprocess.STDOUT
    # ping answers SIGINT with its summary, and then its output ends here.
    with start_stoppable(argv, stop, signal.SIGINT, stdout=pipe, stderr=to_pipe, text=True) as ping:
        echo = _follow(ping.stdout or ())
    document = {
        "schema": "satlab/ping/1",
        "destination": destination,
        "sent": echo.sent,
        "received": len(echo.rtt_ms),
        "rtt_ms": echo.rtt_ms,
        "start_unix_s": start_unix_s,
    }
    answer = store_json("ping_json", document)
    collect_agent.send_log(
        syslog.LOG_INFO, f"{len(echo.rtt_ms)} of {echo.sent} replies, store: {answer}"
    )
    return 0 if echo.rtt_ms and answer == "OK" else 1


if __name__ == "__main__":
    run_job(__file__, main)
