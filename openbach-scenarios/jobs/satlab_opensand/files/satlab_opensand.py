#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: run one OpenSAND 8.2 entity from a profile folder until the job is stopped, and
report when it is ready.
"""

import argparse
import os
import select
import signal
import subprocess
import syslog
import time
from dataclasses import dataclass, field

import collect_agent
from jobkit import argument_parser, real, run_job, start_stoppable, stop_event

END_DEADLINE_S = 5.0
"""OpenSAND ends within a second of SIGTERM; what does not is killed."""
MARKS = {"Blocks initialized": "initialized_s", "Login complete": "logged_on_s"}
"""OpenSAND 8.2 logs no more of its start than these lines; its exit code is 0 even after a bad
option.
"""


@dataclass
class Entity:
    """The start of an entity by its log: times in s since then, and its last error."""

    name: str
    reached: dict[str, float] = field(default_factory=dict)
    error: str = ""

    def take(self, line: str, elapsed_s: float) -> dict[str, float]:
        """Read one line of its log; return what it reached by it."""
        if "][ERROR]" in line or "][CRITICAL]" in line:
            self.error = line.strip()
        found = {
            stat: elapsed_s
            for mark, stat in MARKS.items()
            if mark in line and stat not in self.reached
        }
        self.reached |= found
        return found

    @property
    def ready(self) -> bool:
        """Return whether it carries packets: initialized, and the terminal logged on."""
        return ("logged_on_s" if self.name == "st" else "initialized_s") in self.reached


def argv(options: argparse.Namespace) -> list[str]:
    """Return OpenSAND's command line; a transparent satellite has no profile."""
    files = {"-i": f"infrastructure_{options.entity}.xml", "-t": "topology.xml"}
    if options.entity != "sat":
        files["-p"] = f"profile_{options.entity}.xml"
    return [
        options.program,
        *(part for option, name in files.items() for part in (option, f"{options.folder}/{name}")),
        "-v",
    ]


def follow(process: "subprocess.Popen[bytes]", entity: Entity, ready_s: float) -> str:
    """Read the log to its end; '' when the entity was ready in time, else why not."""
    start = time.monotonic()
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    watched = select.poll()
    watched.register(process.stderr, select.POLLIN | select.POLLHUP)
    rest = b""
    while True:
        left = None if entity.ready else start + ready_s - time.monotonic()
        if left is not None and left <= 0:
            process.terminate()
            return (
                f"not ready after {ready_s:g} s (reached: {', '.join(entity.reached) or 'nothing'})"
            )
        if not watched.poll(None if left is None else left * 1000):
            continue
        data = os.read(process.stderr.fileno(), 65536)
        if not data:
            return "" if entity.ready else "it ended before it was ready"
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            print(text)  # into the job's log
            if found := entity.take(text, time.monotonic() - start):
                collect_agent.send_stat(collect_agent.now(), entity.name, **found)


def _end(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(END_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("entity", choices=("sat", "gw", "st"))
    parser.add_argument(
        "-d", "--folder", default="/etc/opensand", help="folder of the profile's XML files"
    )
    parser.add_argument(
        "-r",
        "--ready",
        type=real(1, 600),
        default=30.0,
        help="time that the entity has to become ready, s",
    )
    parser.add_argument("-b", "--program", default="opensand", help="OpenSAND's program")
    return parser.parse_args()


def main() -> int:
    """Run until stopped; 0 when the entity was ready in time and ran until then."""
    stop, options = stop_event(), _arguments()
    try:
        process = start_stoppable(
            argv(options),
            stop,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        collect_agent.send_log(syslog.LOG_ERR, f"{options.program} cannot be started: {error}")
        return 1
    entity = Entity(options.entity)
    fault = follow(process, entity, options.ready)
    code = _end(process)
    # SIGTERM ends a ready entity with 0, even if an agent signals it before us.
    if not fault and code not in (0, -signal.SIGTERM):
        fault = f"it ended with {code}"
    if fault:
        last = f"; its last error: {entity.error}" if entity.error else ""
        collect_agent.send_log(syslog.LOG_ERR, f"OpenSAND {options.entity}: {fault}{last}")
    return 1 if fault else 0


if __name__ == "__main__":
    run_job(__file__, main)
