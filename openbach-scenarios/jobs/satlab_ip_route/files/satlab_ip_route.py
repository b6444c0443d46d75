#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: set a route of one node until the job is stopped. Then the earlier routes to that
destination are restored.

Exit statuses: 0 stopped, or done with --stay, 2 arguments, 3 the host cannot do it.
"""

import argparse
import re
import threading
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network

from jobkit import argument_parser, interface, ready, run, run_job, stop_event, whole

HINT = "see ip-route(8); the job needs CAP_NET_ADMIN"


def ip(*words: str) -> str:
    """Run ip(8) on routes; return its output."""
    return run("ip", "-o", "-4", "route", *words, hint=HINT)


def routes(destination: str) -> list[list[str]]:
    """Return the routes of the main table to exactly this destination, in words of ip(8)."""
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
        with ready("satlab_ip_route"):
            if not options.stay:
                stop.wait()
    finally:
        if not options.stay:
            restore(destination, before)


def network(text: str) -> IPv4Network | str:
    """Accept a network, or `default`."""
    return text if text == "default" else IPv4Network(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("operation", choices=("add", "replace", "delete"))
    options.add_argument("destination", type=network, help="destination: a network, or default")
    options.add_argument("-g", "--gateway", type=IPv4Address)
    options.add_argument("-i", "--device", type=interface)
    options.add_argument("-w", "--initcwnd", type=whole(1, 10_000))
    options.add_argument("-r", "--initrwnd", type=whole(1, 10_000))
    options.add_argument(
        "-s", "--stay", action="store_true", help="set the route, end at once, and keep it"
    )
    return options


def main() -> None:
    """Hold the route until SIGTERM or SIGINT."""
    reader = parser()
    options = reader.parse_args()
    if options.operation != "delete" and options.gateway is None and options.device is None:
        reader.error("a gateway or a device is needed")
    hold(options, stop_event())


if __name__ == "__main__":
    run_job(__file__, main)
