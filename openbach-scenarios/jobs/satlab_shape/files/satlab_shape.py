#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: limit the rate at which packets leave one measured interface of this node, until the
job is stopped.

The job sets a token bucket with a queue limited in bytes (tc-tbf(8)), and restores the interface at
the end. TBF splits the large packets that TCP hands over; an HTB class with a queue in bytes would
drop them whole. The job sets no delay and no losses, because many kernels have no netem:
satlab_link sets them in the emulator. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import json
import threading
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv4Network
from typing import Any

import collect_agent
from jobkit import JobError, argument_parser, interface, ready, run, run_job, stop_event, whole

MEASURED = IPv4Network("198.18.0.0/16")
"""The measured networks of vagrant/lab.yml, half of the range of RFC 2544."""
BURST_S, QUEUE_S = 0.01, 0.1
"""Time that the default burst and the default queue last at the rate, s."""
LEAST_BURST, LEAST_QUEUE = 3200, 15000
"""Bytes: two packets of an Ethernet, ten of them."""
SAMPLE_S = 1.0
HINT = "the job needs CAP_NET_ADMIN and the kernel's tbf; delay and losses: satlab_link"
_DEFAULT = "0:"
"""Handle of a queueing discipline that nobody has set."""


def check_measured(interface: str, networks: Sequence[IPv4Network]) -> None:
    """Refuse an interface that has no address in a measured network: the control network keeps its
    rate.
    """
    lines = [
        line.split()
        for line in run(
            "ip", "-o", "-4", "address", "show", "dev", interface, hint=HINT
        ).splitlines()
    ]
    if not any(IPv4Interface(words[3]).ip in network for words in lines for network in networks):
        names = ", ".join(map(str, networks))
        raise JobError(f"{interface} has no address in {names}: it is not measured", HINT)


def disciplines(interface: str) -> list[dict[str, Any]]:
    """Return the queueing disciplines of an interface with their counters."""
    found: list[dict[str, Any]] = json.loads(
        run("tc", "-s", "-j", "qdisc", "show", "dev", interface, hint=HINT) or "[]"
    )
    return found


def command(options: argparse.Namespace) -> list[str]:
    """Return the words of tc(8) that limit the rate."""
    burst = options.burst_bytes or max(LEAST_BURST, round(options.rate_bps / 8 * BURST_S))
    limit = options.limit_bytes or max(LEAST_QUEUE, round(options.rate_bps / 8 * QUEUE_S))
    root = ("qdisc", "add", "dev", options.interface, "root", "handle", "1:")
    sizes = ("burst", f"{burst}b", "limit", f"{limit}b")
    return [*root, "tbf", "rate", f"{options.rate_bps}bit", *sizes]


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Limit the rate until `stop`, and report what has left."""
    check_measured(options.interface, options.networks or [MEASURED])
    for each in disciplines(options.interface):
        if each.get("root") and each.get("handle", _DEFAULT) != _DEFAULT:
            raise JobError(
                f"{options.interface} has a queueing discipline already: {each['kind']}"
                f" {each['handle']}",
                HINT,
            )
    try:
        run("tc", *command(options), hint=HINT)
        with ready("satlab_shape"):
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
        raise JobError("the queueing discipline is gone: something else has changed it", HINT)
    counters = {
        "sent_bytes": ours["bytes"],
        "dropped_packets": ours["drops"],
        "backlog_bytes": ours["backlog"],
    }
    collect_agent.send_stat(collect_agent.now(), **counters)


def restore(interface: str) -> None:
    """Let the kernel choose the discipline again, if ours is there."""
    if any(each.get("root") and each.get("handle") == "1:" for each in disciplines(interface)):
        run("tc", "qdisc", "del", "dev", interface, "root", hint=HINT)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(
        __doc__, epilog="Delay and losses: the job satlab_link, or satlab link set."
    )
    options.add_argument("interface", type=interface)
    options.add_argument("rate_bps", type=whole(8_000, 10_000_000_000))
    options.add_argument("-b", "--burst-bytes", type=whole(1600, 100_000_000))
    options.add_argument("-l", "--limit-bytes", type=whole(1600, 1_000_000_000))
    options.add_argument("-n", "--networks", type=IPv4Network, action="append")
    return options


def main() -> None:
    """Limit the rate until SIGTERM or SIGINT."""
    options = parser().parse_args()
    hold(options, stop_event())


if __name__ == "__main__":
    run_job(__file__, main)
