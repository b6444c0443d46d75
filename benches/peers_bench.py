# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m benches peers`: satlab beside other programs that do the same, in one call.

Simulated flows: `satvirtual flows` (CUBIC of quinn, with its TLS) over a wire and two satellite
links, and ns-3 (CUBIC of its TCP) over the same wire. All have the rates, delay and queue of the
profile geo. The emulator: satlink beside a plain copy between TUN devices.

The programs run in turn, and a figure is the median of the rounds. Time is a process's own CPU
time, so that other load on the host counts little.
"""

import datetime
import hashlib
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benches import bench_promises, link_bench
from benches.bench_promises import Promise, at_least, at_most
from benches.loaded_lab import resident_mb
from satlab.common import paths, topology
from satlab.common.console import ProgressLog
from satlab.common.errors import HostError
from satlab.link.config import Direction, LinkRequest, Loss, build_config
from satlab.link.plan import LinkPlan, plan_link
from satlab.run import manifest

FLOWS = (1, 4, 16, 64)
LINKS = ("wire", "geo", "geo-dama")
LOSSES = (0.0, 0.01)
ROUNDS = 5
RATES_MBPS = (250.0, 1100.0)
"""Layer-2 rates of the emulator."""
SECONDS = 30.0
DATAGRAM_BYTES = 1252
FASTER, OF_WIRE, MEMORY_MB = 2.0, round(1 / 1.2, 2), 350.0
"""Promised: speed over ns-3's, a satellite link's over the wire's, and memory of 64 flows."""
SOURCE = Path(__file__).with_name("dumbbell.cc")
NS3 = ("core", "network", "internet", "point-to-point", "applications", "traffic-control")
DEADLINE_S = 300.0
AREA = "Beside other programs"
WHAT = {
    "flows": "Simulated CUBIC flows: `satvirtual flows` and ns-3",
    "link": "The emulator: satlink and a plain copy between TUN devices",
}


class Case(NamedTuple):
    """Flows over a link, with this share of forward packets lost."""

    flows: int
    link: str
    loss: float

    @property
    def seconds(self) -> float:
        """Return the simulated time: few flows send little where packets are lost."""
        return SECONDS * (max(FLOWS) / self.flows if self.loss else 1)


@dataclass(frozen=True)
class Cost:
    """Packets that entered the link, CPU time, and largest memory of a process."""

    packets: int
    cpu_s: float
    memory_mb: float


def simulated(
    counts: Sequence[int], links: Sequence[str], rounds: int, log: ProgressLog
) -> dict[str, Any]:
    """Measure simulated flows. Raises HostError: a program is missing, or fails."""
    cases = [Case(*each) for each in _product(counts, links)]
    with tempfile.TemporaryDirectory(prefix="satlab-bench-") as name:
        folder = Path(name)
        dumbbell, plan = compiled(folder), _plan("geo", folder)
        found: dict[tuple[Case, str], list[Cost]] = {}
        outcomes: dict[Case, set[str]] = {}
        for turn in range(rounds):
            with log.step(f"round {turn + 1} of {rounds}"):
                for case in cases:
                    cost, text = _ours(case, plan, folder)
                    found.setdefault((case, "satvirtual"), []).append(cost)
                    outcomes.setdefault(case, set()).add(hashlib.sha256(text).hexdigest())
                    if case.link == "wire":
                        found.setdefault((case, "ns-3"), []).append(_ns3(case, plan, dumbbell))
    figures = [_figures(case, found, len(outcomes[case])) for case in cases]
    return {
        "schema": "satlab/bench-peers/1",
        "rounds": rounds,
        "seconds": SECONDS,
        "cases": figures,
        "promises": [asdict(promise) for promise in promises(figures)],
    }


def _product(counts: Sequence[int], links: Sequence[str]) -> Iterator[tuple[int, str, float]]:
    return ((count, link, loss) for loss in LOSSES for link in links for count in counts)


def _figures(
    case: Case, found: Mapping[tuple[Case, str], Sequence[Cost]], outcomes: int
) -> dict[str, Any]:
    """Return medians; `speed`: packets a CPU second. `outcomes`: how many different ones."""
    made: dict[str, Any] = case._asdict() | {"simulated_s": case.seconds, "outcomes": outcomes}
    for program in ("satvirtual", "ns-3"):
        costs = found.get((case, program))
        made[program] = costs and {
            "packets": costs[0].packets,
            "speed": round(median(cost.packets / cost.cpu_s for cost in costs)),
            "memory_mb": round(median(cost.memory_mb for cost in costs), 1),
        }
    if made["ns-3"]:
        pairs = zip(found[case, "satvirtual"], found[case, "ns-3"], strict=True)
        ratios = [a.packets / a.cpu_s / (b.packets / b.cpu_s) for a, b in pairs]
        made["over_ns3"] = round(median(ratios), 2)
    wire = found.get((case._replace(link="wire"), "satvirtual"))
    if wire and case.link != "wire":
        pairs = zip(found[case, "satvirtual"], wire, strict=True)
        ratios = [a.packets / a.cpu_s / (b.packets / b.cpu_s) for a, b in pairs]
        made["over_wire"] = round(median(ratios), 2)
    return made


def promises(cases: Sequence[Mapping[str, Any]]) -> Iterator[Promise]:
    """Compare the figures of cases with what is promised."""
    for case in cases:
        name = named(case)
        if "over_ns3" in case:
            yield at_least(f"{name}: speed over ns-3's", FASTER, "", case["over_ns3"])
        if "over_wire" in case:
            yield at_least(f"{name}: speed over the wire's", OF_WIRE, "", case["over_wire"])
        if case["flows"] == max(FLOWS):
            memory_mb = case["satvirtual"]["memory_mb"]
            yield at_most(f"{name}: memory", MEMORY_MB, "MB", memory_mb)
        yield at_most(f"{name}: different outcomes", 1, "", case["outcomes"])


def named(case: Mapping[str, Any]) -> str:
    """Name a case for people."""
    flows = f"{case['flows']} flow{'s' * (case['flows'] > 1)}"
    return f"{case['link']}, {flows}, {case['loss']:.0%} lost"


def compiled(folder: Path) -> Path:
    """Compile the simulation in ns-3. Raises HostError: compiler or libraries are missing."""
    names = [f"ns3-{name}" for name in NS3]
    try:
        asked = ["pkg-config", "--libs-only-l", *names]
        libraries = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        argv = ["g++", "-O2", "-std=c++17", str(SOURCE), "-o", str(folder / "dumbbell")]
        argv += shlex.split(libraries)
        subprocess.run(argv, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise HostError(f"{error.filename} is missing", "apt install g++ pkgconf") from error
    except subprocess.CalledProcessError as error:
        why = error.stderr.strip()[-300:]
        raise HostError(f"ns-3 cannot be used: {why}", "apt install libns3-dev") from error
    return folder / "dumbbell"


def _plan(profile: str, folder: Path, loss: float = 0.0) -> LinkPlan:
    """Return the plan of a profile, and leave its link.json in the folder."""
    forward = Direction(loss=Loss(ratio=loss, unit="packet"))
    request = LinkRequest(paths.PROFILES / profile, forward=forward)
    here = topology.load(paths.LAB_FILE)
    config = build_config(here, "bench", request, metrics=folder / "link.jsonl")
    (folder / f"{profile}-{loss}.json").write_text(config.to_json())
    return plan_link(config)


def wire(plan: LinkPlan) -> dict[str, Any]:
    """Return a wire with a plan's rates of full-size IP packets, delay and queues."""
    ways = {"forward": plan.forward, "return": plan.return_}
    return {
        name: {
            "rate_mbps": way.udp_goodput_bps * 1500 / 1472 / 1e6,
            "delay_ms": plan.rtt_ms.configured / 2,
            "queue": {"bytes": way.queue_bytes},
        }
        for name, way in ways.items()
    }


def _ours(case: Case, plan: LinkPlan, folder: Path) -> tuple[Cost, bytes]:
    if case.link == "wire":
        carrier: dict[str, Any] = {"wire": wire(plan)}
        if case.loss:
            carrier["wire"]["forward"]["loss"] = {"ratio": case.loss, "unit": "packet"}
    else:
        _plan(case.link, folder, case.loss)
        carrier = {"link": f"{case.link}-{case.loss}.json"}
    flow = {"from": "server1", "to": "client1", "stack": "quinn", "congestion_control": "cubic"}
    flows = [
        flow | {"id": str(n), "start_s": round(0.05 * n, 2), "datagram_bytes": DATAGRAM_BYTES}
        for n in range(case.flows)
    ]
    request = {"schema": "satlab/virtual-flows/1", "seed": 1, "duration_s": case.seconds}
    file = folder / "flows.json"
    file.write_text(json.dumps(request | carrier | {"flows": flows}))
    text, cpu_s, memory_mb = _run([str(paths.SATVIRTUAL), "flows", str(file)], folder)
    link = json.loads(text)["link"]
    ways = [way for way in link if way["name"] in ("forward", "return")]
    return Cost(sum(way["in_packets"] for way in ways), cpu_s, memory_mb), text


def _ns3(case: Case, plan: LinkPlan, dumbbell: Path) -> Cost:
    halves = wire(plan)
    options = {
        "flows": case.flows,
        "seconds": case.seconds,
        "rate": halves["forward"]["rate_mbps"] * 1e6,
        "back": halves["return"]["rate_mbps"] * 1e6,
        "delay": halves["forward"]["delay_ms"] / 1e3,
        "queue": halves["forward"]["queue"]["bytes"],
        "loss": case.loss,
    }
    argv = [str(dumbbell), *(f"--{name}={value}" for name, value in options.items())]
    text, cpu_s, memory_mb = _run(argv, dumbbell.parent)
    return Cost(int(text), cpu_s, memory_mb)


def _run(argv: Sequence[str], folder: Path) -> tuple[bytes, float, float]:
    """Return a program's output, its CPU time, s, and its largest memory, MB.

    Memory is looked at every 10 ms: the kernel's own figure has the parent's in it (getrusage(2)).
    """
    out, log = folder / "stdout", folder / "stderr"
    with out.open("wb") as stdout, log.open("wb") as stderr:
        process = subprocess.Popen(argv, stdout=stdout, stderr=stderr)
    until, memory_mb = time.monotonic() + DEADLINE_S, 0.0
    while True:
        memory_mb = max(memory_mb, resident_mb(process.pid))
        ended, status, usage = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > until:
            process.kill()
        time.sleep(0.01)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        why = log.read_text(errors="replace")[-300:]
        raise HostError(f"{argv[0]} ended with status {process.returncode}: {why}")
    return out.read_bytes(), usage.ru_utime + usage.ru_stime, memory_mb


def emulated(seconds: float, rounds: int, log: ProgressLog) -> dict[str, Any]:
    """Measure satlink beside the TUN copy. Raises HostError: labs cannot be brought up."""
    found = []
    for turn in range(rounds):
        log.line(f"round {turn + 1} of {rounds}")
        found.append(link_bench.link(seconds, 0, RATES_MBPS, log))
    rates = []
    for place, rate_mbps in enumerate(RATES_MBPS):
        links = [one["rates"][place] for one in found]
        pairs = [
            (link["load"]["emulator_us_per_packet"], copy["emulator_us_per_packet"])
            for link, one in zip(links, found, strict=True)
            if link["load"] and (copy := one["baseline"]["tun_copy"][place])
        ]
        if not pairs:
            raise HostError(f"{rate_mbps:g} Mbit/s: no flow of {rounds} arrived")
        rates.append(
            {
                "rate_mbps": rate_mbps,
                "rounds": len(pairs),
                "us_per_packet": round(median(link for link, _ in pairs), 2),
                "copy_us_per_packet": round(median(copy for _, copy in pairs), 2),
                "over_copy": round(median(link / copy for link, copy in pairs), 2),
                "memory_mb": round(median(link["rss_mb"] for link in links), 1),
                "late_p99_us": round(median(_late_us(link) for link in links)),
            }
        )
    return {"schema": "satlab/bench-peers-link/1", "rounds": rounds, "rates": rates}


def _late_us(link: Mapping[str, Any]) -> float:
    """Return the worst p99 of the directions under load."""
    ways = [link["late"][name]["p99_us"] for name in ("forward", "terrestrial_down")]
    return max(p99 or 0.0 for p99 in ways)


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield the figures of simulated flows, or of the emulator, as text."""
    for case in result.get("cases", ()):
        ours, theirs = case["satvirtual"], case["ns-3"]
        line = (
            f"{named(case):28} {ours['speed']:>8,} packets per CPU second, {ours['memory_mb']} MB"
        )
        if theirs:
            line += f"; ns-3 {theirs['speed']:,}, {theirs['memory_mb']} MB: {case['over_ns3']} x"
        if "over_wire" in case:
            line += f"; {case['over_wire']} x the wire's"
        yield line
    for rate in result.get("rates", ()):
        yield (
            f"{rate['rate_mbps']:g} Mbit/s: satlink {rate['us_per_packet']} us of CPU per packet,"
            f" TUN copy {rate['copy_us_per_packet']}: {rate['over_copy']} x;"
            f" {rate['memory_mb']} MB, late p99 {rate['late_p99_us']} us"
        )
    yield from bench_promises.lines({"promises": (), **result})


def write(result: Mapping[str, Any], file: Path) -> None:
    """Put a result in place of the earlier one of the same name in a file of docs/results/."""
    part = "flows" if "cases" in result else "link"
    entry = {
        "what": WHAT[part],
        "command": f"python -m benches peers {part}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "host": _host(),
        "note": f"CPU time; medians of {result['rounds']}, of ratios round by round.",
        "figures": [figure for row in result.get("cases", ()) for figure in _flow_row(row)]
        + [figure for row in result.get("rates", ()) for figure in _link_row(row)],
    }
    earlier = json.loads(file.read_text())["results"] if file.exists() else []
    others = [one for one in earlier if one["what"] != entry["what"]]
    area = {"area": AREA, "results": sorted([*others, entry], key=lambda one: str(one["what"]))}
    file.write_text(json.dumps(area, indent=1) + "\n")


def _host() -> str:
    host = manifest.host()
    return f"{host['cores']} cores ({host['cpu']}), {host['system']}, Linux {host['kernel']}"


def _flow_row(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    theirs = case["ns-3"] or {}
    cells = (
        ("speed", case["satvirtual"]["speed"], "packets per CPU second"),
        ("memory", case["satvirtual"]["memory_mb"], "MB"),
        ("speed of ns-3", theirs.get("speed"), "packets per CPU second"),
        ("memory of ns-3", theirs.get("memory_mb"), "MB"),
        ("over ns-3", case.get("over_ns3"), "x"),
        ("over the wire", case.get("over_wire"), "x"),
    )
    for of, value, unit in cells:
        if value is not None:
            yield {"name": named(case), "of": of, "value": value, "unit": unit}


def _link_row(rate: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    cells = (
        ("CPU per packet", "us_per_packet", "us"),
        ("TUN copy", "copy_us_per_packet", "us"),
        ("over the copy", "over_copy", "x"),
        ("memory", "memory_mb", "MB"),
        ("release error p99", "late_p99_us", "us"),
    )
    for of, key, unit in cells:
        yield {"name": f"{rate['rate_mbps']:g} Mbit/s", "of": of, "value": rate[key], "unit": unit}
