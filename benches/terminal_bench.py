# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches link --terminals N`: N terminals that share a forward link under load, and one
terminal for comparison.

Each client gets UDP at an equal part of `LOAD` of what the plan says the forward link carries; what
is lost is the emulator's or the host's. Without calibration: it loads the link of one terminal
alone.
"""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches import loaded_lab
from benches.bench_promises import Promise, at_least, at_most, released
from benches.loaded_lab import LOAD, BenchLab, Flow
from collect import terminals as shares
from satlab.campaign import host_bench
from satlab.campaign.host_bench import ReleaseErrors
from satlab.common import paths, terminals, topology
from satlab.common.console import ProgressLog
from satlab.lab import lab as labs
from satlab.lab import lab_owners
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest
from satlab.run.lab_session import metrics_of, new_lab_id
from satlab.run.link_probe import ProbeError

RATE_MBPS = 220.0
"""Layer-2 rate of the forward link: at `LOAD` more than 200 Mbit/s of payload."""
HOST_WAKE_PERIOD_S = 0.005
"""Of the bare threads next to the load: they have a higher priority than the emulator, so they wake
seldom.
"""
RECEIVED_MBPS, LATE_US, UP_S, DOWN_S, COUNT = 200.0, 200.0, 6.0, 3.0, 16
"""Promised of COUNT terminals: payload in all, release error p99, and times until the lab is up and
removed.
"""


@dataclass(frozen=True)
class Shared:
    """A lab with so many terminals.

    Rates are of payload, bit/s; `jain`: Jain's index of the clients' rates.

    `counted_loss_packets`: satlink's losses and drops; other losses were in a TUN's queue or a
    socket of a busy host. `host_p99_us`: how late a bare thread of the real-time class woke up at
    the same instants, at the worst core.
    """

    terminals: int
    up_s: float
    down_s: float
    offered_bps: float
    received_bps: float
    least_bps: float
    most_bps: float
    jain: float
    lost_packets: int
    counted_loss_packets: int
    emulator_cores: float
    rss_mb: float
    late: dict[str, ReleaseErrors]
    host_p99_us: float
    failure: str = ""


def measure(count: int, seconds: float, log: ProgressLog) -> dict[str, Any]:
    """Measure one terminal, then `count`, for `seconds` each; return what `--json` prints of them.

    Raises:
        HostError: not root, or a lab cannot be brought up.
    """
    result: dict[str, Any] = {"rate_mbps": RATE_MBPS}
    for name, number in (("one", 1), ("shared", count)):
        with (
            log.step(f"{number} terminals" if number > 1 else "1 terminal"),
            loaded_lab.scratch_folder() as folder,
        ):
            result[name] = asdict(_shared(number, seconds, folder))
    return result


def promises(result: dict[str, Any]) -> list[Promise]:
    """Compare the result with what is promised of `COUNT` terminals; fewer prove nothing."""
    shared = result["shared"]
    if shared["terminals"] < COUNT:
        return []
    name, late = f"{shared['terminals']} terminals", shared["late"].get("forward") or {}
    return [
        at_least(f"{name}: received", RECEIVED_MBPS, "Mbit/s", shared["received_bps"] / 1e6),
        released(name, LATE_US, late.get("p99_us"), shared["host_p99_us"]),
        at_most(f"{name}: lost by the emulator", 0, "packets", shared["counted_loss_packets"]),
        at_most(f"{name}: lab up", UP_S, "s", shared["up_s"]),
        at_most(f"{name}: lab removed", DOWN_S, "s", shared["down_s"]),
    ]


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a result for people."""
    for shared in (result["one"], result["shared"]):
        late = shared["late"].get("forward") or {}
        released = (
            "no packet"
            if late.get("p99_us") is None
            else f"p50 {late['p50_us']:.0f}, p99 {late['p99_us']:.0f} us"
        )
        name = f"{shared['terminals']} terminals" if shared["terminals"] > 1 else "1 terminal"
        yield (
            f"{name}: {shared['received_bps'] / 1e6:.1f} of {shared['offered_bps'] / 1e6:.1f}"
            f" Mbit/s, {shared['lost_packets']} packets lost, {shared['counted_loss_packets']} by"
            f" satlink's own count, satlink {shared['emulator_cores']:.0%} of a core"
        )
        yield (
            f"  release error forward: {released}; a bare thread: p99"
            f" {shared['host_p99_us']:.0f} us"
        )
        yield f"  up in {shared['up_s']:.1f} s, removed in {shared['down_s']:.1f} s"
        if shared["failure"]:
            yield f"  {shared['failure']}"


def _shared(count: int, seconds: float, folder: Path) -> Shared:
    lab_id = new_lab_id("bench")
    here = terminals.with_terminals(topology.load(paths.LAB_FILE), count)
    request = LinkRequest(
        loaded_lab.profile_of(RATE_MBPS, folder), metrics=folder / f"{lab_id}.jsonl"
    )
    with lab_owners.owned(lab_id):
        begun = time.monotonic()
        try:
            lab = Lab.up(lab_id, here, request)
            up_s = time.monotonic() - begun
            bench = BenchLab.of(lab)
            flows, failure, host_p99_us = _load(bench, seconds)
            rss_mb = bench.rss_mb()
            metrics_of(lab).settle()
        finally:
            begun = time.monotonic()
            labs.down(lab_id)
            down_s = time.monotonic() - begun
    rates = [flow.received_bps for flow in flows] or [0.0]
    metrics = metrics_of(lab)
    return Shared(
        terminals=count,
        up_s=up_s,
        down_s=down_s,
        offered_bps=sum(flow.offered_bps for flow in flows),
        received_bps=sum(rates),
        least_bps=min(rates),
        most_bps=max(rates),
        jain=shares.jain(rates),
        lost_packets=sum(flow.lost_packets for flow in flows),
        counted_loss_packets=loaded_lab.counted_loss(metrics.samples()),
        # Each flow sees the CPU time of the whole emulator.
        emulator_cores=max((flow.emulator_cores for flow in flows), default=0.0),
        rss_mb=rss_mb,
        late=loaded_lab.lateness(metrics.lines()[-1]),
        host_p99_us=host_p99_us,
        failure=failure,
    )


def _load(bench: BenchLab, seconds: float) -> tuple[list[Flow], str, float]:
    """Load every client at once with an equal part.

    Return the flows, or why there are none, and how late a bare thread woke up meanwhile, p99, us.
    """
    lab, clients = bench.lab, terminals.clients(bench.lab.topology)
    each_bps = lab.plan.forward.udp_goodput_bps * LOAD / len(clients)
    cores, count = os.sched_getaffinity(0), round(seconds / HOST_WAKE_PERIOD_S)
    with ThreadPoolExecutor(len(cores)) as pool:
        hosts = [pool.submit(host_bench.wakes, count, core, HOST_WAKE_PERIOD_S) for core in cores]
        flows, failure = list[Flow](), ""
        try:
            flows = bench.flows("server", clients, each_bps, seconds)
        except ProbeError as error:
            failure = str(error)
        host_p99_us = max(one.result().late.p99_us or 0.0 for one in hosts)
    return flows, failure, host_p99_us
