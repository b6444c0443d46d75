# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches tunnel`: what satfec costs and carries between two nodes on one wire, without a
satellite.

A benchmark: a rate that is not held is a figure, and fails no test.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benches import bench_promises, loaded_lab, quic_bench
from benches.bench_promises import Promise, at_most
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.flows.tunnel import Tunnel
from satlab.lab.lab import Lab
from satlab.run import manifest
from satlab.run.link_probe import ProbeError

NODES = {"server": "gw", "client": "proxy-gw"}
"""The ends, which a veth pair joins. The server sends."""
DATAGRAM_BYTES, PACKET_BYTES = 1372, 1400
"""Payload and whole IP packet: the tunnel's MTU."""
HOLD_MS = 200
PINGS = 400
DELAY_MS, CORES = 0.3, 0.15
"""Promised of a tunnel without a code, and of both ends with S(2,100) at 12 Mbit/s."""


@dataclass(frozen=True)
class Case:
    """A rate of IP packets, Mbit/s, and satfec's --code; None: no tunnel."""

    code: str | None
    rate_mbps: float

    @property
    def name(self) -> str:
        """Name it for people."""
        return (
            f"{'no tunnel' if self.code is None else f'tunnel, code {self.code}'},"
            f" {self.rate_mbps:g} Mbit/s"
        )


CASES = (Case(None, 12), Case("none", 12), Case("2,100", 12), Case("10,100", 250))


@dataclass(frozen=True)
class Carried:
    """The result of a case. `cores`: CPU time of each end over that of the flow; None without a
    tunnel.
    """

    name: str
    code: str | None
    rate_mbps: float
    packets: int
    lost_packets: int
    rtt_ms: float
    sender_cores: float | None
    receiver_cores: float | None


def tunnel(seconds: float, log: ProgressLog) -> dict[str, Any]:
    """Measure every case for so long; return what `--json` prints.

    Raises:
        HostError: not root, satfec is not built, a lab cannot be brought up, or a program fails.
    """
    if not paths.SATFEC.exists():
        raise HostError(f"{paths.SATFEC} is missing", "build it: ./satlab --install fec")
    begun, cases = manifest.host(), []
    for case in CASES:
        # A lab for each: routes into a tunnel end with their lab.
        with (
            log.step(case.name),
            loaded_lab.scratch_folder() as folder,
            quic_bench.large(folder, 0.0) as lab,
        ):
            try:
                cases.append(_measured(lab, case, seconds, folder))
            except ProbeError as error:
                raise HostError(f"{case.name}: {error}") from error
    return {
        "schema": "satlab/bench-tunnel/1",
        "host": begun,
        "versions": manifest.versions(paths.SATLINK),
        "seconds": seconds,
        "cases": [asdict(case) for case in cases],
        "promises": [asdict(promise) for promise in promises(cases)],
        "load_1min_end": os.getloadavg()[0],
    }


def promises(cases: list[Carried]) -> list[Promise]:
    """Compare the cases with what is promised of them."""
    plain, without, two, fast = cases
    cores = None if two.sender_cores is None else two.sender_cores + (two.receiver_cores or 0.0)
    return [
        at_most("delay added without a code", DELAY_MS, "ms", without.rtt_ms - plain.rtt_ms),
        at_most("S(2,100) at 12 Mbit/s: both ends", CORES, "cores", cores),
        at_most("S(10,100) at 250 Mbit/s: lost", 0, "packets", fast.lost_packets),
    ]


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a result for people."""
    for case in result["cases"]:
        ends = (case["sender_cores"], case["receiver_cores"])
        cpu = "" if None in ends else ", CPU {:.1%} and {:.1%} of a core".format(*ends)
        lost = f"{case['lost_packets']} of {case['packets']} packets lost"
        yield f"{case['name']}: {lost}, RTT {case['rtt_ms']:.3f} ms{cpu}"
    yield from bench_promises.lines(result)


def _measured(lab: Lab, case: Case, seconds: float, folder: Path) -> Carried:
    addresses = {side: lab.topology.nodes[node].address for side, node in NODES.items()}
    options = {"code": case.code, "hold_ms": HOLD_MS}
    ends = None if case.code is None else Tunnel(lab, options, addresses, NODES, folder)
    with ends.up() if ends else nullcontext():
        rtt_ms = _rtt_ms(lab, addresses["client"])
        bps = case.rate_mbps * 1e6 * DATAGRAM_BYTES / PACKET_BYTES
        counts = loaded_lab.udp_counts(
            lab, NODES["server"], [NODES["client"]], DATAGRAM_BYTES, bps, seconds
        )
        (sent,), (got,) = counts
    cores = {
        side: None if ends is None else _cpu_s(folder / f"tunnel-{side}.log") / seconds
        for side in NODES
    }
    return Carried(
        name=case.name,
        code=case.code,
        rate_mbps=case.rate_mbps,
        packets=sent["packets"],
        lost_packets=sent["packets"] - got["packets"],
        rtt_ms=rtt_ms,
        sender_cores=cores["server"],
        receiver_cores=cores["client"],
    )


def _rtt_ms(lab: Lab, address: str) -> float:
    argv = [*lab.enter_argv(NODES["server"]), "ping", "-q", "-c", str(PINGS), "-i", "0.01", address]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not (times := re.search(r"min/avg/max/\w+ = [\d.]+/([\d.]+)/", done.stdout)):
        raise ProbeError("no echo came back")
    return float(times[1])


def _cpu_s(log: Path) -> float:
    """Return the CPU time in the summary of an end, s."""
    return float(json.loads(log.read_text().splitlines()[-1])["cpu_s"])
