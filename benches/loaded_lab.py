# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs under load for benchmarks: UDP through them, and what their emulator takes for it."""

import contextlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from benches import udp_load
from satlab.campaign.host_bench import ReleaseErrors
from satlab.check.case_link import edit
from satlab.common import paths
from satlab.lab.lab import Lab
from satlab.run.link_probe import PROBE_DATAGRAM_BYTES, PROBE_PORT, ProbeError

LOAD = 0.97
"""Offered load as a share of the planned goodput. It is below 1, so that the emulator or the host
causes every loss.
"""
MODCOD_28 = 4.453
"""bit/s per Hz of MODCOD 28 (EN 302 307-1, table 13)."""
ROLL_OFF = 0.25


@dataclass(frozen=True)
class Flow:
    """A UDP flow: bit/s of payload, packets, and the CPU that the emulator took, in cores and us
    per packet.
    """

    offered_bps: float
    received_bps: float
    packets: int
    lost_packets: int
    emulator_cores: float
    emulator_us_per_packet: float | None


@dataclass(frozen=True)
class BenchLab:
    """A lab that is up, with its emulator's process."""

    lab: Lab
    pid: int

    @classmethod
    def of(cls, lab: Lab) -> "BenchLab":
        """Return a lab that is up."""
        return cls(lab, lab.status().satlink_pid or 0)

    def cpu_s(self) -> float:
        """Return the CPU time of the emulator so far, s."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Return the largest resident memory of the emulator, MB."""
        return resident_mb(self.pid)

    def flow(self, sender: str, receiver: str, offered_bps: float, seconds: float) -> Flow:
        """Send UDP from one node to another, in large packets that the host or satlink cut.

        Raises:
            ProbeError: a program failed.
        """
        return self.flows(sender, [receiver], offered_bps, seconds)[0]

    def flows(
        self, sender: str, receivers: Sequence[str], each_bps: float, seconds: float
    ) -> list[Flow]:
        """Send such a flow to each of several nodes at once.

        Each has the CPU time of the whole emulator.

        Raises:
            ProbeError: a program failed.
        """
        cpu_s = self.cpu_s()
        sent, got = udp_counts(self.lab, sender, receivers, PROBE_DATAGRAM_BYTES, each_bps, seconds)
        return [
            self._flow(
                (out["packets"], out["seconds"]), (came["packets"], came["seconds"]), seconds, cpu_s
            )
            for out, came in zip(sent, got, strict=True)
        ]

    def most(self, sender: str, receiver: str, seconds: float) -> Flow:
        """Send UDP from one node to another as fast as one program goes."""
        return self.flow(sender, receiver, 0, seconds)

    def _flow(
        self, sent: tuple[int, float], got: tuple[int, float], seconds: float, cpu_s: float
    ) -> Flow:
        """Make a flow of packets and the s they took at sender and receiver, and the CPU time
        before it.
        """
        cpu_s = self.cpu_s() - cpu_s
        offered, received = (
            packets * PROBE_DATAGRAM_BYTES * 8 / duration if duration else 0.0
            for packets, duration in (sent, got)
        )
        return Flow(
            offered_bps=offered,
            received_bps=received,
            packets=sent[0],
            lost_packets=sent[0] - got[0],
            emulator_cores=cpu_s / seconds,
            emulator_us_per_packet=cpu_s / got[0] * 1e6 if got[0] else None,
        )


def resident_mb(pid: int) -> float:
    """Return the largest resident memory of a process so far, MB; 0 once it has ended."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024 / 1e6 if match else 0.0


def udp_counts(
    lab: Lab, sender: str, receivers: Sequence[str], size: int, each_bps: float, seconds: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Send UDP with `size` bytes of payload from one node to others; return what sender and
    receivers counted of each.

    Raises:
        ProbeError: a program failed.
    """

    def argv(node: str, *words: str) -> list[str]:
        return [*lab.enter_argv(node), sys.executable, udp_load.__file__, *words]

    addresses, port = [lab.topology.nodes[node].address for node in receivers], str(PROBE_PORT)
    with contextlib.ExitStack() as stack:
        outputs = []
        for node, address in zip(receivers, addresses, strict=True):
            command = argv(node, "receive", address, port, str(size))
            receiving = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            )
            outputs.append(cast("IO[str]", receiving.stdout))
        for output in outputs:
            output.readline()
        ends = [f"{address}:{port}" for address in addresses]
        sent = _output(argv(sender, "send", str(size), str(each_bps), str(seconds), *ends))
        got = [json.loads(output.read() or "{}") for output in outputs]
    failed = (
        [node for node, counts in zip(receivers, got, strict=True) if not counts]
        if sent
        else receivers
    )
    if failed:
        raise ProbeError(f"the UDP flow from {sender} to {', '.join(failed)} failed")
    return sent, got


def _output(argv: list[str]) -> list[dict[str, Any]]:
    """Run a program and return its stdout; empty if it failed."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else []


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="satlab-bench-") as name:
        yield Path(name)


def profile_of(rate_mbps: float, folder: Path) -> Path:
    """Write the `geo` profile with another forward rate (MODCOD 28); return gets a tenth, 10 Mbit/s
    at least.
    """
    geo, copy = paths.PROFILES / "geo", folder / f"geo-{rate_mbps:g}"
    shutil.copytree(geo, copy)
    if rate_mbps == 20:  # as it is
        return copy
    scale = max(1.0, rate_mbps / 100)
    forward_khz = rate_mbps * 1000 / MODCOD_28 * (1 + ROLL_OFF)
    edit(
        copy / "topology.xml",
        ("<bandwidth>50000<", f"<bandwidth>{forward_khz:.0f}<"),
        ("<wave_form>1<", "<wave_form>28<"),
        ("<bandwidth>20000<", f"<bandwidth>{20000 * scale:.0f}<"),
    )
    edit(copy / "profile_st.xml", ("<cra>10000<", f"<cra>{10000 * scale:.0f}<"))
    return copy


def counted_loss(samples: list[dict[str, Any]]) -> int:
    """Return the packets that satlink lost or dropped on the way to clients."""
    kinds = itertools.product(("forward", "terrestrial_down"), ("lost_packets", "dropped_packets"))
    return sum(sample[direction][kind] for direction, kind in kinds for sample in samples)


def lateness(end: dict[str, Any]) -> dict[str, ReleaseErrors]:
    """Read the last line of the metrics."""
    names = end.get("late_p50_us", {})
    return {
        name: ReleaseErrors(*(end[f"late_{which}_us"][name] for which in ("p50", "p99", "max")))
        for name in names
    }
