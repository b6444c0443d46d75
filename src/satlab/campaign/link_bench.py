# SPDX-License-Identifier: GPL-3.0-or-later
"""`satlab bench link`: how fast and how exact the emulated link is on this host.

A benchmark: it fails no test.

For each rate a new lab is calibrated, then loaded with UDP at `LOAD` of the planned forward rate.
The same run measures the host without the link, so that figures of different hosts can be compared:
a veth pair, the plain TUN copy (the emulator's terrestrial wire at 0 ms) and the wakes of a
real-time thread.
"""

import contextlib
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from benches import udp_load
from satlab.check.case_link import edit
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.lab.lab import Lab
from satlab.link.config import LinkRequest
from satlab.run import calibrate, link_probe, manifest
from satlab.run.lab_session import QUIET, NetnsHost, metrics_of, new_lab_id, run_session
from satlab.run.link_probe import (
    PROBE_DATAGRAM_BYTES,
    PROBE_PORT,
    NamespaceShell,
    ProbeError,
    ProbePath,
)

RATES_MBPS = (20.0, 250.0, 1100.0)
"""Layer-2 rates of the forward link; the last leaves more than 1 Gbit/s of payload at `LOAD`."""
LOAD = 0.97
"""Offered load as a share of the planned goodput. It is below 1, so that the emulator or the host
causes every loss.
"""
BASELINE_S = 5.0
MODCOD_28 = 4.453
"""bit/s per Hz of MODCOD 28 (EN 302 307-1, table 13)."""
ROLL_OFF = 0.25
LEAN_MBPS, FAST_MBPS = 20.0, 1000.0
CORES = {LEAN_MBPS: 0.10, 250.0: 0.25}
"""Promised CPU of the emulator by rate, cores."""
LATE_US, RTT_ABOVE_MS, MEMORY_MB, LABS = 100.0, 0.5, 100.0, 8
"""Promised release error, RTT above the frame model, memory of an emulator, and labs at once."""
WAKES = 2000
WAKE_PERIOD_S = 0.001
FIFO_PRIORITY = 50


@dataclass(frozen=True)
class ReleaseErrors:
    """Release error of one direction over a lab's life, us; None if no packet crossed."""

    p50_us: float | None
    p99_us: float | None
    max_us: float | None


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
class Rate:
    """One lab. `counted_loss_packets`: satlink's losses and drops under load; all other losses were
    in a TUN's queue or a socket of a busy host.

    `rtt_above_model_ms`: mean of the echoes less the frame model's mean. `rss_mb`: largest resident
    memory. `out_of_calibration`: the checks that did not hold.
    """

    rate_mbps: float
    planned_goodput_bps: float
    load: Flow | None
    counted_loss_packets: int | None
    rtt_ms: float | None
    rtt_above_model_ms: float | None
    late: dict[str, ReleaseErrors]
    rss_mb: float
    out_of_calibration: list[str]
    failure: str = ""


@dataclass(frozen=True)
class TimerBaseline:
    """A thread under SCHED_FIFO that wakes every millisecond: how late, us, and the CPU time of one
    wake, us.
    """

    late: ReleaseErrors
    cpu_us_per_wake: float


@dataclass(frozen=True)
class Baseline:
    """The host without the link: iperf3's largest rate over a veth pair and over a plain TUN copy
    (`*_most`).

    `tun_copy`: the copy at the rate of each lab, in the order of labs; None if a flow failed,
    `failure` has the reason.
    """

    veth_most: Flow | None
    tun_copy_most: Flow | None
    tun_copy: list[Flow | None]
    wakes: TimerBaseline
    failure: str = ""


@dataclass(frozen=True)
class Promise:
    """A figure that the specification promises, and its measured value;

    None: not measured, so not met.

    `spoilt`: the promise is not met, but in the same run a bare real-time thread was also later
    than the target.
    """

    name: str
    target: str
    measured: float | None
    met: bool
    spoilt: bool = False


def at_most(name: str, limit: float, unit: str, measured: float | None) -> Promise:
    """Return a promise that is met by at most its limit."""
    return Promise(
        name, f"<= {limit:g} {unit}", measured, measured is not None and measured <= limit
    )


def at_least(name: str, limit: float, unit: str, measured: float | None) -> Promise:
    """Return a promise that is met by at least its limit."""
    return Promise(
        name, f">= {limit:g} {unit}", measured, measured is not None and measured >= limit
    )


def released(
    name: str, limit_us: float, measured_us: float | None, host_us: float | None
) -> Promise:
    """Return the promise of a release error;

    `host_us` is the lateness of a bare real-time thread in the same run, us.
    """
    made = at_most(f"{name}: release error p99", limit_us, "us", measured_us)
    return replace(
        made, spoilt=measured_us is not None and not made.met and (host_us or 0.0) > limit_us
    )


def promises(result: dict[str, Any]) -> list[Promise]:
    """Compare a result with the promised speed of the link.

    Promises that were not requested are left out.
    """
    made = []
    for rate in result["rates"]:
        flow, name = rate["load"], f"{rate['rate_mbps']:g} Mbit/s"
        if limit := CORES.get(rate["rate_mbps"]):
            made += [
                at_most(f"{name}: emulator", limit, "cores", flow and flow["emulator_cores"]),
                released(
                    name,
                    LATE_US,
                    _loaded_late_us(rate["late"]),
                    result["baseline"]["wakes"]["late"]["p99_us"],
                ),
                at_most(
                    f"{name}: RTT above the frame model",
                    RTT_ABOVE_MS,
                    "ms",
                    rate["rtt_above_model_ms"],
                ),
            ]
        if rate["rate_mbps"] == LEAN_MBPS:
            made.append(at_most(f"{name}: memory of the emulator", MEMORY_MB, "MB", rate["rss_mb"]))
        if rate["rate_mbps"] > FAST_MBPS:
            received = flow and flow["received_bps"] / 1e6
            made.append(at_least(f"{name}: received", FAST_MBPS, "Mbit/s", received))
            made.append(
                at_most(f"{name}: lost by the emulator", 0, "packets", rate["counted_loss_packets"])
            )
    labs = len(result.get("labs", ()))
    if labs >= LABS:  # fewer prove nothing
        green = sum(not bad for bad in result["labs"])
        made.append(
            at_least("labs of 20 Mbit/s at once with green calibration", LABS, "labs", green)
        )
    return made


def _loaded_late_us(late: dict[str, Any]) -> float | None:
    """Worst p99 of the directions under load."""
    p99s = [late[name]["p99_us"] for name in ("forward", "terrestrial_down") if name in late]
    return None if None in p99s else max(p99s, default=None)


def link(
    seconds: float, labs: int, rates_mbps: tuple[float, ...], log: ProgressLog
) -> dict[str, Any]:
    """Measure baseline, each rate for `seconds`, and `labs` labs of 20 Mbit/s at once; return what
    `--json` prints.

    Raises:
        HostError: not root, or labs cannot be brought up.
    """
    result: dict[str, Any] = {
        "schema": "satlab/bench-link/1",
        "host": manifest.host(),
        "versions": manifest.versions(paths.SATLINK),
        "seconds": seconds,
    }
    with log.step("baseline"):
        result["baseline"] = asdict(_baseline(rates_mbps))
    result["rates"] = []
    for rate in rates_mbps:
        with log.step(f"{rate:g} Mbit/s"):
            result["rates"].append(asdict(_rate(rate, seconds)))
    if labs:
        with log.step(f"{labs} labs of 20 Mbit/s"):
            result["labs"] = labs_at_once(labs)
    result["load_1min_end"] = os.getloadavg()[0]
    result["promises"] = [asdict(promise) for promise in promises(result)]
    return result


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield a result for people, ratios to the plain TUN copy included."""
    host, base = result["host"], result["baseline"]
    load = f"load {host['load_1min']:.1f} before, {result['load_1min_end']:.1f} after"
    yield f"host       {host['cores']} x {host['cpu']}, {host['system']}, {load}"
    wakes = base["wakes"]
    yield f"wake       {_late(wakes['late'])}, {wakes['cpu_us_per_wake']:.1f} us CPU each"
    for name, key in (("veth", "veth_most"), ("TUN copy", "tun_copy_most")):
        yield f"{name:10} {_flow(base[key]) if base[key] else base['failure']}"
    for rate, copy in zip(result["rates"], base["tun_copy"], strict=True):
        yield from _rate_lines(rate, copy)
    if "labs" in result:
        green = sum(not bad for bad in result["labs"])
        yield f"labs       {green} of {len(result['labs'])} at 20 Mbit/s with green calibration"
    yield from promise_lines(result)


def promise_lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield the promises of a result as text: kept or not."""
    for promise in result["promises"]:
        measured = "not measured" if promise["measured"] is None else f"{promise['measured']:.4g}"
        kept = "kept" if promise["met"] else "HOST" if promise["spoilt"] else "MISSED"
        yield f"{kept:10} {promise['name']}: {measured} ({promise['target']})"


def _rate_lines(rate: dict[str, Any], copy: dict[str, Any] | None) -> Iterator[str]:
    flow = rate["load"]
    yield f"{rate['rate_mbps']:g} Mbit/s: {_flow(flow) if flow else rate['failure']}"
    if flow and copy and flow["emulator_us_per_packet"] and copy["emulator_us_per_packet"]:
        per_packet = flow["emulator_us_per_packet"] / copy["emulator_us_per_packet"]
        rate_ratio = flow["received_bps"] / copy["received_bps"]
        yield f"  TUN copy {_flow(copy)}"
        yield (
            f"  over the TUN copy: rate {rate_ratio:.2f}, CPU per packet {per_packet:.2f} (the link"
            " has one in it)"
        )
    yield (
        f"  {rate['counted_loss_packets']} packets lost by satlink's own count,"
        f" {rate['rss_mb']:.0f} MB resident"
    )
    if rate["rtt_ms"] is not None:
        yield (
            f"  RTT {rate['rtt_ms']:.2f} ms, {rate['rtt_above_model_ms']:+.2f} ms from the frame"
            " model"
        )
    for name, late in rate["late"].items():
        yield f"  release error {name}: {_late(late)}"
    yield f"  calibration: {', '.join(rate['out_of_calibration']) or 'green'}"


def _late(late: dict[str, Any]) -> str:
    if late["p50_us"] is None:
        return "no packet"
    return f"p50 {late['p50_us']:.0f}, p99 {late['p99_us']:.0f}, max {late['max_us']:.0f} us"


def _flow(flow: dict[str, Any]) -> str:
    per_packet = flow["emulator_us_per_packet"]
    cost = (
        f", satlink {flow['emulator_cores']:.0%} of a core, {per_packet:.2f} us per packet"
        if per_packet
        else ""
    )
    lost = f"{flow['lost_packets']} of {flow['packets']} packets lost"
    return (
        f"{flow['received_bps'] / 1e6:.1f} of {flow['offered_bps'] / 1e6:.1f} Mbit/s, {lost}{cost}"
    )


# --- labs -----------------------------------------------------------------------------------------


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
        status = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(match[1]) * 1024 / 1e6 if match else 0.0

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
        """Send UDP from a node that has one address on the way, as fast as iperf3 goes."""
        cpu_s = self.cpu_s()
        path = ProbePath(receiver, sender, self.lab.topology.nodes[sender].address)
        end = link_probe.udp_flow(NamespaceShell(self.lab), path, 0, seconds)["end"]
        # iperf3 before 3.11 has one total of UDP.
        sent, got = (end.get(name) or end["sum"] for name in ("sum_sent", "sum_received"))
        arrived = got["packets"] - got["lost_packets"]
        return self._flow(
            (got["packets"], sent["seconds"]), (arrived, got["seconds"]), seconds, cpu_s
        )

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


def _host(folder: Path, profile: Path, terrestrial_delay_ms: float | None = None) -> NetnsHost:
    """Return a lab whose metrics are in a file of the folder."""
    name = new_lab_id("bench")
    request = LinkRequest(
        profile, metrics=folder / f"{name}.jsonl", terrestrial_one_way_delay_ms=terrestrial_delay_ms
    )
    return NetnsHost(name, topology.load(paths.LAB_FILE), request)


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


# --- what is measured -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Load:
    """Measurements of a lab under load; fields as in `Rate`."""

    flow: Flow | None
    counted_loss_packets: int | None
    rss_mb: float
    failure: str = ""


def _loaded(lab: Lab, seconds: float) -> _Load:
    bench, metrics = BenchLab.of(lab), metrics_of(lab)
    samples_before = len(metrics.samples())
    try:
        flow = bench.flow("server", "client", lab.plan.forward.udp_goodput_bps * LOAD, seconds)
    except ProbeError as error:
        return _Load(None, None, bench.rss_mb(), str(error))
    metrics.settle()
    return _Load(flow, counted_loss(metrics.samples()[samples_before:]), bench.rss_mb())


def _rate(rate_mbps: float, seconds: float) -> Rate:
    with scratch_folder() as folder:
        host = _host(folder, profile_of(rate_mbps, folder))
        session = run_session(host, lambda lab, _: _loaded(lab, seconds))
        load, plan = cast("_Load", session.outcome), session.lab.plan  # nothing stops it
        rtt_ms = next(check.measured for check in session.before if check.name == "rtt_ms")
        # The release error counts from the start of the lab: its probes load the link, too.
        checks = [*session.before, *host.release_errors(session.lab, 0.0)]
        return Rate(
            rate_mbps=rate_mbps,
            planned_goodput_bps=plan.forward.udp_goodput_bps,
            load=load.flow,
            counted_loss_packets=load.counted_loss_packets,
            rtt_ms=rtt_ms,
            rtt_above_model_ms=None if rtt_ms is None else rtt_ms - plan.rtt_ms.mean,
            late=lateness(metrics_of(session.lab).lines()[-1]),
            rss_mb=load.rss_mb,
            out_of_calibration=calibrate.deviations(checks),
            failure=load.failure,
        )


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


def labs_at_once(count: int) -> list[list[str]]:
    """Calibrate several labs of 20 Mbit/s at the same time; return the failed checks of each."""
    with scratch_folder() as folder, contextlib.ExitStack() as stack:
        hosts = [_host(folder, paths.PROFILES / "geo") for _ in range(count)]
        labs = [stack.enter_context(host.opened(QUIET)) for host in hosts]
        with ThreadPoolExecutor(count) as pool:
            before = list(pool.map(lambda host, lab: host.calibrate(lab), hosts, labs))
        stack.close()
        return [
            calibrate.deviations([*checks, *host.release_errors(lab, 0.0)])
            for host, lab, checks in zip(hosts, labs, before, strict=True)
        ]


def _baseline(rates_mbps: tuple[float, ...]) -> Baseline:
    late, failures = wakes(), []
    geo = paths.PROFILES / "geo"
    with (
        scratch_folder() as folder,
        _host(folder, geo, terrestrial_delay_ms=0).opened(QUIET) as lab,
    ):
        bench = BenchLab.of(lab)

        def attempt(measure: Callable[[], Flow]) -> Flow | None:
            try:
                return measure()
            except ProbeError as error:
                failures.append(str(error))
                return None

        veth = attempt(lambda: bench.most("proxy-gw", "gw", BASELINE_S))
        copy = attempt(lambda: bench.most("server", "proxy-gw", BASELINE_S))
        at = [
            partial(bench.flow, "server", "proxy-gw", rate * 1e6 * LOAD, BASELINE_S)
            for rate in rates_mbps
        ]
        copies = [attempt(measure) for measure in at]
    # The emulator does not carry the packets of a veth pair.
    veth = replace(veth, emulator_us_per_packet=None) if veth else None
    return Baseline(veth, copy, copies, late, "; ".join(failures))


def wakes(
    count: int = WAKES, core: int | None = None, period_s: float = WAKE_PERIOD_S
) -> TimerBaseline:
    """Measure how late this thread wakes up in the real-time class, on any core or bound to one."""
    late: list[float] = []
    before, cores = (os.sched_getscheduler(0), os.sched_getparam(0)), os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores if core is None else {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    try:
        cpu_s, due = time.thread_time(), time.clock_gettime(time.CLOCK_MONOTONIC)
        for _ in range(count):
            due += period_s
            time.sleep(max(0.0, due - time.clock_gettime(time.CLOCK_MONOTONIC)))
            late.append((time.clock_gettime(time.CLOCK_MONOTONIC) - due) * 1e6)
        cpu_s = time.thread_time() - cpu_s
    finally:
        os.sched_setscheduler(0, *before)
        os.sched_setaffinity(0, cores)
    p99 = statistics.quantiles(late, n=100)[98]
    return TimerBaseline(
        ReleaseErrors(statistics.median(late), p99, max(late)), cpu_s / count * 1e6
    )
