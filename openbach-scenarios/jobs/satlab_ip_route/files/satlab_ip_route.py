#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: a route of one node, until the job is stopped; then the routes to that destination
are as before.

Exit statuses: 0 stopped, or done with --stay, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_ip_route_rstats_filter.conf")


class JobError(Exception):
    """The host cannot do it: what happened."""


def ip(*words: str) -> str:
    """Run ip(8) on routes; return its output."""
    argv = ["ip", "-o", "-4", "route", *words]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"ip: {error}") from error
    if done.returncode:
        raise JobError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def routes(destination: str) -> list[list[str]]:
    """Return the routes of the main table to exactly this destination, as the words that make them."""
    lines = ip("show", "exact", destination).splitlines()
    return [re.sub(r" (linkdown|dead)\b", "", line).split() for line in lines if line.strip()]


def requested(options: argparse.Namespace) -> list[str]:
    """Return the words of the requested route."""
    words = [str(options.destination)]
    for name, value in (
        ("via", options.gateway),
        ("dev", options.device),
        ("initcwnd", options.initcwnd),
    ):
        words += [name, str(value)] if value is not None else []
    return words + (["initrwnd", str(options.initrwnd)] if options.initrwnd is not None else [])


def restore(destination: str, before: Sequence[Sequence[str]]) -> None:
    """Make the routes to a destination what they were."""
    for route in routes(destination):
        ip("delete", *route)
    for earlier in before:
        ip("add", *earlier)


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Change the route, and hold the change until `stop`, unless it is to stay."""
    destination = str(options.destination)
    before = routes(destination)
    try:
        ip(
            options.operation,
            *(requested(options) if options.operation != "delete" else [destination]),
        )
        collect_agent.send_stat(collect_agent.now(), ready=1)
        with announce():
            if not options.stay:
                stop.wait()
    finally:
        if not options.stay:
            restore(destination, before)


def announce() -> socket.socket:
    """Report to the job satlab_await that this job is ready, until the socket is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_ip_route")
    return door


def network(text: str) -> IPv4Network | str:
    """Accept a network, or `default`."""
    return text if text == "default" else IPv4Network(text)


def device(text: str) -> str:
    """Accept the name of an interface."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", text):
        raise argparse.ArgumentTypeError("is not the name of an interface")
    return text


def window(text: str) -> int:
    """Accept a window of 1 to 10,000 segments."""
    if not re.fullmatch(r"\d{1,5}", text) or not 0 < int(text) <= 10_000:
        raise argparse.ArgumentTypeError("must be 1 to 10000 segments")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("operation", choices=("add", "replace", "delete"))
    options.add_argument("destination", type=network, help="network, or default")
    options.add_argument("-g", "--gateway", type=IPv4Address)
    options.add_argument("-i", "--device", type=device)
    options.add_argument("-w", "--initcwnd", type=window)
    options.add_argument("-r", "--initrwnd", type=window)
    options.add_argument(
        "-s", "--stay", action="store_true", help="end at once, and leave the route"
    )
    return options


def main() -> int:
    """Hold the route until SIGTERM or SIGINT."""
    options = parser().parse_args()
    if options.operation != "delete" and options.gateway is None and options.device is None:
        print("error: a gateway or a device is needed", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        hold(options, stop)
    except JobError as error:
        print(
            f"error: {error}\nhint: see ip-route(8); the job needs CAP_NET_ADMIN", file=sys.stderr
        )
        return 3
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
