#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: limit the rate of what leaves one measured interface of this node, until the job is
stopped.

A token bucket with a queue of limited bytes (tc-tbf(8)); then the interface is as before. TBF
splits what TCP hands over in large packets; a class of HTB with a queue of bytes would drop these
whole. Delay and losses are those of the link: many kernels have no netem, and the job satlab_link
sets them in the emulator. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import collect_agent

FILTER = Path(__file__).with_name("satlab_shape_rstats_filter.conf")
MEASURED = IPv4Network("198.18.0.0/16")
"""The measured networks of vagrant/lab.yml, half of the range of RFC 2544."""
BURST_S, QUEUE_S = 0.01, 0.1
"""Time that the default burst and the default queue last at the rate, s."""
LEAST_BURST, LEAST_QUEUE = 3200, 15000
"""Bytes: two packets of an Ethernet, ten of them."""
SAMPLE_S = 1.0
_DEFAULT = "0:"
"""Handle of a queueing discipline that nobody has set."""


class JobError(Exception):
    """The host cannot do it: what happened."""


def run(*argv: str) -> str:
    """Run a command; return its output."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"{argv[0]}: {error}") from error
    if done.returncode:
        raise JobError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def check_measured(interface: str, networks: Sequence[IPv4Network]) -> None:
    """Refuse an interface that has no address in a measured network: the control network keeps its
    rate.
    """
    lines = [
        line.split()
        for line in run("ip", "-o", "-4", "address", "show", "dev", interface).splitlines()
    ]
    if not any(IPv4Interface(words[3]).ip in network for words in lines for network in networks):
        names = ", ".join(map(str, networks))
        raise JobError(f"{interface} has no address in {names}: it is not measured")


def disciplines(interface: str) -> list[dict[str, Any]]:
    """Return the queueing disciplines of an interface with their counters."""
    found: list[dict[str, Any]] = json.loads(
        run("tc", "-s", "-j", "qdisc", "show", "dev", interface) or "[]"
    )
    return found


def command(options: argparse.Namespace) -> list[str]:
    """Return the words of tc(8) that limit the rate."""
    burst = options.burst_bytes or max(LEAST_BURST, round(options.rate_bps / 8 * BURST_S))
    limit = options.limit_bytes or max(LEAST_QUEUE, round(options.rate_bps / 8 * QUEUE_S))
    root = ("qdisc", "add", "dev", options.interface, "root", "handle", "1:")
    return [
        *root,
        "tbf",
        "rate",
        f"{options.rate_bps}bit",
        "burst",
        f"{burst}b",
        "limit",
        f"{limit}b",
    ]


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Limit the rate until `stop`, and report what has left."""
    check_measured(options.interface, options.networks or [MEASURED])
    for each in disciplines(options.interface):
        if each.get("root") and each.get("handle", _DEFAULT) != _DEFAULT:
            raise JobError(
                f"{options.interface} has a queueing discipline already: {each['kind']}"
                f" {each['handle']}"
            )
    try:
        run("tc", *command(options))
        collect_agent.send_stat(collect_agent.now(), ready=1)
        with announce():
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                report(disciplines(options.interface))
    finally:
        restore(options.interface)


def report(found: Sequence[dict[str, Any]]) -> None:
    """Send the counters of our discipline."""
    ours = next((each for each in found if each.get("handle") == "1:"), None)
    if ours is None:
        raise JobError("the queueing discipline is gone: something else has changed it")
    counters = {
        "sent_bytes": ours["bytes"],
        "dropped_packets": ours["drops"],
        "backlog_bytes": ours["backlog"],
    }
    collect_agent.send_stat(collect_agent.now(), None, **counters)


def restore(interface: str) -> None:
    """Let the kernel choose the discipline again, if ours is there."""
    if any(each.get("root") and each.get("handle") == "1:" for each in disciplines(interface)):
        run("tc", "qdisc", "del", "dev", interface, "root")


def announce() -> socket.socket:
    """Report to the job satlab_await that this job is ready, until the socket is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_shape")
    return door


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def device(text: str) -> str:
    """Accept the name of an interface."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", text):
        raise argparse.ArgumentTypeError("is not the name of an interface")
    return text


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        epilog="Delay and losses: the job satlab_link, or satlab link set.",
    )
    options.add_argument("interface", type=device)
    options.add_argument("rate_bps", type=number(8_000, 10_000_000_000))
    options.add_argument("-b", "--burst-bytes", type=number(1600, 100_000_000))
    options.add_argument("-l", "--limit-bytes", type=number(1600, 1_000_000_000))
    options.add_argument("-n", "--networks", type=IPv4Network, action="append")
    return options


def main() -> int:
    """Limit the rate until SIGTERM or SIGINT."""
    options = parser().parse_args()
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    try:
        hold(options, stop)
    except JobError as error:
        hint = "the job needs CAP_NET_ADMIN and the kernel's tbf; delay and losses: satlab_link"
        print(f"error: {error}\nhint: {hint}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
