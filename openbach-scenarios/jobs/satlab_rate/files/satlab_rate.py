#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: rate of the packets that pass a hook of this node's packet filter, until the job is
stopped.

An nftables rule counts them; nothing is changed. Exit statuses: 0 stopped, 2 arguments, 3 the host
cannot do it.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from ipaddress import IPv4Network
from pathlib import Path

import collect_agent

FILTER = Path(__file__).with_name("satlab_rate_rstats_filter.conf")


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
    """Return the table of this instance: several may count at the same time."""
    return f"satlab_rate_{int(os.environ.get('JOB_INSTANCE_ID', '0'))}"


def ruleset(options: argparse.Namespace) -> str:
    """Return the table that counts the selected packets, whatever an earlier one of this name
    holds.
    """
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
        for field in ("sport", "dport"):
            port = getattr(options, field, None)
            words += [f"{options.protocol} {field} {port}"] if port is not None else []
    rule, name = " ".join([*words, "counter"]), table_name()
    chain = f"type filter hook {options.chain_name.lower()} priority 0; policy accept;"
    return (
        f"table ip {name}\ndelete table ip {name}\ntable ip {name} {{\nchain counting"
        f" {{\n{chain}\n{rule}\n}}\n}}\n"
    )


def counted() -> tuple[int, int]:
    """Return packets and bytes so far."""
    document = json.loads(nft("--json", "list", "table", "ip", table_name()))
    for each in document["nftables"]:
        for expression in each.get("rule", {}).get("expr", ()):
            if "counter" in expression:
                return int(expression["counter"]["packets"]), int(expression["counter"]["bytes"])
    raise JobError("the rule is gone: something else has changed the packet filter")


def watch(options: argparse.Namespace, stop: threading.Event) -> None:
    """Report the rate of each interval until `stop`."""
    nft("-f", "-", text=ruleset(options))
    try:
        before, at = counted(), time.monotonic()
        collect_agent.send_stat(collect_agent.now(), ready=1)
        while not stop.wait(options.sampling_interval):
            now, passed = counted(), time.monotonic() - at
            packets, size = (new - old for new, old in zip(now, before, strict=True))
            collect_agent.send_stat(
                collect_agent.now(), rate=8 * size / passed, packet_rate=packets / passed
            )
            before, at = now, at + passed
    finally:
        nft("delete", "table", "ip", table_name())


def interval(text: str) -> float:
    """Accept 0.1 s to an hour."""
    if not 0.1 <= float(text) <= 3600:
        raise argparse.ArgumentTypeError("must be 0.1 to 3600 s")
    return float(text)


def interface(text: str) -> str:
    """Accept the name of an interface."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", text):
        raise argparse.ArgumentTypeError("is not the name of an interface")
    return text


def port(text: str) -> int:
    """Accept the number of a port."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError("must be 1 to 65535")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("sampling_interval", type=interval)
    options.add_argument("chain_name", choices=("INPUT", "FORWARD", "OUTPUT"))
    options.add_argument("-s", "--source-ip", type=IPv4Network)
    options.add_argument("-d", "--destination-ip", type=IPv4Network)
    options.add_argument("-i", "--in-interface", type=interface)
    options.add_argument("-o", "--out-interface", type=interface)
    protocols = options.add_subparsers(dest="protocol")
    protocols.add_parser("icmp")
    for name in ("tcp", "udp"):
        ports = protocols.add_parser(name)
        ports.add_argument("--sport", type=port)
        ports.add_argument("--dport", type=port)
    return options


def main() -> int:
    """Count until SIGTERM or SIGINT."""
    options = parser().parse_args()
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stop.set())
    try:
        watch(options, stop)
    except JobError as error:
        print(f"error: {error}\nhint: the job needs nftables and CAP_NET_ADMIN", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    with collect_agent.use_configuration(str(FILTER)):
        sys.exit(main())
