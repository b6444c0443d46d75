#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: measure the rate of the packets that pass a hook of this node's packet filter, until
the job is stopped.

Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import time
from ipaddress import IPv4Network

import collect_agent
from jobkit import argument_parser, interface, port, real, run_job, stop_event
from packet_rule import Table, selection


def table(options: argparse.Namespace) -> Table:
    """Return the table that counts the selected packets."""
    rule = " ".join([*selection(options), "counter"])
    return Table(
        "satlab_rate", f"type filter hook {options.chain_name.lower()} priority 0", (rule,)
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("sampling_interval", type=real(0.1, 3600))
    options.add_argument("chain_name", choices=("INPUT", "FORWARD", "OUTPUT"))
    options.add_argument("-s", "--source-ip", type=IPv4Network)
    options.add_argument("-d", "--destination-ip", type=IPv4Network)
    options.add_argument("-i", "--in-interface", type=interface)
    options.add_argument("-o", "--out-interface", type=interface)
    protocols = options.add_subparsers(dest="protocol")
    protocols.add_parser("icmp")
    for name in ("tcp", "udp"):
        ports = protocols.add_parser(name)
        ports.add_argument("--sport", dest="source_port", type=port)
        ports.add_argument("--dport", dest="destination_port", type=port)
    return options


def main() -> None:
    """Send the rate of each interval until SIGTERM or SIGINT."""
    options = parser().parse_args()
    stop, rule = stop_event(), table(options)
    with rule.held():
        before, at = rule.counted(), time.monotonic()
        collect_agent.send_stat(collect_agent.now(), ready=1)
        while not stop.wait(options.sampling_interval):
            now, passed = rule.counted(), time.monotonic() - at
            packets, size = now[0] - before[0], now[1] - before[1]
            collect_agent.send_stat(
                collect_agent.now(), rate=8 * size / passed, packet_rate=packets / passed
            )
            before, at = now, at + passed


if __name__ == "__main__":
    run_job(__file__, main)
