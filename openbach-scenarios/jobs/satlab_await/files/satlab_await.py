#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: wait until other jobs of this node are ready.

OpenBACH's `launched_ids` waits until an agent has started a program, not until the program serves.
A job of satlab that is ready binds the abstract Unix socket of its name (`announce` in jobkit.py).
Exit statuses: 0 all are ready, 1 a job was not ready in time, 2 arguments.
"""

import syslog
import time
from pathlib import Path

import collect_agent
from jobkit import argument_parser, run_job

JOBS = (
    "satlab_capture",
    "satlab_fec",
    "satlab_ftp",
    "satlab_ip_route",
    "satlab_load",
    "satlab_packet_filter",
    "satlab_pep",
    "satlab_rrul",
    "satlab_satperf",
    "satlab_set_tos",
    "satlab_shape",
    "satlab_stream",
    "satlab_tcp_conf",
    "satlab_vpn",
    "satlab_web_server",
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
    parser = argument_parser(__doc__)
    parser.add_argument("-d", "--deadline-s", type=float, default=30.0, help="longest wait, s")
    parser.add_argument("jobs", nargs="+", choices=JOBS, help="jobs of this node to wait for")
    options = parser.parse_args()
    began = time.monotonic()
    if left := missing(set(options.jobs), options.deadline_s):
        message = f"error: {', '.join(sorted(left))} was not ready after {options.deadline_s:g} s"
        collect_agent.send_log(syslog.LOG_ERR, message)
        return 1
    waited_ms = round(1000 * (time.monotonic() - began), 1)
    collect_agent.send_stat(collect_agent.now(), waited_ms=waited_ms)
    return 0


if __name__ == "__main__":
    run_job(__file__, main)
