#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: mark packets that leave or cross this node with a DiffServ code point, until the
job is stopped.

A mark that a program has set is replaced. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot
do it.
"""

import argparse
from ipaddress import IPv4Network

from jobkit import argument_parser, port, run_job, whole
from packet_rule import Table, selection


def table(options: argparse.Namespace) -> Table:
    """Return the table that marks the selected packets."""
    rule = " ".join([*selection(options), f"counter ip dscp set {options.dscp}"])
    return Table("satlab_set_tos", "type filter hook postrouting priority mangle", (rule,))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("dscp", type=whole(0, 63))
    options.add_argument("-s", "--source", dest="source_ip", type=IPv4Network)
    options.add_argument("-d", "--destination", dest="destination_ip", type=IPv4Network)
    options.add_argument("-p", "--protocol", choices=("tcp", "udp"))
    options.add_argument("--source-port", type=port)
    options.add_argument("--destination-port", type=port)
    return options


def main() -> None:
    """Mark until SIGTERM or SIGINT."""
    reader = parser()
    options = reader.parse_args()
    if not options.protocol and (options.source_port or options.destination_port):
        reader.error("a port needs a protocol")
    table(options).hold_until_stopped("marked")


if __name__ == "__main__":
    run_job(__file__, main)
