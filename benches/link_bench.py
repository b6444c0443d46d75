# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches link`: how fast and how exact the emulated link is on this host.

A benchmark: it fails no test.

For each rate a new lab is calibrated, then loaded with UDP at `LOAD` of the planned forward rate.
The same run measures the host without the link, so that figures of different hosts can be compared:
a veth pair, the plain TUN copy (the emulator's terrestrial wire at 0 ms) and the wakes of a
real-time thread.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, cast

from benches import bench_promises
from benches.bench_promises import Promise, at_least, at_most, released
from benches.loaded_lab import (
    LOAD,
    BenchLab,
    Flow,
    counted_loss,
    lateness,
    profile_of,
    scratch_folder,
)
from satlab.campaign.host_bench import ReleaseErrors, TimerBaseline, lab_of, labs_at_once, wakes
from satlab.common import paths
from satlab.common.console import ProgressLog
from satlab.lab.lab import Lab
from satlab.run import calibrate, manifest
from satlab.run.lab_session import QUIET, metrics_of, run_session
from satlab.run.link_probe import ProbeError

RATES_MBPS = (20.0, 250.0, 1100.0)
"""Layer-2 rates of the forward link; the last leaves more than 1 Gbit/s of payload at `LOAD`."""
BASELINE_S = 5.0
LEAN_MBPS, FAST_MBPS = 20.0, 1000.0
CORES = {LEAN_MBPS: 0.10, 250.0: 0.25}
"""Promised CPU of the emulator by rate, cores."""
LATE_US, RTT_ABOVE_MS, MEMORY_MB, LABS = 100.0, 0.5, 100.0, 8
"""Promised release error, RTT above the frame model, memory of an emulator, and labs at once."""


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
class Baseline:
    """The host without the link: the largest rate over a veth pair and over a plain TUN copy
    (`*_most`).

    `tun_copy`: the copy at the rate of each lab, in the order of labs; None if a flow failed,
    `failure` has the reason.
    """

    veth_most: Flow | None
    tun_copy_most: Flow | None
    tun_copy: list[Flow | None]
    wakes: TimerBaseline
    failure: str = ""


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
    yield from bench_promises.lines(result)


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
        host = lab_of(profile_of(rate_mbps, folder), folder)
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


def _baseline(rates_mbps: tuple[float, ...]) -> Baseline:
    late, failures = wakes(), []
    geo = paths.PROFILES / "geo"
    with (
        scratch_folder() as folder,
        lab_of(geo, folder, terrestrial_delay_ms=0).opened(QUIET) as lab,
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
