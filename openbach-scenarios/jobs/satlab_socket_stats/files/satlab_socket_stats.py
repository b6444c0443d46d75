#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: sample the state of this node's TCP connections (`ss -ti`) until the job is stopped.

Each connection has its own suffix `LOCAL-PEER`, and gives congestion window, RTT, retransmissions,
delivery rate and bytes. Exit statuses: 0 stopped, 2 arguments, 3 the host cannot do it.
"""

import argparse
import re
import threading
from collections.abc import Iterator
from ipaddress import IPv4Address

import collect_agent
from jobkit import argument_parser, port, real, run, run_job, stop_event

MAX_CONNECTIONS = 100
"""Of one sample; further ones are left out."""
UNITS = {"bps": 1.0, "Kbps": 1e3, "Mbps": 1e6, "Gbps": 1e9}
Figures = dict[str, float]


def listing(port: int | None, peer: str | None) -> str:
    """Return the output of ss(8) for the established connections of a port and a peer."""
    chosen = [f"( sport = :{port} or dport = :{port} )"] if port else []
    chosen += [f"dst {peer}"] if peer else []
    argv = ["ss", "-tinOH", "state", "established", *([" and ".join(chosen)] if chosen else [])]
    return run(*argv, hint="apt-get install iproute2")


def connections(text: str) -> Iterator[tuple[str, Figures]]:
    """Yield suffix and figures of each connection."""
    for line in text.splitlines()[:MAX_CONNECTIONS]:
        words = line.split()
        if len(words) < 4:
            continue
        values = dict(word.split(":", 1) for word in words[4:] if ":" in word)
        yield f"{words[2]}-{words[3]}", figures(values, words)


def figures(values: dict[str, str], words: list[str]) -> Figures:
    """Return what is known of one connection; what the kernel has not measured yet is left out."""
    found: Figures = {}
    mss = float(values.get("mss", "0") or 0)
    if "cwnd" in values:
        found |= {"cwnd_segments": float(values["cwnd"]), "cwnd_bytes": float(values["cwnd"]) * mss}
    if "rtt" in values:
        mean, _, deviation = values["rtt"].partition("/")
        found |= {"rtt_ms": float(mean), "rtt_var_ms": float(deviation or 0)}
    if "minrtt" in values:
        found["rtt_min_ms"] = float(values["minrtt"])
    found["retransmits"] = float(values.get("retrans", "0/0").partition("/")[2] or 0)
    for name in ("bytes_acked", "bytes_received", "bytes_sent"):
        if name in values:
            found[name] = float(values[name])
    if "delivery_rate" in words[:-1]:
        rate = re.fullmatch(r"([0-9.]+)([KMG]?bps)", words[words.index("delivery_rate") + 1])
        if rate:
            found["delivery_rate_bps"] = float(rate[1]) * UNITS[rate[2]]
    return found


def watch(options: argparse.Namespace, stop: threading.Event) -> int:
    """Sample until `stop`; return the number of samples with a connection."""
    samples = 0
    peer = str(options.peer) if options.peer else None
    while True:
        now, seen = collect_agent.now(), list(connections(listing(options.port, peer)))
        for suffix, values in seen:
            collect_agent.send_stat(now, suffix=suffix, **values)
        collect_agent.send_stat(now, connections=len(seen))
        samples += bool(seen)
        if stop.wait(options.interval):
            return samples


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    options = argument_parser(__doc__)
    options.add_argument(
        "-i", "--interval", type=real(0.1, 3600), default=1.0, help="time between samples, s"
    )
    options.add_argument("-p", "--port", type=port)
    options.add_argument("-a", "--peer", type=IPv4Address)
    return options


def main() -> None:
    """Sample until SIGTERM or SIGINT."""
    options = parser().parse_args()
    print(f"{watch(options, stop_event())} samples with a connection")


if __name__ == "__main__":
    run_job(__file__, main)
