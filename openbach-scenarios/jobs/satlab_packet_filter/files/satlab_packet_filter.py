#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: drop, accept or mark selected packets of this node until the job is stopped.

One nftables rule in a table of its own, removed with the job. Packets of other networks than the
measured ones are dropped only where they are selected, so that the control network stays reachable.
Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_packet_filter_rstats_filter.conf")
HOOKS = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING")
WITHOUT_IN, WITHOUT_OUT = ("OUTPUT", "POSTROUTING"), ("PREROUTING", "INPUT")
"""Hooks at which a packet has no interface that it came from, or none that it leaves by."""
MEASURED = IPv4Network("198.18.0.0/16")
"""The measured networks of vagrant/lab.yml, half of the range of RFC 2544."""
PRIORITIES = {"drop": 0, "accept": 0, "mark": -150, "dscp": -150}
"""As iptables has them: filter, mangle (netfilter_ipv4.h)."""
SAMPLE_S = 1.0


class JobError(Exception):
    """The host cannot do it: what happened."""


def nft(*words: str, text: str | None = None) -> str:
    """Run nft(8); return its output."""
    try:
        done = subprocess.run(
            ["nft", *words], input=text, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JobError(f"nft: {error}") from error
    if done.returncode:
        raise JobError(f"nft: {done.stderr.strip()}")
    return done.stdout


def table_name() -> str:
    """Return the table of this instance: several may filter at the same time."""
    return f"satlab_packet_filter_{int(os.environ.get('JOB_INSTANCE_ID', '0'))}"


def selection(options: argparse.Namespace) -> list[str]:
    """Return the words that select packets."""
    words = [
        f"{key} {value}"
        for key, value in (
            ("ip saddr", options.source_ip),
            ("ip daddr", options.destination_ip),
            ("iifname", options.in_interface and f'"{options.in_interface}"'),
            ("oifname", options.out_interface and f'"{options.out_interface}"'),
        )
        if value is not None
    ]
    if options.protocol:
        words.append(f"meta l4proto {options.protocol}")
    for field, port in (("sport", options.source_port), ("dport", options.destination_port)):
        words += [f"{options.protocol} {field} {port}"] if port is not None else []
    return words


def verdict(options: argparse.Namespace) -> str:
    """Return what is done with a selected packet."""
    match options.action:
        case "mark":
            return f"meta mark set {options.value}"
        case "dscp":
            return f"ip dscp set {options.code_point}"
    return str(options.action)


def ruleset(options: argparse.Namespace) -> str:
    """Return the table, whatever an earlier one of this name holds."""
    name, hook = table_name(), options.hook.lower()
    rules = [" ".join([*selection(options), "counter", verdict(options)])]
    if options.only:
        rules += [f"ip {field} {MEASURED} drop" for field in ("saddr", "daddr")]
    # A mark of this node's own packets changes their route only in a chain of type route.
    kind = "route" if options.action in ("mark", "dscp") and hook == "output" else "filter"
    chain = f"type {kind} hook {hook} priority {PRIORITIES[options.action]}; policy accept;"
    body = "\n".join([chain, *rules])
    return (
        f"table ip {name}\ndelete table ip {name}\ntable ip {name} {{\nchain selecting"
        f" {{\n{body}\n}}\n}}\n"
    )


def counted() -> tuple[int, int]:
    """Return packets and bytes that were selected so far."""
    document = json.loads(nft("--json", "list", "table", "ip", table_name()))
    for each in document["nftables"]:
        for expression in each.get("rule", {}).get("expr", ()):
            if "counter" in expression:
                return int(expression["counter"]["packets"]), int(expression["counter"]["bytes"])
    raise JobError("the rule is gone: something else has changed the packet filter")


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Filter until `stop`, and report what was selected."""
    nft("-f", "-", text=ruleset(options))
    try:
        collect_agent.send_stat(collect_agent.now(), ready=1)
        with announce():
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                packets, size = counted()
                collect_agent.send_stat(
                    collect_agent.now(), selected_packets=packets, selected_bytes=size
                )
    finally:
        nft("delete", "table", "ip", table_name())


def announce() -> socket.socket:
    """Report to the job satlab_await that this job is ready, until the socket is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_packet_filter")
    return door


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def interface(text: str) -> str:
    """Accept the name of an interface."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", text):
        raise argparse.ArgumentTypeError("is not the name of an interface")
    return text


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("hook", choices=HOOKS)
    options.add_argument("-s", "--source-ip", type=IPv4Network)
    options.add_argument("-d", "--destination-ip", type=IPv4Network)
    options.add_argument("-i", "--in-interface", type=interface)
    options.add_argument("-o", "--out-interface", type=interface)
    options.add_argument("-p", "--protocol", choices=("tcp", "udp", "icmp"))
    options.add_argument("--sport", dest="source_port", type=number(1, 65535))
    options.add_argument("--dport", dest="destination_port", type=number(1, 65535))
    actions = options.add_subparsers(dest="action", required=True)
    actions.add_parser("drop")
    accept = actions.add_parser("accept")
    accept.add_argument(
        "--only", action="store_true", help="drop all others of the measured networks"
    )
    actions.add_parser("mark").add_argument("value", type=number(1, 0xFFFFFFFF))
    actions.add_parser("dscp").add_argument("code_point", type=number(0, 63))
    options.set_defaults(only=False)
    return options


def fault(options: argparse.Namespace) -> str:
    """Return what does not fit together in the arguments; empty if all does."""
    if options.protocol not in ("tcp", "udp") and (options.source_port or options.destination_port):
        return "a port needs a protocol, tcp or udp"
    if options.in_interface and options.hook in WITHOUT_IN:
        return f"at {options.hook} a packet has no interface that it came from"
    if options.out_interface and options.hook in WITHOUT_OUT:
        return f"at {options.hook} a packet has no interface that it leaves by"
    if options.action == "drop" and not selection(options):
        return "all packets would be dropped: select some by address, interface or protocol"
    return ""


def main() -> int:
    """Filter until SIGTERM or SIGINT."""
    options = parser().parse_args()
    if reason := fault(options):
        print(f"error: {reason}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    try:
        hold(options, stop)
    except JobError as error:
        print(f"error: {error}\nhint: the job needs nftables and CAP_NET_ADMIN", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
