#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: mark packets that leave or cross this node with a DiffServ code point, until the
job is stopped.

An nftables rule selects them by addresses, protocol and ports; its counter is reported. Marks of
the program itself are replaced. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_set_tos_rstats_filter.conf")
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
    """Return the table of this instance: several may mark at the same time."""
    return f"satlab_set_tos_{int(os.environ.get('JOB_INSTANCE_ID', '0'))}"


def ruleset(options: argparse.Namespace) -> str:
    """Return the table that marks the selected packets, whatever an earlier one of this name holds."""
    words = []
    for field, value in (("saddr", options.source), ("daddr", options.destination)):
        words += [f"ip {field} {value}"] if value is not None else []
    protocol = options.protocol
    if protocol:
        words.append(f"meta l4proto {protocol}")
        for field, port in (("sport", options.source_port), ("dport", options.destination_port)):
            words += [f"{protocol} {field} {port}"] if port is not None else []
    rule = " ".join([*words, f"counter ip dscp set {options.dscp}"])
    name = table_name()
    chain = "type filter hook postrouting priority mangle; policy accept;"
    return (
        f"table ip {name}\ndelete table ip {name}\ntable ip {name} {{\nchain marking"
        f" {{\n{chain}\n{rule}\n}}\n}}\n"
    )


def counted() -> tuple[int, int]:
    """Return the packets and bytes that were marked."""
    document = json.loads(nft("--json", "list", "table", "ip", table_name()))
    for each in document["nftables"]:
        for expression in each.get("rule", {}).get("expr", ()):
            if "counter" in expression:
                return int(expression["counter"]["packets"]), int(expression["counter"]["bytes"])
    raise JobError("the rule is gone: something else has changed the packet filter")


def hold(options: argparse.Namespace, stop: threading.Event) -> None:
    """Mark until `stop`, and report what was marked."""
    nft("-f", "-", text=ruleset(options))
    try:
        collect_agent.send_stat(collect_agent.now(), ready=1)
        with announce():
            stopped = False
            while not stopped:
                stopped = stop.wait(SAMPLE_S)
                packets, size = counted()
                collect_agent.send_stat(
                    collect_agent.now(), marked_packets=packets, marked_bytes=size
                )
    finally:
        nft("delete", "table", "ip", table_name())


def announce() -> socket.socket:
    """Report to the job satlab_await that this job is ready, until the socket is closed."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):  # another instance on this node has bound it
        door.bind("\0satlab_set_tos")
    return door


def number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of a whole number within bounds."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"must be {least} to {most}")
        return int(text)

    return read


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("dscp", type=number(0, 63))
    options.add_argument("-s", "--source", type=IPv4Network)
    options.add_argument("-d", "--destination", type=IPv4Network)
    options.add_argument("-p", "--protocol", choices=("tcp", "udp"))
    options.add_argument("--source-port", type=number(1, 65535))
    options.add_argument("--destination-port", type=number(1, 65535))
    return options


def main() -> int:
    """Mark until SIGTERM or SIGINT."""
    options = parser().parse_args()
    if not options.protocol and (options.source_port or options.destination_port):
        print("error: a port needs a protocol", file=sys.stderr)
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
