#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenBACH job: sample the load of host and interfaces from /proc until the job is stopped."""

import argparse
import syslog
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collect_agent
from jobkit import argument_parser, real, run_job, stop_event

PROC = Path("/proc")

# proc(5), /proc/stat: columns of the line `cpu`; guest time is already part of user time.
_CPU = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
# proc(5), /proc/net/dev: columns after the interface's name.
_RX_BYTES, _RX_PACKETS, _RX_DROPPED, _TX_BYTES, _TX_PACKETS, _TX_DROPPED = 0, 1, 3, 8, 9, 11

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """Counters at one time:

    CPU ticks by kind, context switches, and the columns of each interface.
    """

    monotonic_s: float
    cpu: Mapping[str, int]
    switches: int
    interfaces: Mapping[str, tuple[int, ...]]


def read(proc: Path, now: float) -> Sample:
    """Read the counters. Raises OSError, and ValueError when the format is another."""
    stat = {
        line.split()[0]: line.split()[1:]
        for line in (proc / "stat").read_text().splitlines()
        if line
    }
    lines = (proc / "net" / "dev").read_text().splitlines()[2:]
    interfaces = {line.partition(":")[0].strip(): line.partition(":")[2].split() for line in lines}
    return Sample(
        now,
        dict(zip(_CPU, map(int, stat["cpu"]), strict=False)),
        int(stat["ctxt"][0]),
        {name: tuple(map(int, columns)) for name, columns in interfaces.items() if name != "lo"},
    )


def load(before: Sample, after: Sample) -> Figures:
    """Return the shares of all CPUs' time between two samples, 0 to 1, and context switches per
    second.
    """
    spent = {kind: after.cpu[kind] - before.cpu[kind] for kind in after.cpu}
    total = sum(spent.values())
    if total <= 0:
        return {}
    return {
        "cpu_user_ratio": (spent["user"] + spent["nice"]) / total,
        "cpu_system_ratio": (spent["system"] + spent["irq"]) / total,
        "cpu_softirq_ratio": spent["softirq"] / total,
        "cpu_steal_ratio": spent["steal"] / total,
        "cpu_idle_ratio": (spent["idle"] + spent["iowait"]) / total,
        "context_switches_per_s": (after.switches - before.switches)
        / (after.monotonic_s - before.monotonic_s),
    }


def traffic(before: Sample, after: Sample) -> dict[str, Figures]:
    """Return the rates of each interface that was there at both times; counters that fell were made
    anew.
    """
    seconds = after.monotonic_s - before.monotonic_s
    rates = {}
    for name, columns in after.interfaces.items():
        grown = [
            new - old
            for new, old in zip(columns, before.interfaces.get(name, columns), strict=True)
        ]
        if name in before.interfaces and min(grown) >= 0:
            rates[name] = {
                "rx_bps": grown[_RX_BYTES] * 8 / seconds,
                "tx_bps": grown[_TX_BYTES] * 8 / seconds,
                "rx_packets_per_s": grown[_RX_PACKETS] / seconds,
                "tx_packets_per_s": grown[_TX_PACKETS] / seconds,
                "dropped_packets": float(grown[_RX_DROPPED] + grown[_TX_DROPPED]),
            }
    return rates


def memory(proc: Path) -> Figures:
    """Return available memory in bytes, and the load average over one minute. Raises as `read`."""
    lines = (proc / "meminfo").read_text().splitlines()
    available_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    load_1min = float((proc / "loadavg").read_text().split()[0])
    return {"memory_available_bytes": available_kib * 1024.0, "load_1min": load_1min}


def send(before: Sample, after: Sample) -> bool:
    """Send one interval; return whether all of it was accepted."""
    when = collect_agent.now()
    answers = [collect_agent.send_stat(when, **load(before, after), **memory(PROC))]
    answers += [
        collect_agent.send_stat(when, name, **rates)
        for name, rates in traffic(before, after).items()
    ]
    return all(answer == "OK" for answer in answers)


def _arguments() -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "-i", "--interval", type=real(0.1, 3600), default=1.0, help="time between samples, s"
    )
    return parser.parse_args()


def main() -> int:
    """Run until SIGTERM or SIGINT; 0 when every sample was taken and at least one was."""
    options = _arguments()
    stop = stop_event()
    samples, good = 0, True
    try:
        before = read(PROC, time.monotonic())
        while not stop.wait(max(0.0, before.monotonic_s + options.interval - time.monotonic())):
            after = read(PROC, time.monotonic())
            good = send(before, after) and good
            before, samples = after, samples + 1
    except (OSError, ValueError, KeyError, StopIteration) as error:
        collect_agent.send_log(syslog.LOG_ERR, f"{PROC} cannot be read: {error}")
        return 1
    collect_agent.send_log(syslog.LOG_INFO, f"{samples} samples")
    return 0 if good and samples else 1


if __name__ == "__main__":
    run_job(__file__, main)
