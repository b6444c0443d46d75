#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: drop, accept or mark selected packets of this node until the job is stopped.

`accept --only` also drops the other packets of the measured networks, but none of the control
network. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
from ipaddress import IPv4Network

from jobkit import argument_parser, interface, port, run_job, whole
from packet_rule import Table, selection

HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
WITHOUT_IN, WITHOUT_OUT = ("OUTPUT", "POSTROUTING"), ("PREROUTING", "INPUT")
"""Hooks at which the kernel does not know the incoming or the outgoing interface of a packet."""
MEASURED = IPv4Network("198.18.0.0/16")
"""The measured networks of vagrant/lab.yml, half of the range of RFC 2544."""
PRIORITIES = {"drop": 0, "accept": 0, "mark": -150, "dscp": -150}
"""The priorities of iptables' tables filter and mangle (netfilter_ipv4.h)."""


def table(options: argparse.Namespace) -> Table:
    """Return the table that does what is asked for."""
    verdict = options.action
    if options.action == "mark":
        verdict = f"meta mark set {options.value}"
    elif options.action == "dscp":
        verdict = f"ip dscp set {options.code_point}"
    rules = [" ".join([*selection(options), "counter", verdict])]
    if options.only:
        rules += [f"ip {field} {MEASURED} drop" for field in ("saddr", "daddr")]
    hook = options.hook.lower()
    # A mark of this node's own packets changes their route only in a chain of type route.
    kind = "route" if options.action in ("mark", "dscp") and hook == "output" else "filter"
    chain = f"type {kind} hook {hook} priority {PRIORITIES[options.action]}"
    return Table("satlab_packet_filter", chain, tuple(rules))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument("hook", choices=HOOKS)
    options.add_argument("-s", "--source-ip", type=IPv4Network)
    options.add_argument("-d", "--destination-ip", type=IPv4Network)
    options.add_argument("-i", "--in-interface", type=interface)
    options.add_argument("-o", "--out-interface", type=interface)
    options.add_argument("-p", "--protocol", choices=("tcp", "udp", "icmp"))
    options.add_argument("--sport", dest="source_port", type=port)
    options.add_argument("--dport", dest="destination_port", type=port)
    actions = options.add_subparsers(dest="action", required=True)
    actions.add_parser("drop")
    accept = actions.add_parser("accept")
    accept.add_argument(
        "--only", action="store_true", help="drop all other packets of the measured networks"
    )
    actions.add_parser("mark").add_argument("value", type=whole(1, 0xFFFFFFFF))
    actions.add_parser("dscp").add_argument("code_point", type=whole(0, 63))
    options.set_defaults(only=False)
    return options


def fault(options: argparse.Namespace) -> str:
    """Return why the arguments do not fit together; empty if they do."""
    if options.protocol not in ("tcp", "udp") and (options.source_port or options.destination_port):
        return "a port needs a protocol, tcp or udp"
    if options.in_interface and options.hook in WITHOUT_IN:
        return f"at {options.hook} a packet has no incoming interface"
    if options.out_interface and options.hook in WITHOUT_OUT:
        return f"at {options.hook} a packet has no outgoing interface"
    if options.action == "drop" and not selection(options):
        return "all packets would be dropped: select some by address, interface or protocol"
    return ""


def main() -> None:
    """Filter until SIGTERM or SIGINT."""
    reader = parser()
    options = reader.parse_args()
    if reason := fault(options):
        reader.error(reason)
    table(options).hold_until_stopped("selected")


if __name__ == "__main__":
    run_job(__file__, main)
