#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: ends when jobs of this node are ready.

OpenBACH's `launched_ids` waits until an agent has started a program, not until it serves. A job of
ours that is ready binds the abstract Unix socket of its name, which the kernel removes with the job
(unix(7)). This job waits for it. Exit statuses: 0 all are ready, 1 one was not in time, 2
arguments.
"""

import argparse
import sys
import syslog
import time
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_await_rstats_filter.conf")
JOBS = (
    *(
        "satlab_capture",
        "satlab_fec",
        "satlab_ftp",
        "satlab_ip_route",
        "satlab_load",
        "satlab_packet_filter",
    ),
    *("satlab_pep", "satlab_satperf", "satlab_set_tos", "satlab_shape", "satlab_stream"),
    *("satlab_tcp_conf", "satlab_vpn", "satlab_web_server"),
)
"""Jobs that bind such a socket."""
POLL_S = 0.05
SOCKETS = Path("/proc/net/unix")


def announced(table: str) -> set[str]:
    """Return the names of abstract sockets in the text of /proc/net/unix, those of this network
    namespace.
    """
    paths = (line.split()[-1] for line in table.splitlines()[1:])
    return {path.removeprefix("@") for path in paths if path.startswith("@")}


def missing(jobs: set[str], deadline_s: float) -> set[str]:
    """Wait for jobs; return those that were not ready in time."""
    deadline = time.monotonic() + deadline_s
    while left := jobs - announced(SOCKETS.read_text(encoding="utf-8", errors="replace")):
        if time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)  # the kernel does not report new sockets
    return set()


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-d", "--deadline-s", type=float, default=30.0, help="how long to wait, s")
    parser.add_argument(
        "jobs", nargs="+", choices=JOBS, help="jobs of this node that must be ready"
    )
    options = parser.parse_args()
    began = time.monotonic()
    left = missing(set(options.jobs), options.deadline_s)
    if left:
        message = f"error: {', '.join(sorted(left))} was not ready after {options.deadline_s:g} s"
        collect_agent.send_log(syslog.LOG_ERR, message)
        return 1
    collect_agent.send_stat(
        collect_agent.now(), waited_ms=round(1000 * (time.monotonic() - began), 1)
    )
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
