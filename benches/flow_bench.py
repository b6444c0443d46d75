# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches flows`: packets a second of CPU time that `satvirtual flows` simulates, by number
of flows.

Packets are those that enter the link, of both directions. Time is the process's own CPU time, so
that other load on the host counts little. Linear: a packet costs about the same however many flows
there are and however long they run.
"""

import json
import resource
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError

FLOWS = (1, 4, 16, 64)
DURATIONS_S = (60, 180)
CONTROLS = ("cubic", "bbr3")
DEADLINE_S = 300.0


def measure(counts: Sequence[int], log: ProgressLog) -> dict[str, Any]:
    """Simulate so many flows over 20 Mbit/s and 600 ms. Raises HostError."""
    cases = []
    for control in CONTROLS:
        for count in counts:
            for duration_s in DURATIONS_S:
                with log.step(f"{count} flows of {control}, {duration_s} s"):
                    cases.append(_case(count, control, duration_s))
    return {"schema": "satlab/bench-flows/1", "cases": cases}


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the result as text."""
    for case in result["cases"]:
        name = f"{case['flows']:3} {case['congestion_control']}, {case['duration_s']:g} s"
        yield (
            f"{name}: {case['packets_per_cpu_s']:,} packets per CPU second,"
            f" {case['memory_mb']:.0f} MB"
        )


def request(count: int, control: str, duration_s: float) -> dict[str, Any]:
    """Return the flows of a case."""
    half = {"rate_mbps": 20, "delay_ms": 300, "queue": {"bdp": 1}}
    flows = [
        {
            "id": f"flow-{index}",
            "from": "server1",
            "to": "client1",
            "stack": "noq",
            "congestion_control": control,
            "start_s": round(0.05 * index, 2),
            "datagram_bytes": 1252,
        }
        for index in range(count)
    ]
    wire = {"forward": half, "return": half}
    return {
        "schema": "satlab/virtual-flows/1",
        "seed": 1,
        "duration_s": duration_s,
        "wire": wire,
        "flows": flows,
    }


def _case(count: int, control: str, duration_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="satlab-bench-") as name:
        file, out = Path(name) / "flows.json", Path(name) / "outcome.json"
        file.write_text(json.dumps(request(count, control, duration_s)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with out.open("wb") as stdout:
            argv = [str(paths.SATVIRTUAL), "flows", str(file)]
            done = subprocess.run(
                argv, stdout=stdout, stderr=subprocess.PIPE, timeout=DEADLINE_S, check=False
            )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise HostError(
                f"satvirtual ended with status {done.returncode}: {done.stderr.decode()[-300:]}"
            )
        outcome = json.loads(out.read_bytes())
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    packets = sum(
        direction["in_packets"]
        for direction in outcome["link"]
        if direction["name"] in ("forward", "return")
    )
    return {
        "flows": count,
        "congestion_control": control,
        "duration_s": duration_s,
        "packets": packets,
        "cpu_s": round(cpu_s, 3),
        "packets_per_cpu_s": round(packets / cpu_s),
        "memory_mb": round(after.ru_maxrss / 1024, 1),
    }
